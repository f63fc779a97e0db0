//! Guards: conditions that end a drill early when they hold for some closed windows in a row.
//!
//! Two things must come together. The plain value of each of those windows is beyond the limit; and the evidence that the truth is,
//! gathered since the phase began, rules out chance ([`crate::stats::evidence`]). The second keeps a guard that is looked at every second from
//! crying wolf in a quarter of all drills; where a window has many requests, the first decides. A number that is a fact
//! (connections, attempts of one request) needs no evidence.

use crate::edge::EdgeSpec;
use crate::event::Epoch;
use crate::expectation::{Metric, Op};
use crate::judge::health::Basis;
use crate::judge::limit::compare;
use crate::judge::measure::{self, Gap, Scene};
use crate::judge::sample::Sample;
use crate::judge::wording::{self, counted, quantity};
use crate::judge::{ALPHA, doubt};
use crate::playbook::Guard;
use crate::stats::evidence::{Evidence, Side};
use crate::stats::{Interval, Tails};
use crate::window::{EdgeWindow, PhaseName, Window};

mod look;

/// Evidence that is enough: a guard that is never due trips in at most one drill of twenty, over its three phases.
const ENOUGH: f64 = 3.0 / ALPHA;

/// One guard and what it has seen.
#[derive(Debug, Clone)]
pub struct GuardState {
    guard: Guard,
    edges: Vec<EdgeSpec>,
    /// Windows in a row, by edge, in which the condition held.
    streaks: Vec<u32>,
    /// Evidence since the phase began, by edge.
    evidence: Vec<Option<Evidence>>,
    /// Looks since the phase began at what does not add up to evidence, by edge.
    looks: Vec<u32>,
    phase: Option<PhaseName>,
    /// The baseline's windows, if the metric is measured against them.
    baseline: Vec<Window>,
    /// What was opened and closed so far, if the metric is about what is open.
    history: Vec<Window>,
    /// By edge: what is known of its attempts is needed.
    needed: Vec<bool>,
    /// Windows before this one were seen.
    next: Epoch,
}

impl GuardState {
    /// A guard that has seen nothing yet; `edges` by [`crate::edge::EdgeId`].
    #[must_use]
    pub fn new(guard: &Guard, edges: &[EdgeSpec]) -> Self {
        let metric = guard.metric;
        let needs = |spec: &EdgeSpec| {
            doubt::basis(metric) == Basis::Events
                && measure::applies_to(metric, spec.role)
                && guard.edge.as_ref().is_none_or(|name| *name == spec.name)
        };
        Self {
            needed: edges.iter().map(needs).collect(),
            next: 0,
            guard: guard.clone(),
            edges: edges.to_vec(),
            streaks: vec![0; edges.len()],
            evidence: vec![None; edges.len()],
            looks: vec![0; edges.len()],
            phase: None,
            baseline: Vec::new(),
            history: Vec::new(),
        }
    }

    /// Takes the windows that are not final and yet hold all that this guard asks of them, so that it does not wait for attempts on edges that it does
    /// not name: one that hangs would be waited for until the horizon. `ahead` gives them from an epoch on, complete on the edges that it is given
    /// (by [`crate::edge::EdgeId`]), in order of time. `Some` says why the drill must end.
    pub fn look_ahead(&mut self, ahead: impl FnOnce(Epoch, &[bool]) -> Vec<Window>) -> Option<String> {
        let windows = ahead(self.next, &self.needed);
        windows.iter().find_map(|window| self.observe(window))
    }

    /// Takes the next closed window, in order of time; what was seen ahead is passed over. `Some` says why the drill must end.
    ///
    /// A window that cannot be measured (no request, or no baseline yet) or lies between phases neither lengthens nor breaks a row.
    pub fn observe(&mut self, window: &Window) -> Option<String> {
        if window.epoch < self.next {
            return None;
        }
        self.next = window.epoch.saturating_add(1);
        if window.phase == PhaseName::Baseline {
            self.baseline.push(counts_only(window));
        }
        if self.guard.metric == Metric::Connections {
            self.history.push(counts_only(window));
        }
        if window.phase == PhaseName::Transition || window.seconds() <= 0.0 {
            return None;
        }
        if self.phase.replace(window.phase) != Some(window.phase) {
            self.evidence.fill(None);
            self.looks.fill(0);
        }
        let mut tripped = None;
        for edge in 0..self.edges.len() {
            if !self.watches(edge) {
                continue;
            }
            let Some(value) = self.value(edge, window) else {
                continue;
            };
            let Some(sample) = value else {
                self.streaks[edge] = 0;
                continue;
            };
            let shown = self.is_shown(edge, &sample);
            let value = sample.value();
            if !compare(self.guard.op, value, self.guard.value) {
                self.streaks[edge] = 0;
                continue;
            }
            self.streaks[edge] += 1;
            if shown && self.streaks[edge] >= self.guard.windows.max(1) && tripped.is_none() {
                tripped = Some(self.sentence(edge, value));
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

    /// Adds the window's evidence, and says whether there is enough.
    fn is_shown(&mut self, edge: usize, sample: &Sample) -> bool {
        let side = match self.guard.op {
            Op::Less | Op::AtMost => Side::Below,
            Op::Greater | Op::AtLeast => Side::Above,
        };
        match look::look(sample, self.guard.value, side) {
            Some((look, side)) => self.evidence[edge].get_or_insert_with(|| Evidence::new(side)).look(look) >= ENOUGH,
            // A fact has no interval; what is told of one window must be shown in it. Each look gets its part of the error probability, and all
            // parts together are the whole: 1/2 + 1/6 + 1/12 + …
            None => {
                self.looks[edge] = self.looks[edge].saturating_add(1);
                let look = f64::from(self.looks[edge]);
                let Interval { lo, hi } = sample.interval(Tails::each(1.0 / (ENOUGH * look * (look + 1.0))), 1.0);
                compare(self.guard.op, lo, self.guard.value) && compare(self.guard.op, hi, self.guard.value)
            }
        }
    }

    /// The window's sample; `Some(None)` if there was nothing that could be too high, `None` if it is not known.
    #[expect(clippy::option_option, reason = "unknown and nothing to measure are different answers")]
    fn value(&self, edge: usize, window: &Window) -> Option<Option<Sample>> {
        let judged = [window];
        let baseline: Vec<&Window> = self.baseline.iter().collect();
        let scene =
            Scene { edges: &self.edges, edge, judged: &judged, baseline: &baseline, all: &self.history, phase: window.phase.as_str() };
        match measure::absolute(self.guard.metric, scene) {
            Ok(sample) => Some(Some(sample)),
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
