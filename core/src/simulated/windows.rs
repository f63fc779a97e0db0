//! Many windows: `in every window`, recoveries, and whether a service comes back.

use super::Study;
use super::drills::{Drawn, binomial, drill, poisson, verdict};
use crate::judge::Verdict;
use crate::judge::tests::Drill;
use crate::stats::simulation::Random;
use crate::window::PhaseName;

/// So many windows of 60 attempts, of which `retried` are retries; of one window, `worst`.
fn every(random: &mut Random, windows: u32, retried: f64, worst: f64) -> Drill {
    drill([1, windows, 0], |_, index| {
        let share = if index == 7 { worst } else { retried };
        [Drawn::requests(60), Drawn { retries: binomial(random, 60, share), ..Drawn::requests(60) }]
    })
}

#[test]
fn in_every_window() {
    let test = "`retry ratio <= 10% in every window`, 30 windows of 60";
    let line = "db retry ratio <= 10% in every window";
    Study { test, error: "all on the limit: fail", stated: 0.05 }
        .run(|random| verdict(&every(random, 30, 0.1, 0.1), line) == Verdict::Fail);
    Study { test, error: "one on the limit, others without retries: pass", stated: 0.05 }
        .run(|random| verdict(&every(random, 30, 0.0, 0.1), line) == Verdict::Pass);
    Study { test, error: "one of 50%, others without retries: no fail", stated: 0.01 }
        .run(|random| verdict(&every(random, 30, 0.0, 0.5), line) != Verdict::Fail);
    Study { test, error: "all of 13%: no fail", stated: 0.05 }.run(|random| verdict(&every(random, 30, 0.13, 0.13), line) != Verdict::Fail);
    let rates = |random: &mut Random, mean: f64| {
        drill([6, 10, 0], |phase, _| {
            let mean = if phase == PhaseName::Fault { mean } else { 60.0 };
            [Drawn::requests(60), Drawn::requests(poisson(random, mean))]
        })
    };
    let (test, line) = ("`downstream QPS <= 6/s in every window`, 10 windows of 60", "db downstream QPS <= 6/s in every window");
    Study { test, error: "all on the limit: fail", stated: 0.05 }.run(|random| verdict(&rates(random, 60.0), line) == Verdict::Fail);
    Study { test, error: "all at 1.2 times it: no fail", stated: 0.1 }.run(|random| verdict(&rates(random, 72.0), line) != Verdict::Fail);
    // Each of thirty at 5% on its own.
    let single = |drill: &Drill| {
        let windows = drill.windows.iter().filter(|window| window.phase == PhaseName::Fault);
        windows.map(|window| window.edges[1].retries.total()).any(|retries| retries > 10)
    };
    Study { test: "each of 30 windows at 5% on its own (not used)", error: "all on the limit: fail", stated: 0.05 }
        .run_naive(|random| single(&every(random, 30, 0.1, 0.1)));
}

#[test]
fn recoveries() {
    let back = |random: &mut Random, after: f64| {
        drill([6, 6, 4], |phase, _| {
            let share = match phase {
                PhaseName::Baseline => 0.05,
                PhaseName::Fault => 0.4,
                _ => after,
            };
            [Drawn::requests(60), Drawn { retries: binomial(random, 60, share), ..Drawn::requests(60) }]
        })
    };
    let test = "`retry ratio recovers within 2 windows`, windows of 60";
    let line = "db retry ratio recovers within 2 windows";
    Study { test, error: "back at the baseline's 5%: fail", stated: 0.05 }
        .run(|random| verdict(&back(random, 0.05), line) == Verdict::Fail);
    Study { test, error: "at 20%, far from back: pass", stated: 0.05 }.run(|random| verdict(&back(random, 0.2), line) == Verdict::Pass);
}

#[test]
fn metastability() {
    // Success and tries per request after the fault.
    let after = |random: &mut Random, success: f64, tries: f64| {
        drill([6, 3, 12], |phase, _| {
            let (success, tries) = match phase {
                PhaseName::Baseline => (0.999, 1.0),
                PhaseName::Fault => (0.1, 3.0),
                _ => (success, tries),
            };
            let came = poisson(random, 100.0).max(1);
            let attempts = came + poisson(random, (tries - 1.0) * 100.0);
            let failed = binomial(random, came, 1.0 - success);
            let web = Drawn { failures: failed, ..Drawn::requests(came) };
            [web, Drawn { failures: failed.min(attempts), retries: attempts - came, ..Drawn::requests(attempts) }]
        })
    };
    let line = "not metastable";
    Study { test: "`not metastable`", error: "back to normal: fail", stated: 0.01 }
        .run(|random| verdict(&after(random, 0.999, 1.0), line) == Verdict::Fail);
    Study { test: "`not metastable`", error: "stays at 30% success and 2.4 tries: pass", stated: 0.1 }
        .run(|random| verdict(&after(random, 0.3, 2.4), line) == Verdict::Pass);
}
