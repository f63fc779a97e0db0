//! `recovers within`.

use std::time::Duration;

use super::*;
use crate::judge::Verdict::{self, Fail, Inconclusive, Pass};

/// A drill whose recovery windows have so many retries in 100 attempts.
fn after(retries: &[u64]) -> Drill {
    after_of(100, retries)
}

fn after_of(attempts: u64, retries: &[u64]) -> Drill {
    let calm = seen(100);
    let mut drill = Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, seen(200).retries(100));
    for &retries in retries {
        drill = drill.window(PhaseName::Recovery, &[calm, seen(attempts).retries(retries)]);
    }
    drill
}

fn check(drill: &Drill, within: Within, verdict: Verdict, observed: Option<f64>, reason: &str) {
    let got = drill.judge(&recovers(RETRY_RATIO, None, within));
    assert_eq!(got.verdict, verdict, "{got:?}");
    assert_eq!(got.observed, observed, "{got:?}");
    assert_eq!(got.phase, PhaseName::Recovery);
    assert!(got.reason.as_deref().unwrap_or("").contains(reason), "{got:?}");
}

#[test]
fn counts_the_windows_until_two_hold() {
    let two = Within::Windows(2);
    check(&after(&[0, 0, 0]), two, Pass, Some(1.0), "");
    check(&after(&[30, 1, 0]), two, Pass, Some(2.0), "");
    check(&after(&[30, 30, 0, 0]), two, Fail, Some(3.0), "only after 3 windows (2 windows allowed)");
    check(&after(&[0, 30, 0, 0]), two, Fail, Some(3.0), "");
    check(&after(&[30, 30, 30, 30]), two, Fail, None, "not back at 2% in 4 windows: 30%, 30%, 30%, 30%");
}

#[test]
fn the_last_window_may_stand_alone() {
    check(&after(&[30, 0]), Within::Windows(2), Pass, Some(2.0), "");
}

#[test]
fn a_horizon_that_is_too_short_cannot_fail() {
    check(&after(&[30]), Within::Windows(2), Inconclusive, None, "only 1 window, of 2 allowed");
    check(&after(&[]), Within::Windows(2), Inconclusive, None, "no window of the recovery phase");
    check(&after(&[0, 0]), Within::Windows(5), Pass, Some(1.0), "");
}

#[test]
fn quiet_windows_neither_hold_nor_fail() {
    check(&after_of(5, &[0, 0, 0]), Within::Windows(2), Inconclusive, None, "no window after the fault had 30 attempts");
    // Two retries of forty are above 2%, but do not show it.
    check(&after_of(40, &[2, 2, 2]), Within::Windows(2), Inconclusive, None, "too little traffic");
    check(&after_of(40, &[12, 12, 12]), Within::Windows(2), Fail, None, "");
}

#[test]
fn time_is_held_against_the_ends_of_windows() {
    let seconds = |seconds| Within::Time(Duration::from_secs(seconds));
    check(&after(&[30, 0, 0]), seconds(20), Pass, Some(20.0), "");
    check(&after(&[30, 0, 0]), seconds(10), Fail, Some(20.0), "20 s (10 s allowed)");
    check(&after(&[30, 0, 0]), seconds(15), Inconclusive, None, "between 10 s and 20 s");
    check(&after(&[0, 0, 0]), seconds(15), Pass, Some(10.0), "");
    check(&after(&[0, 0, 0]), seconds(5), Inconclusive, None, "between 0 s and 10 s");
    let got = after(&[30, 0, 0]).judge(&recovers(RETRY_RATIO, None, seconds(20)));
    assert_eq!((got.unit, got.limit), ("s", Some(20.0)));
}

#[test]
fn the_level_may_be_given() {
    let to = |level| recovers(RETRY_RATIO, Some(level), Within::Windows(1));
    assert_eq!(after(&[9, 9]).judge(&to(0.1)).verdict, Pass);
    assert_eq!(after(&[30, 30]).judge(&to(0.1)).verdict, Fail);
    let got = after(&[9, 9]).judge(&to(0.1));
    assert_eq!(got.windows, vec![12, 13], "no baseline is needed then");
}

#[test]
fn says_when_nothing_had_to_recover() {
    let calm = Drill::usual(seen(100), seen(100));
    let got = calm.judge(&recovers(RETRY_RATIO, None, Within::Windows(2)));
    assert_eq!(got.verdict, Pass);
    assert!(got.reason.unwrap().contains("nothing to recover from"));
}

#[test]
fn coming_back_to_nothing_shows_nothing() {
    let drill = |before: Seen, after: Seen, web: Seen| {
        Drill::new().windows(PhaseName::Baseline, 6, seen(100), before).windows(PhaseName::Fault, 6, seen(100), before).windows(
            PhaseName::Recovery,
            3,
            web,
            after,
        )
    };
    let judged = |drill: &Drill, metric| {
        let got = drill.judge(&recovers(metric, None, Within::Windows(2)));
        (got.verdict, got.reason.unwrap_or_default())
    };
    let (none, calm) = (seen(0), seen(100));
    for metric in [Metric::Goodput, Metric::DownstreamQps] {
        let (verdict, reason) = judged(&drill(none, none, calm), metric);
        assert_eq!(verdict, Inconclusive, "{metric:?}: {reason}");
        // Nobody asks any more.
        let (verdict, reason) = judged(&drill(calm, none, none), metric);
        assert_eq!((verdict, reason.as_str()), (Inconclusive, "no request was seen in the recovery phase"), "{metric:?}");
    }
    let (verdict, reason) = judged(&drill(calm.failures(100), calm, calm), Metric::Goodput);
    assert!(verdict == Inconclusive && reason.contains("zero in the baseline") && reason.contains("recovers to"), "{reason}");
}

#[test]
fn other_metrics_recover_too() {
    let calm = seen(100);
    let drill = |recovery: Seen| {
        Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, seen(300).failures(200)).windows(
            PhaseName::Recovery,
            3,
            calm,
            recovery,
        )
    };
    for (metric, good, bad) in [
        (Metric::SuccessRatio, calm, calm.failures(30)),
        (Metric::DownstreamQps, calm, seen(200)),
        (Metric::Amplification, calm, seen(250)),
    ] {
        let expectation = recovers(metric, None, Within::Windows(1));
        assert_eq!(drill(good).judge(&expectation).verdict, Pass, "{metric:?}");
        assert_eq!(drill(bad).judge(&expectation).verdict, Fail, "{metric:?}");
    }
    let latency = recovers(Metric::FailureLatency { quantile: 0.99 }, None, Within::Windows(1));
    let got = drill(calm).judge(&latency);
    assert_eq!(got.verdict, Inconclusive);
    assert!(got.reason.unwrap().contains("recovers to"));
    let latency = recovers(Metric::FailureLatency { quantile: 0.99 }, Some(1.0), Within::Windows(1));
    assert_eq!(drill(calm).judge(&latency).verdict, Pass);
}

#[test]
fn attempts_that_came_back_to_nothing_are_an_outage() {
    let calm = seen(100);
    let drill = |web: Seen, db: Seen| {
        Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, seen(300)).windows(
            PhaseName::Recovery,
            4,
            web,
            db,
        )
    };
    let expectation = recovers(Metric::DownstreamQps, None, Within::Windows(2));
    let stuck = drill(calm.failures(95), seen(5)).judge(&expectation);
    assert_eq!(stuck.verdict, Pass);
    assert!(stuck.reason.unwrap().contains("an outage without amplification"));
    assert_eq!(drill(calm, calm).judge(&expectation).reason, None);
}
