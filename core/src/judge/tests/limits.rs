//! Every metric against a limit: pass, fail, cannot tell.

use super::*;
use crate::expectation::RetryBase;
use crate::judge::ALPHA;
use crate::judge::Verdict::{self, Fail, Inconclusive, Pass};
use crate::judge::limit::Limit;
use crate::judge::sample::{Sample, Share};
use crate::stats::rate_ratio::Tally;

fn check(name: &str, drill: &Drill, expectation: &Expectation, verdict: Verdict, reason: &str) -> Judgement {
    let got = drill.judge(expectation);
    assert_eq!(got.verdict, verdict, "{name}: {got:?}");
    assert!(got.reason.as_deref().unwrap_or("").contains(reason), "{name}: reason lacks {reason:?}: {:?}", got.reason);
    if verdict != Pass {
        assert!(got.reason.is_some(), "{name}: {got:?}");
    }
    got
}

#[test]
fn downstream_qps_increase() {
    let at_most = qps_increase_at_most(0.2);
    let drill = |baseline: u64, fault: u64| {
        let (calm, busy) = (seen(baseline), seen(fault));
        Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, busy)
    };
    let got = check("unchanged", &drill(100, 100), &at_most, Pass, "");
    assert_eq!(got.edge.as_deref(), Some("db"));
    assert_eq!(got.unit, "ratio");
    assert!(got.observed.unwrap().abs() < 1e-12);
    assert_eq!(got.limit, Some(0.2));
    assert_eq!(got.windows, (0..12).collect::<Vec<u32>>(), "baseline and fault");
    let got = check("doubled", &drill(100, 200), &at_most, Fail, "100% is above the limit of 20%");
    let (lo, hi) = got.interval.unwrap();
    assert!(lo > 0.2 && lo < 1.0 && hi > 1.0, "{got:?}");
    check("close", &drill(100, 115), &at_most, Inconclusive, "more requests would tell");
    check("on the limit", &drill(100, 120), &at_most, Inconclusive, "cannot be told");
    check("few", &drill(2, 2), &at_most, Inconclusive, "more requests would tell");
    check("zero baseline", &drill(0, 50), &at_most, Inconclusive, "give an absolute limit");
    check("silence", &drill(100, 0), &at_most, Pass, "");
}

#[test]
fn more_traffic_as_advised_does_decide() {
    let drill = |scale: u64| {
        let (calm, busy) = (seen(20 * scale), seen(22 * scale));
        Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, busy)
    };
    let got = check("little", &drill(1), &qps_increase_at_most(0.2), Inconclusive, "more requests would tell");
    let reason = got.reason.unwrap();
    let more: f64 = reason.split("about ").nth(1).and_then(|rest| rest.split(' ').next()).and_then(|number| number.parse().ok()).unwrap();
    let scale = 1.0 + more / (6.0 * 42.0);
    assert!(scale > 4.0, "{reason}");
    // A tenth more than advised is enough; half is not.
    let enough = (1..).find(|scale_tried| f64::from(*scale_tried) >= scale * 1.1).unwrap();
    check("as advised", &drill(u64::try_from(enough).unwrap()), &qps_increase_at_most(0.2), Pass, "");
    let half = (1..).find(|scale_tried| f64::from(*scale_tried) >= scale * 0.5).unwrap();
    check("half", &drill(u64::try_from(half).unwrap()), &qps_increase_at_most(0.2), Inconclusive, "");
}

#[test]
fn absolute_rates() {
    let qps = |value| limit(Some("db"), Metric::DownstreamQps, Op::AtMost, value);
    let drill = Drill::usual(seen(100), seen(100));
    let got = check("below", &drill, &qps(12.0), Pass, "");
    assert_eq!(got.unit, "1/s");
    assert!((got.observed.unwrap() - 10.0).abs() < 1e-12);
    assert_eq!(got.windows, (6..12).collect::<Vec<u32>>(), "the fault's only");
    check("above", &drill, &qps(8.0), Fail, "10/s is above the limit of 8/s");
    check("near", &drill, &qps(10.2), Inconclusive, "more requests would tell");
    let ingress = limit(None, Metric::IngressQps, Op::AtLeast, 9.0);
    assert_eq!(check("ingress", &drill, &ingress, Pass, "").edge.as_deref(), Some("web"));
    check("ingress", &drill, &limit(None, Metric::IngressQps, Op::AtLeast, 12.0), Fail, "below the limit");
    let silent = Drill::new().windows(PhaseName::Fault, 3, seen(0), seen(0));
    check("silent", &silent, &qps(12.0), Inconclusive, "no request was seen");
}

