//! Simulated drills: windows by what is drawn for them, and the answers to a line of `expect:`.

use super::Study;
use crate::expectation::grammar::parse_expectation;
use crate::judge::Verdict;
use crate::judge::tests::{Drill, http_status};
use crate::stats::simulation::Random;
use crate::track::burst::Burst;
use crate::window::{EdgeCounts, EdgeWindow, Failure, PhaseName, Retries, Window};

/// Windows of ten seconds.
pub(super) const SECONDS: f64 = 10.0;

/// What one edge saw in a window.
#[derive(Debug, Clone, Default)]
pub(super) struct Drawn {
    pub(super) requests: u64,
    pub(super) retries: u64,
    pub(super) failures: u64,
    /// The failures that hung.
    pub(super) hangs: u64,
    pub(super) retransmits: u64,
    pub(super) latency_ns: Vec<u64>,
    pub(super) failure_latency_ns: Vec<u64>,
    pub(super) first_gaps_ns: Vec<u64>,
    /// Of those who gave up, how long they had waited: they are failures beyond `failures`.
    pub(super) given_up_ns: Vec<u64>,
    pub(super) burst: Burst,
}

impl Drawn {
    pub(super) fn requests(requests: u64) -> Self {
        Self { requests, ..Self::default() }
    }

    fn window(self) -> EdgeWindow {
        EdgeWindow {
            counts: EdgeCounts { requests: self.requests, tcp_retransmits: self.retransmits, ..EdgeCounts::default() },
            attempts: self.requests,
            retries: Retries { marker: self.retries, ..Retries::default() },
            failures: [
                (Failure::Status, self.failures - self.hangs),
                (Failure::Hang, self.hangs),
                (Failure::ClientAbort, self.given_up_ns.len() as u64),
            ]
            .into(),
            latency_ns: self.latency_ns,
            failure_latency_ns: [self.failure_latency_ns, self.given_up_ns.clone()].concat(),
            waited_ns: self.given_up_ns,
            burst: self.burst,
            first_gaps_ns: self.first_gaps_ns,
            ..EdgeWindow::default()
        }
    }
}

/// Requests by their mean.
pub(super) fn poisson(random: &mut Random, mean: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole count")]
    let count = random.poisson(mean) as u64;
    count
}

/// Hits among so many chances.
pub(super) fn binomial(random: &mut Random, of: u64, share: f64) -> u64 {
    (0..of).map(|_| u64::from(random.happens(share))).sum()
}

/// A time with that mean, exponential: nanoseconds.
pub(super) fn time(random: &mut Random, mean_ns: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some seconds at most")]
    let time = (-mean_ns * random.uniform().ln()) as u64;
    time
}

/// So many windows of each phase, on the edges `web` and `db`, by what `draw` gives for the two.
pub(super) fn drill(windows: [u32; 3], mut draw: impl FnMut(PhaseName, u32) -> [Drawn; 2]) -> Drill {
    let mut drill = Drill::new();
    drill.faults = vec![http_status(400, 100)];
    let phases = [PhaseName::Baseline, PhaseName::Fault, PhaseName::Recovery];
    for (phase, count) in phases.into_iter().zip(windows) {
        for index in 0..count {
            add(&mut drill, phase, draw(phase, index).into());
        }
    }
    drill
}

pub(super) fn add(drill: &mut Drill, phase: PhaseName, edges: Vec<Drawn>) {
    let epoch = u32::try_from(drill.windows.len()).unwrap_or(u32::MAX);
    let start_ns = u64::from(epoch) * 10_000_000_000;
    let edges = edges.into_iter().map(Drawn::window).collect();
    drill.windows.push(Window { epoch, phase, start_ns, end_ns: start_ns + 10_000_000_000, edges, events_lost: 0, sampling: 1.0 });
}

/// The verdict on a line, as a playbook has it.
pub(super) fn verdict(drill: &Drill, line: &str) -> Verdict {
    let expectation = parse_expectation(line, &drill.edges).unwrap_or_else(|error| panic!("{line}: {error:?}"));
    drill.judge(&expectation).verdict
}

/// Both errors on the limit itself.
pub(super) fn on_the_limit(test: &str, line: &str, stated: f64, draw: impl Fn(&mut Random) -> Drill) {
    Study { test, error: "on the limit: fail", stated }.run(|random| verdict(&draw(random), line) == Verdict::Fail);
    Study { test, error: "on the limit: pass", stated }.run(|random| verdict(&draw(random), line) == Verdict::Pass);
}

/// So many retries over 2 s, the first and the last at its ends; each of the others is in one certain hundredth of a second `peak` times as likely as
/// in any other.
pub(super) fn burst(random: &mut Random, retries: u64, peak: f64) -> Burst {
    const BINS: f64 = 200.0;
    let mut bins = vec![0, 199];
    bins.extend((2..retries).map(|_| {
        let at = random.uniform() * (BINS - 1.0 + peak);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "one of two hundred")]
        let bin = if at < BINS - 1.0 { at as u64 } else { 199 };
        if bin < 100 {
            bin
        } else if bin == 199 {
            100
        } else {
            bin + 1
        }
    }));
    bins.sort_unstable();
    let mut burst = Burst::default();
    bins.into_iter().for_each(|bin: u64| burst.add(bin * 10_000_000));
    burst
}
