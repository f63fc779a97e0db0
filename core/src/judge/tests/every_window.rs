//! `in every window`.

use super::*;
use crate::judge::Verdict;

fn drill(retries: &[u64]) -> Drill {
    let mut drill = Drill::new().windows(PhaseName::Baseline, 6, seen(100), seen(100));
    for &retries in retries {
        drill = drill.window(PhaseName::Fault, &[seen(100), seen(100).retries(retries)]);
    }
    drill
}

fn at_most(value: f64) -> Expectation {
    in_every_window(limit(Some("db"), RETRY_RATIO, Op::AtMost, value))
}

#[test]
fn one_bad_window_fails_what_the_phase_as_a_whole_passes() {
    let drill = drill(&[0, 0, 40, 0, 0, 0]);
    let whole = limit(Some("db"), RETRY_RATIO, Op::AtMost, 0.15);
    assert_eq!(drill.judge(&whole).verdict, Verdict::Pass);
    let got = drill.judge(&at_most(0.15));
    assert_eq!(got.verdict, Verdict::Fail);
    let reason = got.reason.unwrap();
    assert!(reason.contains("1 of 6 windows") && reason.contains("window 8 with 40%"), "{reason}");
    assert!((got.observed.unwrap() - 0.4).abs() < 1e-12, "the worst window's");
}

#[test]
fn passes_only_if_each_is_shown_to_hold() {
    assert_eq!(drill(&[2, 3, 1, 0, 2, 2]).judge(&at_most(0.15)).verdict, Verdict::Pass);
    // Its interval is of the level at which it passed, and so on the limit's good side, however many windows there are.
    let got = drill(&[6; 12]).judge(&at_most(0.12));
    assert_eq!(got.verdict, Verdict::Pass);
    let (lo, hi) = got.interval.unwrap();
    assert!(lo < 0.06 && 0.06 < hi && hi <= 0.12, "{hi}");
    let got = drill(&[2, 3, 12, 0, 2, 2]).judge(&at_most(0.15));
    assert_eq!(got.verdict, Verdict::Inconclusive);
    assert!(got.reason.unwrap().contains("1 of 6 windows cannot be told"));
}

#[test]
fn many_windows_do_not_raise_the_alarm_by_chance() {
    // 19 of 100 is significant against 12% on its own, and not as one of thirty.
    let mut retries = vec![10; 30];
    retries[7] = 19;
    assert_eq!(drill(&retries).judge(&at_most(0.12)).verdict, Verdict::Inconclusive);
    assert_eq!(drill(&[19]).judge(&at_most(0.12)).verdict, Verdict::Fail);
}

#[test]
fn all_windows_together_show_that_one_must_be_broken() {
    // 17 of 100 is not shown to be above 12% in one of ten windows; 170 of 1000 is, and so one window is at least.
    let expectation = at_most(0.12);
    let got = drill(&[17; 10]).judge(&expectation);
    assert_eq!(got.verdict, Verdict::Fail, "{got:?}");
    let reason = got.reason.unwrap();
    assert!(reason.starts_with("all 10 windows together come to 17%") && reason.contains("at least one of them does"), "{reason}");
    assert!((got.observed.unwrap() - 0.17).abs() < 1e-12 && got.interval.unwrap().0 > 0.12, "the numbers are those that decided");
    // Nor is any window shown to be broken where the whole is not.
    assert_eq!(drill(&[13; 10]).judge(&expectation).verdict, Verdict::Inconclusive);
    // What had no outcome may have come out well.
    let success = |pending: u64| {
        let mut drill = Drill::new().windows(PhaseName::Baseline, 6, seen(100), seen(100));
        drill = drill.windows(PhaseName::Fault, 10, seen(100), seen(100).failures(17));
        for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
            window.edges[1].pending = pending;
            window.edges[1].failures = [(Failure::Status, 17 - pending)].into();
        }
        drill.judge(&in_every_window(limit(Some("db"), Metric::SuccessRatio, Op::AtLeast, 0.88))).verdict
    };
    assert_eq!(success(0), Verdict::Fail);
    assert_eq!(success(7), Verdict::Inconclusive);
}

#[test]
fn what_is_no_mean_of_the_windows_is_not_judged_by_all_together() {
    // Each edge retries in a window of its own: never two at once.
    let mut drill = Drill::new().windows(PhaseName::Baseline, 6, seen(100), seen(100));
    drill.edges[0].role = Role::Downstream;
    for retries in [[90, 0], [0, 90]] {
        drill = drill.window(PhaseName::Fault, &retries.map(|retries| seen(400).retries(retries)));
    }
    let layers = limit(None, Metric::LayersRetrying, Op::AtMost, 1.0);
    assert_eq!(drill.judge(&layers).verdict, Verdict::Fail);
    assert_eq!(drill.judge(&in_every_window(layers)).verdict, Verdict::Pass);
}

