//! Times: quantiles against a limit and against the baseline, the spread of pauses, trends.

use super::Study;
use super::drills::{Drawn, burst, drill, on_the_limit, time, verdict};
use crate::judge::Verdict;
use crate::judge::tests::Drill;
use crate::stats::simulation::Random;
use crate::stats::trend;
use crate::track::burst::Burst;
use crate::window::PhaseName;

/// Exponential times with a mean of 100 ms in the baseline and `factor` times that under the fault.
fn times(random: &mut Random, windows: u32, each: u64, factor: f64) -> Drill {
    drill([windows, windows, 0], |phase, _| {
        let mean_ns = if phase == PhaseName::Fault { 1e8 * factor } else { 1e8 };
        let mut some = || (0..each).map(|_| time(random, mean_ns)).collect::<Vec<u64>>();
        let seen = Drawn { failures: each, latency_ns: some(), failure_latency_ns: some(), ..Drawn::requests(2 * each) };
        [Drawn::requests(each), seen]
    })
}

#[test]
fn against_a_limit() {
    // Quantiles of the exponential: the mean times ln(1/(1-q)).
    for (test, line) in [
        ("`latency p50`, 300 answers", "db latency p50 <= 69.314718ms"),
        ("`latency p90`, 300 answers", "db latency p90 <= 230.258509ms"),
        ("`failure latency p90`, 300 failures", "db failure latency p90 <= 230.258509ms"),
    ] {
        on_the_limit(test, line, 0.05, |random| times(random, 3, 100, 1.0));
    }
    on_the_limit("`latency p99`, 1200 answers", "db latency p99 <= 460.517018ms", 0.05, |random| times(random, 6, 200, 1.0));
}

#[test]
fn against_the_baseline() {
    for (test, line) in [
        ("`latency p50 <= 1.5x`, 300 answers a phase", "db latency p50 <= 1.5x"),
        ("`latency p90 <= 1.5x`, 300 answers a phase", "db latency p90 <= 1.5x"),
    ] {
        on_the_limit(test, line, 0.05, |random| times(random, 3, 100, 1.5));
    }
    Study { test: "`latency p90 <= 1.5x`, 300 answers a phase", error: "3 times: no fail", stated: 0.01 }
        .run(|random| verdict(&times(random, 3, 100, 3.0), "db latency p90 <= 1.5x") != Verdict::Fail);
}

#[test]
fn callers_who_do_not_wait() {
    // Exponential times of 100 ms; who has waited for `patience_ns` is gone.
    let impatient = |random: &mut Random, patience_ns: u64| {
        drill([3, 3, 0], |_, _| {
            let (mut answered, mut given_up_ns) = (Vec::new(), Vec::new());
            for _ in 0..100 {
                let time = time(random, 1e8);
                if time <= patience_ns { answered.push(time) } else { given_up_ns.push(patience_ns) }
            }
            [Drawn::requests(100), Drawn { latency_ns: answered, given_up_ns, ..Drawn::requests(100) }]
        })
    };
    let test = "`latency p50`, 300 requests, those above 150 ms given up";
    on_the_limit(test, "db latency p50 <= 69.314718ms", 0.05, |random| impatient(random, 150_000_000));
    let test = "`latency p90`, 300 requests, those above 150 ms given up";
    on_the_limit(test, "db latency p90 <= 230.258509ms", 0.05, |random| impatient(random, 150_000_000));
    Study { test, error: "limit of 140 ms, which p90 is beyond: no fail", stated: 0.01 }
        .run(|random| verdict(&impatient(random, 150_000_000), "db latency p90 <= 140ms") != Verdict::Fail);
}

#[test]
fn bursts_of_retries() {
    let bursts = |random: &mut Random, peak: f64| {
        drill([1, 1, 0], |phase, _| {
            let retries = if phase == PhaseName::Fault { 600 } else { 0 };
            let burst = if retries > 0 { burst(random, retries, peak) } else { Burst::default() };
            [Drawn::requests(600), Drawn { retries, burst, ..Drawn::requests(600 + retries) }]
        })
    };
    // A bin that is ten times as likely as each of the others is 9.57 times the mean.
    let truth = 10.0 * 200.0 / 209.0;
    let line = format!("db retry peak to mean <= {truth:.6}x");
    on_the_limit("`retry peak to mean`, 600 retries", &line, 0.05, |random| bursts(random, 10.0));
    let test = "`retry peak to mean <= 3`, 600 retries";
    Study { test, error: "evenly spread: fail", stated: 0.05 }
        .run(|random| verdict(&bursts(random, 1.0), "db retry peak to mean <= 3") == Verdict::Fail);
    Study { test, error: "one bin ten times the others: no fail", stated: 0.2 }
        .run(|random| verdict(&bursts(random, 10.0), "db retry peak to mean <= 3") != Verdict::Fail);
}

#[test]
fn pauses() {
    let pauses = |random: &mut Random, each: u64| {
        drill([1, 3, 0], |_, _| {
            // Full jitter: uniform, whose coefficient of variation is the root of a third.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a tenth of a second at most")]
            let first_gaps_ns = (0..each).map(|_| (1e8 * random.uniform()) as u64).collect();
            [Drawn::requests(each), Drawn { retries: each, first_gaps_ns, ..Drawn::requests(2 * each) }]
        })
    };
    on_the_limit("`backoff jitter`, 60 pauses", "db backoff jitter >= 0.577350", 0.05, |random| pauses(random, 20));
    on_the_limit("`backoff jitter`, 600 pauses", "db backoff jitter >= 0.577350", 0.05, |random| pauses(random, 200));
    Study { test: "`backoff jitter >= 0.4`, 60 pauses", error: "full jitter: no pass", stated: 0.05 }
        .run(|random| verdict(&pauses(random, 20), "db backoff jitter >= 0.4") != Verdict::Pass);
}

#[test]
fn trends() {
    let shown = |random: &mut Random, points: u32, slope: f64| {
        let points: Vec<(f64, f64)> = (0..points).map(|x| (f64::from(x), random.uniform() - slope * f64::from(x))).collect();
        trend::theil_sen(&points, 0.05).is_some_and(|trend| trend.interval.hi < 0.0)
    };
    for (test, points) in [("trend, 6 windows", 6), ("trend, 20 windows", 20)] {
        Study { test, error: "flat: falls", stated: 0.05 }.run(|random| shown(random, points, 0.0));
    }
    Study { test: "trend, 20 windows", error: "falls by twice its scatter in all: not shown", stated: 0.01 }
        .run(|random| !shown(random, 20, 0.1));
}
