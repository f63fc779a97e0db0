//! Shares of requests: retried, answered, failed audibly; and what is made of them.

use super::Study;
use super::drills::{Drawn, binomial, drill, on_the_limit, verdict};
use crate::expectation::{Metric, Op};
use crate::judge::Verdict;
use crate::judge::tests::{Drill, RETRY_RATIO, increase, limit};
use crate::stats::power;
use crate::stats::simulation::Random;
use crate::window::PhaseName;

const REQUESTS: u64 = 100;

/// Six windows a phase; shares of `db`'s requests that are retries and failures, in the baseline and under the fault.
fn shares(random: &mut Random, windows: u32, retried: [f64; 2], failed: [f64; 2]) -> Drill {
    drill([windows, windows, 0], |phase, _| {
        let at = usize::from(phase == PhaseName::Fault);
        let failures = binomial(random, REQUESTS, failed[at]);
        let seen = Drawn {
            retries: binomial(random, REQUESTS, retried[at]),
            failures,
            hangs: binomial(random, failures, 0.1),
            retransmits: binomial(random, 10 * REQUESTS, 0.01),
            ..Drawn::requests(REQUESTS)
        };
        [Drawn::requests(REQUESTS), seen]
    })
}

#[test]
fn against_a_limit() {
    let calm = [0.0, 0.0];
    on_the_limit("`retry ratio <= 10%`", "db retry ratio <= 10%", 0.05, |random| shares(random, 6, [0.0, 0.1], calm));
    on_the_limit("`retry ratio of first <= 25%`", "db retry ratio of first <= 25%", 0.05, |random| shares(random, 6, [0.0, 0.2], calm));
    on_the_limit("`success ratio >= 90%`", "db success ratio >= 90%", 0.05, |random| shares(random, 6, calm, [0.0, 0.1]));
    on_the_limit("`cost per success <= 1.25`", "db cost per success <= 1.25", 0.05, |random| shares(random, 6, calm, [0.0, 0.2]));
    on_the_limit("`explicit failure ratio >= 90%`", "db explicit failure ratio >= 90%", 0.05, |random| shares(random, 6, calm, [0.0, 0.5]));
    on_the_limit("`retransmit ratio <= 0.1`", "db retransmit ratio <= 0.1", 0.05, |random| shares(random, 6, calm, calm));
}

#[test]
fn against_the_baseline() {
    // No line says so yet, but the judgement can: 100% more, and 80% of the baseline's.
    let ratio = increase(limit(Some("db"), RETRY_RATIO, Op::AtMost, 1.0));
    let success = increase(limit(Some("db"), Metric::SuccessRatio, Op::AtLeast, -0.2));
    for wrong in [Verdict::Fail, Verdict::Pass] {
        let error = format!("on the limit: {}", wrong.as_str());
        Study { test: "`retry ratio`, twice the baseline's", error: &error, stated: 0.05 }
            .run(|random| shares(random, 6, [0.05, 0.1], [0.0, 0.0]).judge(&ratio).verdict == wrong);
        Study { test: "`success ratio`, 80% of the baseline's", error: &error, stated: 0.05 }
            .run(|random| shares(random, 6, [0.0, 0.0], [0.1, 0.28]).judge(&success).verdict == wrong);
    }
}

#[test]
fn what_the_plan_says_is_needed_is_enough() {
    let needed = power::trials(0.1, 0.05, 0.05, 0.8).unwrap_or(f64::NAN);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundred")]
    let needed = needed.ceil() as u64;
    let test = "`retry ratio <= 10%`, as many requests as `plan` asks for";
    let draw = |random: &mut Random| {
        drill([1, 1, 0], |_, _| [Drawn::requests(needed), Drawn { retries: binomial(random, needed, 0.05), ..Drawn::requests(needed) }])
    };
    Study { test, error: "5%: no pass", stated: 0.2 }.run(|random| verdict(&draw(random), "db retry ratio <= 10%") != Verdict::Pass);
}

#[test]
fn layers() {
    // Two edges of which that share of the first attempts is retried; for a hundredth none is to be called a layer that retries.
    let draw = |random: &mut Random, windows: usize, shares: [f64; 2]| {
        let mut drawn = drill([1, 0, 0], |_, _| [Drawn::requests(REQUESTS), Drawn::requests(REQUESTS)]);
        let mut third = drawn.edges[1].clone();
        third.name = "cache".to_owned();
        drawn.edges.push(third);
        drawn.windows.clear();
        for (phase, count) in [(PhaseName::Baseline, 6), (PhaseName::Fault, windows)] {
            for _ in 0..count {
                // Of all attempts, so that it is that share of the first ones.
                let mut edge = |share: f64| Drawn { retries: binomial(random, 200, share / (1.0 + share)), ..Drawn::requests(200) };
                let edges = vec![Drawn::requests(200), edge(shares[0]), edge(shares[1])];
                super::drills::add(&mut drawn, phase, edges);
            }
        }
        drawn
    };
    Study { test: "`layers retrying <= 0`, two edges", error: "1% of first attempts: fail", stated: 0.05 }
        .run(|random| verdict(&draw(random, 6, [0.01, 0.01]), "layers retrying <= 0") == Verdict::Fail);
    let test = "`layers retrying <= 1`, two edges";
    Study { test, error: "both retry 2%: pass", stated: 0.05 }
        .run(|random| verdict(&draw(random, 6, [0.02, 0.02]), "layers retrying <= 1") == Verdict::Pass);
    let test = "`layers retrying <= 0 in every window`, two edges, 20 windows of 200";
    let line = "layers retrying <= 0 in every window";
    Study { test, error: "1% of first attempts: fail", stated: 0.05 }
        .run(|random| verdict(&draw(random, 20, [0.01, 0.01]), line) == Verdict::Fail);
    Study { test, error: "one retries 1.1%: pass", stated: 0.05 }
        .run(|random| verdict(&draw(random, 20, [0.011, 0.0]), line) == Verdict::Pass);
    Study { test, error: "one retries 20%: no fail", stated: 0.01 }
        .run(|random| verdict(&draw(random, 20, [0.2, 0.0]), line) != Verdict::Fail);
}
