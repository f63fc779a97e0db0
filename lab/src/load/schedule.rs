//! When requests are due: an endless series of times after the start, fixed by rate, kind and seed.

use std::time::Duration;

/// How requests are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrivals {
    /// Evenly.
    Uniform,
    /// At random, independently of each other, as many clients do.
    Poisson,
}

/// The series. The first request is due at once.
#[derive(Debug)]
pub struct Schedule {
    rate: f64,
    arrivals: Arrivals,
    chance: fastrand::Rng,
    number: u64,
    /// Seconds; only Poisson arrivals add up, so only they gather rounding errors, and those do not matter.
    random_offset: f64,
}

impl Schedule {
    /// A schedule of `rate` requests a second, above 0.
    #[must_use]
    pub fn new(rate: f64, arrivals: Arrivals, seed: u64) -> Self {
        Self { rate, arrivals, chance: fastrand::Rng::with_seed(seed), number: 0, random_offset: 0.0 }
    }

    /// The next request's time after the start.
    pub fn next_offset(&mut self) -> Duration {
        let number = self.number;
        self.number += 1;
        match self.arrivals {
            Arrivals::Uniform => self.length(number),
            Arrivals::Poisson => {
                let offset = self.random_offset;
                // 1 - chance is above 0, so that its logarithm is finite.
                self.random_offset -= (1.0 - self.chance.f64()).ln() / self.rate;
                seconds(offset)
            }
        }
    }

    /// The time that `count` requests take on average.
    #[must_use]
    pub fn length(&self, count: u64) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^53 requests")]
        seconds(count as f64 / self.rate)
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_arrivals_do_not_drift() {
        let mut schedule = Schedule::new(3.0, Arrivals::Uniform, 1);
        let offsets: Vec<Duration> = (0..=3_000_000).map(|_| schedule.next_offset()).collect();
        assert_eq!(offsets[0], Duration::ZERO);
        assert_eq!(offsets[3_000_000], Duration::from_secs(1_000_000));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_gaps_that_vary_as_much_as_their_mean() {
        let mut schedule = Schedule::new(100.0, Arrivals::Poisson, 1);
        let offsets: Vec<f64> = (0..=20_000).map(|_| schedule.next_offset().as_secs_f64()).collect();
        let gaps: Vec<f64> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = offsets[20_000] / 20_000.0;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 20_000.0).sqrt();
        assert!((mean - 0.01).abs() < 0.0003, "{mean}");
        assert!((deviation / mean - 1.0).abs() < 0.05, "{}", deviation / mean);
    }

    #[test]
    fn a_seed_gives_the_same_schedule_again() {
        let series = |seed| {
            let mut schedule = Schedule::new(50.0, Arrivals::Poisson, seed);
            (0..10).map(|_| schedule.next_offset()).collect::<Vec<_>>()
        };
        assert_eq!(series(4), series(4));
        assert_ne!(series(4), series(5));
    }
}
