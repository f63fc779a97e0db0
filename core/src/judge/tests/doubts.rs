//! What overrules a number: lost data, an unhealthy load, a fault without effect; and the hidden outage.

use super::*;
use crate::judge::Verdict::{self, Fail, Inconclusive, Invalid, Pass, Vacuous};
use crate::judge::{drill_verdict, is_effective};

fn check(name: &str, drill: &Drill, expectation: &Expectation, verdict: Verdict, reason: &str) {
    let got = drill.judge(expectation);
    assert_eq!(got.verdict, verdict, "{name}: {got:?}");
    assert!(got.reason.as_deref().unwrap_or("").contains(reason), "{name}: {got:?}");
}

fn retry_at_most(value: f64) -> Expectation {
    limit(Some("db"), RETRY_RATIO, Op::AtMost, value)
}

#[test]
fn lost_events_spoil_only_what_is_made_of_events() {
    let mut drill = Drill::usual(seen(100), seen(100));
    drill.windows[8].events_lost = 1;
    check("events", &drill, &retry_at_most(0.1), Invalid, "1 event was lost in window 8");
    check("counts", &drill, &qps_increase_at_most(0.2), Pass, "");
    let elsewhere = during(retry_at_most(0.1), PhaseName::Baseline);
    check("another phase", &drill, &elsewhere, Pass, "");
    // One in two thousand requests is within a thousandth.
    let mut busy = Drill::usual(seen(1900), seen(1900));
    busy.windows[8].events_lost = 2;
    check("few of many", &busy, &retry_at_most(0.1), Pass, "");
}

#[test]
fn an_unhealthy_load_passes_nothing_and_excuses_nothing() {
    let healthy = LoadHealth { lag_p99_ns: 2_000_000, late: 0, scheduled: 600, sent: 600, answered: 600, local_errors: 0 };
    let with = |load| {
        let mut drill = Drill::usual(seen(100), seen(100));
        drill.load = Some(load);
        drill
    };
    check("healthy", &with(healthy), &retry_at_most(0.1), Pass, "");
    let late = LoadHealth { lag_p99_ns: 23_000_000, late: 20, ..healthy };
    check("late", &with(late), &retry_at_most(0.1), Invalid, "p99 23.0 ms, at most 10 ms");
    let few = LoadHealth { lag_p99_ns: 23_000_000, late: 1, scheduled: 48, sent: 48, answered: 48, local_errors: 0 };
    check("one of a few dozen", &with(few), &retry_at_most(0.1), Pass, "");
    let nowhere = LoadHealth { answered: 0, ..healthy };
    check("nowhere", &with(nowhere), &retry_at_most(0.1), Invalid, "got no answer to any of its 600 requests");
    let short = LoadHealth { sent: 590, ..healthy };
    check("short", &with(short), &retry_at_most(0.1), Invalid, "sent 590 of 600 requests");
    let clogged = LoadHealth { local_errors: 3, ..healthy };
    check("clogged", &with(clogged), &retry_at_most(0.1), Invalid, "3 connection errors of its own");
    let mut storm = Drill::usual(seen(300).retries(200), seen(100));
    storm.load = Some(late);
    check("storm", &storm, &retry_at_most(0.1), Fail, "and the load generator started requests late");
}

#[test]
fn an_unconfirmed_fault_is_invalid() {
    let mut drill = Drill::usual(seen(300).retries(200), seen(100));
    drill.faults[0].removed_ns = None;
    check("removal", &drill, &retry_at_most(0.1), Invalid, "the removal of http_status to db was not confirmed");
    check("baseline", &drill, &during(retry_at_most(0.1), PhaseName::Baseline), Pass, "");
    drill.faults[0].removed_ns = Some(1);
    drill.faults[0].applied_ns = 0;
    check("begin", &drill, &retry_at_most(0.1), Invalid, "was not confirmed");
}

