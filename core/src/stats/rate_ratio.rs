//! The exact test for "the rate rose by at most so much", from two counts.
//!
//! Given the total n of two Poisson counts, the one is Binomial(n, θT/(θT + T')), where θ is the ratio of the rates.
//! Sources: J. Przyborowski and H. Wilenski, Biometrika 31 (1940); E. L. Lehmann, Testing Statistical Hypotheses
//! (uniformly most powerful unbiased); M. P. Fay, R package `rateratio.test`, whose example is the oracle below.

use crate::stats::{Interval, Tails, beta, proportion};

/// A count and what it was counted over: seconds, or attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tally {
    /// Events, 0 or more.
    pub count: f64,
    /// Exposure, above 0.
    pub exposure: f64,
}

impl Tally {
    /// Events per unit of exposure.
    #[must_use]
    pub fn rate(self) -> f64 {
        self.count / self.exposure
    }
}

/// One-sided p-value against "`judged`/`base` is `ratio` or more": small means that the ratio is below.
#[must_use]
pub fn p_below(judged: Tally, base: Tally, ratio: f64) -> f64 {
    beta::binomial_at_most(judged.count, judged.count + base.count, share(judged, base, ratio))
}

/// One-sided p-value against "`judged`/`base` is `ratio` or less": small means that the ratio is above.
#[must_use]
pub fn p_above(judged: Tally, base: Tally, ratio: f64) -> f64 {
    beta::binomial_at_least(judged.count, judged.count + base.count, share(judged, base, ratio))
}

/// Twice the smaller one-sided p-value, at most 1.
#[must_use]
pub fn p_two_sided(judged: Tally, base: Tally, ratio: f64) -> f64 {
    (2.0 * p_below(judged, base, ratio).min(p_above(judged, base, ratio))).min(1.0)
}

/// Share of all events that falls to `judged` if the ratio of the rates is `ratio`.
fn share(judged: Tally, base: Tally, ratio: f64) -> f64 {
    let weighted = ratio * judged.exposure;
    weighted / (weighted + base.exposure)
}

/// Exact interval of the ratio of `judged`'s rate to `base`'s; unbounded above if `base` counted nothing.
///
/// The interval and the one-sided tests agree: `hi` ≤ r just when [`p_below`] at r is at most `tails.above`.
#[must_use]
pub fn interval(judged: Tally, base: Tally, tails: Tails) -> Interval {
    let shares = proportion::interval(judged.count, judged.count + base.count, tails);
    let ratio = |p: f64| {
        if p >= 1.0 { f64::INFINITY } else { p / (1.0 - p) * base.exposure / judged.exposure }
    };
    Interval { lo: ratio(shares.lo), hi: ratio(shares.hi) }
}

#[cfg(test)]
mod tests;
