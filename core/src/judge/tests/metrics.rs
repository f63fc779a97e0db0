//! The metrics beyond the first six: what each counts, and what it says of nothing.

use super::{Drill, during, http_status, in_every_window, increase, limit, loss, recovers, seen};
use crate::event::ConnectFailure;
use crate::expectation::{Expectation, Metric, Op, Within};
use crate::judge::{Judgement, Verdict};
use crate::window::{EdgeWindow, Failure, PhaseName};

/// The usual drill, in whose fault windows the edge `db` is changed so.
fn changed(change: impl Fn(&mut EdgeWindow)) -> Drill {
    let mut drill = Drill::usual(seen(100), seen(100));
    for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
        change(&mut window.edges[1]);
    }
    drill
}

fn judged(drill: &Drill, expectation: &Expectation) -> (Verdict, Option<f64>) {
    let Judgement { verdict, observed, .. } = drill.judge(expectation);
    (verdict, observed)
}

fn db(metric: Metric, op: Op, value: f64) -> Expectation {
    limit(Some("db"), metric, op, value)
}

#[track_caller]
fn close(value: Option<f64>, expected: f64) {
    assert!(value.is_some_and(|value| (value - expected).abs() < 1e-9), "{value:?} is not {expected}");
}

#[test]
fn latency_is_of_answers_and_a_rise_is_told_from_the_baseline() {
    let drill = Drill::usual(seen(100).latency(20), seen(100));
    let p50 = Metric::Latency { quantile: 0.5 };
    assert_eq!(judged(&drill, &db(p50, Op::AtMost, 0.02)).0, Verdict::Pass);
    assert_eq!(judged(&drill, &db(p50, Op::AtMost, 0.019)).0, Verdict::Fail);
    let (verdict, rise) = judged(&drill, &increase(db(p50, Op::AtMost, 2.0)));
    assert_eq!(verdict, Verdict::Fail);
    close(rise, 3.0);
    let back = drill.judge(&recovers(p50, None, Within::Windows(1)));
    assert_eq!(back.verdict, Verdict::Pass, "{back:?}");
}

#[test]
fn goodput_counts_answers_without_failure() {
    let drill = Drill::usual(seen(100).failures(40), seen(100));
    close(judged(&drill, &db(Metric::Goodput, Op::AtLeast, 5.0)).1, 6.0);
    assert_eq!(judged(&drill, &db(Metric::Goodput, Op::AtLeast, 5.0)).0, Verdict::Pass);
    assert_eq!(judged(&drill, &db(Metric::Goodput, Op::AtLeast, 8.0)).0, Verdict::Fail);
    let (verdict, change) = judged(&drill, &increase(db(Metric::Goodput, Op::AtLeast, -0.05)));
    assert_eq!(verdict, Verdict::Fail);
    close(change, -0.4);
    // Half of the events were sampled away: the rate is what it was.
    let mut sampled = drill.clone();
    for window in &mut sampled.windows {
        window.edges[1].counts.requests *= 2;
    }
    close(judged(&sampled, &db(Metric::Goodput, Op::AtLeast, 5.0)).1, 12.0);
}

#[test]
fn a_failure_that_hung_is_not_explicit() {
    let metric = Metric::ExplicitFailureRatio;
    let drill = changed(|edge| {
        edge.failures = [(Failure::Status, 6), (Failure::Reset, 2), (Failure::Hang, 6), (Failure::ClientAbort, 2)].into();
        edge.connect_failures = [(ConnectFailure::Refused, 2), (ConnectFailure::TimedOut, 2), (ConnectFailure::Other, 50)].into();
    });
    let (verdict, observed) = judged(&drill, &db(metric, Op::AtLeast, 0.99));
    assert_eq!(verdict, Verdict::Fail);
    close(observed, 0.5);
    // Where nothing failed, nothing hung.
    assert_eq!(judged(&changed(|_| {}), &db(metric, Op::AtLeast, 0.99)), (Verdict::Pass, None));
    assert_eq!(judged(&changed(|_| {}), &db(metric, Op::AtMost, 0.5)).0, Verdict::Inconclusive);
}

