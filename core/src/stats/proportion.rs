//! Confidence intervals for a share, such as retries over attempts.
//!
//! Source: C. J. Clopper and E. S. Pearson, "The use of confidence or fiducial limits illustrated in the case of the
//! binomial", Biometrika 26 (1934). Exact: the error at each end never exceeds what was asked.

use crate::stats::{Interval, Tails, beta};

/// The Clopper–Pearson interval of `k` out of `n`, 0 ≤ k ≤ n; everything from 0 to 1 if n is 0.
///
/// For k = 0 the upper end is near 3/n at 5%: the rule of three.
#[must_use]
pub fn interval(k: f64, n: f64, tails: Tails) -> Interval {
    let lo = if k <= 0.0 { 0.0 } else { beta::quantile(k, n - k + 1.0, tails.below) };
    let hi = if k >= n {
        1.0
    } else {
        // The complement keeps the digits of a small tail.
        1.0 - beta::quantile(n - k, k + 1.0, tails.above)
    };
    Interval { lo, hi }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at_five(k: f64, n: f64) -> Interval {
        interval(k, n, Tails::each(0.05))
    }

    #[test]
    fn matches_published_values() {
        // Ten of a hundred, a hundred of a thousand: 90% intervals.
        for (k, n, lo, hi) in [(10.0, 100.0, 0.055, 0.164), (100.0, 1000.0, 0.085, 0.117)] {
            let got = at_five(k, n);
            assert!((got.lo - lo).abs() < 6e-4, "{got:?}");
            assert!((got.hi - hi).abs() < 6e-4, "{got:?}");
        }
        // Clopper and Pearson's classic: 95% for 5 of 20.
        let got = interval(5.0, 20.0, Tails::each(0.025));
        assert!((got.lo - 0.0866).abs() < 5e-5, "{got:?}");
        assert!((got.hi - 0.4910).abs() < 5e-5, "{got:?}");
    }

    #[test]
    fn none_of_three_hundred_is_the_rule_of_three() {
        let got = at_five(0.0, 300.0);
        assert!(got.lo.abs() < 1e-15);
        assert!((got.hi - (1.0 - 0.05_f64.powf(1.0 / 300.0))).abs() < 1e-12);
        assert!(got.hi < 0.01);
    }

    #[test]
    fn nothing_known_is_everything_possible() {
        assert_eq!(at_five(0.0, 0.0), Interval { lo: 0.0, hi: 1.0 });
    }

    #[test]
    fn nine_percent_of_a_thousand_does_not_prove_ten() {
        assert!(at_five(90.0, 1000.0).hi > 0.1);
        assert!(at_five(225.0, 2500.0).hi < 0.1);
    }

    proptest! {
        #[test]
        fn contains_its_estimate_and_narrows(k in 0_u32..500, extra in 0_u32..500) {
            let (k, n) = (f64::from(k), f64::from(k + extra).max(1.0));
            let one = at_five(k.min(n), n);
            prop_assert!(one.lo <= k / n && k / n <= one.hi);
            let four = at_five(4.0 * k.min(n), 4.0 * n);
            prop_assert!(four.lo >= one.lo - 1e-12 && four.hi <= one.hi + 1e-12);
        }

        #[test]
        fn rises_with_the_count(k in 0_u32..300, n in 300_u32..900) {
            let low = at_five(f64::from(k), f64::from(n));
            let high = at_five(f64::from(k) + 1.0, f64::from(n) + 1.0);
            prop_assert!(low.lo <= high.lo && low.hi <= high.hi + 1e-12);
        }
    }
}
