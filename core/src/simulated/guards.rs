//! Guards: looked at after each of 300 windows.

use super::Study;
use super::drills::{Drawn, binomial, drill, poisson};
use crate::expectation::grammar::parse_guard;
use crate::judge::guard::GuardState;
use crate::judge::tests::Drill;
use crate::stats::simulation::Random;
use crate::window::PhaseName;

/// Whether the guard trips in a window of the fault.
fn trips(drill: &Drill, line: &str) -> bool {
    let guard = parse_guard(line, &drill.edges).unwrap_or_else(|error| panic!("{line}: {error:?}"));
    let mut state = GuardState::new(&guard, &drill.edges);
    drill.windows.iter().any(|window| state.observe(window).is_some())
}

fn rate(random: &mut Random, mean: f64) -> Drill {
    drill([20, 300, 20], |_, _| [Drawn::requests(5), Drawn::requests(poisson(random, mean))])
}

#[test]
fn on_the_limit() {
    for (test, mean, line) in [
        ("guard `downstream QPS > 0.5/s`, 340 looks", 5.0, "db downstream QPS > 0.5/s"),
        ("guard `downstream QPS > 2/s`, 340 looks", 20.0, "db downstream QPS > 2/s"),
    ] {
        Study { test, error: "on the limit: aborts", stated: 0.05 }.run(|random| trips(&rate(random, mean), line));
    }
    Study { test: "the bare rule `downstream QPS > 1.2 times` (not used), 340 looks", error: "no change: aborts", stated: 0.05 }
        .run_naive(|random| rate(random, 20.0).windows.iter().any(|window| window.edges[1].counts.requests > 24));
    let success = |random: &mut Random| {
        drill([20, 300, 20], |_, _| [Drawn { failures: binomial(random, 20, 0.8), ..Drawn::requests(20) }, Drawn::requests(20)])
    };
    Study { test: "guard `success ratio < 20%`, 340 looks", error: "on the limit: aborts", stated: 0.05 }
        .run(|random| trips(&success(random), "web success ratio < 20%"));
    let amplified = |random: &mut Random| {
        drill([30, 100, 0], |phase, _| {
            let came = poisson(random, 20.0);
            let added = if phase == PhaseName::Fault { poisson(random, 20.0) } else { 0 };
            [Drawn::requests(came), Drawn::requests(came + added)]
        })
    };
    Study { test: "guard `amplification > 2`, 100 looks", error: "on the limit: aborts", stated: 0.05 }
        .run(|random| trips(&amplified(random), "db amplification > 2"));
}

#[test]
fn beyond_it() {
    // Twenty a window are allowed and sixty come: ten windows are time enough.
    let storm = |random: &mut Random| {
        drill([20, 10, 0], |phase, _| {
            let mean = if phase == PhaseName::Fault { 60.0 } else { 20.0 };
            [Drawn::requests(20), Drawn::requests(poisson(random, mean))]
        })
    };
    Study { test: "guard `downstream QPS > 2.4/s`, 10 windows of the fault", error: "2.5 times the limit: does not abort", stated: 0.01 }
        .run(|random| !trips(&storm(random), "db downstream QPS > 2.4/s"));
}