#[test]
fn most_attempts_of_one_request_are_a_fact_and_have_no_interval() {
    let drill = changed(|edge| edge.attempts_max = 3);
    for (op, limit, verdict) in [
        (Op::AtMost, 3.0, Verdict::Pass),
        (Op::Less, 3.0, Verdict::Fail),
        (Op::AtMost, 2.0, Verdict::Fail),
        (Op::AtLeast, 3.0, Verdict::Pass),
    ] {
        let judgement = drill.judge(&db(Metric::AttemptsMax, op, limit));
        assert_eq!((judgement.verdict, judgement.interval), (verdict, None), "{op} {limit}");
        assert!(!judgement.reason.is_some_and(|reason| reason.contains("interval")), "{op} {limit}");
    }
    let silent = changed(|edge| *edge = EdgeWindow::default());
    let nothing =
        Drill { windows: silent.windows.into_iter().filter(|window| window.phase != PhaseName::Baseline).collect(), ..changed(|_| {}) };
    assert_eq!(judged(&nothing, &db(Metric::AttemptsMax, Op::AtMost, 3.0)).0, Verdict::Inconclusive);
}

#[test]
fn a_layer_retries_if_that_is_shown_and_may_retry_if_it_is_not_shown_that_it_does_not() {
    let layers = |requests: u64, retries: u64| {
        let mut drill = Drill::usual(seen(requests).retries(retries), seen(100));
        // Another downstream edge, which never retries.
        drill.edges.push(crate::edge::EdgeSpec { name: "cache".to_owned(), ..drill.edges[1].clone() });
        for window in &mut drill.windows {
            let quiet = seen(2000).window();
            window.edges.push(quiet);
        }
        drill.judge(&limit(None, Metric::LayersRetrying, Op::AtMost, 0.0))
    };
    let judgement = layers(300, 200);
    assert_eq!((judgement.verdict, judgement.observed, judgement.edge), (Verdict::Fail, Some(1.0), None));
    assert_eq!(layers(2000, 0).verdict, Verdict::Pass);
    // Six hundred requests without a retry do not prove less than one in a hundred, at half of the error probability each.
    let few = layers(20, 0);
    assert_eq!((few.verdict, few.interval), (Verdict::Inconclusive, Some((0.0, 1.0))));
}

#[test]
fn a_success_costs_its_share_of_the_failures() {
    let drill = Drill::usual(seen(300).failures(200), seen(100));
    let (verdict, cost) = judged(&drill, &db(Metric::CostPerSuccess, Op::AtMost, 2.0));
    assert_eq!(verdict, Verdict::Fail);
    close(cost, 3.0);
    assert_eq!(judged(&drill, &db(Metric::CostPerSuccess, Op::AtMost, 3.5)).0, Verdict::Pass);
    // Less than one attempt each is not possible, so that one each is a demand on what was seen.
    assert_eq!(judged(&Drill::usual(seen(100), seen(100)), &db(Metric::CostPerSuccess, Op::AtMost, 1.0)).0, Verdict::Pass);
    assert_eq!(judged(&Drill::usual(seen(100).failures(1), seen(100)), &db(Metric::CostPerSuccess, Op::AtMost, 1.0)).0, Verdict::Fail);
    assert_eq!(
        judged(&Drill::usual(seen(100).pending(1), seen(100)), &db(Metric::CostPerSuccess, Op::AtMost, 1.0)).0,
        Verdict::Inconclusive
    );
    let none = Drill::usual(seen(300).failures(300), seen(100)).judge(&db(Metric::CostPerSuccess, Op::AtMost, 3.0));
    assert_eq!((none.verdict, none.observed), (Verdict::Fail, Some(f64::INFINITY)));
}

#[test]
fn attempts_are_related_to_the_requests_that_came_in() {
    let drill = Drill::usual(seen(150), seen(100));
    let metric = Metric::DownstreamPerIngress;
    close(judged(&drill, &db(metric, Op::AtMost, 2.0)).1, 1.5);
    assert_eq!(judged(&drill, &db(metric, Op::AtMost, 2.0)).0, Verdict::Pass);
    let (verdict, rise) = judged(&drill, &increase(db(metric, Op::AtMost, 0.2)));
    assert_eq!(verdict, Verdict::Fail);
    close(rise, 0.5);
}

