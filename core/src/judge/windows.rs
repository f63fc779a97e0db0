//! Which windows stand for a phase.
//!
//! This is the one place that chooses: remnants, and what the beginning of a phase has to leave out.
//!
//! A fault's boundaries need no guard time. The fault phase's first window is opened after the kernel has acknowledged the last change, and the
//! time of the changes themselves lies in a transition window, which is judged by nobody; so every attempt of the phase started under the whole
//! fault. A burst of retries in its first second is what drills are for.

use crate::edge::Role;
use crate::judge::Evidence;
use crate::window::{Failure, PhaseName, Window};

/// How long observation takes to get going: connections that it has not seen opened, a load's first connects. Nanoseconds.
const WARM_UP_NS: u64 = 1_000_000_000;

/// The windows of `phase` that may be judged, in order of time.
///
/// A remnant at the phase's end, shorter than half of the usual window, is left out: it is too short to be a window like the others. The
/// usual one is the middle one by length, since a driver that was held up makes a long one.
pub(crate) fn of_phase<'a>(evidence: &Evidence<'a>, phase: PhaseName) -> Vec<&'a Window> {
    let mut windows: Vec<&Window> = evidence.windows.iter().filter(|window| window.phase == phase && window.seconds() > 0.0).collect();
    let mut lengths: Vec<f64> = windows.iter().map(|window| window.seconds()).collect();
    lengths.sort_unstable_by(f64::total_cmp);
    let usual = lengths.get(lengths.len() / 2).copied().unwrap_or(0.0);
    windows.pop_if(|last| last.seconds() < usual / 2.0);
    windows
}

/// Those of them that show the phase's steady state. For peaks, and for the time that a recovery takes, all count: take [`of_phase`].
///
/// In the baseline, the windows that lie mostly in its first second are left out. In the fault, those that lie mostly in the time for which
/// callers wait before they give an attempt up, if that is how attempts fail, up to the first window that has a retry: nothing that the fault did
/// could be seen in them yet, and they would dilute what comes. Two thirds of the windows remain in any case.
pub(crate) fn steady<'a>(evidence: &Evidence<'a>, phase: PhaseName) -> Vec<&'a Window> {
    let mut windows = of_phase(evidence, phase);
    let (wait_ns, or_until_retried) = match phase {
        PhaseName::Baseline => (WARM_UP_NS, false),
        PhaseName::Fault => (patience_ns(evidence), true),
        PhaseName::Recovery | PhaseName::Transition | PhaseName::All => return windows,
    };
    let begin = evidence.phases.iter().find(|found| found.name == phase).map_or(0, |found| found.start_ns);
    let end = begin.saturating_add(wait_ns);
    let left_out = windows.iter().take_while(|window| {
        let is_early = f64::midpoint(window.start_ns as f64, window.end_ns as f64) < end as f64;
        is_early && !(or_until_retried && is_retried(window))
    });
    let left_out = left_out.count().min(windows.len() / 3);
    windows.drain(..left_out);
    windows
}

fn is_retried(window: &Window) -> bool {
    window.edges.iter().any(|edge| edge.retries.total() > 0)
}

/// As long as callers wait before they give an attempt up, if that is how most attempts fail; else nothing.
fn patience_ns(evidence: &Evidence<'_>) -> u64 {
    let (mut aborted, mut failed, mut times) = (0_u64, 0_u64, Vec::new());
    for window in evidence.windows.iter().filter(|window| window.phase == PhaseName::Fault) {
        for (spec, edge) in evidence.edges.iter().zip(&window.edges) {
            if spec.role == Role::Downstream {
                aborted += edge.failures.get(&Failure::ClientAbort).copied().unwrap_or(0);
                failed += edge.failures.values().sum::<u64>();
                times.extend_from_slice(&edge.failure_latency_ns);
            }
        }
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().filter(|_| aborted * 2 > failed).unwrap_or(0)
}

/// Their epochs.
pub(crate) fn epochs(windows: &[&Window]) -> Vec<u32> {
    windows.iter().map(|window| window.epoch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::{Drill, seen};

    /// Epochs of the steady windows of a phase of so many of so many milliseconds.
    fn steady_of(phase: PhaseName, count: usize, length_ms: u64, change: impl Fn(&mut Window)) -> Vec<u32> {
        let mut drill = Drill::new().windows(phase, count, seen(10), seen(10));
        for (index, window) in drill.windows.iter_mut().enumerate() {
            window.start_ns = index as u64 * length_ms * 1_000_000;
            window.end_ns = window.start_ns + length_ms * 1_000_000;
            change(window);
        }
        let phases = drill.phases();
        let evidence = drill.evidence(&phases);
        epochs(&steady(&evidence, phase))
    }

    #[test]
    fn the_baselines_first_second_is_not_steady() {
        let baseline = |count, length_ms| steady_of(PhaseName::Baseline, count, length_ms, |_| {});
        assert_eq!(baseline(6, 10_000), [0, 1, 2, 3, 4, 5]);
        assert_eq!(baseline(6, 2_000), [0, 1, 2, 3, 4, 5]);
        assert_eq!(baseline(6, 1_000), [1, 2, 3, 4, 5]);
        assert_eq!(baseline(6, 500), [2, 3, 4, 5]);
        assert_eq!(baseline(6, 100), [2, 3, 4, 5], "two thirds remain");
        assert_eq!(baseline(2, 100), [0, 1]);
    }

    #[test]
    fn a_fault_is_judged_from_its_first_window_on() {
        for length_ms in [100, 1_000, 10_000] {
            assert_eq!(steady_of(PhaseName::Fault, 6, length_ms, |_| {}), [0, 1, 2, 3, 4, 5], "{length_ms}");
        }
    }

    #[test]
    fn one_long_window_makes_no_remnants_of_the_others() {
        let mut drill = Drill::new().windows(PhaseName::Fault, 6, seen(10), seen(10));
        let mut end_ns = 0;
        for (window, length_ms) in drill.windows.iter_mut().zip([500, 500, 3_000, 500, 500, 200]) {
            window.start_ns = end_ns;
            end_ns += length_ms * 1_000_000;
            window.end_ns = end_ns;
        }
        let phases = drill.phases();
        let evidence = drill.evidence(&phases);
        assert_eq!(epochs(&of_phase(&evidence, PhaseName::Fault)), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn while_callers_still_wait_nothing_can_be_seen() {
        let gives_up = |window: &mut Window| {
            window.edges[1].failures = [(Failure::ClientAbort, 3), (Failure::Status, 1)].into();
            window.edges[1].failure_latency_ns = vec![1, 3_000_000_000, 3_000_000_000, 3_000_000_000];
        };
        assert_eq!(steady_of(PhaseName::Fault, 9, 1_000, gives_up), [3, 4, 5, 6, 7, 8]);
        let retries_early = |window: &mut Window| {
            gives_up(window);
            window.edges[1].retries.matched = u64::from(window.epoch == 1);
        };
        assert_eq!(steady_of(PhaseName::Fault, 9, 1_000, retries_early), [1, 2, 3, 4, 5, 6, 7, 8], "what was retried is seen");
    }
}
