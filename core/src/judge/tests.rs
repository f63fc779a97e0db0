//! Judgements on hand-built drills: a builder, and one file per question.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its drill has failed")]

use std::collections::BTreeMap;

use crate::edge::{EdgeSpec, Role};
use crate::expectation::{Demand, Expectation, Metric, Op, RetryBase, Within};
use crate::fault::{Backend, Direction, Distribution, FaultCounts, FaultKind, FaultOutcome, FaultSpec};
use crate::judge::{Evidence, HeldUp, Judgement, LoadHealth, judge};
use crate::window::{EdgeCounts, EdgeWindow, Failure, Phase, PhaseName, Retries, Window};

mod arrivals;
mod boundaries;
mod doubts;
mod every_window;
mod guards;
mod hostile;
mod limits;
mod metastable;
mod metrics;
mod recoveries;
mod sampled;
mod samples;
mod waits;

/// Length of the builder's windows.
pub(crate) const SECONDS: u64 = 10;

/// What one edge saw in one window, in short.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) requests: u64,
    pub(crate) retries: u64,
    pub(crate) failures: u64,
    pub(crate) pending: u64,
    /// Milliseconds that each failed request took.
    pub(crate) failed_after_ms: u64,
    /// Milliseconds that each answer took.
    pub(crate) latency_ms: u64,
}

pub(crate) fn seen(requests: u64) -> Seen {
    Seen { requests, failed_after_ms: 50, latency_ms: 5, ..Seen::default() }
}

impl Seen {
    pub(crate) fn retries(self, retries: u64) -> Self {
        Self { retries, ..self }
    }

    pub(crate) fn failures(self, failures: u64) -> Self {
        Self { failures, ..self }
    }

    pub(crate) fn pending(self, pending: u64) -> Self {
        Self { pending, ..self }
    }

    pub(crate) fn failed_after(self, failed_after_ms: u64) -> Self {
        Self { failed_after_ms, ..self }
    }

    pub(crate) fn latency(self, latency_ms: u64) -> Self {
        Self { latency_ms, ..self }
    }

    pub(crate) fn window(self) -> EdgeWindow {
        let failures = self.failures.min(self.requests);
        let answered = usize::try_from(self.requests - failures - self.pending).unwrap();
        let failed = usize::try_from(failures).unwrap();
        EdgeWindow {
            counts: EdgeCounts {
                requests: self.requests,
                responses: self.requests - self.pending,
                connections_opened: 2,
                connections_closed: 1,
                ..EdgeCounts::default()
            },
            attempts: self.requests,
            retries: Retries { marker: 0, id: 0, matched: self.retries },
            status: BTreeMap::from([("200".to_owned(), self.requests - failures), ("503".to_owned(), failures)]),
            failures: BTreeMap::from([(Failure::Status, failures)]),
            pending: self.pending,
            latency_ns: vec![self.latency_ms * 1_000_000; answered],
            failure_latency_ns: vec![self.failed_after_ms * 1_000_000; failed],
            ..EdgeWindow::default()
        }
    }
}

/// A drill on two edges, `web` coming in and `db` going out, with one fault on `db`.
#[derive(Debug, Clone)]
pub(crate) struct Drill {
    pub(crate) edges: Vec<EdgeSpec>,
    pub(crate) windows: Vec<Window>,
    pub(crate) faults: Vec<FaultOutcome>,
    pub(crate) load: Option<LoadHealth>,
    pub(crate) held_up: Vec<HeldUp>,
    pub(crate) blind: Option<String>,
}

impl Drill {
    pub(crate) fn new() -> Self {
        let edge = |name: &str, role| EdgeSpec { name: name.to_owned(), role, address: None, ports: None, protocol: None };
        Self {
            edges: vec![edge("web", Role::Ingress), edge("db", Role::Downstream)],
            windows: Vec::new(),
            faults: vec![http_status(400, 100)],
            load: None,
            held_up: Vec::new(),
            blind: None,
        }
    }

    /// Adds `count` windows in which `web` and `db` saw this.
    pub(crate) fn windows(mut self, phase: PhaseName, count: usize, web: Seen, db: Seen) -> Self {
        for _ in 0..count {
            self = self.window(phase, &[web, db]);
        }
        self
    }

