//! Rates: against a limit, against the baseline, per ingress request; and amplification.

use super::Study;
use super::drills::{Drawn, SECONDS, drill, on_the_limit, poisson, verdict};
use crate::judge::Verdict;
use crate::judge::tests::Drill;
use crate::stats::power;
use crate::stats::simulation::Random;
use crate::window::PhaseName;

/// `web` and `db` at the same mean a window, and under the fault `db` at `ratio` of it.
fn rise(random: &mut Random, windows: [u32; 3], mean: f64, ratio: f64) -> Drill {
    drill(windows, |phase, _| {
        let factor = if phase == PhaseName::Fault { ratio } else { 1.0 };
        [Drawn::requests(poisson(random, mean)), Drawn::requests(poisson(random, mean * factor))]
    })
}

const INCREASE: &str = "db downstream QPS increase <= 20%";

#[test]
fn increase() {
    let test = "`downstream QPS increase <= 20%`";
    let at_limit = |random: &mut Random| rise(random, [6, 6, 0], 60.0, 1.2);
    Study { test, error: "1.2 times: fail", stated: 0.05 }.run(|random| verdict(&at_limit(random), INCREASE) == Verdict::Fail);
    Study { test, error: "1.2 times: pass", stated: 0.05 }.run(|random| verdict(&at_limit(random), INCREASE) == Verdict::Pass);
    let few = |random: &mut Random, ratio| rise(random, [1, 1, 0], 60.0, ratio);
    Study { test, error: "no change, 60 requests a phase: fail", stated: 0.01 }
        .run(|random| verdict(&few(random, 1.0), INCREASE) == Verdict::Fail);
    Study { test, error: "3 times, 60 requests a phase: no fail", stated: 0.01 }
        .run(|random| verdict(&few(random, 3.0), INCREASE) != Verdict::Fail);
    let naive = |drill: &Drill| drill.windows[1].edges[1].counts.requests as f64 > 1.2 * drill.windows[0].edges[1].counts.requests as f64;
    Study { test: "comparing the bare counts (not used)", error: "no change, 60 requests a phase: fail", stated: 0.05 }
        .run_naive(|random| naive(&few(random, 1.0)));
}

#[test]
fn what_the_plan_says_is_needed_is_enough() {
    for (truth, expected) in [(1.0, Verdict::Pass), (2.0, Verdict::Fail)] {
        let needed = power::baseline_events(1.2, truth, 1.0, 0.05, 0.8).unwrap_or(f64::NAN);
        Study {
            test: "`downstream QPS increase <= 20%`, 12 windows with as many requests as `plan` asks for",
            error: if truth > 1.2 { "2 times: no fail" } else { "no change: no pass" },
            stated: 0.2,
        }
        .run(|random| verdict(&rise(random, [12, 12, 0], needed / 12.0, truth), INCREASE) != expected);
    }
}

#[test]
fn what_the_plan_says_is_needed_of_attempts_and_rates_is_enough() {
    // 1.1 attempts a request, whose tries are geometric: each fails with one in eleven.
    let requests = power::tried_requests(1.2, 1.1, 0.05, 0.8).unwrap_or(f64::NAN);
    let layered = |random: &mut Random| {
        drill([6, 6, 0], |phase, _| {
            let came = poisson(random, requests / 6.0);
            let attempts = match phase {
                PhaseName::Fault => (0..came).map(|_| u64::from(random.tries(1.0 / 11.0, 100))).sum(),
                _ => came,
            };
            [Drawn::requests(came), Drawn::requests(attempts)]
        })
    };
    Study { test: "`amplification <= 1.2x`, as many requests as `plan` asks for", error: "1.1 times: no pass", stated: 0.2 }
        .run(|random| verdict(&layered(random), "db amplification <= 1.2x") != Verdict::Pass);
    let events = power::events(true, 0.05, 0.8).unwrap_or(f64::NAN);
    let line = format!("db downstream QPS <= {:.6}/s", 2.0 * events / SECONDS);
    Study { test: "`downstream QPS` against a limit, as many requests as `plan` asks for", error: "half of it: no pass", stated: 0.2 }.run(
        |random| {
            let drawn = drill([6, 1, 0], |_, _| [Drawn::requests(10), Drawn::requests(poisson(random, events))]);
            verdict(&drawn, &line) != Verdict::Pass
        },
    );
}

