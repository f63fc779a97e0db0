//! What is said beside the verdicts: whether a fault did anything, hidden outages, rises, cascades, comparisons.

use super::Study;
use super::drills::{Drawn, binomial, drill, poisson, time, verdict};
use crate::judge::tests::{Drill, loss};
use crate::judge::{LoadHealth, Verdict, is_effective};
use crate::report::compare::{self, Change};
use crate::report::json::finding::{CASCADE, UNNAMED_RISE};
use crate::report::tests::cascades;
use crate::stats::simulation::Random;
use crate::window::PhaseName;

/// Failures of `db` in the baseline and under a loss.
fn failing(random: &mut Random, shares: [f64; 2]) -> Drill {
    let mut drawn = drill([6, 6, 0], |phase, _| {
        let share = shares[usize::from(phase == PhaseName::Fault)];
        [Drawn::requests(100), Drawn { failures: binomial(random, 100, share), ..Drawn::requests(100) }]
    });
    drawn.faults = vec![loss(1000, 300)];
    drawn
}

fn effective(drill: &Drill) -> bool {
    let phases = drill.phases();
    is_effective(&drill.faults[0], &drill.evidence(&phases))
}

#[test]
fn effects() {
    Study { test: "whether a fault did anything", error: "5% fail before and after: it did", stated: 0.05 }
        .run(|random| effective(&failing(random, [0.05, 0.05])));
    Study { test: "whether a fault did anything", error: "from 2% to 20%: it did not", stated: 0.01 }
        .run(|random| !effective(&failing(random, [0.02, 0.2])));
}

#[test]
fn loads() {
    // One of a hundred is late: on the limit.
    let late = |random: &mut Random| {
        let mut drawn = failing(random, [0.0, 0.5]);
        let late = binomial(random, 2000, 0.01);
        drawn.load = Some(LoadHealth { lag_p99_ns: 11_000_000, late, scheduled: 2000, sent: 2000, answered: 2000, local_errors: 0 });
        drawn
    };
    Study { test: "whether the load kept its schedule", error: "1% late: invalid", stated: 0.05 }
        .run(|random| verdict(&late(random), "db success ratio >= 10%") == Verdict::Invalid);
}

#[test]
fn rises() {
    let has = |drill: Drill, kind: &str| cascades::run_of(drill).findings.iter().any(|finding| finding.kind == kind);
    let steady = |random: &mut Random, factor: f64| {
        cascades::drill(random, 0.95, |phase, _| if phase == PhaseName::Fault { 20.0 * factor } else { 20.0 })
    };
    Study { test: "cascade", error: "no change: found", stated: 0.05 }.run(|random| has(steady(random, 1.0), CASCADE));
    Study { test: "cascade", error: "twice as much, 120 requests a phase: not found", stated: 0.02 }
        .run(|random| !has(steady(random, 2.0), CASCADE));
    let calm = |random: &mut Random| cascades::drill(random, 0.0, |_, _| 20.0);
    // Three edges, each tested.
    Study { test: "rise of an edge without an expectation, three edges", error: "no change: found", stated: 0.05 }
        .run(|random| has(calm(random), UNNAMED_RISE));
}

#[test]
fn comparisons() {
    let run = |random: &mut Random, share: f64| cascades::run_of(failing(random, [0.0, share]));
    let says = |random: &mut Random, shares: [f64; 2], change: Change| {
        let rows = compare::rows(&run(random, shares[0]), &run(random, shares[1]));
        rows.iter().any(|row| row.what == "db: failed" && row.change == change)
    };
    let test = "`compare`, share of failures";
    Study { test, error: "the same: worse", stated: 0.01 }.run(|random| says(random, [0.2, 0.2], Change::Worse));
    Study { test, error: "the same: better", stated: 0.01 }.run(|random| says(random, [0.2, 0.2], Change::Better));
    Study { test, error: "20% and 30% of 600: not worse", stated: 0.1 }.run(|random| !says(random, [0.2, 0.3], Change::Worse));
    let slow = |random: &mut Random, mean_ns: f64| {
        cascades::run_of(drill([1, 3, 0], |_, _| {
            let latency_ns = (0..100).map(|_| time(random, mean_ns)).collect();
            [Drawn::requests(100), Drawn { latency_ns, ..Drawn::requests(100) }]
        }))
    };
    for (test, what) in [
        ("`compare`, latency p50 of 300", "db: latency p50"),
        ("`compare`, requests per ingress request", "db: requests per ingress request"),
    ] {
        Study { test, error: "the same: worse", stated: 0.015 }.run(|random| {
            let rows = compare::rows(&slow(random, 1e8), &slow(random, 1e8));
            rows.iter().any(|row| row.what == what && row.change == Change::Worse)
        });
    }
    Study { test: "`compare`, latency p50 of 300", error: "half as much again: not worse", stated: 0.2 }.run(|random| {
        let rows = compare::rows(&slow(random, 1e8), &slow(random, 1.5e8));
        !rows.iter().any(|row| row.what == "db: latency p50" && row.change == Change::Worse)
    });
}

#[test]
fn hidden_outages() {
    // Everything as before, and a tenth fail before and after.
    let same = |random: &mut Random, fault: f64| {
        let mut drawn = drill([6, 6, 0], |phase, _| {
            let mean = if phase == PhaseName::Fault { fault } else { 100.0 };
            let came = poisson(random, 100.0);
            let failures = if mean < 100.0 { binomial(random, came, 0.9) } else { binomial(random, came, 0.1) };
            [Drawn { failures, ..Drawn::requests(came) }, Drawn::requests(poisson(random, mean))]
        });
        drawn.faults[0].counts.hit = 100;
        drawn
    };
    let told = |drill: &Drill| {
        let expectation = crate::expectation::grammar::parse_expectation("db amplification <= 1.5", &drill.edges)
            .unwrap_or_else(|error| panic!("{error:?}"));
        drill.judge(&expectation).reason.is_some_and(|reason| reason.contains("outage without amplification"))
    };
    Study { test: "outage behind a pass", error: "no change: told", stated: 0.05 }.run(|random| told(&same(random, 100.0)));
    Study { test: "outage behind a pass", error: "half the attempts, 90% fail: not told", stated: 0.01 }
        .run(|random| !told(&same(random, 50.0)));
}
