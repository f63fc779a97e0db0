//! How much more than Poisson the baseline's counts scatter, and the correction for it.
//!
//! Source: P. McCullagh and J. A. Nelder, Generalized Linear Models, §6.2 (quasi-likelihood): divide counts by the
//! dispersion before an exact test. Real requests come in bursts. The baseline alone may say how bursty: a retry storm
//! scatters by factors of 20 to 800, and taking the fault's own scatter would excuse it.

use crate::stats::rate_ratio::Tally;
use crate::stats::student;

/// A dispersion below this is left alone: with few windows it is as likely chance.
const NEGLIGIBLE: f64 = 1.5;

/// Two or three windows say next to nothing of their scatter, and are not stretched for all that they leave open.
const FEWEST_FREEDOM: f64 = 3.0;

/// The level at which the divisor is right: that of the verdicts.
const LEVEL: f64 = 0.05;

/// Variance over mean of the windows' counts (the Fano factor), as Pearson's χ² over its degrees of freedom, so that
/// windows of unequal length count as they should. `None` with fewer than two windows or without a single event.
#[must_use]
pub fn fano(windows: &[Tally]) -> Option<f64> {
    let events: f64 = windows.iter().map(|w| w.count).sum();
    let exposure: f64 = windows.iter().map(|w| w.exposure).sum();
    if windows.len() < 2 || events <= 0.0 || exposure <= 0.0 {
        return None;
    }
    let rate = events / exposure;
    let chi_squared: f64 = windows
        .iter()
        .filter(|w| w.exposure > 0.0)
        .map(|w| {
            let expected = rate * w.exposure;
            (w.count - expected).powi(2) / expected
        })
        .sum();
    Some(chi_squared / (windows.len() - 1) as f64)
}

/// What to divide counts by: the baseline's Fano factor where it is above 1.5, and more where few windows say so; else 1.
///
/// A factor from few windows is itself a matter of chance. As Student did for the mean, the tests' quantile is stretched from the normal's to that of t
/// with the windows' degrees of freedom (McCullagh and Nelder, §4.5.2), which in terms of the divisor is its square.
#[must_use]
pub fn divisor(baseline: &[Tally]) -> f64 {
    let freedom = (baseline.len().saturating_sub(1) as f64).max(FEWEST_FREEDOM);
    let stretch = (student::t(LEVEL, freedom) / student::z(LEVEL)).powi(2);
    fano(baseline).filter(|phi| *phi > NEGLIGIBLE).map_or(1.0, |phi| phi * stretch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::simulation::Random;

    fn windows(counts: &[f64]) -> Vec<Tally> {
        counts.iter().map(|&count| Tally { count, exposure: 10.0 }).collect()
    }

    #[test]
    fn is_variance_over_mean() {
        // Mean 4, sample variance 8.
        let got = fano(&windows(&[2.0, 2.0, 8.0, 4.0])).unwrap_or(f64::NAN);
        assert!((got - 2.0).abs() < 1e-12, "{got}");
    }

    #[test]
    fn unequal_windows_at_one_rate_do_not_scatter() {
        let even = [Tally { count: 10.0, exposure: 1.0 }, Tally { count: 50.0, exposure: 5.0 }];
        assert_eq!(fano(&even), Some(0.0));
        assert!((divisor(&even) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn too_little_to_tell_is_no_correction() {
        assert_eq!(fano(&windows(&[7.0])), None);
        assert_eq!(fano(&windows(&[0.0, 0.0])), None);
        assert!((divisor(&[]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn finds_bursts_of_five_and_spares_poisson() {
        let mut random = Random::seeded(3);
        let bursts: Vec<f64> = (0..60).map(|_| 5.0 * random.poisson(20.0)).collect();
        let phi = divisor(&windows(&bursts));
        assert!((3.0..8.0).contains(&phi), "{phi}");
        let smooth: Vec<f64> = (0..60).map(|_| random.poisson(100.0)).collect();
        assert!((divisor(&windows(&smooth)) - 1.0).abs() < 1e-12);
    }
}
