//! Distribution-free bounds for a quantile, from order statistics.
//!
//! The number of values at or below the true q-quantile is Binomial(n, q), so the ranks of the bounds are exact.
//! Source: W. J. Conover, Practical Nonparametric Statistics, §3.2; H. A. David, Order Statistics, §2.5.

use crate::stats::{Tails, beta};

/// A quantile of a sample, and bounds for the quantile of what it was drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantile {
    /// The sample's own quantile: the value of rank ⌈nq⌉.
    pub value: u64,
    /// Lower bound; `None` if the sample is too small to have one.
    pub lo: Option<u64>,
    /// Upper bound; `None` if the sample is too small to have one.
    pub hi: Option<u64>,
}

/// The `q`-quantile (0 < q < 1) of `sorted`, ascending; `None` if it is empty.
#[must_use]
pub fn estimate(sorted: &[u64], q: f64, tails: Tails) -> Option<Quantile> {
    let value = *sorted.get(rank(sorted.len(), q).checked_sub(1)?)?;
    let ranks = bound_ranks(sorted.len(), q, tails);
    let at = |rank: Option<usize>| rank.and_then(|rank| sorted.get(rank - 1).copied());
    Some(Quantile { value, lo: at(ranks.0), hi: at(ranks.1) })
}

/// Rank ⌈nq⌉, at least 1 and at most `n`; 0 if `n` is 0.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the product lies between 0 and n")]
pub fn rank(n: usize, q: f64) -> usize {
    // Products such as 100 x 0.99 may land a hair above the whole number that they are.
    ((n as f64 * q - 1e-9).ceil() as usize).clamp(1, n.max(1)).min(n)
}

/// Ranks (1-based) of the lower and the upper bound; `None` where even the extreme value is no bound.
#[must_use]
pub fn bound_ranks(n: usize, q: f64, tails: Tails) -> (Option<usize>, Option<usize>) {
    let size = n as f64;
    // P(at most rank - 1 values lie below the quantile) rises with the rank.
    let lo = last_where(n, |rank| beta::binomial_at_most((rank - 1) as f64, size, q) <= tails.below);
    // P(at least rank values lie below it) falls with the rank.
    let too_low = last_where(n, |rank| beta::binomial_at_least(rank as f64, size, q) > tails.above);
    let hi = too_low.map_or(1, |rank| rank + 1);
    (lo, (hi <= n).then_some(hi))
}

/// The largest rank in 1..=n for which `holds`, given that it holds up to there.
fn last_where(n: usize, holds: impl Fn(usize) -> bool) -> Option<usize> {
    let (mut good, mut bad) = (0, n + 1);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if holds(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    (good > 0).then_some(good)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::simulation::Random;

    #[test]
    fn ranks_of_the_median_are_as_tabulated() {
        // Conover, table of the sign test: n = 20, 95% two-sided: ranks 6 and 15.
        assert_eq!(bound_ranks(20, 0.5, Tails::each(0.025)), (Some(6), Some(15)));
        assert_eq!(bound_ranks(5, 0.5, Tails::each(0.05)), (Some(1), Some(5)));
        assert_eq!(bound_ranks(4, 0.5, Tails::each(0.05)), (None, None));
    }

    #[test]
    fn a_p99_has_an_upper_bound_from_299_values_on() {
        assert_eq!(bound_ranks(298, 0.99, Tails::each(0.05)).1, None);
        assert_eq!(bound_ranks(299, 0.99, Tails::each(0.05)).1, Some(299));
    }

    #[test]
    fn sample_quantiles_are_nearest_ranks() {
        for (n, q, want) in [(100, 0.99, 99), (100, 0.5, 50), (1, 0.99, 1), (3, 0.5, 2), (0, 0.5, 0)] {
            assert_eq!(rank(n, q), want, "{n} {q}");
        }
        assert_eq!(estimate(&[], 0.5, Tails::each(0.05)), None);
    }

    #[test]
    fn bounds_miss_as_often_as_asked() {
        let mut random = Random::seeded(4);
        let (mut below, mut above) = (0.0, 0.0);
        let runs = 2_000;
        for _ in 0..runs {
            let mut sample: Vec<u64> = (0..400).map(|_| u64::from(random.tries(0.99, 100_000))).collect();
            sample.sort_unstable();
            // The geometric's 0.9-quantile: the smallest k with 1 - 0.99^k >= 0.9.
            let truth = 230;
            let got = estimate(&sample, 0.9, Tails::each(0.05)).map(|q| (q.lo.unwrap_or(0), q.hi.unwrap_or(u64::MAX)));
            let (lo, hi) = got.unwrap_or((0, u64::MAX));
            below += f64::from(u8::from(hi < truth));
            above += f64::from(u8::from(lo > truth));
        }
        let most = 0.05 + 3.0 * (0.05_f64 * 0.95 / f64::from(runs)).sqrt();
        assert!(below / f64::from(runs) <= most, "{below}");
        assert!(above / f64::from(runs) <= most, "{above}");
    }

    proptest! {
        #[test]
        fn bounds_enclose_the_estimate(mut sample in proptest::collection::vec(0_u64..1_000_000, 1..400), q in 0.01_f64..0.995) {
            sample.sort_unstable();
            let got = estimate(&sample, q, Tails::each(0.05));
            prop_assert!(got.is_some());
            if let Some(got) = got {
                prop_assert!(got.lo.is_none_or(|lo| lo <= got.value));
                prop_assert!(got.hi.is_none_or(|hi| hi >= got.value));
            }
        }
    }
}