#[test]
fn bursty_baselines_widen_the_interval() {
    let mut bursty = Drill::new();
    for count in [20, 180, 40, 160, 30, 170] {
        bursty = bursty.window(PhaseName::Baseline, &[seen(count), seen(count)]);
    }
    let bursty = bursty.windows(PhaseName::Fault, 6, seen(100), seen(135));
    let calm = Drill::usual(seen(135), seen(100));
    check("calm", &calm, &qps_increase_at_most(0.2), Fail, "");
    check("bursty", &bursty, &qps_increase_at_most(0.2), Inconclusive, "");
}

#[test]
fn amplification_is_paired_and_normalised() {
    let at_most = limit(Some("db"), Metric::Amplification, Op::AtMost, 1.2);
    let drill = |web: u64, baseline: u64, fault: u64| {
        Drill::new().windows(PhaseName::Baseline, 6, seen(100), seen(baseline)).windows(PhaseName::Fault, 6, seen(web), seen(fault))
    };
    let got = check("none", &drill(100, 100, 100), &at_most, Pass, "");
    assert_eq!(got.unit, "x");
    check("three tries", &drill(100, 100, 300), &at_most, Fail, "3x is above the limit of 1.2x");
    check("fan-out of two", &drill(100, 200, 200), &at_most, Pass, "");
    check("twice the load is no amplification", &drill(200, 100, 200), &at_most, Pass, "");
    check("few", &drill(2, 100, 2), &at_most, Inconclusive, "more requests would tell");
    check("idle baseline", &drill(100, 0, 100), &at_most, Inconclusive, "absolute limit");
    check("no ingress requests", &drill(0, 100, 100), &at_most, Inconclusive, "no ingress request");
    let relative = increase(limit(Some("db"), Metric::Amplification, Op::AtMost, 0.2));
    let got = check("as increase", &drill(100, 100, 300), &relative, Fail, "200% is above the limit of 20%");
    assert!((got.observed.unwrap() - 2.0).abs() < 1e-12);
    let mut blind = drill(100, 100, 100);
    blind.edges[0].role = Role::Downstream;
    check("no ingress edge", &blind, &at_most, Inconclusive, "add one under observe.ingress");
}

#[test]
fn retry_ratios_name_their_denominator() {
    let of = |of, value| limit(Some("db"), Metric::RetryRatio { of }, Op::AtMost, value);
    let drill = Drill::usual(seen(100).retries(20), seen(100));
    let all = check("of all", &drill, &of(RetryBase::All, 0.22), Inconclusive, "");
    let first = check("of first", &drill, &of(RetryBase::First, 0.22), Inconclusive, "");
    assert!((all.observed.unwrap() - 0.2).abs() < 1e-12);
    assert!((first.observed.unwrap() - 0.25).abs() < 1e-12, "20% of all is 25% of first attempts");
    check("of all", &drill, &of(RetryBase::All, 0.25), Pass, "");
    check("of first", &drill, &of(RetryBase::First, 0.3), Pass, "");
    check("of all", &drill, &of(RetryBase::All, 0.1), Fail, "20% is above the limit of 10%");
    let three_tries = Drill::usual(seen(300).retries(200), seen(100));
    check("twice as many as first attempts", &three_tries, &of(RetryBase::First, 1.5), Fail, "200% is above the limit of 150%");
    check("twice as many as first attempts", &three_tries, &of(RetryBase::First, 2.5), Pass, "");
    let clean = Drill::usual(seen(100), seen(100));
    check("none of 600", &clean, &of(RetryBase::All, 0.01), Pass, "");
    check("none of 600", &clean, &of(RetryBase::All, 0.004), Inconclusive, "more requests would tell");
    // A limit of none at all is a demand on each attempt that was seen.
    check("none at all", &clean, &of(RetryBase::All, 0.0), Pass, "");
    check("none at all", &drill, &of(RetryBase::All, 0.0), Fail, "");
    check("no traffic", &Drill::usual(seen(0), seen(0)), &of(RetryBase::All, 0.1), Inconclusive, "no request");
}

