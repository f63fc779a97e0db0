//! A circuit breaker as one article lists it, its weaknesses included.
//!
//! It counts failed *attempts* in a row, and retries that the budget refuses too, so that one bad request may open it. When it has been open
//! for its time it closes for everybody, not for a single probe.

use std::time::Duration;

/// When it opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Failures in a row that open it; at least 1.
    pub failures: u32,
    /// How long it stays open after the last failure.
    pub open: Duration,
}

/// The state of one.
#[derive(Debug)]
pub struct Breaker {
    limits: BreakerLimits,
    failures: u32,
    opened: Option<Duration>,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub fn new(limits: BreakerLimits) -> Self {
        Self { limits, failures: 0, opened: None }
    }

    /// Whether a request may be tried at `now`.
    pub fn admits(&mut self, now: Duration) -> bool {
        match self.opened {
            Some(at) if now.saturating_sub(at) <= self.limits.open => false,
            Some(_) => {
                self.opened = None;
                true
            }
            None => true,
        }
    }

    /// An attempt succeeded.
    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// An attempt failed, or the budget refused one.
    pub fn failed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= self.limits.failures {
            self.opened = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BreakerLimits = BreakerLimits { failures: 5, open: Duration::from_secs(5) };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_after_its_time_it_admits_everybody() {
        let mut breaker = Breaker::new(LIMITS);
        (0..4).for_each(|_| breaker.failed(at(1)));
        assert!(breaker.admits(at(1)));
        breaker.failed(at(1));
        assert!(!breaker.admits(at(6)));
        assert!((0..100).all(|_| breaker.admits(at(7))));
        // One failure is enough now.
        breaker.failed(at(7));
        assert!(!breaker.admits(at(8)));
    }

    #[test]
    fn a_success_forgets_the_failures_before() {
        let mut breaker = Breaker::new(LIMITS);
        (0..4).for_each(|_| breaker.failed(at(0)));
        breaker.succeeded();
        breaker.failed(at(0));
        assert!(breaker.admits(at(0)));
    }
}
