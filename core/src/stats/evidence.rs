//! Evidence that may be looked at after every window: an e-process, for guards.
//!
//! A fixed test that is repeated each second cries wolf: at a true rate just on the limit, 300 looks at 5% give a false alarm in a quarter of
//! all drills. An e-process may be looked at as often as one likes: while the limit is kept, the chance that it *ever* reaches 1/α is at most
//! α (J. Ville, Étude critique de la notion de collectif, 1939; A. Wald, Sequential Analysis, 1947; H. Robbins, Annals of Mathematical Statistics 41
//! (1970); the review is A. Ramdas, P. Grünwald, V. Vovk and G. Shafer, Statistical Science 38 (2023)).
//!
//! The evidence is a mixture of likelihood ratios over five alternatives beyond the limit, and over the window in which
//! the change may have come: the k-th window has the prior weight 1/(k(k+1)). So calm windows before the change cost
//! little, and one multiplication a window keeps it up to date.

/// What one window says about a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Look {
    /// `count` events where the limit allows a mean of `allowed`; Poisson.
    Count {
        /// Events.
        count: f64,
        /// Their mean at the limit.
        allowed: f64,
    },
    /// `hits` of `of` where the limit is a share; binomial.
    Share {
        /// Events.
        hits: f64,
        /// Chances.
        of: f64,
        /// Their share at the limit, 0 to 1.
        limit: f64,
    },
}

/// The side of the limit for which evidence is gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The truth is above the limit.
    Above,
    /// The truth is below it.
    Below,
}

/// How far beyond the limit the alternatives lie, as factors of a rate or of odds.
const BEYOND: [f64; 5] = [1.25, 1.5, 2.0, 4.0, 16.0];

/// Evidence so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    side: Side,
    /// By alternative: the weighed likelihood ratios from each possible window of the change.
    ratios: [f64; BEYOND.len()],
    looks: f64,
}

impl Evidence {
    /// None yet.
    #[must_use]
    pub const fn new(side: Side) -> Self {
        Self { side, ratios: [0.0; BEYOND.len()], looks: 0.0 }
    }

    /// Takes a window. Returns the evidence against the limit's being kept: 1/α or more is an alarm at level α.
    pub fn look(&mut self, look: Look) -> f64 {
        self.looks += 1.0;
        let weight = 1.0 / (self.looks * (self.looks + 1.0));
        for (ratio, beyond) in self.ratios.iter_mut().zip(BEYOND) {
            let factor = likelihood_ratio(look, self.side, beyond);
            // Beyond any threshold there is no need for more, and infinity times nothing is no number.
            *ratio = (factor * (*ratio + weight)).min(f64::MAX / 16.0);
        }
        self.value()
    }

    /// The evidence.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.ratios.iter().sum::<f64>() / BEYOND.len() as f64
    }
}

/// How much likelier the look is at the alternative than at the limit.
///
/// The alternative lies beyond the limit, so while the limit is kept with room to spare the mean is below one.
fn likelihood_ratio(look: Look, side: Side, beyond: f64) -> f64 {
    let factor = match side {
        Side::Above => beyond,
        Side::Below => 1.0 / beyond,
    };
    match look {
        Look::Count { count, allowed } => (count * factor.ln() - (factor - 1.0) * allowed).exp(),
        Look::Share { hits, of, limit } => {
            if limit <= 0.0 || limit >= 1.0 {
                // A limit at the end of what is possible is broken by a single event, and by no number of others.
                let broken = match side {
                    Side::Above => limit <= 0.0 && hits > 0.0,
                    Side::Below => limit >= 1.0 && hits < of,
                };
                return if broken { f64::MAX } else { 1.0 };
            }
            let odds = factor * limit / (1.0 - limit);
            let other = odds / (1.0 + odds);
            (hits * (other / limit).ln() + (of - hits) * ((1.0 - other) / (1.0 - limit)).ln()).exp()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::simulation::Random;

    /// Share of runs in which the evidence ever reaches 20 within so many looks.
    fn alarms(runs: u32, looks: u32, side: Side, mut look: impl FnMut(&mut Random) -> Look) -> f64 {
        let mut random = Random::seeded(7);
        let alarmed = (0..runs).filter(|_| {
            let mut evidence = Evidence::new(side);
            (0..looks).any(|_| evidence.look(look(&mut random)) >= 20.0)
        });
        alarmed.count() as f64 / f64::from(runs)
    }

    #[test]
    fn three_hundred_looks_at_a_rate_on_the_limit_alarm_in_fewer_than_one_drill_of_twenty() {
        for mean in [1.0, 5.0, 20.0] {
            let rate = |random: &mut Random| Look::Count { count: random.poisson(mean), allowed: mean };
            let share = alarms(10_000, 300, Side::Above, rate);
            assert!(share <= 0.05, "{mean}: {share}");
        }
    }

    #[test]
    fn the_plain_rule_would_alarm_in_most() {
        // Ten a window, limit ten: some window of 300 is above twelve for sure.
        let mut random = Random::seeded(3);
        assert!((0..300).any(|_| random.poisson(10.0) > 12.0));
    }

    #[test]
    fn looks_at_a_share_on_the_limit_keep_to_the_level_on_either_side() {
        for side in [Side::Above, Side::Below] {
            let share = |random: &mut Random| {
                let hits = (0..20).filter(|_| random.happens(0.2)).count() as f64;
                Look::Share { hits, of: 20.0, limit: 0.2 }
            };
            assert!(alarms(2_000, 300, side, share) <= 0.05);
        }
    }

    #[test]
    fn a_storm_is_seen_within_a_few_windows_even_after_a_calm() {
        let mut random = Random::seeded(11);
        for (factor, most) in [(2.0, 9), (3.0, 4), (10.0, 1)] {
            let mut evidence = Evidence::new(Side::Above);
            for _ in 0..30 {
                assert!(evidence.look(Look::Count { count: random.poisson(20.0), allowed: 24.0 }) < 20.0);
            }
            let seen = (1..).find(|_| evidence.look(Look::Count { count: random.poisson(20.0 * factor), allowed: 24.0 }) >= 20.0);
            assert!(seen.is_some_and(|windows| windows <= most), "{factor}: {seen:?}");
        }
    }

    #[test]
    fn an_outage_of_few_requests_takes_a_few_more() {
        let mut evidence = Evidence::new(Side::Below);
        let seen = (1..).find(|_| evidence.look(Look::Share { hits: 0.0, of: 10.0, limit: 0.2 }) >= 20.0);
        assert_eq!(seen, Some(3));
    }

    #[test]
    fn a_limit_at_the_end_is_broken_by_one_and_nothing_overflows() {
        let mut evidence = Evidence::new(Side::Below);
        assert!(evidence.look(Look::Share { hits: 10.0, of: 10.0, limit: 1.0 }) <= 1.0);
        for _ in 0..10 {
            assert!(evidence.look(Look::Share { hits: 9.0, of: 10.0, limit: 1.0 }).is_finite());
        }
        assert!(evidence.value() > 1e6);
        let mut evidence = Evidence::new(Side::Above);
        for _ in 0..10 {
            assert!(evidence.look(Look::Count { count: 1e6, allowed: 1.0 }).is_finite());
        }
    }
}
