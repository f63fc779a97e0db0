//! What netem's random models come to: the share of packets that is hit in the long run.

/// A loss with memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossModel {
    /// Gilbert and Elliott's two states.
    Gemodel(Gemodel),
    /// Four states: in a burst or between bursts, lost or not.
    State(FourState),
}

/// A good and a bad state, each with its own loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemodel {
    /// From good to bad, for each packet, 0 to 1.
    pub p: f64,
    /// From bad to good; its inverse is the mean length of a bad time in packets.
    pub r: f64,
    /// Share of packets that *pass* in the bad state.
    pub h: f64,
    /// Share of packets that *pass* in the good state.
    pub k: f64,
}

/// Transitions of the four-state model: 1 passes between bursts, 2 passes within one, 3 is lost in a burst, 4 is a lone loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FourState {
    /// From passing to lost in a burst.
    pub p13: f64,
    /// From lost in a burst to passing.
    pub p31: f64,
    /// From lost in a burst to passing within it.
    pub p32: f64,
    /// From passing within a burst to lost.
    pub p23: f64,
    /// From passing to a lone loss.
    pub p14: f64,
}

impl LossModel {
    /// Share of packets that are lost in the long run, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self {
            Self::Gemodel(model) => model.share(),
            Self::State(model) => model.share(),
        }
    }
}

impl Gemodel {
    fn share(&self) -> f64 {
        if self.p + self.r == 0.0 {
            // It begins in the good state and stays there.
            return 1.0 - self.k;
        }
        let bad = self.p / (self.p + self.r);
        bad * (1.0 - self.h) + (1.0 - bad) * (1.0 - self.k)
    }

    /// Mean number of packets that a bad time lasts; infinite if it never ends.
    #[must_use]
    pub fn mean_burst(&self) -> f64 {
        1.0 / self.r
    }

    /// The model that loses a share in bursts of that mean length, everything in the bad state and nothing in the good.
    ///
    /// A share of 1 has no such model: `p` is then capped at 1.
    #[must_use]
    pub fn of_bursts(share: f64, mean_burst: f64) -> Self {
        let r = 1.0 / mean_burst;
        let p = (r * share / (1.0 - share)).min(1.0);
        Self { p, r, h: 0.0, k: 1.0 }
    }
}

impl FourState {
    fn share(&self) -> f64 {
        if self.p13 == 0.0 {
            return self.p14 / (1.0 + self.p14);
        }
        if self.p31 == 0.0 && (self.p32 == 0.0 || self.p23 > 0.0) {
            // The burst is never left for good.
            let within = if self.p32 == 0.0 { 0.0 } else { self.p32 / self.p23 };
            return 1.0 / (1.0 + within);
        }
        if self.p32 > 0.0 && self.p23 == 0.0 {
            return 0.0;
        }
        // Relative to the time that is spent lost in bursts.
        let passing = self.p31 / self.p13;
        let within = if self.p32 == 0.0 { 0.0 } else { self.p32 / self.p23 };
        let lone = passing * self.p14;
        (1.0 + lone) / (1.0 + lone + passing + within)
    }
}

/// Steps of the grid that a distribution is worked out on.
const STEPS: u32 = 400;
/// Draws after which the first one is forgotten, for every correlation below one half; beyond, nearly.
const DRAWS: u32 = 200;

/// Share of packets that netem really hits when a share is asked with a correlation.
///
/// The kernel draws `v = (1 - correlation) * random + correlation * last v` and hits if `v` is below the share. That is no longer even
/// over 0 to 1, so that fewer are hit than asked below one half, and more above. Worked out on a grid, good to half a point.
#[must_use]
pub fn correlated_share(share: f64, correlation: f64) -> f64 {
    if correlation <= 0.0 {
        return share;
    }
    if correlation >= 1.0 {
        // The first value, 0, stays for ever.
        return if share > 0.0 { 1.0 } else { 0.0 };
    }
    let steps = f64::from(STEPS);
    // The density of the last value, a weight for each step; the first draw is even.
    let mut density = vec![1.0 / steps; STEPS as usize];
    let below = |density: &[f64], x: f64| -> f64 {
        // P(v < x), v = (1 - c) * u + c * last.
        let weights = (0_u32..).zip(density);
        weights
            .map(|(step, weight)| {
                let last = (f64::from(step) + 0.5) / steps;
                weight * ((x - correlation * last) / (1.0 - correlation)).clamp(0.0, 1.0)
            })
            .sum()
    };
    for _ in 0..DRAWS {
        let edges: Vec<f64> = (0..=STEPS).map(|edge| below(&density, f64::from(edge) / steps)).collect();
        let next: Vec<f64> = edges.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let change: f64 = next.iter().zip(&density).map(|(a, b)| (a - b).abs()).sum();
        density = next;
        if change < 1e-6 {
            break;
        }
    }
    below(&density, share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_correlation_changes_how_much_is_lost_as_kernels_were_measured_to() {
        // Asked, correlation, measured or simulated share (30% with 25% drops 23%; 1% with 25% drops none of 20,000).
        for (share, correlation, real) in [
            (0.3, 0.25, 0.233),
            (0.3, 0.1, 0.277),
            (0.3, 0.5, 0.129),
            (0.2, 0.25, 0.102),
            (0.8, 0.25, 0.898),
            (0.5, 0.5, 0.5),
            (0.01, 0.25, 0.0),
        ] {
            let found = correlated_share(share, correlation);
            assert!((found - real).abs() < 0.005, "{share} {correlation}: {found}");
        }
        assert!((correlated_share(0.3, 0.0) - 0.3).abs() < 1e-12);
    }

    #[test]
    fn the_models_stationary_losses_are_those_of_the_theory() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(LossModel::Gemodel(Gemodel { p: 0.02, r: 0.2, h: 0.0, k: 1.0 }).share(), 0.02 / 0.22);
        near(LossModel::Gemodel(Gemodel { p: 0.0, r: 0.0, h: 0.0, k: 0.9 }).share(), 0.1);
        near(LossModel::Gemodel(Gemodel::of_bursts(0.3, 4.0)).share(), 0.3);
        let state = |p13, p31, p32, p23, p14| LossModel::State(FourState { p13, p31, p32, p23, p14 }).share();
        // Without a lone loss or a pass within the burst it is the simple Gilbert model.
        near(state(0.02, 0.2, 0.0, 1.0, 0.0), 0.02 / 0.22);
        near(state(0.0, 0.0, 0.0, 1.0, 0.25), 0.2);
        near(state(0.1, 0.0, 0.5, 0.5, 0.0), 0.5);
    }
}
