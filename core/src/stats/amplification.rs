//! Attempts per ingress request, and that over the same in the baseline: the paired estimate of retry amplification.
//!
//! Pairing attempts D with the ingress I of the *same* window removes the noise of the load itself, and needs 6 to 40
//! times fewer requests than comparing rates. Windows are the clusters: attempts of one request depend on each other.
//!
//! Method: Fieller's interval for ΣD/ΣI over windows (E. C. Fieller, JRSS B 16 (1954)) in each phase, the two joined by
//! [`quotient`]. Preferred to a cluster bootstrap because it needs no random numbers and keeps its level with
//! the handful of windows that a short drill has.

use crate::stats::quotient::{self, Estimate};
use crate::stats::{Interval, Tails, student};

/// Fewer windows than this say nothing useful about their own scatter (t for one degree of freedom is 6.3).
const FEWEST_WINDOWS: usize = 3;

/// Variance in events that even no attempt in excess leaves: the bound is then near 3 events, the rule of three.
const RULE_OF_THREE: f64 = 3.0;

/// What one window counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Attempts on the downstream edge.
    pub attempts: f64,
    /// Requests on the ingress edges.
    pub ingress: f64,
}

/// Attempts per ingress request over all windows; `None` without ingress.
#[must_use]
pub fn ratio(windows: &[Pair]) -> Option<f64> {
    let (attempts, ingress) = sums(windows);
    (ingress > 0.0).then(|| attempts / ingress)
}

fn sums(windows: &[Pair]) -> (f64, f64) {
    windows.iter().fold((0.0, 0.0), |(d, i), w| (d + w.attempts, i + w.ingress))
}

/// Amplification of `judged` over `baseline`: `None` if either has no ingress or the baseline no attempts.
#[must_use]
pub fn normalised(judged: &[Pair], baseline: &[Pair]) -> Option<f64> {
    let base = ratio(baseline).filter(|base| *base > 0.0)?;
    Some(ratio(judged)? / base)
}

/// Interval of [`normalised`]; `None` where that is `None`.
///
/// `more` is how many times as much data to imagine: 1 for the interval as it is.
#[must_use]
pub fn interval(judged: &[Pair], baseline: &[Pair], tails: Tails, more: f64) -> Option<Interval> {
    let base = ratio(baseline).filter(|base| *base > 0.0)?;
    let value = ratio(judged)?;
    let at = |tail: f64| -> Option<Interval> {
        let judged = Estimate { value, interval: phase_bounds(judged, base, tail, more)? };
        let base = Estimate { value: base, interval: phase_bounds(baseline, base, tail, more)? };
        Some(quotient::interval(judged, base))
    };
    Some(Interval { lo: at(tails.below)?.lo, hi: at(tails.above)?.hi })
}

/// Bounds of one phase's ratio, `tail` at each end. `base` is the ratio without a fault.
fn phase_bounds(windows: &[Pair], base: f64, tail: f64, more: f64) -> Option<Interval> {
    let (attempts, ingress) = sums(windows);
    if ingress <= 0.0 {
        return None;
    }
    let value = attempts / ingress;
    if windows.len() < FEWEST_WINDOWS {
        // No scatter to see: take attempts as Poisson, and a request's tries as geometric.
        let variance = attempts.max(RULE_OF_THREE) * (value / base).max(1.0);
        return Some(around(value, student::z(tail) * (variance / more).sqrt() / ingress));
    }
    // Windows may agree by chance when little happens; the attempts in excess are at least Poisson.
    let excess = (attempts - base * ingress).max(0.0) + RULE_OF_THREE;
    let floor = around(value, student::z(tail) * (excess / more).sqrt() / ingress);
    let seen = fieller(windows, tail, more);
    Some(Interval { lo: floor.lo.min(seen.lo), hi: floor.hi.max(seen.hi) })
}

fn around(value: f64, half_width: f64) -> Interval {
    Interval { lo: (value - half_width).max(0.0), hi: value + half_width }
}

/// Fieller's interval for the ratio of the means of attempts and ingress over windows.
fn fieller(windows: &[Pair], tail: f64, more: f64) -> Interval {
    let n = windows.len() as f64;
    let (attempts, ingress) = sums(windows);
    let (mean_d, mean_i) = (attempts / n, ingress / n);
    let moment = |f: &dyn Fn(&Pair) -> f64| windows.iter().map(f).sum::<f64>() / ((n - 1.0) * n * more);
    let var_d = moment(&|w| (w.attempts - mean_d).powi(2));
    let var_i = moment(&|w| (w.ingress - mean_i).powi(2));
    let covariance = moment(&|w| (w.attempts - mean_d) * (w.ingress - mean_i));
    let t_squared = student::t(tail, n - 1.0).powi(2);
    // The ratios A with (D - A I)² ≤ t² var(D - A I): a quadratic in A.
    let a = mean_i * mean_i - t_squared * var_i;
    let b = mean_i * mean_d - t_squared * covariance;
    let c = mean_d * mean_d - t_squared * var_d;
    if a <= 0.0 {
        // The ingress itself is not told from zero.
        return Interval { lo: 0.0, hi: f64::INFINITY };
    }
    let root = (b * b - a * c).max(0.0).sqrt();
    Interval { lo: ((b - root) / a).max(0.0), hi: (b + root) / a }
}

#[cfg(test)]
mod tests;