#[test]
fn success_ratio_counts_the_unanswered_both_ways() {
    let at_least = |value| limit(Some("db"), Metric::SuccessRatio, Op::AtLeast, value);
    let drill = Drill::usual(seen(100).failures(30), seen(100));
    let got = check("fails", &drill, &at_least(0.8), Fail, "70% is below the limit of 80%");
    assert!((got.observed.unwrap() - 0.7).abs() < 1e-12);
    check("holds", &drill, &at_least(0.6), Pass, "");
    check("near", &drill, &at_least(0.7), Inconclusive, "");
    let hanging = Drill::usual(seen(100).pending(20), seen(100));
    let got = check("some never ended", &hanging, &at_least(0.9), Inconclusive, "");
    assert!((got.observed.unwrap() - 1.0).abs() < 1e-12);
    assert!(got.interval.unwrap().0 < 0.85, "{got:?}");
    check("all of them", &Drill::usual(seen(100), seen(100)), &at_least(1.0), Pass, "");
    let open = check("half of them without an outcome", &Drill::usual(seen(100).pending(50), seen(100)), &at_least(1.0), Inconclusive, "");
    assert!(open.reason.unwrap().contains("300 requests had no outcome"));
    check("all but one", &Drill::usual(seen(100).failures(1), seen(100)), &at_least(1.0), Fail, "");
}

#[test]
fn failure_latency() {
    let p99 = |value| limit(Some("db"), Metric::FailureLatency { quantile: 0.99 }, Op::AtMost, value);
    let p50 = |value| limit(Some("db"), Metric::FailureLatency { quantile: 0.5 }, Op::AtMost, value);
    let drill = |failures, ms| Drill::usual(seen(100).failures(failures).failed_after(ms), seen(100));
    let got = check("many fast failures", &drill(80, 500), &p99(3.0), Pass, "");
    assert_eq!((got.unit, got.reason), ("s", None));
    assert!((got.observed.unwrap() - 0.5).abs() < 1e-12);
    check("few fast failures", &drill(5, 500), &p99(3.0), Pass, "too few to bound p99 (299 are needed), so the slowest was used");
    check("slow", &drill(80, 5_000), &p99(3.0), Fail, "5 s is above the limit of 3 s");
    check("slow median", &drill(2, 5_000), &p50(3.0), Fail, "");
    check("none", &drill(0, 0), &p99(3.0), Pass, "no request failed");
    // One slow failure of a hundred does not show that a hundredth is slow.
    let mut one_slow = drill(20, 500);
    one_slow.windows[7].edges[1].failure_latency_ns[0] = 9_000_000_000;
    check("one slow", &one_slow, &p99(3.0), Inconclusive, "more failed requests would tell");
}

#[test]
fn increases_of_other_metrics() {
    let ratio = increase(limit(Some("db"), RETRY_RATIO, Op::AtMost, 0.5));
    let baseline = seen(100).retries(10).failures(10);
    let drill = |retries| {
        Drill::new().windows(PhaseName::Baseline, 6, seen(100), baseline).windows(
            PhaseName::Fault,
            6,
            seen(100),
            seen(100).retries(retries).failures(retries),
        )
    };
    check("same", &drill(10), &ratio, Pass, "");
    check("threefold", &drill(30), &ratio, Fail, "200% is above the limit of 50%");
    let from_none = Drill::usual(seen(100).retries(10), seen(100));
    check("from none", &from_none, &ratio, Inconclusive, "absolute limit");
    let success = increase(limit(Some("db"), Metric::SuccessRatio, Op::AtLeast, -0.1));
    check("still good", &Drill::usual(seen(100).failures(3), seen(100)), &success, Pass, "");
    check("much worse", &Drill::usual(seen(100).failures(40), seen(100)), &success, Fail, "");
    let itself = during(qps_increase_at_most(0.2), PhaseName::Baseline);
    check("baseline itself", &Drill::usual(seen(100), seen(100)), &itself, Inconclusive, "itself");
}

#[test]
fn the_worst_edge_stands_for_all_and_is_named() {
    let mut drill = Drill::new();
    let mut cache = drill.edges[1].clone();
    cache.name = "cache".to_owned();
    drill.edges.push(cache);
    for _ in 0..6 {
        drill = drill.window(PhaseName::Baseline, &[seen(100), seen(100), seen(100)]);
    }
    for _ in 0..6 {
        drill = drill.window(PhaseName::Fault, &[seen(100), seen(150), seen(300)]);
    }
    let got = check("both fail", &drill, &qps_increase_at_most(0.2), Fail, "cache: 200%");
    assert_eq!(got.edge.as_deref(), Some("cache"));
    let got = check("one fails", &drill, &qps_increase_at_most(1.0), Fail, "cache: ");
    assert_eq!(got.edge.as_deref(), Some("cache"));
    let named = increase(limit(Some("db"), Metric::DownstreamQps, Op::AtMost, 1.0));
    check("the other named", &drill, &named, Pass, "");
    let unknown = limit(Some("queue"), Metric::DownstreamQps, Op::AtMost, 1.0);
    check("unknown", &drill, &unknown, Inconclusive, "no edge queue");
}

