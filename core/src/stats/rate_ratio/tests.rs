//! The exact rate-ratio test against published values, its own power table, and the naive rule's false alarms.

use proptest::prelude::*;

use super::*;
use crate::stats::{poisson, simulation::Random};

fn tally(count: f64, exposure: f64) -> Tally {
    Tally { count, exposure }
}

#[test]
fn matches_fays_example() {
    let (two, nine) = (tally(2.0, 17_877.0), tally(9.0, 16_660.0));
    assert!((two.rate() / nine.rate() - 0.207_094_2).abs() < 5e-8);
    let got = interval(two, nine, Tails::each(0.025));
    assert!((got.lo - 0.021_774_1).abs() < 5e-8, "{got:?}");
    assert!((got.hi - 1.000_549_1).abs() < 5e-8, "{got:?}");
    assert!((p_two_sided(two, nine, 1.0) - 0.0501).abs() < 5e-5);
}

#[test]
fn nothing_in_the_baseline_bounds_only_from_below() {
    // Five requests in an equal window after none: the ratio is above 1.2 already.
    let (five, none) = (tally(5.0, 1.0), tally(0.0, 1.0));
    assert!(p_above(five, none, 1.2) < 0.05);
    assert!(interval(five, none, Tails::each(0.05)).hi.is_infinite());
    assert!(interval(none, none, Tails::each(0.05)).lo.abs() < 1e-15);
}

/// P(pass) and P(fail) of "increase ≤ 20%" at 5%, summed exactly over both Poisson counts.
fn outcome(base_seconds: f64, rate: f64, truth: f64) -> (f64, f64) {
    let judged_seconds = 300.0;
    let base_mean = rate * base_seconds;
    let judged_mean = rate * truth * judged_seconds;
    let spread = 7.0 * base_mean.sqrt() + 10.0;
    let (mut pass, mut fail) = (0.0, 0.0);
    let mut base = (base_mean - spread).max(0.0).floor();
    while base <= base_mean + spread {
        let mass = poisson::at_most(base, base_mean) - if base > 0.0 { poisson::at_most(base - 1.0, base_mean) } else { 0.0 };
        let far = judged_mean * 3.0 + base * 30.0 + 200.0;
        let passes = |k: f64| p_below(tally(k, judged_seconds), tally(base, base_seconds), 1.2) <= 0.05;
        let fails = |k: f64| p_above(tally(k, judged_seconds), tally(base, base_seconds), 1.2) <= 0.05;
        // Both are monotone in the judged count, so a threshold says all.
        if passes(0.0) {
            let last = first_where(far, |k| !passes(k)) - 1.0;
            pass += mass * poisson::at_most(last, judged_mean);
        }
        fail += mass * poisson::at_least(first_where(far, fails), judged_mean);
        base += 1.0;
    }
    (pass, fail)
}

/// The smallest whole k in [0, far] for which `holds`, given that it goes on holding.
fn first_where(far: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut lo, mut hi) = (-1.0_f64, far.ceil());
    while hi - lo > 1.0 {
        let middle = ((lo + hi) / 2.0).floor();
        if holds(middle) {
            hi = middle;
        } else {
            lo = middle;
        }
    }
    hi
}