#[test]
fn a_fault_that_hit_nothing_tested_nothing() {
    let mut drill = Drill::usual(seen(100), seen(100));
    drill.faults = vec![http_status(0, 0)];
    check("blind", &drill, &retry_at_most(0.1), Vacuous, "saw none of its answers");
    check("blind", &drill, &qps_increase_at_most(0.2), Vacuous, "another tc program");
    drill.faults = vec![http_status(312, 0)];
    check("no hit", &drill, &retry_at_most(0.1), Vacuous, "hit none of the 312 answers");
    check("before it", &drill, &during(retry_at_most(0.1), PhaseName::Baseline), Pass, "");
    let p99 = limit(Some("db"), Metric::FailureLatency { quantile: 0.99 }, Op::AtMost, 3.0);
    check("no failure", &drill, &p99, Vacuous, "nothing was tested");
    drill.faults = vec![http_status(312, 90)];
    check("hit", &drill, &retry_at_most(0.1), Pass, "");
    drill.faults = vec![http_status(0, 0), http_status(312, 90)];
    check("one of two", &drill, &retry_at_most(0.1), Pass, "");
    // What another edge met with does not test this one.
    drill.faults = vec![
        http_status(0, 0),
        FaultOutcome { spec: FaultSpec { to: "cache".to_owned(), ..http_status(312, 90).spec }, ..http_status(312, 90) },
    ];
    check("one of two edges", &drill, &retry_at_most(0.1), Vacuous, "http_status to db saw none");
    drill.faults.remove(0);
    check("another edge", &drill, &retry_at_most(0.1), Pass, "");
    let mut storm = Drill::usual(seen(300).retries(200), seen(100));
    storm.faults = vec![http_status(0, 0)];
    check("a limit that is broken", &storm, &retry_at_most(0.1), Fail, "and nothing was tested");
}

#[test]
fn thirty_percent_loss_under_a_long_timeout_tests_no_retry() {
    // What 30% loss does on kept-alive connections with 3 s timeouts: slower answers, hardly a failure, no retry.
    let calm = seen(1000);
    let mut drill =
        Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, calm.failures(3).latency(220));
    drill.faults = vec![loss(26_182, 8_348)];
    check("amplification", &drill, &limit(Some("db"), Metric::Amplification, Op::AtMost, 1.2), Vacuous, "nothing to retry");
    check("increase", &drill, &qps_increase_at_most(0.2), Vacuous, "shorter client timeout");
    // Whether the service survived the slowness was tested all the same.
    check("success", &drill, &limit(Some("db"), Metric::SuccessRatio, Op::AtLeast, 0.95), Pass, "");
    // That a few failed all the same is not denied.
    check("few", &drill, &qps_increase_at_most(0.2), Vacuous, "no more than 5 points of them failed or were given up");
    // With fresh connections and half a second, a third fails.
    let mut felt =
        Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, seen(1430).failures(430).retries(430));
    felt.faults = vec![loss(26_182, 8_348)];
    check("felt", &felt, &qps_increase_at_most(0.2), Fail, "43% is above");
    let phases = felt.phases();
    let evidence = |drill: &Drill| is_effective(&drill.faults[0], &drill.evidence(&phases));
    assert!(evidence(&felt));
    let mut unfelt = Drill::usual(calm, calm);
    unfelt.faults = vec![loss(10_000, 3_000)];
    assert!(!evidence(&unfelt));
    check("unfelt", &unfelt, &limit(Some("db"), Metric::SuccessRatio, Op::AtLeast, 0.95), Vacuous, "no more than 5 points");
}

#[test]
fn loss_that_keeps_connections_from_being_made_is_felt() {
    // Fresh connections, half a second: a third of the handshakes is given up. What comes about is answered, so no attempt fails, and none is
    // a retry of another.
    let calm = seen(1000);
    let mut drill = Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, calm.latency(220));
    drill.faults = vec![loss(26_182, 8_348)];
    let fault = drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault);
    fault.for_each(|window| window.edges[1].counts.connect_failures = 430);
    check("felt", &drill, &qps_increase_at_most(0.2), Pass, "");
    // As many that failed in the baseline already are none of the fault's doing.
    drill.windows.iter_mut().for_each(|window| window.edges[1].counts.connect_failures = 430);
    check("as before", &drill, &qps_increase_at_most(0.2), Vacuous, "next to nothing to retry");
}

#[test]
fn a_delay_is_meant_to_slow() {
    let calm = seen(100);
    let mut drill = Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm, calm.latency(105));
    drill.faults = vec![delay(1200, 1200)];
    check("felt", &drill, &qps_increase_at_most(0.2), Pass, "");
    // Three answers in a hundred of the baseline are slower than all under the delay: its 99th percentile says nothing.
    for window in &mut drill.windows[..6] {
        for edge in &mut window.edges {
            edge.latency_ns[..3].fill(700_000_000);
        }
    }
    check("felt by all but the slowest", &drill, &qps_increase_at_most(0.2), Pass, "");
    let mut unfelt = Drill::usual(calm, calm);
    unfelt.faults = vec![delay(1200, 1200)];
    check("unfelt", &unfelt, &qps_increase_at_most(0.2), Vacuous, "delay to db hit 1200 of 1200 packets");
}

