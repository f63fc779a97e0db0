//! Guards: conditions that end a drill early when they hold for some closed windows in a row.
//!
//! A guard goes by the plain value of each window. Ending a drill for nothing costs a repetition; not ending it may cost
//! an outage.

use crate::edge::EdgeSpec;
use crate::expectation::Metric;
use crate::judge::limit::compare;
use crate::judge::measure::{self, Gap, Scene};
use crate::judge::wording::{self, counted, quantity};
use crate::playbook::Guard;
use crate::window::{EdgeWindow, PhaseName, Window};

/// One guard and what it has seen.
#[derive(Debug, Clone)]
pub struct GuardState {
    guard: Guard,
    edges: Vec<EdgeSpec>,
    /// Windows in a row, by edge, in which the condition held.
    streaks: Vec<u32>,
    /// The baseline's windows, if the metric is measured against them.
    baseline: Vec<Window>,
    /// What was opened and closed so far, if the metric is about what is open.
    history: Vec<Window>,
}

impl GuardState {
    /// A guard that has seen nothing yet; `edges` by [`crate::edge::EdgeId`].
    #[must_use]
    pub fn new(guard: &Guard, edges: &[EdgeSpec]) -> Self {
        Self { guard: guard.clone(), edges: edges.to_vec(), streaks: vec![0; edges.len()], baseline: Vec::new(), history: Vec::new() }
    }

    /// Takes the next closed window, in order of time. `Some` says why the drill must end.
    ///
    /// A window that cannot be measured (no request, or no baseline yet) or lies between phases neither lengthens nor breaks a row.
    pub fn observe(&mut self, window: &Window) -> Option<String> {
        if window.phase == PhaseName::Baseline && self.guard.metric == Metric::Amplification {
            self.baseline.push(window.clone());
        }
        if self.guard.metric == Metric::Connections {
            self.history.push(counts_only(window));
        }
        if window.phase == PhaseName::Transition || window.seconds() <= 0.0 {
            return None;
        }
        let mut tripped = None;
        for edge in 0..self.edges.len() {
            if !self.watches(edge) {
                continue;
            }
            let Some(value) = self.value(edge, window) else {
                continue;
            };
            if !value.is_some_and(|value| compare(self.guard.op, value, self.guard.value)) {
                self.streaks[edge] = 0;
                continue;
            }
            self.streaks[edge] += 1;
            if self.streaks[edge] >= self.guard.windows.max(1) && tripped.is_none() {
                tripped = value.map(|value| self.sentence(edge, value));
            }
        }
        tripped
    }

    fn watches(&self, edge: usize) -> bool {
        let spec = &self.edges[edge];
        let first = self.edges.iter().position(|other| measure::applies_to(self.guard.metric, other.role));
        if self.guard.metric.is_of_drill() && first != Some(edge) {
            return false;
        }
        measure::applies_to(self.guard.metric, spec.role) && self.guard.edge.as_ref().is_none_or(|name| *name == spec.name)
    }

    /// The window's value; `Some(None)` if there was nothing that could be too high, `None` if it is not known.
    #[expect(clippy::option_option, reason = "unknown and nothing to measure are different answers")]
    fn value(&self, edge: usize, window: &Window) -> Option<Option<f64>> {
        let judged = [window];
        let baseline: Vec<&Window> = self.baseline.iter().collect();
        let scene =
            Scene { edges: &self.edges, edge, judged: &judged, baseline: &baseline, all: &self.history, phase: window.phase.as_str() };
        match measure::absolute(self.guard.metric, scene) {
            Ok(sample) => Some(Some(sample.value())),
            Err(Gap::NoFailure(_)) => Some(None),
            Err(_) => None,
        }
    }

    fn sentence(&self, edge: usize, value: f64) -> String {
        let unit = wording::unit_of(self.guard.metric);
        format!(
            "guard `{}`: {} of {} was {} for {}",
            self.guard.text,
            self.guard.metric,
            if self.guard.metric.is_of_drill() { "the drill" } else { &self.edges[edge].name },
            quantity(value, unit),
            counted(u64::from(self.guard.windows.max(1)), "window"),
        )
    }
}

/// The kernel's counts alone: a guard must not hold the drill's latencies a second time.
fn counts_only(window: &Window) -> Window {
    let edges = window.edges.iter().map(|edge| EdgeWindow { counts: edge.counts, ..EdgeWindow::default() }).collect();
    Window { edges, ..*window }
}
