//! How retries are spread over time: the fullest hundredth of a second, against the mean.

/// Nanoseconds of a bin.
const BIN_NS: u64 = 10_000_000;

/// Retries counted in bins of 10 ms, of which the fullest is remembered. Retries come in order of time, or nearly so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Burst {
    /// Retries in all.
    pub retries: u64,
    /// Those of the fullest bin.
    pub peak: u64,
    first_bin: u64,
    last_bin: u64,
    in_last: u64,
}

impl Burst {
    /// No retry.
    pub const NONE: Self = Self { retries: 0, peak: 0, first_bin: 0, last_bin: 0, in_last: 0 };

    /// Counts one retry.
    pub fn add(&mut self, at_ns: u64) {
        let bin = at_ns / BIN_NS;
        if self.retries == 0 {
            self.first_bin = bin;
        }
        if self.retries == 0 || bin > self.last_bin {
            self.last_bin = bin;
            self.in_last = 0;
        }
        self.retries += 1;
        self.in_last += 1;
        self.peak = self.peak.max(self.in_last);
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self.retries, other.retries) {
            (0, _) => other,
            (_, 0) => self,
            _ => Self {
                retries: self.retries + other.retries,
                peak: self.peak.max(other.peak),
                first_bin: self.first_bin.min(other.first_bin),
                last_bin: self.last_bin.max(other.last_bin),
                in_last: if self.last_bin > other.last_bin { self.in_last } else { other.in_last },
            },
        }
    }

    /// Bins from the first retry to the last.
    #[must_use]
    pub const fn bins(self) -> u64 {
        self.last_bin - self.first_bin + 1
    }

    /// The fullest bin over the mean of all from the first retry to the last; `None` without a retry.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    pub fn peak_to_mean(self) -> Option<f64> {
        let bins = self.bins() as f64;
        (self.retries > 0).then(|| self.peak as f64 * bins / self.retries as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times_ms: impl IntoIterator<Item = u64>) -> Burst {
        let mut burst = Burst::default();
        times_ms.into_iter().for_each(|ms| burst.add(ms * 1_000_000));
        burst
    }

    #[test]
    fn even_retries_have_no_peak_and_bursts_have_one() {
        let even = of((0..100).map(|n| n * 10)).peak_to_mean();
        assert!(even.is_some_and(|ratio| (ratio - 1.0).abs() < 1e-12), "{even:?}");
        // A hundred at once, and one a second later.
        let burst = of((0..100).map(|_| 0).chain([1000])).peak_to_mean();
        assert!(burst.is_some_and(|ratio| (ratio - 100.0).abs() < 1e-9), "{burst:?}");
        assert_eq!(Burst::default().peak_to_mean(), None);
    }

    #[test]
    fn windows_add_up() {
        let (one, two) = (of([0, 1, 2, 50]), of([100, 101]));
        let both = one.and(two);
        assert_eq!((both.retries, both.peak), (6, 3));
        assert!(both.peak_to_mean().is_some_and(|ratio| (ratio - 3.0 * 11.0 / 6.0).abs() < 1e-12));
        assert_eq!(Burst::default().and(two), two);
        assert_eq!(two.and(Burst::default()), two);
    }
}
