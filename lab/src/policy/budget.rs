//! A retry budget: over the last seconds, retries may be a share of requests, and a few are always allowed.
//!
//! The window slides in steps of 100 ms. It never covers more than its length, so a grant is never too generous. What a
//! long quiet time has earned may be spent at once: the longer the window, the larger the burst when a failure begins.

use std::time::Duration;

const SLOTS: usize = 100;
const SLOT_MS: u128 = 100;

/// Over what a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Counting {
    /// Over the last window.
    Sliding,
    /// Since the start, and it refuses only what is above the share already: what a long good time has earned can be spent at once.
    SinceStart,
    /// The same, but the first 100 requests may retry as they like, and such retries are not counted.
    FromHundred,
}

/// How many retries are allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetLimits {
    /// Retries per request (first attempts only), 0 to 1.
    pub share: f64,
    /// Retries in a window that are allowed however few requests there are. Floors add up over processes.
    pub floor: u64,
    /// Length of the window, 100 ms to 10 s; cut to whole steps of 100 ms.
    pub window: Duration,
    /// Over what it counts; without a window neither it nor the floor matters.
    pub counting: Counting,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    requests: u64,
    retries: u64,
}

/// The requests and retries of the last window.
#[derive(Debug)]
pub struct Budget {
    limits: BudgetLimits,
    /// Slots in a window, 1 to `SLOTS`.
    span: u128,
    slots: [Slot; SLOTS],
    newest: u128,
    requests: u64,
    retries: u64,
    /// Since the start.
    all: Slot,
}

impl Budget {
    /// An empty budget.
    #[must_use]
    pub fn new(limits: BudgetLimits) -> Self {
        let span = (limits.window.as_millis() / SLOT_MS).clamp(1, SLOTS as u128);
        Self { limits, span, slots: [Slot::default(); SLOTS], newest: 0, requests: 0, retries: 0, all: Slot::default() }
    }

    /// Counts a request's first attempt at `now`.
    pub fn request(&mut self, now: Duration) {
        self.slot(now).requests += 1;
        self.requests += 1;
        self.all.requests += 1;
    }

    /// Asks for a retry at `now`; `true` grants and counts it.
    pub fn retry(&mut self, now: Duration) -> bool {
        match self.limits.counting {
            Counting::Sliding => self.retry_in_window(now),
            Counting::FromHundred if self.all.requests < 100 => true,
            Counting::SinceStart | Counting::FromHundred => self.retry_since_start(),
        }
    }

