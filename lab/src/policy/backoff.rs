//! The wait before a retry: Full Jitter, drawn evenly between nothing and a cap that doubles, and ways of getting it wrong.

use std::time::Duration;

/// How the wait is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// From nothing to base · 2^retry.
    Full,
    /// Always base.
    Fixed,
    /// From base · 2^(retry+1) to one and a half times that: never less than twice the base.
    FromBase,
    /// From nothing to base · 2^(retry+1): the exponent is raised before it is used.
    Doubled,
}

/// The bounds of the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The cap of the first retry's wait.
    pub base: Duration,
    /// The cap of any wait (of its lower end, for [`Shape::FromBase`]).
    pub max: Duration,
    /// How it is drawn.
    pub shape: Shape,
}

impl Backoff {
    /// The longest wait before retry `retry`, counted from 0: min(max, base · 2^retry).
    #[must_use]
    pub fn cap(&self, retry: u32) -> Duration {
        let doubled = 1_u32.checked_shl(retry).and_then(|factor| self.base.checked_mul(factor));
        doubled.unwrap_or(self.max).min(self.max)
    }

    /// The wait before retry `retry`; `chance` is drawn evenly from 0 to 1.
    #[must_use]
    pub fn wait(&self, retry: u32, chance: f64) -> Duration {
        let chance = chance.clamp(0.0, 1.0);
        match self.shape {
            Shape::Full => self.cap(retry).mul_f64(chance),
            Shape::Fixed => self.base.min(self.max),
            Shape::FromBase => self.cap(retry.saturating_add(1)).mul_f64(1.0 + chance / 2.0),
            Shape::Doubled => self.cap(retry.saturating_add(1)).mul_f64(chance),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(20), max: Duration::from_secs(1), shape: Shape::Full };

    #[test]
    fn the_cap_doubles_up_to_the_maximum() {
        let caps: Vec<u128> = (0..8).map(|retry| BACKOFF.cap(retry).as_millis()).collect();
        assert_eq!(caps, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(BACKOFF.cap(31), BACKOFF.max);
        assert_eq!(BACKOFF.cap(u32::MAX), BACKOFF.max);
    }

    #[test]
    fn the_other_shapes_have_their_known_bounds() {
        let bounds = |shape| {
            let backoff = Backoff { shape, ..BACKOFF };
            [0.0, 1.0].map(|chance| backoff.wait(0, chance).as_millis())
        };
        assert_eq!(bounds(Shape::Full), [0, 20]);
        assert_eq!(bounds(Shape::Fixed), [20, 20]);
        assert_eq!(bounds(Shape::FromBase), [40, 60]);
        assert_eq!(bounds(Shape::Doubled), [0, 40]);
    }

    #[test]
    fn waits_fill_the_whole_range_evenly() {
        let mut rng = fastrand::Rng::with_seed(7);
        let waits: Vec<f64> = (0..10_000).map(|_| BACKOFF.wait(2, rng.f64()).as_secs_f64() / 0.080).collect();
        assert!(waits.iter().all(|wait| (0.0..1.0).contains(wait)));
        let mean = waits.iter().sum::<f64>() / 10_000.0;
        let deviation = (waits.iter().map(|wait| (wait - mean).powi(2)).sum::<f64>() / 10_000.0).sqrt();
        // An even spread from 0 has a coefficient of variation of 1/√3; a fixed wait has none.
        assert!((deviation / mean - 0.577).abs() < 0.02, "{}", deviation / mean);
    }
}
