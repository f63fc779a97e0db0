//! Requests that did not come in: nothing fails then, and nothing is shown.

use super::*;
use crate::judge::Verdict;

/// Six calm windows, then two busy ones and four in which `came` requests of 100 come in.
fn crash(came: u64, recovery: u64) -> Drill {
    let calm = seen(100);
    Drill::new()
        .windows(PhaseName::Baseline, 6, calm, calm)
        .windows(PhaseName::Fault, 2, calm, seen(100).failures(30))
        .windows(PhaseName::Fault, 4, seen(came), seen(came))
        .windows(PhaseName::Recovery, 9, seen(recovery), seen(recovery))
}

fn own_load(drill: Drill) -> Drill {
    let load = LoadHealth { lag_p99_ns: 0, late: 0, scheduled: 2_100, sent: 2_100, answered: 800, local_errors: 0 };
    Drill { load: Some(load), ..drill }
}

#[test]
fn a_service_that_crashed_passes_nothing() {
    let drill = crash(0, 0);
    let web = |metric, op, value| limit(Some("web"), metric, op, value);
    for expectation in [
        web(Metric::SuccessRatio, Op::AtLeast, 0.95),
        in_every_window(web(Metric::SuccessRatio, Op::AtLeast, 0.9)),
        web(Metric::Latency { quantile: 0.9 }, Op::AtMost, 1.0),
        web(Metric::FailureLatency { quantile: 0.9 }, Op::AtMost, 1.0),
        limit(None, RETRY_RATIO, Op::AtMost, 0.2),
        qps_increase_at_most(0.2),
    ] {
        let judgement = drill.judge(&expectation);
        assert_eq!(judgement.verdict, Verdict::Inconclusive, "{:?}: {:?}", expectation.metric, judgement.reason);
        assert!(judgement.reason.unwrap().contains("33.33% of the baseline's requests came in (3.3/s)"));
    }
    // What counts arrivals says it itself, and what is broken stays so.
    assert_eq!(drill.judge(&increase(web(Metric::Goodput, Op::AtLeast, -0.05))).verdict, Verdict::Fail);
    assert_eq!(drill.judge(&limit(Some("db"), Metric::SuccessRatio, Op::AtLeast, 0.95)).verdict, Verdict::Fail);
    // The baseline was another time.
    assert_eq!(drill.judge(&during(web(Metric::SuccessRatio, Op::AtLeast, 0.95), PhaseName::Baseline)).verdict, Verdict::Pass);
}

#[test]
fn of_our_own_load_a_part_that_is_missing_was_turned_away() {
    let expectation = limit(Some("web"), Metric::SuccessRatio, Op::AtLeast, 0.95);
    assert_eq!(crash(70, 100).judge(&expectation).verdict, Verdict::Pass);
    assert_eq!(own_load(crash(70, 100)).judge(&expectation).verdict, Verdict::Inconclusive);
    assert_eq!(own_load(crash(95, 100)).judge(&expectation).verdict, Verdict::Pass);
    // Where the fault itself keeps requests away, that is no news.
    let mut aimed = crash(0, 100);
    aimed.faults = vec![FaultOutcome { spec: FaultSpec { to: "web".to_owned(), ..http_status(400, 100).spec }, ..http_status(400, 100) }];
    assert_eq!(aimed.judge(&qps_increase_at_most(0.2)).verdict, Verdict::Pass);
}

#[test]
fn behind_a_layer_that_is_still_asked_fewer_may_come() {
    let mut drill = crash(0, 100);
    drill.edges.push(EdgeSpec { name: "front".to_owned(), ..drill.edges[0].clone() });
    for window in &mut drill.windows {
        window.edges.push(seen(100).window());
    }
    assert_eq!(drill.judge(&limit(Some("web"), Metric::SuccessRatio, Op::AtLeast, 0.95)).verdict, Verdict::Pass);
}

#[test]
fn a_third_of_the_load_does_not_show_that_a_service_heals() {
    let metastable =
        Expectation { metric: Metric::Metastable, edge: None, ..during(limit(None, RETRY_RATIO, Op::AtMost, 0.0), PhaseName::Recovery) };
    assert_eq!(crash(100, 35).judge(&metastable).verdict, Verdict::Inconclusive);
    assert_eq!(crash(100, 100).judge(&metastable).verdict, Verdict::Pass);
    assert_eq!(crash(100, 35).judge(&recovers(RETRY_RATIO, None, Within::Windows(2))).verdict, Verdict::Inconclusive);
}

#[test]
fn callers_who_ask_less_do_not_hide_a_storm() {
    let calm = seen(100);
    let drill = |came, sent| {
        Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(
            PhaseName::Fault,
            6,
            seen(came),
            seen(sent).failures(30).retries(50),
        )
    };
    let judgement = drill(60, 100).judge(&qps_increase_at_most(0.2));
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    let reason = judgement.reason.unwrap();
    assert!(reason.contains("60% of the baseline's requests came in: for each of them attempts rose by 66.67%"), "{reason}");
    assert_eq!(drill(60, 60).judge(&qps_increase_at_most(0.2)).verdict, Verdict::Pass);
    assert_eq!(drill(100, 100).judge(&qps_increase_at_most(0.2)).verdict, Verdict::Pass);
}

#[test]
fn what_has_no_outcome_has_not_recovered() {
    let calm = seen(100);
    let drill = |after: Seen| {
        Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, seen(100).failures(30)).windows(
            PhaseName::Recovery,
            9,
            after,
            after,
        )
    };
    let metastable =
        Expectation { metric: Metric::Metastable, edge: None, ..during(limit(None, RETRY_RATIO, Op::AtMost, 0.0), PhaseName::Recovery) };
    for expectation in
        [recovers(Metric::SuccessRatio, None, Within::Windows(2)), recovers(Metric::CostPerSuccess, None, Within::Windows(2)), metastable]
    {
        assert_eq!(drill(seen(100).pending(95)).judge(&expectation).verdict, Verdict::Inconclusive, "{:?}", expectation.metric);
        assert_eq!(drill(seen(100).pending(1)).judge(&expectation).verdict, Verdict::Pass, "{:?}", expectation.metric);
    }
}
