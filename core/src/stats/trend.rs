//! Whether a series falls or rises: the Theil–Sen slope and its exact interval.
//!
//! The slope is the median of the slopes between all pairs of points, which a third of wild points does not move (H. Theil, Indagationes
//! Mathematicae 12 (1950); P. K. Sen, JASA 63 (1968)). Its interval comes from the exact distribution of Kendall's statistic.

use crate::stats::Interval;

/// A slope and where the line lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Median slope, per unit of x.
    pub slope: f64,
    /// Its interval, with `alpha` at each end; unbounded if there are too few points.
    pub interval: Interval,
    /// Median of the line's value at x = 0.
    pub intercept: f64,
}

impl Trend {
    /// The line's value.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// The trend of points with distinct x; `None` with fewer than two.
#[must_use]
pub fn theil_sen(points: &[(f64, f64)], alpha: f64) -> Option<Trend> {
    let mut slopes: Vec<f64> = Vec::with_capacity(points.len() * points.len().saturating_sub(1) / 2);
    for (index, (x, y)) in points.iter().enumerate() {
        slopes.extend(points.iter().skip(index + 1).filter(|(other, _)| (other - x).abs() > 0.0).map(|(other, z)| (z - y) / (other - x)));
    }
    slopes.sort_by(f64::total_cmp);
    let slope = median(&slopes)?;
    let mut intercepts: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    intercepts.sort_by(f64::total_cmp);
    let interval = match outer(points.len(), alpha) {
        Some(rank) => Interval {
            lo: slopes.get(rank).copied().unwrap_or(f64::NEG_INFINITY),
            hi: slopes.len().checked_sub(rank + 1).and_then(|rank| slopes.get(rank)).copied().unwrap_or(f64::INFINITY),
        },
        None => Interval { lo: f64::NEG_INFINITY, hi: f64::INFINITY },
    };
    Some(Trend { slope, interval, intercept: median(&intercepts)? })
}

/// The largest number of inversions that a random order of `n` has, or fewer, with probability at most `alpha`.
fn outer(n: usize, alpha: f64) -> Option<usize> {
    // Probabilities of each number of inversions, one element after the other.
    let mut chances = vec![1.0];
    for length in 2..=n {
        let mut next = vec![0.0; chances.len() + length - 1];
        for (inversions, chance) in chances.iter().enumerate() {
            for added in 0..length {
                next[inversions + added] += chance / length as f64;
            }
        }
        chances = next;
    }
    let mut sum = 0.0;
    let mut within = None;
    for (inversions, chance) in chances.iter().enumerate() {
        sum += chance;
        if sum > alpha {
            break;
        }
        within = Some(inversions);
    }
    within
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, upper)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::simulation::Random;

    fn points(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect()
    }

    #[test]
    fn a_line_is_found_and_one_wild_point_does_not_move_it() {
        let mut line: Vec<f64> = (0..10).map(|x| 100.0 - 3.0 * f64::from(x)).collect();
        line[4] = 1e6;
        let trend = theil_sen(&points(&line), 0.05).map(|trend| (trend.slope, trend.at(10.0)));
        assert_eq!(trend, Some((-3.0, 70.0)));
    }

    #[test]
    fn too_few_points_bound_nothing() {
        assert_eq!(theil_sen(&points(&[1.0]), 0.05), None);
        let three = theil_sen(&points(&[3.0, 2.0, 1.0]), 0.05).map(|trend| trend.interval.hi);
        assert_eq!(three, Some(f64::INFINITY));
        // Of the 24 orders of four, one falls throughout: 4.2%.
        let four = theil_sen(&points(&[4.0, 3.0, 2.0, 1.0]), 0.05).map(|trend| trend.interval.hi);
        assert_eq!(four, Some(-1.0));
    }

    #[test]
    fn the_interval_misses_a_flat_series_at_each_end_in_at_most_one_case_of_twenty() {
        let mut random = Random::seeded(5);
        let (mut below, mut above) = (0, 0);
        for _ in 0..10_000 {
            let values: Vec<f64> = (0..8).map(|_| random.uniform()).collect();
            let interval = theil_sen(&points(&values), 0.05).map(|trend| trend.interval);
            below += u32::from(interval.is_some_and(|interval| interval.hi < 0.0));
            above += u32::from(interval.is_some_and(|interval| interval.lo > 0.0));
        }
        assert!(below <= 560 && above <= 560, "{below} {above}");
        assert!(below >= 250, "needlessly wide: {below}");
    }
}
