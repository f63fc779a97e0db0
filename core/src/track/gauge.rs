//! How long answers take on an edge just now, so that an attempt without one can be called overdue.

/// The last answers that count.
const ANSWERS: usize = 256;
/// The quantile is taken anew after so many answers.
const EVERY: usize = 64;

/// Before the first quantile, what is longer than the longest answer by this factor: of a few, the longest says little of the one in a hundred.
const MARGIN: u64 = 2;

/// The 99th percentile of the latest answers' time.
#[derive(Debug, Clone)]
pub(crate) struct Gauge {
    latest: Vec<u64>,
    next: usize,
    p99_ns: u64,
}

impl Default for Gauge {
    fn default() -> Self {
        // Without an answer nobody knows what is long.
        Self { latest: Vec::new(), next: 0, p99_ns: u64::MAX }
    }
}

impl Gauge {
    /// An answer came.
    pub(crate) fn answered(&mut self, latency_ns: u64) {
        if self.latest.len() < ANSWERS {
            self.latest.push(latency_ns);
        } else {
            self.latest[self.next % ANSWERS] = latency_ns;
        }
        self.next += 1;
        if self.next < EVERY {
            self.p99_ns = self.latest.iter().max().map_or(u64::MAX, |longest| longest.saturating_mul(MARGIN));
        }
        if self.next.is_multiple_of(EVERY) {
            let mut sorted = self.latest.clone();
            sorted.sort_unstable();
            self.p99_ns = sorted[(sorted.len() * 99).div_ceil(100) - 1];
        }
    }

    /// Nanoseconds; no attempt is as old before the first answer.
    #[must_use]
    pub(crate) const fn p99_ns(&self) -> u64 {
        self.p99_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauge_follows_the_latest_answers() {
        let mut gauge = Gauge::default();
        assert_eq!(gauge.p99_ns(), u64::MAX);
        gauge.answered(1);
        gauge.answered(3);
        gauge.answered(2);
        assert_eq!(gauge.p99_ns(), 6);
        (1..=253).for_each(|latency| gauge.answered(latency));
        assert_eq!(gauge.p99_ns(), 251);
        (0..256).for_each(|_| gauge.answered(1_000_000));
        assert_eq!(gauge.p99_ns(), 1_000_000);
    }
}
