//! Full Jitter: the wait before a retry is drawn evenly between nothing and a cap that doubles.

use std::time::Duration;

/// The bounds of Full Jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The cap of the first retry's wait.
    pub base: Duration,
    /// The cap of any wait.
    pub max: Duration,
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
        self.cap(retry).mul_f64(chance.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { base: Duration::from_millis(20), max: Duration::from_secs(1) };

    #[test]
    fn the_cap_doubles_up_to_the_maximum() {
        let caps: Vec<u128> = (0..8).map(|retry| BACKOFF.cap(retry).as_millis()).collect();
        assert_eq!(caps, [20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(BACKOFF.cap(31), BACKOFF.max);
        assert_eq!(BACKOFF.cap(u32::MAX), BACKOFF.max);
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
