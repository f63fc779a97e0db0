//! Quantiles of Student's t and of the normal distribution.
//!
//! Source: Abramowitz and Stegun 26.7.1 (t through the incomplete beta function) and 26.2.

use statrs::function::erf::erfc_inv;

use crate::stats::beta;

/// The t with P(T > t) = `tail` for `freedom` degrees of freedom; `tail` in (0, 0.5).
#[must_use]
pub fn t(tail: f64, freedom: f64) -> f64 {
    let x = beta::quantile(freedom / 2.0, 0.5, 2.0 * tail);
    (freedom * (1.0 - x) / x).sqrt()
}

/// The z with P(Z > z) = `tail` for a standard normal Z; `tail` in (0, 0.5).
#[must_use]
pub fn z(tail: f64) -> f64 {
    std::f64::consts::SQRT_2 * erfc_inv(2.0 * tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_tables() {
        for (tail, freedom, want) in [(0.05, 1.0, 6.3138), (0.05, 5.0, 2.0150), (0.025, 10.0, 2.2281), (0.05, 120.0, 1.6577)] {
            assert!((t(tail, freedom) - want).abs() < 5e-5, "{tail} {freedom}: {}", t(tail, freedom));
        }
        assert!((z(0.05) - 1.644_853_6).abs() < 1e-6);
        assert!((z(0.025) - 1.959_964).abs() < 1e-6);
    }
}
