//! The fault's first second: a burst of retries there is what a drill is for.

use super::*;
use crate::judge::Verdict;
use crate::stats::simulation::Random;

const WINDOW_NS: u64 = 1_000_000_000;

/// Twelve windows of a second in each phase, of some 100 requests. Under the fault `share` of them fail, and every failed one is
/// sent again at once, in the first second only: the service's breaker opens then.
fn burst(random: &mut Random, share: f64) -> Drill {
    let mut drill = Drill::new();
    for phase in [PhaseName::Baseline, PhaseName::Fault, PhaseName::Recovery] {
        for index in 0..12 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole count")]
            let requests = random.poisson(100.0) as u64;
            let is_burst = phase == PhaseName::Fault && index == 0;
            // Up to twenty tries of each request that fails.
            let retries: u64 = if is_burst { (0..requests).map(|_| u64::from(random.tries(share, 20)) - 1).sum() } else { 0 };
            drill = drill.window(phase, &[seen(requests), seen(requests + retries).retries(retries).failures(retries)]);
        }
    }
    for (window, start_ns) in drill.windows.iter_mut().zip((0_u64..).map(|index| index * WINDOW_NS)) {
        (window.start_ns, window.end_ns) = (start_ns, start_ns + WINDOW_NS);
    }
    drill
}

fn demands() -> [Expectation; 3] {
    [limit(Some("db"), RETRY_RATIO, Op::AtMost, 0.1), limit(Some("db"), Metric::Amplification, Op::AtMost, 1.2), qps_increase_at_most(0.2)]
}

#[test]
fn a_burst_in_the_first_second_is_seen() {
    let mut random = Random::seeded(21);
    for _ in 0..50 {
        let drill = burst(&mut random, 0.85);
        for demand in demands() {
            let got = drill.judge(&demand);
            // One second of 6.7 times the load in twelve is half more in all: amplification and increase need luck to tell it from a fifth.
            let expected: &[Verdict] =
                if demand.metric == RETRY_RATIO { &[Verdict::Fail] } else { &[Verdict::Fail, Verdict::Inconclusive] };
            assert!(expected.contains(&got.verdict), "{got:?}");
            assert!(got.windows.contains(&12), "the fault's first window is used: {got:?}");
        }
    }
}

#[test]
fn what_is_said_of_it() {
    let mut random = Random::seeded(22);
    let drill = burst(&mut random, 0.85);
    let said: Vec<String> = demands()
        .iter()
        .map(|demand| drill.judge(demand))
        .map(|got| format!("{}: {} {:?}", got.verdict.as_str(), got.reason.unwrap_or_default(), got.windows))
        .collect();
    assert_eq!(said.join("\n"), include_str!("golden/burst.txt").trim_end());
}

#[test]
fn a_fault_that_is_felt_from_the_first_second_on_is_judged_from_there() {
    let mut random = Random::seeded(23);
    let calm = burst(&mut random, 0.0);
    for demand in demands() {
        assert_ne!(calm.judge(&demand).verdict, Verdict::Fail);
    }
}