#[test]
fn connections_are_counted_through_the_whole_drill() {
    // Two opened and one closed in each window: six are open when the fault begins, twelve at its end.
    let calm = changed(|_| {});
    close(judged(&calm, &db(Metric::Connections, Op::AtMost, 12.0)).1, 12.0);
    assert_eq!(judged(&calm, &db(Metric::Connections, Op::AtMost, 11.0)).0, Verdict::Fail);
    close(judged(&calm, &during(db(Metric::Connections, Op::AtMost, 20.0), PhaseName::Baseline)).1, 6.0);
    let stormy = changed(|edge| edge.counts.connections_opened = 20);
    close(judged(&stormy, &db(Metric::ConnectionsOpened, Op::AtMost, 1.0)).1, 120.0);
    close(judged(&stormy, &increase(db(Metric::ConnectionsOpened, Op::AtMost, 1.0))).1, 9.0);
    close(judged(&stormy, &in_every_window(db(Metric::ConnectionsOpened, Op::AtMost, 1.0))).1, 20.0);
}

#[test]
fn failed_connects_count_where_no_request_came_to_be() {
    let refused = changed(|edge| {
        *edge = EdgeWindow::default();
        edge.counts.connect_failures = 5;
    });
    assert_eq!(judged(&refused, &db(Metric::ConnectFailures, Op::AtMost, 0.0)), (Verdict::Fail, Some(30.0)));
    assert_eq!(judged(&changed(|_| {}), &db(Metric::ConnectFailures, Op::AtMost, 0.0)), (Verdict::Pass, Some(0.0)));
}

#[test]
fn retransmits_need_no_failed_request_to_have_been_tested() {
    let mut drill = changed(|edge| edge.counts.tcp_retransmits = 30);
    drill.faults = vec![loss(1000, 300)];
    let (verdict, ratio) = judged(&drill, &db(Metric::RetransmitRatio, Op::AtMost, 0.1));
    assert_eq!(verdict, Verdict::Fail);
    close(ratio, 0.3);
    assert_eq!(judged(&drill, &db(Metric::RetransmitRatio, Op::AtMost, 0.5)).0, Verdict::Pass);
    drill.faults = vec![loss(1000, 0)];
    assert_eq!(judged(&drill, &db(Metric::RetransmitRatio, Op::AtMost, 0.5)).0, Verdict::Vacuous);
    drill.faults = vec![http_status(10, 0)];
    assert_eq!(judged(&drill, &db(Metric::RetransmitRatio, Op::AtMost, 0.5)).0, Verdict::Vacuous);
}

#[test]
fn what_retries_do_wrong_is_counted() {
    let drill = changed(|edge| {
        edge.retries.matched = 10;
        edge.non_idempotent_retries = 2;
        edge.nonretryable_retries = 3;
        edge.retry_after_violations = 1;
    });
    for (metric, count) in [(Metric::NonIdempotentRetries, 12.0), (Metric::NonretryableRetries, 18.0), (Metric::RetryAfterViolations, 6.0)]
    {
        assert_eq!(judged(&drill, &db(metric, Op::AtMost, 0.0)), (Verdict::Fail, Some(count)));
        assert_eq!(judged(&drill, &db(metric, Op::AtMost, count)), (Verdict::Pass, Some(count)));
        assert_eq!(judged(&Drill::usual(seen(100).failures(50), seen(100)), &db(metric, Op::AtMost, 0.0)), (Verdict::Pass, Some(0.0)));
    }
}

#[test]
fn jitter_is_judged_by_the_pauses_of_first_retries() {
    let spread = |pause: fn(u64) -> u64| changed(move |edge| edge.first_gaps_ns = (0..50).map(|n| pause(n) * 1_000_000).collect());
    let full = spread(|n| 2 * n);
    let (verdict, observed) = judged(&full, &db(Metric::BackoffJitter, Op::AtLeast, 0.4));
    assert_eq!(verdict, Verdict::Pass);
    assert!(observed.is_some_and(|cv| (cv - 0.583).abs() < 0.01), "{observed:?}");
    assert_eq!(judged(&spread(|_| 100), &db(Metric::BackoffJitter, Op::AtLeast, 0.1)), (Verdict::Fail, Some(0.0)));
    // A quarter either way is some jitter, and not full.
    let some = spread(|n| 75 + n);
    assert_eq!(judged(&some, &db(Metric::BackoffJitter, Op::AtLeast, 0.4)).0, Verdict::Fail);
    assert_eq!(judged(&some, &db(Metric::BackoffJitter, Op::AtLeast, 0.1)).0, Verdict::Pass);
    let few = changed(|edge| edge.first_gaps_ns = vec![1, 2]);
    let judgement = few.judge(&db(Metric::BackoffJitter, Op::AtLeast, 0.4));
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert_eq!(judgement.reason.as_deref(), Some("12 pauses before first retries are too few to tell their spread: 30 are needed"));
}

