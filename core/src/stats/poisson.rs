//! The confidence interval for the mean of a single Poisson count, hence of a rate.
//!
//! Source: F. Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28 (1936).

use statrs::function::gamma::{gamma_lr, gamma_ur};

use crate::stats::{Interval, Tails, beta::bisect};

/// Garwood's exact interval for the mean behind a count of `k` ≥ 0.
#[must_use]
pub fn interval(k: f64, tails: Tails) -> Interval {
    // No bound in use lies further out than this: 12 standard deviations, and room where the count is small.
    let far = k + 12.0 * k.sqrt() + 40.0;
    let lo = if k <= 0.0 { 0.0 } else { bisect(0.0, k, |mean| at_least(k, mean) < tails.below) };
    let hi = bisect(k, far, |mean| at_most(k, mean) > tails.above);
    Interval { lo, hi }
}

/// P(X ≤ k) for X ~ Poisson(mean), continued to real k ≥ 0.
#[must_use]
pub fn at_most(k: f64, mean: f64) -> f64 {
    if mean <= 0.0 { 1.0 } else { gamma_ur(k + 1.0, mean) }
}

/// P(X ≥ k) for X ~ Poisson(mean), continued to real k ≥ 0.
#[must_use]
pub fn at_least(k: f64, mean: f64) -> f64 {
    if k <= 0.0 {
        1.0
    } else if mean <= 0.0 {
        0.0
    } else {
        gamma_lr(k, mean)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_garwoods_table() {
        for (k, lo, hi) in [(0.0, 0.0, 3.69), (10.0, 4.80, 18.39), (100.0, 81.4, 121.6)] {
            let got = interval(k, Tails::each(0.025));
            let digits = if k > 50.0 { 0.05 } else { 0.005 };
            assert!((got.lo - lo).abs() <= digits, "{k}: {got:?}");
            assert!((got.hi - hi).abs() <= digits, "{k}: {got:?}");
        }
        // One-sided 5% for no event: the rule of three.
        assert!((interval(0.0, Tails::each(0.05)).hi - 2.9957).abs() < 1e-4);
    }

    #[test]
    fn ten_million_events_stay_accurate() {
        let got = interval(1e7, Tails::each(0.025));
        let half = 1.959_964 * 1e7_f64.sqrt();
        assert!((got.lo - (1e7 - half)).abs() < 3.0, "{got:?}");
        assert!((got.hi - (1e7 + half)).abs() < 5.0, "{got:?}");
    }

    proptest! {
        #[test]
        fn contains_the_count_and_rises(k in 0_u32..5000) {
            let k = f64::from(k);
            let got = interval(k, Tails::each(0.05));
            prop_assert!(got.lo <= k && k < got.hi);
            let next = interval(k + 1.0, Tails::each(0.05));
            prop_assert!(got.lo < next.lo && got.hi < next.hi);
        }
    }
}