#[test]
fn outcome_probabilities_are_as_tabulated() {
    // (baseline s, requests/s, [(true ratio, P(pass), P(fail))]) for a fault of 300 s.
    type Row = (f64, f64, [(f64, f64, f64); 5]);
    let table: [Row; 6] = [
        (60.0, 0.2, [(1.0, 0.11, 0.01), (1.1, 0.06, 0.02), (1.43, 0.01, 0.11), (2.0, 0.0, 0.51), (3.0, 0.0, 0.97)]),
        (60.0, 1.0, [(1.0, 0.33, 0.0), (1.1, 0.14, 0.01), (1.43, 0.0, 0.35), (2.0, 0.0, 0.99), (3.0, 0.0, 1.0)]),
        (300.0, 1.0, [(1.0, 0.71, 0.0), (1.1, 0.28, 0.0), (1.43, 0.0, 0.75), (2.0, 0.0, 1.0), (3.0, 0.0, 1.0)]),
        (60.0, 5.0, [(1.0, 0.87, 0.0), (1.1, 0.38, 0.0), (1.43, 0.0, 0.89), (2.0, 0.0, 1.0), (3.0, 0.0, 1.0)]),
        (300.0, 5.0, [(1.0, 1.0, 0.0), (1.1, 0.78, 0.0), (1.43, 0.0, 1.0), (2.0, 0.0, 1.0), (3.0, 0.0, 1.0)]),
        (60.0, 20.0, [(1.0, 1.0, 0.0), (1.1, 0.86, 0.0), (1.43, 0.0, 1.0), (2.0, 0.0, 1.0), (3.0, 0.0, 1.0)]),
    ];
    for (seconds, rate, row) in table {
        for (truth, pass, fail) in row {
            let got = outcome(seconds, rate, truth);
            // The table was simulated and has two digits.
            assert!((got.0 - pass).abs() < 0.02, "pass {seconds} s, {rate}/s, x{truth}: {} for {pass}", got.0);
            assert!((got.1 - fail).abs() < 0.02, "fail {seconds} s, {rate}/s, x{truth}: {} for {fail}", got.1);
        }
    }
}

#[test]
fn no_change_is_hardly_ever_called_a_violation() {
    let mut random = Random::seeded(1);
    for mean in [10.0, 30.0, 60.0, 100.0] {
        let runs = 4_000;
        let (mut naive, mut exact) = (0.0, 0.0);
        for _ in 0..runs {
            let base = tally(random.poisson(mean), 1.0);
            let judged = tally(random.poisson(mean), 1.0);
            naive += f64::from(u8::from(judged.count > 1.2 * base.count));
            exact += f64::from(u8::from(p_above(judged, base, 1.2) <= 0.05));
        }
        let runs = f64::from(runs);
        assert!(naive / runs > 0.08, "the naive rule cries wolf at {mean}: {}", naive / runs);
        assert!(exact / runs < 0.03, "the exact test must not, at {mean}: {}", exact / runs);
    }
}

#[test]
fn error_rates_hold_at_the_limit_itself() {
    let mut random = Random::seeded(2);
    let runs = 10_000;
    let (mut pass, mut fail) = (0.0, 0.0);
    for _ in 0..runs {
        let base = tally(random.poisson(60.0), 60.0);
        let judged = tally(random.poisson(1.2 * 300.0), 300.0);
        pass += f64::from(u8::from(p_below(judged, base, 1.2) <= 0.05));
        fail += f64::from(u8::from(p_above(judged, base, 1.2) <= 0.05));
    }
    let runs = f64::from(runs);
    let most = 0.05 + 3.0 * (0.05_f64 * 0.95 / runs).sqrt();
    assert!(pass / runs <= most, "{}", pass / runs);
    assert!(fail / runs <= most, "{}", fail / runs);
}

proptest! {
    #[test]
    fn interval_contains_the_ratio_and_agrees_with_the_tests(
        judged in 0_u32..2000, base in 1_u32..2000, t in 1.0_f64..600.0, u in 1.0_f64..600.0, limit in 0.2_f64..5.0,
    ) {
        let (judged, base) = (tally(f64::from(judged), t), tally(f64::from(base), u));
        let got = interval(judged, base, Tails::each(0.05));
        let ratio = judged.rate() / base.rate();
        prop_assert!(got.lo <= ratio * (1.0 + 1e-9) && ratio <= got.hi * (1.0 + 1e-9));
        if (got.hi / limit - 1.0).abs() > 1e-6 {
            prop_assert_eq!(got.hi <= limit, p_below(judged, base, limit) <= 0.05);
        }
        if (got.lo / limit - 1.0).abs() > 1e-6 {
            prop_assert_eq!(got.lo >= limit, p_above(judged, base, limit) <= 0.05);
        }
    }
}
