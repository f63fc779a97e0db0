//! Which windows stand for a phase.
//!
//! This is the one place that chooses: remnants and the guard time around the boundaries are left out here.

use crate::edge::Role;
use crate::judge::Evidence;
use crate::window::{Failure, PhaseName, Window};

/// The least guard time after a boundary, nanoseconds.
const LEAST_GUARD_NS: u64 = 1_000_000_000;

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

/// Those of them that show the phase's steady state: a window that lies mostly in the guard time after the phase's begin is left
/// out, as long as two thirds of the windows remain.
///
/// Calls that started under the old state still end then, and the retries of the new one have not begun. For peaks, and for
/// the time that a recovery takes, those windows count: take [`of_phase`].
pub(crate) fn steady<'a>(evidence: &Evidence<'a>, phase: PhaseName) -> Vec<&'a Window> {
    let mut windows = of_phase(evidence, phase);
    let begin = evidence.phases.iter().find(|found| found.name == phase).map_or(0, |found| found.start_ns);
    let end = begin.saturating_add(guard_ns(evidence));
    let guarded = windows.iter().take_while(|window| f64::midpoint(window.start_ns as f64, window.end_ns as f64) < end as f64).count();
    let most = windows.len() / 3;
    windows.drain(..guarded.min(most));
    windows
}

/// A second; or as long as callers wait before they give an attempt up, if that is how attempts fail.
fn guard_ns(evidence: &Evidence<'_>) -> u64 {
    let (mut aborted, mut failed, mut times) = (0, 0, Vec::new());
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
    let usual = times.get(times.len() / 2).copied().filter(|_| aborted * 2 > failed);
    usual.unwrap_or(0).max(LEAST_GUARD_NS)
}

/// Their epochs.
pub(crate) fn epochs(windows: &[&Window]) -> Vec<u32> {
    windows.iter().map(|window| window.epoch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::tests::{Drill, seen};

    /// Epochs of the steady fault windows, of so many of so many milliseconds.
    fn steady_of(count: usize, length_ms: u64, change: impl Fn(&mut Window)) -> Vec<u32> {
        let mut drill = Drill::new().windows(PhaseName::Fault, count, seen(10), seen(10));
        for (index, window) in drill.windows.iter_mut().enumerate() {
            window.start_ns = index as u64 * length_ms * 1_000_000;
            window.end_ns = window.start_ns + length_ms * 1_000_000;
            change(window);
        }
        let phases = drill.phases();
        let evidence = Evidence {
            edges: &drill.edges,
            phases: &phases,
            windows: &drill.windows,
            faults: &drill.faults,
            load: None,
            held_up: &[],
            blind: None,
        };
        epochs(&steady(&evidence, PhaseName::Fault))
    }

    #[test]
    fn a_window_that_lies_mostly_in_the_guard_time_is_not_steady() {
        assert_eq!(steady_of(6, 10_000, |_| {}), [0, 1, 2, 3, 4, 5]);
        assert_eq!(steady_of(6, 2_000, |_| {}), [0, 1, 2, 3, 4, 5]);
        assert_eq!(steady_of(6, 1_000, |_| {}), [1, 2, 3, 4, 5]);
        assert_eq!(steady_of(6, 500, |_| {}), [2, 3, 4, 5]);
        assert_eq!(steady_of(6, 100, |_| {}), [2, 3, 4, 5], "two thirds remain");
        assert_eq!(steady_of(2, 100, |_| {}), [0, 1]);
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
        let evidence = Evidence {
            edges: &drill.edges,
            phases: &phases,
            windows: &drill.windows,
            faults: &drill.faults,
            load: None,
            held_up: &[],
            blind: None,
        };
        assert_eq!(epochs(&of_phase(&evidence, PhaseName::Fault)), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn callers_that_give_up_after_a_while_make_it_longer() {
        let gives_up = |window: &mut Window| {
            window.edges[1].failures = [(Failure::ClientAbort, 3), (Failure::Status, 1)].into();
            window.edges[1].failure_latency_ns = vec![1, 3_000_000_000, 3_000_000_000, 3_000_000_000];
        };
        assert_eq!(steady_of(9, 1_000, gives_up), [3, 4, 5, 6, 7, 8]);
    }
}
