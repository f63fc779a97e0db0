//! Intervals for the quotient and the difference of two quantities that have an interval each.
//!
//! Method of variance estimates recovery: R. G. Newcombe, Statistics in Medicine 17 (1998) for differences; A. Donner
//! and G. Y. Zou, Statistical Methods in Medical Research 21 (2012) for quotients, here on the log scale.

use crate::stats::Interval;

/// An estimate with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The estimate, within the interval.
    pub value: f64,
    /// Its interval.
    pub interval: Interval,
}

/// Interval of `judged`/`base`, both not negative and independent; `base.value` above 0.
#[must_use]
pub fn interval(judged: Estimate, base: Estimate) -> Interval {
    let quotient = judged.value / base.value;
    let (j, b) = (judged.interval, base.interval);
    let lo = if judged.value > 0.0 && j.lo > 0.0 && b.hi.is_finite() {
        quotient * (-(judged.value / j.lo).ln().hypot((b.hi / base.value).ln())).exp()
    } else {
        0.0
    };
    let hi = if b.lo <= 0.0 || j.hi.is_infinite() {
        f64::INFINITY
    } else if judged.value > 0.0 {
        quotient * (j.hi / judged.value).ln().hypot((base.value / b.lo).ln()).exp()
    } else {
        // Nothing has no logarithm: the upper bound of the one over the lower bound of the other.
        j.hi / b.lo
    };
    Interval { lo, hi }
}

/// Lower bound of `judged` - `base`, at the level of the intervals' ends.
#[must_use]
pub fn difference_at_least(judged: Estimate, base: Estimate) -> f64 {
    let down = judged.value - judged.interval.lo;
    let up = base.interval.hi - base.value;
    judged.value - base.value - down.hypot(up)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Tails, proportion};

    fn estimate(value: f64, lo: f64, hi: f64) -> Estimate {
        Estimate { value, interval: Interval { lo, hi } }
    }

    #[test]
    fn a_certain_base_only_rescales() {
        let got = interval(estimate(3.0, 2.0, 5.0), estimate(2.0, 2.0, 2.0));
        assert!((got.lo - 1.0).abs() < 1e-12 && (got.hi - 2.5).abs() < 1e-12, "{got:?}");
    }

    #[test]
    fn what_may_be_zero_bounds_nothing_above() {
        assert!(interval(estimate(1.0, 0.5, 2.0), estimate(1.0, 0.0, 2.0)).hi.is_infinite());
        let none = interval(estimate(0.0, 0.0, 1.0), estimate(1.0, 0.5, 2.0));
        assert!(none.lo.abs() < 1e-12 && (none.hi - 2.0).abs() < 1e-12, "{none:?}");
    }

    #[test]
    fn a_difference_of_shares_is_as_sure_as_its_parts() {
        let share = |k: f64, n: f64| {
            estimate(k / n, proportion::interval(k, n, Tails::each(0.05)).lo, proportion::interval(k, n, Tails::each(0.05)).hi)
        };
        assert!(difference_at_least(share(300.0, 1000.0), share(0.0, 1000.0)) > 0.27);
        assert!(difference_at_least(share(3.0, 10.0), share(0.0, 10.0)) < 0.05);
    }
}