#[test]
fn a_burst_of_retries_stands_out_of_their_mean() {
    let drill = changed(|edge| {
        for n in 0..100 {
            edge.burst.add(n * 100_000_000);
            if n == 0 {
                (0..39).for_each(|_| edge.burst.add(0));
            }
        }
    });
    let (verdict, observed) = judged(&drill, &db(Metric::RetryPeakToMean, Op::AtMost, 10.0));
    assert_eq!(verdict, Verdict::Fail);
    close(observed, 40.0 * 991.0 / 834.0);
    assert_eq!(judged(&changed(|_| {}), &db(Metric::RetryPeakToMean, Op::AtMost, 10.0)).0, Verdict::Pass, "no retry, no burst");
}

#[test]
fn a_peak_that_chance_makes_of_few_retries_is_no_burst() {
    let mut random = crate::stats::simulation::Random::seeded(8);
    let (mut failed, mut highest) = (0, 0.0_f64);
    for _ in 0..100 {
        let mut drill = Drill::usual(seen(100), seen(100));
        // One a second on average, each when it likes.
        for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
            let (start_ns, edge) = (window.start_ns, &mut window.edges[1]);
            let mut times: Vec<u64> = (0..1_000).filter(|_| random.happens(0.01)).collect();
            times.sort_unstable();
            times.iter().for_each(|ms| edge.burst.add(start_ns + ms * 10_000_000));
        }
        let (verdict, observed) = judged(&drill, &db(Metric::RetryPeakToMean, Op::AtMost, 10.0));
        failed += u32::from(verdict == Verdict::Fail);
        highest = highest.max(observed.unwrap_or(0.0));
    }
    assert!(failed <= 5 && highest > 50.0, "{failed} of 100, {highest}");
    let few = changed(|edge| (0..4).for_each(|_| edge.burst.add(0))).judge(&db(Metric::RetryPeakToMean, Op::AtMost, 10.0));
    assert_eq!(few.verdict, Verdict::Inconclusive, "{few:?}");
    assert!(few.reason.is_some_and(|reason| reason.contains("24 retries are too few")));
    // A thousand that are spread evenly show that none stand out.
    let even = changed(|edge| (0..1000).for_each(|n| edge.burst.add(n * 10_000_000)));
    assert_eq!(judged(&even, &db(Metric::RetryPeakToMean, Op::AtMost, 10.0)).0, Verdict::Pass);
    // The fullest is no less than the mean, however few retries there are.
    let mut spread = changed(|_| {});
    for window in spread.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
        (0..100).for_each(|n| window.edges[1].burst.add(window.start_ns + n * 100_000_000));
    }
    let got = spread.judge(&db(Metric::RetryPeakToMean, Op::AtMost, 30.0));
    assert_eq!(got.interval.map(|(lo, hi)| (lo >= 1.0, hi > lo)), Some((true, true)), "{got:?}");
}

#[test]
fn a_client_that_does_not_pause_has_no_jitter() {
    // A thirtieth of a millisecond to three milliseconds: what a scheduler makes of no pause at all.
    let noise = changed(|edge| edge.first_gaps_ns = (1..40).map(|n| n * n * 2_000).collect());
    let judgement = noise.judge(&db(Metric::BackoffJitter, Op::AtLeast, 0.1));
    assert_eq!(judgement.verdict, Verdict::Fail, "{judgement:?}");
    assert!(judgement.reason.is_some_and(|reason| reason.starts_with("retries come at once")));
    assert_eq!(noise.judge(&db(Metric::BackoffJitter, Op::AtMost, 0.1)).verdict, Verdict::Inconclusive);
}