    fn retry_since_start(&mut self) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "a process never sees 2^53 requests")]
        let ratio = self.all.retries as f64 / self.all.requests.max(1) as f64;
        let granted = ratio <= self.limits.share;
        if granted {
            self.all.retries += 1;
        }
        granted
    }

    fn retry_in_window(&mut self, now: Duration) -> bool {
        self.slot(now);
        #[expect(clippy::cast_precision_loss, reason = "ten seconds never hold 2^53 requests")]
        let allowed = (self.requests as f64 * self.limits.share).max(self.limits.floor as f64);
        #[expect(clippy::cast_precision_loss, reason = "ten seconds never hold 2^53 retries")]
        let granted = (self.retries + 1) as f64 <= allowed;
        if granted {
            self.slot(now).retries += 1;
            self.retries += 1;
        }
        granted
    }

    /// Lets go of what has left the window, and gives the slot of `now`.
    fn slot(&mut self, now: Duration) -> &mut Slot {
        // Tasks read the clock before they take the lock: an older time counts in the newest slot.
        let current = (now.as_millis() / SLOT_MS).max(self.newest);
        let steps = (current - self.newest).min(self.span);
        for step in 0..steps {
            let index = self.index(current - step);
            let old = std::mem::take(&mut self.slots[index]);
            self.requests -= old.requests;
            self.retries -= old.retries;
        }
        self.newest = current;
        let index = self.index(current);
        &mut self.slots[index]
    }

    fn index(&self, slot: u128) -> usize {
        usize::try_from(slot % self.span).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BudgetLimits = BudgetLimits { share: 0.1, floor: 3, window: Duration::from_secs(10), counting: Counting::Sliding };

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn when_everything_fails_retries_stay_within_the_share_or_the_floor_in_any_window() {
        let mut budget = Budget::new(LIMITS);
        let mut granted = Vec::new();
        // 50 requests a second for a minute, each asking for two retries.
        for n in 0..3000_u64 {
            budget.request(at(n * 20));
            for _ in 0..2 {
                if budget.retry(at(n * 20)) {
                    granted.push(n * 20);
                }
            }
        }
        assert!((300 - 4..=300).contains(&granted.len()), "{}", granted.len());
        for end in 0..60_000_u64 {
            let start = end.saturating_sub(10_000);
            let retries = granted.iter().filter(|ms| (start..end).contains(*ms)).count();
            assert!(retries <= 51, "{retries} retries in the ten seconds before {end} ms");
        }
    }

    #[test]
    fn the_floor_holds_when_there_is_hardly_any_traffic() {
        let mut budget = Budget::new(LIMITS);
        budget.request(at(0));
        let granted = (0..10).filter(|_| budget.retry(at(0))).count();
        assert_eq!(granted, 3);
    }

    #[test]
    fn without_a_floor_the_first_retry_needs_ten_requests() {
        let mut budget = Budget::new(BudgetLimits { floor: 0, ..LIMITS });
        for _ in 0..9 {
            budget.request(at(0));
            assert!(!budget.retry(at(0)));
        }
        budget.request(at(0));
        assert!(budget.retry(at(0)));
        assert!(!budget.retry(at(0)));
    }

    /// Retries granted of three asked for by each of `bad` failing requests, after `good` ones that did not fail.
    fn granted(counting: Counting, good: u64, bad: u64) -> usize {
        let mut budget = Budget::new(BudgetLimits { counting, ..LIMITS });
        (0..good).for_each(|_| budget.request(at(0)));
        (0..bad)
            .map(|_| {
                budget.request(at(60_000));
                (0..3).filter(|_| budget.retry(at(60_000))).count()
            })
            .sum()
    }

    #[test]
    fn a_count_since_the_start_lets_old_success_pay_for_a_storm() {
        assert_eq!(granted(Counting::Sliding, 100_000, 2_000), 200);
        assert_eq!(granted(Counting::SinceStart, 100_000, 2_000), 6_000);
        // The first 99 are exempt, four calls each, and none of these retries is counted.
        assert_eq!(granted(Counting::FromHundred, 0, 99), 297);
        assert_eq!(granted(Counting::SinceStart, 0, 99), 10);
    }

    #[test]
    fn what_is_ten_seconds_old_no_longer_counts() {
        let mut budget = Budget::new(LIMITS);
        for _ in 0..100 {
            budget.request(at(0));
        }
        assert_eq!((0..100).filter(|_| budget.retry(at(50))).count(), 10);
        assert!(!budget.retry(at(9_999)));
        assert_eq!((0..100).filter(|_| budget.retry(at(10_000))).count(), 3);
        assert_eq!((0..100).filter(|_| budget.retry(at(3_600_000))).count(), 3);
    }

    #[test]
    fn an_older_time_counts_in_the_newest_slot() {
        let mut budget = Budget::new(LIMITS);
        budget.request(at(5_000));
        budget.request(at(4_000));
        assert_eq!(budget.requests, 2);
        budget.request(at(14_990));
        assert_eq!(budget.requests, 3);
        budget.request(at(15_000));
        assert_eq!(budget.requests, 2);
    }

    #[test]
    fn a_short_window_spreads_what_a_long_one_would_spend_at_once() {
        let burst = |window: Duration| {
            let mut budget = Budget::new(BudgetLimits { window, floor: 0, ..LIMITS });
            for n in 0..2_000 {
                budget.request(at(n * 5));
            }
            (0..1_000).filter(|_| budget.retry(at(9_999))).count()
        };
        assert_eq!(burst(Duration::from_secs(10)), 200);
        assert_eq!(burst(Duration::from_secs(1)), 20);
    }
}
