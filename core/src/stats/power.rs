//! How much must be counted for a test to decide.
//!
//! The binomial test's sample size by the normal approximation with the continuity correction of J. L. Fleiss, A. Tytun and H. K. Ury
//! (Biometrics 36 (1980)); a rate ratio is a binomial test given the total. Within a tenth of the exact numbers.

use statrs::distribution::{ContinuousCDF as _, Normal};

/// Trials for a one-sided binomial test at level `alpha` against the share `limit` to decide with probability `power` if the share is `truth`.
///
/// `None` if the two are the same, or not within (0, 1).
#[must_use]
pub fn trials(limit: f64, truth: f64, alpha: f64, power: f64) -> Option<f64> {
    let inside = |share: f64| share > 0.0 && share < 1.0;
    let apart = (limit - truth).abs();
    if !inside(limit) || !(0.0..=1.0).contains(&truth) || apart < 1e-9 {
        return None;
    }
    let normal = Normal::standard();
    let spread = |share: f64| (share * (1.0 - share)).sqrt();
    let wanted = normal.inverse_cdf(1.0 - alpha) * spread(limit) + normal.inverse_cdf(power) * spread(truth);
    let plain = (wanted / apart).powi(2);
    let correction = 1.0 + (1.0 + 2.0 / (plain * apart)).sqrt();
    Some(plain / 4.0 * correction.powi(2))
}

/// One baseline in eight looks bursty by chance and weakens the test; so much more makes up for it.
const FOR_BURSTS: f64 = 1.15;

/// Events in the baseline for the rate-ratio test against `limit` to decide if the ratio is `truth` and the judged phase is
/// `longer` times as long as the baseline.
#[must_use]
pub fn baseline_events(limit: f64, truth: f64, longer: f64, alpha: f64, power: f64) -> Option<f64> {
    let share = |ratio: f64| ratio * longer / (ratio * longer + 1.0);
    let total = trials(share(limit), share(truth), alpha, power)?;
    Some(FOR_BURSTS * total * (1.0 - share(truth)))
}

/// Events for an exact test of a rate against a limit to decide if the truth is half of an upper limit, or half as much again as a lower one.
#[must_use]
pub fn events(is_upper: bool, alpha: f64, power: f64) -> Option<f64> {
    let truth: f64 = if is_upper { 0.5 } else { 1.5 };
    let normal = Normal::standard();
    let wanted = normal.inverse_cdf(1.0 - alpha) + normal.inverse_cdf(power) * truth.sqrt();
    // In units of the limit's own count, of which a Poisson test wants one more.
    let at_limit = (wanted / (1.0 - truth)).powi(2) + 1.0;
    // A baseline of few windows looks bursty more often than others.
    let at_limit = FOR_BURSTS * FOR_BURSTS * FOR_BURSTS * at_limit;
    at_limit.is_finite().then_some(at_limit * truth)
}

/// Ingress requests in each phase for attempts per request, whose tries are geometric, to be told from `limit` if they are `truth`; both above 1.
#[must_use]
pub fn tried_requests(limit: f64, truth: f64, alpha: f64, power: f64) -> Option<f64> {
    let apart = (limit - truth).abs();
    if truth < 1.0 || apart < 1e-9 {
        return None;
    }
    let normal = Normal::standard();
    let wanted = normal.inverse_cdf(1.0 - alpha) + normal.inverse_cdf(power);
    // Windows see their own scatter, with a few degrees of freedom; and three events are never told from none.
    let requests = (wanted / apart).powi(2) * truth * (truth - 1.0) * 1.45;
    Some(requests + 3.0 / apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_exact_test() {
        // By exact summation: equal windows, and a fault phase of five times the length.
        let table = [(1.0, 382.0, 242.0), (1.05, 688.0, 437.0), (1.1, 1591.0, 1005.0), (1.43, 346.0, 225.0), (2.0, 38.0, 24.0)];
        for (truth, equal, five) in table {
            for (longer, exact) in [(1.0, equal), (5.0, five)] {
                let found = baseline_events(1.2, truth, longer, 0.05, 0.8).unwrap_or_default() / FOR_BURSTS;
                assert!((found / exact - 1.0).abs() < 0.12, "{truth} {longer}: {found:.0}, not {exact}");
            }
        }
    }

    #[test]
    fn what_cannot_be_told_apart_has_no_number() {
        assert_eq!(trials(0.1, 0.1, 0.05, 0.8), None);
        assert_eq!(trials(1.0, 0.9, 0.05, 0.8), None);
        assert!(trials(0.1, 0.0, 0.05, 0.8).is_some_and(|n| (10.0..60.0).contains(&n)));
    }
}