#[test]
fn false_matches_make_no_layer_and_many_windows_no_false_alarm() {
    let none = limit(None, Metric::LayersRetrying, Op::AtMost, 0.0);
    let alike = seen(1000).retries(18);
    let drill = Drill::new().windows(PhaseName::Baseline, 6, seen(1000), alike).windows(PhaseName::Fault, 6, seen(1000), alike);
    assert_eq!(drill.judge(&none).verdict, Verdict::Pass, "{:?}", drill.judge(&none));
    // What is too alike cannot be told.
    let alike = seen(1000).retries(50);
    let drill = Drill::new().windows(PhaseName::Baseline, 6, seen(1000), alike).windows(PhaseName::Fault, 6, seen(1000), alike);
    assert_eq!(drill.judge(&none).verdict, Verdict::Inconclusive, "{:?}", drill.judge(&none));
    let mut random = crate::stats::simulation::Random::seeded(7);
    let mut failed = 0;
    for _ in 0..100 {
        // Two edges on the limit: one retry to a hundred first attempts.
        let mut drill =
            Drill::new().windows(PhaseName::Baseline, 6, seen(100), seen(100)).windows(PhaseName::Fault, 30, seen(100), seen(100));
        drill.edges.push(crate::edge::EdgeSpec { name: "cache".to_owned(), ..drill.edges[1].clone() });
        for window in &mut drill.windows {
            let more = window.edges[1].clone();
            window.edges.push(more);
            for edge in window.edges.iter_mut().skip(1).filter(|_| window.phase == PhaseName::Fault) {
                edge.retries.matched = (0..100).map(|_| u64::from(random.happens(1.0 / 101.0))).sum();
            }
        }
        failed += u32::from(drill.judge(&in_every_window(none.clone())).verdict == Verdict::Fail);
    }
    assert!(failed <= 5, "{failed} of 100");
}

#[test]
fn what_could_be_compared_with_nothing_is_not_taken_for_first_attempts() {
    // HTTP/2 connections from before the drill: paths are not known, so no retry is seen.
    let ratio = limit(Some("db"), crate::judge::tests::RETRY_RATIO, Op::AtMost, 0.1);
    let with = |uncompared: u64| {
        let mut drill = Drill::usual(seen(1000), seen(1000).retries(20));
        drill.windows.iter_mut().for_each(|window| window.edges[1].uncompared = uncompared);
        drill.judge(&ratio)
    };
    assert_eq!(with(0).verdict, Verdict::Pass);
    assert_eq!(with(10).verdict, Verdict::Pass, "a few make no difference");
    let many = with(400);
    assert_eq!(many.verdict, Verdict::Inconclusive, "{many:?}");
    assert!(many.reason.is_some_and(|reason| reason.contains("could be compared with none")));
    let all = with(1000);
    assert_eq!(all.verdict, Verdict::Inconclusive, "{all:?}");
    assert!(all.reason.is_some_and(|reason| reason.contains("have retries marked")));
    // A limit that is broken by those that are known is broken.
    let mut drill = Drill::usual(seen(1000), seen(1000));
    for window in &mut drill.windows {
        (window.edges[1].uncompared, window.edges[1].retries.id) = (400, 300);
    }
    assert_eq!(drill.judge(&ratio).verdict, Verdict::Fail);
}

#[test]
fn who_waits_must_be_known_before_anybody_can_be_late() {
    let known = changed(|edge| (edge.accountable, edge.late_starts, edge.orphan_ns) = (100, 4, 500_000_000));
    assert_eq!(judged(&known, &db(Metric::LateStarts, Op::AtMost, 20.0)), (Verdict::Fail, Some(24.0)));
    assert_eq!(judged(&known, &db(Metric::OrphanWork, Op::AtMost, 3.0)), (Verdict::Pass, Some(3.0)));
    let unknown = Drill::usual(seen(100).failures(50), seen(100)).judge(&db(Metric::LateStarts, Op::AtMost, 0.0));
    assert_eq!(unknown.verdict, Verdict::Inconclusive);
    assert!(unknown.reason.is_some_and(|reason| reason.contains("nobody can be seen to give up")));
}

#[test]
fn calls_that_are_too_alike_give_no_retry_ratio() {
    let ratio = db(Metric::RetryRatio { of: crate::expectation::RetryBase::All }, Op::AtMost, 0.5);
    let drill = |false_matches: u64| {
        let mut drill = Drill::usual(seen(100).failures(40).retries(40), seen(100));
        for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Baseline) {
            window.edges[1].retries.matched = false_matches;
        }
        drill
    };
    let judgement = drill(5).judge(&ratio);
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(judgement.reason.is_some_and(|reason| reason.starts_with("5.0% of the attempts look like retries where nothing failed")));
    // A little is taken off.
    close(judged(&drill(1), &ratio).1, 0.39);
    // A marker is believed whatever else looks alike.
    let mut marked = drill(5);
    for window in &mut marked.windows {
        window.edges[1].retries.marker = window.edges[1].retries.matched;
        window.edges[1].retries.matched = 0;
    }
    close(judged(&marked, &ratio).1, 0.4);
}
