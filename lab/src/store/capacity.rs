//! What a store can serve a second, and what becomes of the rest.
//!
//! `Defer` is Bronson's model: a first-in first-out queue whose work is done even when the client is gone. The queue is a
//! single instant, the end of the work already taken on, so a client that leaves cannot take its place back.

use std::time::Duration;

/// What becomes of requests beyond the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Queue {
    /// Answered 503 at once. Bursts of up to 100 ms of capacity are let through.
    Reject,
    /// Queued without limit and served in order, late, even if the client is gone.
    Defer,
}

/// Bursts that `Reject` lets through, as time's worth of capacity.
const BURST: Duration = Duration::from_millis(100);

/// When an admitted request is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Its work ends at this instant.
    Served(Duration),
    /// It comes to the head of the queue at this instant, after its deadline, and is dropped there at no cost.
    ExpiresInQueue(Duration),
    /// There is no capacity for it.
    Rejected,
}

/// The capacity and the work taken on.
#[derive(Debug)]
pub struct Capacity {
    cost: Duration,
    queue: Queue,
    busy_until: Duration,
}

impl Capacity {
    /// A capacity of `per_second` requests, above 0.
    #[must_use]
    pub fn new(per_second: f64, queue: Queue) -> Self {
        Self { cost: Duration::from_secs_f64(1.0 / per_second), queue, busy_until: Duration::ZERO }
    }

    /// Takes on a request that arrives at `now`; with a `deadline`, only if its turn comes before that.
    pub fn admit(&mut self, now: Duration, deadline: Option<Duration>) -> Admission {
        match self.queue {
            Queue::Reject => {
                let earliest = now.saturating_sub(BURST.saturating_sub(self.cost));
                let begin = self.busy_until.max(earliest);
                if begin > now {
                    return Admission::Rejected;
                }
                self.busy_until = begin + self.cost;
                Admission::Served(now)
            }
            Queue::Defer => {
                let begin = self.busy_until.max(now);
                if deadline.is_some_and(|deadline| begin >= deadline) {
                    return Admission::ExpiresInQueue(begin);
                }
                self.busy_until = begin + self.cost;
                Admission::Served(self.busy_until)
            }
        }
    }

    /// Requests waiting or in service at `now`.
    #[must_use]
    pub fn backlog(&self, now: Duration) -> u64 {
        let ahead = self.busy_until.saturating_sub(now).as_nanos();
        u64::try_from(ahead.div_ceil(self.cost.as_nanos().max(1))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn deferred_requests_are_served_in_order_at_the_rate_of_the_capacity() {
        let mut capacity = Capacity::new(100.0, Queue::Defer);
        let served: Vec<Admission> = (0..3).map(|_| capacity.admit(ms(1000), None)).collect();
        assert_eq!(served, [1010, 1020, 1030].map(|at| Admission::Served(ms(at))));
        assert_eq!(capacity.backlog(ms(1005)), 3);
        assert_eq!(capacity.admit(ms(2000), None), Admission::Served(ms(2010)));
    }

    #[test]
    fn what_expires_in_the_queue_costs_nothing() {
        let mut capacity = Capacity::new(100.0, Queue::Defer);
        for _ in 0..10 {
            capacity.admit(ms(0), None);
        }
        assert_eq!(capacity.admit(ms(0), Some(ms(50))), Admission::ExpiresInQueue(ms(100)));
        assert_eq!(capacity.admit(ms(0), Some(ms(101))), Admission::Served(ms(110)));
    }

    #[test]
    fn a_rejecting_store_serves_its_capacity_and_one_burst() {
        let mut capacity = Capacity::new(100.0, Queue::Reject);
        // 1000 requests a second for ten seconds.
        let served = (0..10_000).filter(|n| capacity.admit(ms(*n), None) != Admission::Rejected).count();
        assert!((1000..=1010).contains(&served), "{served}");
    }

    #[test]
    fn a_capacity_below_ten_a_second_still_serves() {
        let mut capacity = Capacity::new(2.0, Queue::Reject);
        let served: Vec<u64> = (0..2000).filter(|n| capacity.admit(ms(*n), None) != Admission::Rejected).collect();
        assert_eq!(served, [0, 500, 1000, 1500]);
    }
}
