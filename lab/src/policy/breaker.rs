//! Circuit breakers: one as an article lists it, its weaknesses included, and one that does what was meant.
//!
//! The listed one counts failed *attempts* in a row, and retries that the budget refuses too, so that one bad request may open it. When it has been open
//! for its time it closes for everybody. The other counts what was sent, lets nothing be tried again while it is open, and then lets a single
//! probe through, whose outcome decides.

use std::time::Duration;

/// Whom it lets through when it has been open for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Probing {
    /// Everybody, as the listing does.
    Everybody,
    /// One request, and nobody else until that has its outcome.
    One,
}

/// When it opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Failures in a row that open it; at least 1.
    pub failures: u32,
    /// How long it stays open after the last failure.
    pub open: Duration,
    /// Whom it lets through then.
    pub probing: Probing,
}

/// The state of one.
#[derive(Debug)]
pub struct Breaker {
    limits: BreakerLimits,
    failures: u32,
    opened: Option<Duration>,
    /// Since when a probe is under way.
    probe: Option<Duration>,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub fn new(limits: BreakerLimits) -> Self {
        Self { limits, failures: 0, opened: None, probe: None }
    }

    /// Whether a request may be tried at `now`.
    pub fn admits(&mut self, now: Duration) -> bool {
        let is_over = |at: Duration| now.saturating_sub(at) > self.limits.open;
        match (self.opened, self.limits.probing) {
            (None, _) => true,
            (Some(at), _) if !is_over(at) => false,
            (Some(_), Probing::Everybody) => {
                self.opened = None;
                true
            }
            // A probe whose caller has gone has no outcome; after as long again it is another's turn.
            (Some(_), Probing::One) if self.probe.is_none_or(is_over) => {
                self.probe = Some(now);
                true
            }
            (Some(_), Probing::One) => false,
        }
    }

    /// Whether a request that was let through may be tried again.
    #[must_use]
    pub fn admits_retry(&self) -> bool {
        self.limits.probing == Probing::Everybody || self.opened.is_none()
    }

    /// An attempt succeeded.
    pub fn succeeded(&mut self) {
        self.failures = 0;
        if self.limits.probing == Probing::One {
            (self.opened, self.probe) = (None, None);
        }
    }

    /// An attempt failed.
    pub fn failed(&mut self, now: Duration) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= self.limits.failures {
            (self.opened, self.probe) = (Some(now), None);
        }
    }

    /// The budget refused an attempt, which the listing takes for one that failed.
    pub fn refused(&mut self, now: Duration) {
        if self.limits.probing == Probing::Everybody {
            self.failed(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BreakerLimits = BreakerLimits { failures: 5, open: Duration::from_secs(5), probing: Probing::Everybody };

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

    #[test]
    fn with_a_single_probe_its_outcome_decides_and_nothing_is_tried_again_meanwhile() {
        let mut breaker = Breaker::new(BreakerLimits { probing: Probing::One, ..LIMITS });
        // What was never sent is no failure.
        (0..10).for_each(|_| breaker.refused(at(1)));
        assert!(breaker.admits(at(1)) && breaker.admits_retry());
        (0..5).for_each(|_| breaker.failed(at(1)));
        assert!(!breaker.admits(at(6)) && !breaker.admits_retry());
        assert!(breaker.admits(at(7)));
        assert!((0..100).all(|_| !breaker.admits(at(7))) && !breaker.admits_retry());
        breaker.failed(at(8));
        assert!(!breaker.admits(at(13)));
        assert!(breaker.admits(at(14)));
        breaker.succeeded();
        assert!((0..100).all(|_| breaker.admits(at(14))) && breaker.admits_retry());
        // The probe that never ends is not waited for.
        (0..5).for_each(|_| breaker.failed(at(20)));
        assert!(breaker.admits(at(26)) && !breaker.admits(at(31)) && breaker.admits(at(32)));
    }
}
