//! Where events of a share of the requests were kept: shares are as they are, totals are at least what was seen, and what was not seen
//! is no evidence.

use super::{Drill, in_every_window, increase, limit, recovers, seen};
use crate::event::ConnectFailure;
use crate::expectation::{Expectation, Metric, Op, RetryBase, Within};
use crate::judge::Verdict;
use crate::window::{EdgeWindow, Failure, PhaseName, Window};

const RATIO: Metric = Metric::RetryRatio { of: RetryBase::All };

fn db(metric: Metric, op: Op, value: f64) -> Expectation {
    limit(Some("db"), metric, op, value)
}

/// A drill of which a quarter was seen: there were four times as many requests as attempts.
fn a_quarter(drill: &Drill) -> Drill {
    let mut sampled = drill.clone();
    for window in &mut sampled.windows {
        window.sampling = 0.25;
        for edge in &mut window.edges {
            edge.counts.requests *= 4;
            edge.counts.responses *= 4;
        }
    }
    sampled
}

/// Nothing of `db` was seen in these windows.
fn blinded(drill: &mut Drill, which: impl Fn(&Window) -> bool) {
    for window in drill.windows.iter_mut().filter(|window| which(window)) {
        window.edges[1] = EdgeWindow { counts: window.edges[1].counts, ..EdgeWindow::default() };
    }
}

#[test]
fn a_share_is_that_of_what_was_seen_and_less_certain() {
    let drill = Drill::usual(seen(200).retries(60).failures(60), seen(100));
    let sampled = a_quarter(&drill);
    for expectation in [
        db(RATIO, Op::AtMost, 0.5),
        db(RATIO, Op::AtMost, 0.2),
        db(Metric::SuccessRatio, Op::AtLeast, 0.5),
        db(Metric::SuccessRatio, Op::AtLeast, 0.9),
        db(Metric::CostPerSuccess, Op::AtMost, 2.0),
        db(Metric::Latency { quantile: 0.5 }, Op::AtMost, 0.001),
    ] {
        let (whole, part) = (drill.judge(&expectation), sampled.judge(&expectation));
        assert_eq!((whole.verdict, whole.observed), (part.verdict, part.observed), "{expectation:?}");
        let (Some((lo, hi)), Some(wider)) = (whole.interval, part.interval) else {
            panic!("{expectation:?} has no interval");
        };
        assert!(wider.0 <= lo && hi <= wider.1, "{expectation:?}: {wider:?}");
        // Of a quarter, twice as wide; that of times that are all the same is a point.
        assert!(hi <= lo || wider.1 - wider.0 > 1.7 * (hi - lo), "{expectation:?}: {wider:?}");
    }
    // What is just shown by all is not by a quarter.
    let narrow = db(RATIO, Op::AtMost, 0.335);
    assert_eq!((drill.judge(&narrow).verdict, sampled.judge(&narrow).verdict), (Verdict::Pass, Verdict::Inconclusive));
    // The rate of requests is the kernel's count, whatever was seen.
    let (whole, part) =
        (drill.judge(&db(Metric::DownstreamQps, Op::AtMost, 1.0)), sampled.judge(&db(Metric::DownstreamQps, Op::AtMost, 1.0)));
    assert_eq!(whole.observed.map(|rate| 4.0 * rate), part.observed);
}

#[test]
fn a_total_is_at_least_what_was_seen() {
    let mut drill = a_quarter(&Drill::usual(seen(100).retries(30).failures(30), seen(100)));
    drill.windows[7].edges[1].attempts_max = 3;
    drill.windows[7].edges[1].non_idempotent_retries = 2;
    for metric in [Metric::AttemptsMax, Metric::NonIdempotentRetries] {
        let broken = drill.judge(&db(metric, Op::AtMost, 1.0));
        assert_eq!(broken.verdict, Verdict::Fail, "{metric}");
        let open = drill.judge(&db(metric, Op::AtMost, 4.0));
        assert_eq!(open.verdict, Verdict::Inconclusive, "{metric}");
        assert!(open.reason.is_some_and(|reason| reason.contains("a share of the requests")), "{metric}");
    }
    assert_eq!(drill.judge(&db(Metric::NonretryableRetries, Op::AtMost, 0.0)).verdict, Verdict::Inconclusive);
    assert_eq!(drill.judge(&db(Metric::RetryPeakToMean, Op::AtMost, 100.0)).verdict, Verdict::Inconclusive);
}

