//! What a running drill tells: to its event log, to the metrics, and to whoever asks for its phase.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::fault::FaultCounts;
use stormdrill_core::playbook::Playbook;
use stormdrill_core::report::json::window::WindowView;
use stormdrill_core::window::{PhaseName, Window, grown};

use super::log::EventLog;
use crate::clock;
use crate::driver::Progress;
use crate::metrics::{EdgeLabel, Metrics, Sampled};

/// Where a running drill is.
#[derive(Debug)]
pub struct Live {
    /// Its edges.
    pub edges: Vec<EdgeSpec>,
    now: Mutex<Now>,
}

/// The last that a running drill told.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// The phase, and the instant at which it is planned to end.
    pub phase: Option<(PhaseName, Option<u64>)>,
    /// The last final window.
    pub window: Option<WindowView>,
    /// What its faults did so far, by kind.
    pub faults: BTreeMap<&'static str, FaultCounts>,
}

impl Live {
    /// A drill that has told nothing yet.
    #[must_use]
    pub fn new(edges: &[EdgeSpec]) -> Self {
        Self { edges: edges.to_vec(), now: Mutex::default() }
    }

    /// What it told last.
    #[must_use]
    pub fn now(&self) -> Now {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes a drill's progress on.
#[derive(Debug)]
pub struct Reporter {
    id: String,
    /// By edge; `None` for one that is counted all the time and would be counted twice.
    labels: Vec<Option<EdgeLabel>>,
    log: Arc<EventLog>,
    live: Arc<Live>,
    metrics: Arc<Metrics>,
    faults: BTreeMap<&'static str, FaultCounts>,
    lost: u64,
}

impl Reporter {
    /// For one drill.
    #[must_use]
    pub fn new(id: &str, playbook: &Playbook, observed: &[EdgeSpec], log: Arc<EventLog>, live: Arc<Live>, metrics: Arc<Metrics>) -> Self {
        let is_new = |edge: &EdgeSpec| !observed.iter().any(|other| other.name == edge.name && other.role == edge.role);
        Self {
            id: id.to_owned(),
            labels: playbook.edges.iter().map(|edge| is_new(edge).then(|| metrics.label(edge))).collect(),
            log,
            live,
            metrics,
            faults: BTreeMap::new(),
            lost: 0,
        }
    }

    /// How many lost events were reported.
    #[must_use]
    pub const fn events_lost(&self) -> u64 {
        self.lost
    }
}

impl Progress for Reporter {
    fn phase(&mut self, name: PhaseName, until_ns: Option<u64>) {
        self.live.lock().phase = Some((name, until_ns));
        self.metrics.phase(&self.id, Some(name));
        let seconds = until_ns.map(|at_ns| clock::until(at_ns).as_secs_f64());
        self.log.push("phase", serde_json::json!({ "phase": name.as_str(), "seconds": seconds }).to_string());
    }

    fn window(&mut self, window: &Window) {
        self.lost += window.events_lost;
        self.metrics.lost(window.events_lost);
        self.metrics.sampled(Sampled::InADrill, window.sampling);
        for (at, (label, edge)) in self.labels.iter_mut().zip(&window.edges).enumerate() {
            if let Some(label) = label {
                self.metrics.speaks(label, &edge.counts.recognised, &edge.protocols);
                self.metrics.count(label, &edge.counts);
                self.metrics.answers(label, &edge.kernel_status, edge.counts.ok, edge.counts.errors);
                self.metrics.requests(label, edge, window.sampling_of(at));
            }
        }
        let view = WindowView::of(window, &self.live.edges);
        self.log.push("window", serde_json::to_string(&view).unwrap_or_default());
        self.live.lock().window = Some(view);
    }

    fn note(&mut self, text: &str) {
        tracing::info!(drill = self.id, "{text}");
        self.log.push("note", serde_json::json!({ "text": text }).to_string());
    }

    fn faults(&mut self, counts: &BTreeMap<&'static str, FaultCounts>) {
        for (kind, now) in counts {
            let before = self.faults.insert(kind, *now).unwrap_or_default();
            let more = FaultCounts {
                selected: grown(now.selected, before.selected),
                hit: grown(now.hit, before.hit),
                overflowed: grown(now.overflowed, before.overflowed),
            };
            self.metrics.fault(kind, more);
        }
        self.live.lock().faults.clone_from(counts);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.metrics.sampled(Sampled::InADrill, 1.0);
        for label in self.labels.iter().flatten() {
            self.metrics.unobserved(label);
        }
    }
}