#[test]
fn bursts() {
    // Requests that come five at a time: phi is 5.
    let bursts = |random: &mut Random, baseline| {
        drill([baseline, 6, 0], |phase, _| {
            let factor = if phase == PhaseName::Fault { 1.2 } else { 1.0 };
            [Drawn::requests(60), Drawn::requests(5 * poisson(random, 60.0 * factor))]
        })
    };
    let test = "`downstream QPS increase <= 20%`, bursts of five, 30 windows of baseline";
    Study { test, error: "1.2 times: fail", stated: 0.05 }.run(|random| verdict(&bursts(random, 30), INCREASE) == Verdict::Fail);
    Study { test, error: "1.2 times: pass", stated: 0.05 }.run(|random| verdict(&bursts(random, 30), INCREASE) == Verdict::Pass);
    let test = "`downstream QPS increase <= 20%`, bursts of five, 6 windows of baseline";
    Study { test, error: "1.2 times: fail", stated: 0.05 }.run(|random| verdict(&bursts(random, 6), INCREASE) == Verdict::Fail);
    Study { test, error: "1.2 times: pass", stated: 0.05 }.run(|random| verdict(&bursts(random, 6), INCREASE) == Verdict::Pass);
}

#[test]
fn absolute() {
    for (test, line) in [
        ("`downstream QPS <= 6/s`", "db downstream QPS <= 6/s"),
        ("`downstream QPS per ingress <= 1x`", "db downstream QPS per ingress <= 1x"),
        ("`goodput <= 6/s`", "db goodput <= 6/s"),
        ("`connections opened increase <= 20%`", "db connections opened increase <= 20%"),
    ] {
        let random_drill = |random: &mut Random| {
            let mut drawn = drill([6, 6, 0], |_, _| {
                // The ingress is what the rate is divided by, and fixed.
                [Drawn::requests(60), Drawn::requests(poisson(random, 6.0 * SECONDS))]
            });
            for window in &mut drawn.windows {
                let mean = if window.phase == PhaseName::Fault { 24.0 } else { 20.0 };
                window.edges[1].counts.connections_opened = poisson(random, mean);
            }
            drawn
        };
        on_the_limit(test, line, 0.05, random_drill);
    }
}

#[test]
fn amplification() {
    // Three tries, each failing with 15.37%: 1.1774 attempts a request; the limit is exactly that.
    let failing: f64 = 0.1537;
    let truth = 1.0 + failing + failing * failing;
    let line = format!("db amplification <= {truth:.6}x");
    let layered = |random: &mut Random, windows: u32, mean: f64, failing: f64| {
        drill([windows, windows, 0], |phase, _| {
            let came = poisson(random, mean);
            let attempts = match phase {
                PhaseName::Fault => (0..came).map(|_| u64::from(random.tries(failing, 3))).sum(),
                _ => came,
            };
            [Drawn::requests(came), Drawn::requests(attempts)]
        })
    };
    for (test, windows, mean) in [
        ("`amplification`, 10 windows of 60 requests", 10, 60.0),
        ("`amplification`, 5 windows of 40 requests", 5, 40.0),
        ("`amplification`, 1 window of 200 requests", 1, 200.0),
    ] {
        on_the_limit(test, &line, 0.05, |random| layered(random, windows, mean, failing));
    }
    let test = "`amplification <= 1.2`, 6 windows of 60 requests";
    let line = "db amplification <= 1.2x";
    Study { test, error: "no retry: no pass", stated: 0.05 }.run(|random| verdict(&layered(random, 6, 60.0, 0.0), line) != Verdict::Pass);
    Study { test, error: "half fail, three tries: no fail", stated: 0.01 }
        .run(|random| verdict(&layered(random, 6, 60.0, 0.5), line) != Verdict::Fail);
}
