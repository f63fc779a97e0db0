//! Guards: looked at after each of 300 windows.

use super::Study;
use super::drills::{Drawn, binomial, burst, drill, poisson};
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
fn what_is_told_of_one_window() {
    // Nothing adds up over windows here: each look is a test of its own, and there are many.
    let layers = |random: &mut Random, share: f64| {
        drill([20, 300, 20], |_, _| {
            [Drawn::requests(200), Drawn { retries: binomial(random, 200, share / (1.0 + share)), ..Drawn::requests(200) }]
        })
    };
    let jitter = |random: &mut Random, spread: f64| {
        drill([1, 100, 0], |phase, _| {
            let pauses = if phase == PhaseName::Fault { 60 } else { 0 };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a fifth of a second at most")]
            let first_gaps_ns = (0..pauses).map(|_| (1e8 * (1.0 + spread * (2.0 * random.uniform() - 1.0))) as u64).collect();
            [Drawn::requests(60), Drawn { retries: pauses, first_gaps_ns, ..Drawn::requests(60 + pauses) }]
        })
    };
    let bursts = |random: &mut Random, peak: f64| {
        drill([1, 100, 0], |_, _| [Drawn::requests(200), Drawn { retries: 200, burst: burst(random, 200, peak), ..Drawn::requests(400) }])
    };
    let aborts = "on the limit: aborts";
    Study { test: "guard `layers retrying > 0`, 340 looks", error: aborts, stated: 0.05 }
        .run(|random| trips(&layers(random, 0.01), "layers retrying > 0"));
    Study { test: "guard `backoff jitter < 0.577350`, 100 looks", error: aborts, stated: 0.05 }
        .run(|random| trips(&jitter(random, 1.0), "db backoff jitter < 0.577350"));
    // A bin that is ten times as likely as each of the others is 9.57 times the mean.
    Study { test: "guard `retry peak to mean > 9.57`, 100 looks", error: aborts, stated: 0.05 }
        .run(|random| trips(&bursts(random, 10.0), "db retry peak to mean > 9.57"));
    let misses = "far beyond it: does not abort";
    Study { test: "guard `layers retrying > 0`, 340 looks", error: misses, stated: 0.01 }
        .run(|random| !trips(&layers(random, 0.2), "layers retrying > 0"));
    Study { test: "guard `backoff jitter < 0.577350`, 100 looks", error: misses, stated: 0.01 }
        .run(|random| !trips(&jitter(random, 0.1), "db backoff jitter < 0.577350"));
    Study { test: "guard `retry peak to mean > 9.57`, 100 looks", error: misses, stated: 0.01 }
        .run(|random| !trips(&bursts(random, 60.0), "db retry peak to mean > 9.57"));
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