#[test]
fn a_phase_without_windows_is_inconclusive() {
    let only_baseline = Drill::new().windows(PhaseName::Baseline, 3, seen(100), seen(100));
    for expectation in [
        qps_increase_at_most(0.2),
        limit(Some("db"), RETRY_RATIO, Op::AtMost, 0.2),
        limit(Some("db"), Metric::Amplification, Op::AtMost, 1.2),
        in_every_window(limit(Some("db"), RETRY_RATIO, Op::AtMost, 0.2)),
    ] {
        let got = check("aborted", &only_baseline, &expectation, Inconclusive, "no window of the fault phase");
        assert_eq!(got.windows, [0; 0], "the baseline's are no windows of the fault");
    }
    let got = only_baseline.judge(&recovers(RETRY_RATIO, None, Within::Windows(2)));
    assert_eq!((got.verdict, got.windows), (Inconclusive, vec![]));
}

#[test]
fn of_edges_that_are_equally_bad_the_first_is_named() {
    let mut drill = Drill::usual(seen(100).retries(40), seen(100));
    drill.edges.push(EdgeSpec { name: "cache".to_owned(), ..drill.edges[1].clone() });
    for window in &mut drill.windows {
        window.edges.push(window.edges[1].clone());
    }
    let judge = |drill: &Drill| drill.judge(&limit(None, RETRY_RATIO, Op::AtMost, 0.1)).edge;
    assert_eq!(judge(&drill).as_deref(), Some("db"));
    for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
        window.edges[2].retries.matched += 1;
    }
    assert_eq!(judge(&drill).as_deref(), Some("cache"), "the worst");
}

#[test]
fn a_remnant_of_a_window_is_left_out() {
    let mut drill = Drill::usual(seen(100), seen(100));
    drill.windows[11].end_ns = drill.windows[11].start_ns + SECONDS * 400_000_000;
    let got = drill.judge(&limit(Some("db"), RETRY_RATIO, Op::AtMost, 0.2));
    assert_eq!(got.windows, (6..11).collect::<Vec<u32>>());
}

#[test]
fn two_hundred_a_second_for_ten_seconds_tell_ten_percent_from_twenty() {
    // Windows of 400 requests: five before the fault, seven in it.
    let drill = |fault: u64| {
        Drill::new().windows(PhaseName::Baseline, 5, seen(400), seen(400)).windows(
            PhaseName::Fault,
            7,
            seen(400),
            seen(fault).retries(fault - 400),
        )
    };
    check("one budget", &drill(444), &qps_increase_at_most(0.2), Pass, "");
    check("three budgets of 10%", &drill(532), &qps_increase_at_most(0.2), Fail, "33% is above");
}

#[test]
fn more_than_nothing_and_less_than_all_are_told_by_what_was_seen() {
    let strict = |op, value| Limit { metric: Metric::SuccessRatio, op, value, increase: false };
    let share = |hits, of, unknown| Sample::Share(Share { hits, of, unknown, base: RetryBase::All });
    for (op, value, sample, holds) in [
        (Op::Greater, 0.0, share(0.0, 320.0, 0.0), Some(false)),
        (Op::Greater, 0.0, share(1.0, 320.0, 0.0), Some(true)),
        (Op::Greater, 0.0, share(1.0, 320.0, 5.0), Some(true)),
        (Op::Greater, 0.0, share(0.0, 320.0, 5.0), None),
        (Op::Less, 1.0, share(320.0, 320.0, 0.0), Some(false)),
        (Op::Less, 1.0, share(319.0, 320.0, 0.0), Some(true)),
        (Op::Less, 1.0, share(319.0, 320.0, 1.0), None),
        (Op::AtLeast, 1.0, share(320.0, 320.0, 0.0), Some(true)),
        (Op::AtLeast, 1.0, share(319.0, 320.0, 0.0), Some(false)),
    ] {
        assert_eq!(strict(op, value).holds(&sample, ALPHA, 1.0), holds, "{op:?} {value} {sample:?}");
    }
    let goodput = |count| Sample::Rate { tally: Tally { count, exposure: 10.0 }, phi: 1.0 };
    assert_eq!(strict(Op::Greater, 0.0).holds(&goodput(0.0), ALPHA, 1.0), Some(false));
    assert_eq!(strict(Op::Greater, 0.0).holds(&goodput(3.0), ALPHA, 1.0), Some(true));
}