#[test]
fn times_and_costs_of_all_windows_show_it_too() {
    let fault = |db: Seen| Drill::new().windows(PhaseName::Baseline, 6, seen(100), seen(100)).windows(PhaseName::Fault, 10, seen(100), db);
    let failing = |drill: &Drill, metric, value| {
        let got = drill.judge(&in_every_window(limit(Some("db"), metric, Op::AtMost, value)));
        assert!(got.reason.as_ref().is_some_and(|reason| reason.starts_with("all 10 windows together")), "{metric}: {got:?}");
        got.verdict == Verdict::Fail
    };
    assert!(failing(&fault(seen(100).failures(15)), Metric::CostPerSuccess, 1.1));
    assert!(failing(&fault(seen(118)), Metric::DownstreamQps, 10.0));
    assert!(failing(&fault(seen(118)), Metric::Amplification, 1.1));
    let mut slow = fault(seen(40));
    for window in slow.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
        window.edges[1].latency_ns = [vec![50_000_000; 16], vec![150_000_000; 24]].concat();
    }
    assert!(failing(&slow, Metric::Latency { quantile: 0.5 }, 0.1));
}

#[test]
fn quiet_windows_are_judged_together() {
    let mut quiet = Drill::new().windows(PhaseName::Baseline, 6, seen(10), seen(10));
    for _ in 0..12 {
        quiet = quiet.window(PhaseName::Fault, &[seen(10), seen(10)]);
    }
    assert_eq!(quiet.judge(&at_most(0.2)).verdict, Verdict::Pass);
}

#[test]
fn windows_that_were_joined_are_called_so() {
    let fault = |retries: &[u64]| {
        let mut drill = Drill::new().windows(PhaseName::Baseline, 6, seen(100), seen(100));
        for &retries in retries {
            drill = drill.window(PhaseName::Fault, &[seen(20), seen(20).retries(retries)]);
        }
        drill.judge(&at_most(0.15)).reason.unwrap()
    };
    let reason = fault(&[10, 10, 12, 14]);
    assert_eq!(reason, "2 of 2 groups of windows break the limit of 15%; the worst is windows 8-9 with 65%");
    let reason = fault(&[0, 0, 3, 4]);
    assert!(
        reason.starts_with("1 of 2 groups of windows cannot be told from") && reason.contains("the worst is windows 8-9 with"),
        "{reason}"
    );
}

#[test]
fn rates_are_judged_in_each_window() {
    let mut drill = Drill::new().windows(PhaseName::Baseline, 6, seen(100), seen(100));
    for count in [100, 100, 0, 300] {
        drill = drill.window(PhaseName::Fault, &[seen(100), seen(count)]);
    }
    let increase = in_every_window(qps_increase_at_most(0.5));
    let got = drill.judge(&increase);
    assert_eq!(got.verdict, Verdict::Fail);
    assert!(got.reason.unwrap().contains("window 9"));
    let floor = in_every_window(limit(Some("db"), Metric::DownstreamQps, Op::AtLeast, 5.0));
    let got = drill.judge(&floor);
    assert_eq!(got.verdict, Verdict::Fail, "a silent window is below");
    assert!(got.reason.unwrap().contains("window 8 with 0/s"));
}

/// A drill whose windows of the fault have pauses of those milliseconds before their first retries.
fn pauses(windows: &[Vec<u64>]) -> Drill {
    let calm = seen(100);
    let mut drill = Drill::new().windows(PhaseName::Baseline, 6, calm, calm);
    for pauses in windows {
        drill = drill.windows(PhaseName::Fault, 1, calm, seen(100).failures(40).retries(40));
        drill.windows.last_mut().unwrap().edges[1].first_gaps_ns = pauses.iter().map(|ms| ms * 1_000_000).collect();
    }
    drill
}

#[test]
fn one_window_of_full_jitter_does_not_excuse_others() {
    let expectation = in_every_window(limit(Some("db"), Metric::BackoffJitter, Op::AtLeast, 0.4));
    let jitter: Vec<u64> = (1..400).collect();
    let judge = |windows: &[Vec<u64>]| answer(&pauses(windows).judge(&expectation));
    assert_eq!(judge(&[jitter.clone(), jitter.clone()]), (Verdict::Pass, None));
    // Not a pause to speak of: at once.
    let (verdict, reason) = judge(&[jitter.clone(), vec![0; 400], jitter.clone()]);
    assert_eq!(verdict, Verdict::Fail);
    assert!(reason.unwrap().contains("in at least one window retries come at once"));
    // Too few in each window: together they are enough.
    assert_eq!(judge(&[jitter.clone(), vec![200; 29], vec![200; 29]]).0, Verdict::Fail);
    assert_eq!(judge(&[vec![200; 29]]).0, Verdict::Inconclusive);
}

fn answer(judgement: &Judgement) -> (Verdict, Option<String>) {
    (judgement.verdict, judgement.reason.clone())
}
