//! A bounded sample of durations, each as likely to be kept as any other (Vitter's algorithm R).

/// Up to a fixed number of values.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    values: Vec<u64>,
    seen: u64,
    cap: usize,
    state: u64,
}

impl Sample {
    /// Keeps up to `cap` values.
    #[must_use]
    pub(crate) const fn new(cap: usize) -> Self {
        Self { values: Vec::new(), seen: 0, cap, state: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Offers a value.
    pub(crate) fn push(&mut self, value: u64) {
        self.seen += 1;
        if self.values.len() < self.cap {
            self.values.push(value);
            return;
        }
        // xorshift64: repeatable, and more than good enough to choose places.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let place = usize::try_from(self.state % self.seen).unwrap_or(usize::MAX);
        if let Some(kept) = self.values.get_mut(place) {
            *kept = value;
        }
    }

    /// What was kept.
    #[must_use]
    pub(crate) fn into_values(self) -> Vec<u64> {
        self.values
    }

    /// How many values were offered and are not here.
    #[must_use]
    pub(crate) const fn left_out(&self) -> u64 {
        self.seen - self.values.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_kept_up_to_the_cap() {
        let mut sample = Sample::new(10);
        (0..10).for_each(|value| sample.push(value));
        assert_eq!(sample.left_out(), 0);
        assert_eq!(sample.into_values(), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn early_and_late_values_have_the_same_chance() {
        let mut sample = Sample::new(1000);
        (0..100_000).for_each(|value| sample.push(value));
        assert_eq!(sample.left_out(), 99_000);
        let early = sample.into_values().iter().filter(|&&value| value < 50_000).count();
        assert!((400..600).contains(&early), "{early}");
    }
}
