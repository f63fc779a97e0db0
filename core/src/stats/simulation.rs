//! A small seeded random source for the tests: simulated error rates must be the same on every run.

/// SplitMix64 (G. L. Steele, D. Lea and C. H. Flood, OOPSLA 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1].
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.uniform() <= probability
    }

    /// Arrivals of a unit-rate process before `mean`.
    pub(crate) fn poisson(&mut self, mean: f64) -> f64 {
        let mut count = 0.0;
        let mut time = -self.uniform().ln();
        while time < mean {
            count += 1.0;
            time -= self.uniform().ln();
        }
        count
    }

    /// Attempts of one request of at most `most` tries, each failing with `probability`.
    pub(crate) fn tries(&mut self, probability: f64, most: u32) -> u32 {
        let mut tries = 1;
        while tries < most && self.happens(probability) {
            tries += 1;
        }
        tries
    }
}
