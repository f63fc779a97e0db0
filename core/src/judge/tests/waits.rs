//! Attempts that nobody answered are no quick ones.

use super::*;
use crate::judge::Verdict::{self, Fail, Inconclusive, Pass};
use crate::judge::guard::GuardState;
use crate::playbook::Guard;

const P50: Metric = Metric::Latency { quantile: 0.5 };

/// The usual drill, in whose fault windows from `first` on so many of a hundred were given up after so many seconds.
fn hanging(first: usize, hung: u64, seconds: u64, failure: Failure) -> Drill {
    let mut drill = Drill::usual(seen(100), seen(100));
    for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault).skip(first) {
        let edge = &mut window.edges[1];
        edge.latency_ns.truncate(usize::try_from(100 - hung).unwrap());
        edge.failures = [(failure, hung)].into();
        edge.failure_latency_ns = vec![seconds * 1_000_000_000; usize::try_from(hung).unwrap()];
    }
    drill
}

#[track_caller]
fn check(drill: &Drill, expectation: &Expectation, verdict: Verdict, reason: &str) {
    let got = drill.judge(expectation);
    assert_eq!(got.verdict, verdict, "{got:?}");
    assert!(got.reason.as_deref().unwrap_or("").contains(reason), "{got:?}");
}

#[test]
fn a_median_is_not_quick_where_most_hang() {
    let at_most = |seconds| limit(Some("db"), P50, Op::AtMost, seconds);
    let most = hanging(0, 84, 3, Failure::ClientAbort);
    check(&most, &at_most(1.0), Fail, "3 s is above the limit of 1 s");
    check(&most, &at_most(10.0), Inconclusive, "504 of 600 requests had no answer");
    check(&hanging(0, 10, 3, Failure::ClientAbort), &at_most(1.0), Pass, "");
    check(&hanging(0, 100, 3, Failure::Hang), &at_most(10.0), Inconclusive, "none of 600 requests was answered");
    check(&most, &increase(at_most(1.0)), Fail, "");
    // From the fourth window on nobody is answered, which the windows before do not make good.
    check(&hanging(3, 100, 3, Failure::ClientAbort), &in_every_window(at_most(1.0)), Fail, "3 of 6 windows");
    check(&hanging(3, 100, 3, Failure::ClientAbort), &in_every_window(at_most(10.0)), Inconclusive, "was answered");
}

#[test]
fn who_has_no_outcome_is_not_called_unseen() {
    let drill = Drill::usual(seen(100).pending(100), seen(100));
    for metric in [P50, Metric::SuccessRatio] {
        check(&drill, &limit(Some("db"), metric, Op::AtMost, 1.0), Inconclusive, "none of 600 requests was answered in the fault phase");
    }
    let half = Drill::usual(seen(100).pending(60), seen(100));
    check(&half, &limit(Some("db"), P50, Op::AtMost, 1.0), Inconclusive, "360 of 600 requests had no answer");
}

#[test]
fn a_guard_on_latency_sees_that_nobody_is_answered() {
    let guard = Guard {
        text: String::new(),
        edge: Some("db".to_owned()),
        metric: Metric::Latency { quantile: 0.99 },
        op: Op::Greater,
        value: 1.0,
        windows: 2,
    };
    let drill = hanging(0, 100, 3, Failure::Hang);
    let mut state = GuardState::new(&guard, &drill.edges);
    let tripped = drill.windows.iter().position(|window| state.observe(window).is_some());
    assert_eq!(tripped, Some(7));
}

#[test]
fn a_failure_that_still_hung_has_no_end() {
    let p99 = |seconds| limit(Some("db"), Metric::FailureLatency { quantile: 0.99 }, Op::AtMost, seconds);
    let drill = hanging(0, 60, 7, Failure::Hang);
    check(&drill, &p99(10.0), Inconclusive, "360 of 360 failed requests still hung");
    check(&drill, &p99(5.0), Fail, "7 s is above");
    check(&hanging(0, 60, 7, Failure::ClientAbort), &p99(10.0), Pass, "");
    check(&hanging(0, 2, 7, Failure::Hang), &p99(10.0), Inconclusive, "still hung");
}

#[test]
fn a_latency_that_nobody_saw_has_not_recovered() {
    let mut drill = Drill::usual(seen(100), seen(100));
    for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Recovery) {
        let edge = &mut window.edges[1];
        edge.latency_ns.truncate(20);
        edge.failures = [(Failure::ClientAbort, 80)].into();
        edge.failure_latency_ns = vec![3_000_000; 80];
    }
    check(&drill, &recovers(P50, Some(0.1), Within::Windows(1)), Inconclusive, "");
}
