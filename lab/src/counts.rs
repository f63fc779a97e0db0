//! Counters that many tasks add to and a report reads once they are at rest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One counter. Relaxed throughout: a report is exact once the tasks that count have ended.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds one and gives the count with it: a number that nobody else is given.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes one back, for something that turned out not to have happened.
    pub fn take_back(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Raises the counter to `value` if it is lower.
    pub fn raise_to(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

const LOWEST: u16 = 100;
const HIGHEST: u16 = 999;

/// Answers by status code, 100 to 999, which is what `hyper::StatusCode` can hold.
#[derive(Debug)]
pub struct StatusCounts(Box<[Counter]>);

impl Default for StatusCounts {
    fn default() -> Self {
        Self((LOWEST..=HIGHEST).map(|_| Counter::default()).collect())
    }
}

impl StatusCounts {
    /// Counts one answer.
    pub fn add(&self, status: hyper::StatusCode) {
        if let Some(counter) = self.0.get(usize::from(status.as_u16() - LOWEST)) {
            counter.add();
        }
    }

    /// The statuses that occurred, as text, each with its count.
    #[must_use]
    pub fn report(&self) -> BTreeMap<String, u64> {
        (LOWEST..=HIGHEST)
            .zip(self.0.iter())
            .filter(|(_, counter)| counter.get() > 0)
            .map(|(status, counter)| (status.to_string(), counter.get()))
            .collect()
    }

    /// All answers.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }
}

/// Counts a request from its arrival, and as one whose caller is gone if it is dropped before it was answered.
///
/// hyper drops a service's future as soon as it sees that the connection is closed; that is how the lab knows.
#[derive(Debug)]
pub struct Arrival<'a> {
    gone: &'a Counter,
    answered: bool,
}

impl<'a> Arrival<'a> {
    /// A request has arrived: counts it in `requests`, and in `gone` if [`Arrival::answered`] is never called.
    pub fn new(requests: &Counter, gone: &'a Counter) -> Self {
        requests.add();
        Self { gone, answered: false }
    }

    /// The request is being answered.
    pub fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.gone.add();
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn statuses_are_counted_under_their_own_number() {
        let counts = StatusCounts::default();
        for status in [100, 200, 503, 503, 999] {
            counts.add(hyper::StatusCode::from_u16(status).unwrap());
        }
        let expected = [("100", 1), ("200", 1), ("503", 2), ("999", 1)];
        assert_eq!(counts.report(), expected.map(|(k, n)| (k.to_owned(), n)).into());
        assert_eq!(counts.total(), 5);
    }

    #[test]
    fn a_request_that_is_dropped_unanswered_counts_as_gone() {
        let (requests, gone) = (Counter::default(), Counter::default());
        Arrival::new(&requests, &gone).answered();
        drop(Arrival::new(&requests, &gone));
        assert_eq!((requests.get(), gone.get()), (2, 1));
    }
}