#[test]
fn what_was_not_seen_is_no_evidence() {
    let mut drill = a_quarter(&Drill::usual(seen(100).retries(30).failures(30), seen(100)));
    blinded(&mut drill, |window| window.phase == PhaseName::Fault);
    for (metric, op, value) in [
        (RATIO, Op::AtMost, 1.0),
        (Metric::SuccessRatio, Op::AtLeast, 0.0),
        (Metric::Goodput, Op::AtLeast, 0.0),
        (Metric::Goodput, Op::AtLeast, 1.0),
        (Metric::ExplicitFailureRatio, Op::AtLeast, 0.5),
        (Metric::FailureLatency { quantile: 0.99 }, Op::AtMost, 1.0),
        (Metric::Latency { quantile: 0.99 }, Op::AtMost, 1.0),
        (Metric::BackoffJitter, Op::AtMost, 1.0),
        (Metric::AttemptsMax, Op::AtMost, 1.0),
        (Metric::LayersRetrying, Op::AtMost, 0.0),
    ] {
        let judged = drill.judge(&db(metric, op, value));
        assert_eq!(judged.verdict, Verdict::Inconclusive, "{metric} {judged:?}");
    }
    assert_eq!(drill.judge(&increase(db(Metric::Goodput, Op::AtLeast, -0.5))).verdict, Verdict::Inconclusive);
    // Counts are known all the same.
    assert_eq!(drill.judge(&db(Metric::DownstreamQps, Op::AtMost, 50.0)).verdict, Verdict::Pass);
}

#[test]
fn a_window_that_was_not_seen_is_not_within_a_limit_in_every_window() {
    let every = in_every_window(db(RATIO, Op::AtMost, 0.5));
    let mut drill = a_quarter(&Drill::usual(seen(100).retries(10).failures(30), seen(100)));
    assert_eq!(drill.judge(&every).verdict, Verdict::Pass);
    blinded(&mut drill, |window| window.epoch == 8);
    let open = drill.judge(&every);
    assert_eq!(open.verdict, Verdict::Inconclusive, "{open:?}");
    // One that was seen decides.
    assert_eq!(drill.judge(&in_every_window(db(RATIO, Op::AtMost, 0.01))).verdict, Verdict::Fail);
    // Nor is it shown to be back, or not to be.
    blinded(&mut drill, |window| window.phase == PhaseName::Recovery);
    assert_eq!(drill.judge(&recovers(RATIO, None, Within::Windows(2))).verdict, Verdict::Inconclusive);
}

#[test]
fn failed_connects_are_all_seen_and_count_for_as_much_as_requests() {
    let mut drill = Drill::usual(seen(100), seen(100));
    for window in &mut drill.windows {
        window.sampling = 0.25;
        window.edges[1].failures = [(Failure::Hang, 10)].into();
        window.edges[1].connect_failures = [(ConnectFailure::Refused, 40)].into();
    }
    assert_eq!(drill.judge(&db(Metric::ExplicitFailureRatio, Op::AtLeast, 0.9)).observed, Some(0.5));
}

#[test]
fn events_lost_are_held_against_those_that_were_to_come() {
    let mut drill = a_quarter(&Drill::usual(seen(1000).retries(100).failures(100), seen(100)));
    // A thousandth of 4400 requests is 4, of the 1100 that were seen it is 1.
    drill.windows[8].events_lost = 2;
    assert_eq!(drill.judge(&db(RATIO, Op::AtMost, 0.5)).verdict, Verdict::Invalid);
}
