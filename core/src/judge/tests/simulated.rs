//! Whole judgements on simulated drills of known truth: how often they are wrong.

use super::*;
use crate::judge::Verdict;
use crate::stats::simulation::Random;

const RUNS: u32 = 2_000;

/// The most wrong verdicts that an error probability of 5% explains.
fn most_errors() -> f64 {
    let runs = f64::from(RUNS);
    0.05 * runs + 3.0 * (0.05 * 0.95 * runs).sqrt()
}

fn poisson(random: &mut Random, mean: f64) -> Seen {
    // Requests only: rates need no outcomes, and building them would take the time.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole count")]
    let requests = random.poisson(mean) as u64;
    Seen { requests, failures: requests, ..Seen::default() }
}

fn count(drills: impl Fn(&mut Random) -> Drill, expectation: &Expectation, verdict: Verdict, seed: u64) -> f64 {
    let mut random = Random::seeded(seed);
    (0..RUNS).map(|_| f64::from(u8::from(drills(&mut random).judge(expectation).verdict == verdict))).sum()
}

fn rates(ratio: f64) -> impl Fn(&mut Random) -> Drill {
    move |random| {
        let mut drill = Drill::new();
        for (phase, mean) in [(PhaseName::Baseline, 60.0), (PhaseName::Fault, 60.0 * ratio)] {
            let db = poisson(random, mean);
            drill = drill.window(phase, &[seen(60), db]);
        }
        drill
    }
}

#[test]
fn sixty_requests_a_window_and_no_change_are_not_a_violation() {
    // Comparing the bare counts would call 16% of these a violation.
    let increase = qps_increase_at_most(0.2);
    let false_fails = count(rates(1.0), &increase, Verdict::Fail, 11);
    assert!(false_fails <= 0.01 * f64::from(RUNS), "{false_fails} of {RUNS}");
}

#[test]
fn at_the_limit_itself_both_errors_are_rare() {
    let increase = qps_increase_at_most(0.2);
    for verdict in [Verdict::Fail, Verdict::Pass] {
        let wrong = count(rates(1.2), &increase, verdict, 12);
        assert!(wrong <= most_errors(), "{verdict:?}: {wrong} of {RUNS}");
    }
}

#[test]
fn a_threefold_rate_is_found() {
    let found = count(rates(3.0), &qps_increase_at_most(0.2), Verdict::Fail, 13);
    assert!(found >= 0.99 * f64::from(RUNS), "{found} of {RUNS}");
}

#[test]
fn thirty_windows_at_the_limit_rarely_fail_the_demand_on_each() {
    let each = in_every_window(limit(Some("db"), RETRY_RATIO, Op::AtMost, 0.1));
    let drills = |random: &mut Random| {
        let mut drill = Drill::new().windows(PhaseName::Baseline, 1, seen(10), seen(10));
        for _ in 0..30 {
            let retries: u64 = (0..60).map(|_| u64::from(random.happens(0.1))).sum();
            let window = Seen { requests: 60, failures: 60, retries, ..Seen::default() };
            drill = drill.window(PhaseName::Fault, &[Seen::default(), window]);
        }
        drill
    };
    let mut random = Random::seeded(14);
    let runs = 300;
    let wrong: u32 = (0..runs).map(|_| u32::from(drills(&mut random).judge(&each).verdict == Verdict::Fail)).sum();
    let most = 0.05 * f64::from(runs) + 3.0 * (0.05 * 0.95 * f64::from(runs)).sqrt();
    assert!(f64::from(wrong) <= most, "{wrong} of {runs}");
}

#[test]
fn a_recovery_is_not_missed_for_noise() {
    // A steady 5% of retries before and after: the level is 7%, and no window may be shown to be above it by chance.
    let drills = |random: &mut Random| {
        let mut drill = Drill::new();
        let mut ratio = |attempts: u64, p: f64| Seen {
            requests: attempts,
            failures: attempts,
            retries: (0..attempts).map(|_| u64::from(random.happens(p))).sum(),
            ..Seen::default()
        };
        let mut windows = Vec::new();
        for (phase, p, number) in [(PhaseName::Baseline, 0.05, 6), (PhaseName::Fault, 0.4, 6), (PhaseName::Recovery, 0.05, 3)] {
            for _ in 0..number {
                windows.push((phase, ratio(60, p)));
            }
        }
        for (phase, db) in windows {
            drill = drill.window(phase, &[Seen::default(), db]);
        }
        drill
    };
    let expectation = recovers(RETRY_RATIO, None, Within::Windows(2));
    let missed = count(drills, &expectation, Verdict::Fail, 15);
    assert!(missed <= most_errors(), "{missed} of {RUNS}");
}