#[test]
fn an_outage_without_amplification_is_called_out() {
    // A gateway ejects its upstreams: nine calls for twenty requests, all others answered with 502 by itself.
    let calm = seen(100);
    let drill =
        Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, calm.failures(95), seen(45).failures(45));
    for expectation in [
        qps_increase_at_most(0.2),
        limit(Some("db"), Metric::Amplification, Op::AtMost, 1.2),
        limit(None, Metric::DownstreamQps, Op::AtMost, 50.0),
    ] {
        check("ejected", &drill, &expectation, Pass, "95% of the requests on web failed: an outage without amplification");
    }
    let quiet = Drill::new().windows(PhaseName::Baseline, 6, calm, calm).windows(PhaseName::Fault, 6, seen(45), seen(45));
    let got = quiet.judge(&qps_increase_at_most(0.2));
    assert_eq!((got.verdict, got.reason), (Pass, None), "less load is no outage");
}

#[test]
fn the_drill_is_as_bad_as_its_worst_expectation() {
    let judged = |verdicts: &[Verdict]| {
        let drill = Drill::usual(seen(100), seen(100));
        let one = drill.judge(&retry_at_most(0.1));
        let judgements: Vec<Judgement> = verdicts.iter().map(|&verdict| Judgement { verdict, ..one.clone() }).collect();
        drill_verdict(&judgements)
    };
    assert_eq!(judged(&[]), Inconclusive);
    assert_eq!(judged(&[Pass, Pass]), Pass);
    assert_eq!(judged(&[Pass, Inconclusive]), Inconclusive);
    assert_eq!(judged(&[Vacuous, Inconclusive]), Vacuous);
    assert_eq!(judged(&[Vacuous, Invalid, Pass]), Invalid);
    assert_eq!(judged(&[Fail, Invalid, Vacuous]), Fail);
}

#[test]
fn a_window_in_which_stormdrill_itself_stood_still_is_no_evidence_for_or_against() {
    let mut drill = Drill::usual(seen(300).retries(200), seen(100));
    check("undisturbed", &drill, &retry_at_most(0.1), Fail, "");
    let fault = drill.windows.iter().find(|window| window.phase == PhaseName::Fault).map(|window| (window.start_ns, window.end_ns));
    let Some((start_ns, end_ns)) = fault else { panic!("no fault window") };
    drill.held_up = vec![HeldUp { start_ns: start_ns + 1, end_ns: end_ns - 1 }];
    check("a limit that is broken", &drill, &retry_at_most(0.1), Invalid, "stormdrill itself was held up for");
    // Before anything was measured, or between two phases.
    drill.held_up = vec![HeldUp { start_ns: 0, end_ns: drill.windows[0].start_ns }];
    check("elsewhere", &drill, &retry_at_most(0.1), Fail, "");
}

#[test]
fn a_drill_that_was_not_observed_to_its_end_shows_nothing() {
    let mut drill = Drill::usual(seen(300).retries(200), seen(100));
    drill.blind = Some("a hook is gone".to_owned());
    check("a limit that is broken", &drill, &retry_at_most(0.1), Invalid, "a hook is gone");
    check("a limit that holds", &drill, &retry_at_most(0.9), Invalid, "a hook is gone");
}

#[test]
fn a_fault_between_a_socket_and_its_callers_is_not_judged_by_what_the_socket_saw() {
    let success = limit(Some("web"), Metric::SuccessRatio, Op::AtLeast, 0.9);
    let mut drill = Drill::usual(seen(100), seen(100));
    drill.faults[0].spec.to = "web".to_owned();
    check("success", &drill, &success, Invalid, "judge it at the caller's edge");
    check("latency", &drill, &limit(Some("web"), Metric::Latency { quantile: 0.99 }, Op::AtMost, 1.0), Invalid, "between web's socket");
    check("baseline", &drill, &during(success.clone(), PhaseName::Baseline), Pass, "");
    check("another edge", &drill, &limit(Some("db"), Metric::SuccessRatio, Op::AtLeast, 0.9), Pass, "");
    drill.faults[0].spec.to = "db".to_owned();
    check("aimed at another edge", &drill, &success, Pass, "");
}