    /// Adds one window with what each edge saw.
    pub(crate) fn window(mut self, phase: PhaseName, edges: &[Seen]) -> Self {
        let index = u32::try_from(self.windows.len()).unwrap();
        let start_ns = u64::from(index + 1) * SECONDS * 1_000_000_000;
        self.windows.push(Window {
            epoch: index,
            phase,
            start_ns,
            end_ns: start_ns + SECONDS * 1_000_000_000,
            edges: edges.iter().map(|seen| seen.window()).collect(),
            events_lost: 0,
            sampling: 1.0,
        });
        self
    }

    /// The usual drill: six calm windows, six in the fault, three after it, each of 100 requests.
    pub(crate) fn usual(fault: Seen, recovery: Seen) -> Self {
        let calm = seen(100);
        Self::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, fault).windows(
            PhaseName::Recovery,
            3,
            calm,
            recovery,
        )
    }

    pub(crate) fn phases(&self) -> Vec<Phase> {
        [PhaseName::Baseline, PhaseName::Fault, PhaseName::Recovery]
            .into_iter()
            .filter_map(|name| {
                let mut windows = self.windows.iter().filter(|window| window.phase == name);
                let first = windows.next()?;
                Some(Phase { name, start_ns: first.start_ns, end_ns: windows.next_back().unwrap_or(first).end_ns })
            })
            .collect()
    }

    pub(crate) fn evidence<'a>(&'a self, phases: &'a [Phase]) -> Evidence<'a> {
        Evidence {
            edges: &self.edges,
            phases,
            windows: &self.windows,
            faults: &self.faults,
            load: self.load,
            held_up: &self.held_up,
            blind: self.blind.as_deref(),
        }
    }

    pub(crate) fn judge(&self, expectation: &Expectation) -> Judgement {
        judge(std::slice::from_ref(expectation), &self.evidence(&self.phases())).remove(0)
    }
}

pub(crate) fn http_status(selected: u64, hit: u64) -> FaultOutcome {
    outcome(FaultKind::HttpStatus { status: 503, share: 0.3 }, Backend::EbpfHttpStatus, selected, hit)
}

pub(crate) fn loss(selected: u64, hit: u64) -> FaultOutcome {
    outcome(FaultKind::Loss { share: 0.3 }, Backend::Netem, selected, hit)
}

pub(crate) fn delay(selected: u64, hit: u64) -> FaultOutcome {
    let kind = FaultKind::Delay {
        time: std::time::Duration::from_millis(100),
        jitter: std::time::Duration::ZERO,
        distribution: Distribution::Uniform,
    };
    outcome(kind, Backend::Netem, selected, hit)
}

fn outcome(kind: FaultKind, backend: Backend, selected: u64, hit: u64) -> FaultOutcome {
    FaultOutcome {
        spec: FaultSpec { direction: Direction::Both, ..FaultSpec::new(kind, "db") },
        backend,
        applied_ns: 70_000_000_000,
        removed_ns: Some(130_000_000_000),
        counts: FaultCounts { selected, hit, overflowed: 0 },
    }
}

/// `[edge] metric op value` in the fault phase.
pub(crate) fn limit(edge: Option<&str>, metric: Metric, op: Op, value: f64) -> Expectation {
    Expectation {
        text: "as tested".to_owned(),
        edge: edge.map(str::to_owned),
        metric,
        demand: Demand::Limit { op, value, increase: false, phase: PhaseName::Fault, every_window: false },
    }
}

/// `downstream QPS increase ≤ 20%`.
pub(crate) fn qps_increase_at_most(share: f64) -> Expectation {
    increase(limit(None, Metric::DownstreamQps, Op::AtMost, share))
}

pub(crate) fn increase(mut expectation: Expectation) -> Expectation {
    if let Demand::Limit { increase, .. } = &mut expectation.demand {
        *increase = true;
    }
    expectation
}

pub(crate) fn during(mut expectation: Expectation, judged: PhaseName) -> Expectation {
    if let Demand::Limit { phase, .. } = &mut expectation.demand {
        *phase = judged;
    }
    expectation
}

pub(crate) fn in_every_window(mut expectation: Expectation) -> Expectation {
    if let Demand::Limit { every_window, .. } = &mut expectation.demand {
        *every_window = true;
    }
    expectation
}

pub(crate) fn recovers(metric: Metric, to: Option<f64>, within: Within) -> Expectation {
    Expectation { text: "as tested".to_owned(), edge: Some("db".to_owned()), metric, demand: Demand::Recovers { to, within } }
}

pub(crate) const RETRY_RATIO: Metric = Metric::RetryRatio { of: RetryBase::All };
