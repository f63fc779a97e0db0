//! Tables of netem's delay distributions: quantiles in units of 1/8192 of the jitter.
//!
//! They are computed, so that no file of another package is needed, by the formulas of iproute2's own tables: the same words mean the same delays. Each has mean
//! 0 but for what 16 bits cut off the heavy tails at four times the jitter. The standard deviation of `normal` is 1; iproute2's Pareto tables have less, since it
//! scales them by 4/3, the reciprocal of their variance.

use std::sync::OnceLock;

use stormdrill_core::fault::Distribution;

/// Entries of a table; the kernel takes up to 16,384.
const ENTRIES: u32 = 4096;
/// One jitter in the kernel's fixed-point numbers.
const SCALE: f64 = 8192.0;

/// The table of a distribution; `None` for the one that the kernel draws by itself.
pub(crate) fn table(distribution: Distribution) -> Option<&'static [i16]> {
    static NORMAL: OnceLock<Vec<i16>> = OnceLock::new();
    static PARETO: OnceLock<Vec<i16>> = OnceLock::new();
    static PARETO_NORMAL: OnceLock<Vec<i16>> = OnceLock::new();
    match distribution {
        Distribution::Uniform => None,
        Distribution::Normal => Some(NORMAL.get_or_init(|| tabulate(normal))),
        Distribution::Pareto => Some(PARETO.get_or_init(|| tabulate(pareto))),
        Distribution::ParetoNormal => Some(PARETO_NORMAL.get_or_init(|| tabulate(|p| 0.25 * normal(p) + 0.75 * pareto(p)))),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "clamped to the range of i16 first")]
fn tabulate(quantile: impl Fn(f64) -> f64) -> Vec<i16> {
    (0..ENTRIES)
        .map(|entry| {
            let p = (f64::from(entry) + 0.5) / f64::from(ENTRIES);
            (quantile(p) * SCALE).round().clamp(f64::from(i16::MIN), f64::from(i16::MAX)) as i16
        })
        .collect()
}

/// Pareto's quantile with shape 3, shifted to mean 0 (its mean is 3/2) and scaled as iproute2 scales it.
fn pareto(p: f64) -> f64 {
    ((1.0 - p).powf(-1.0 / 3.0) - 1.5) * 4.0 / 3.0
}

/// The normal quantile: bisection on the distribution function, which is plenty for a table that is made once.
fn normal(p: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if normal_below(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Share of a normal distribution below `x`, to about 1e-7 (Abramowitz and Stegun 26.2.17).
fn normal_below(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series = t * (0.319_381_53 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn moments(distribution: Distribution) -> (f64, f64) {
        let table = table(distribution).unwrap();
        let count = f64::from(ENTRIES);
        let mean = table.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
        let variance = table.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / count;
        (mean / SCALE, variance.sqrt() / SCALE)
    }

    #[test]
    fn normal_has_mean_zero_and_deviation_one() {
        let (mean, deviation) = moments(Distribution::Normal);
        assert!(mean.abs() < 0.001, "{mean}");
        assert!((deviation - 1.0).abs() < 0.01, "{deviation}");
    }

    #[test]
    fn pareto_leans_to_short_delays_with_a_long_tail() {
        let table = table(Distribution::Pareto).unwrap();
        assert!(table[2048] < 0, "the median lies below the mean");
        assert_eq!(table[4095], i16::MAX);
        let (mean, deviation) = moments(Distribution::Pareto);
        assert!(mean.abs() < 0.05, "{mean}");
        assert!((0.7..=1.0).contains(&deviation), "{deviation}");
    }

    #[test]
    fn the_words_mean_what_they_mean_to_tc() {
        // The first entry and the middle one of iproute2 6.1's pareto.dist, and the middle one of its paretonormal.dist, whose ends are drawn.
        let (pareto, both) = (table(Distribution::Pareto).unwrap(), table(Distribution::ParetoNormal).unwrap());
        for (ours, theirs) in [(pareto[0], -5461), (pareto[2048], -2622), (both[2048], -1966)] {
            assert!((ours - theirs).abs() <= 2, "{ours} for {theirs}");
        }
    }

    #[test]
    fn tables_rise() {
        for distribution in [Distribution::Normal, Distribution::Pareto, Distribution::ParetoNormal] {
            assert!(table(distribution).unwrap().is_sorted());
        }
    }
}
