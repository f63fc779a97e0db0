//! The statistics behind the verdicts, each in a module of its own with its source.
//!
//! All bounds are exact where an exact method exists. Counts are `f64`: a correction for over-dispersion divides
//! them, and the tests are continuous in the count. See `docs/statistics.md` for the choices and their reasons.

pub mod beta;

pub mod proportion;

pub mod poisson;

pub mod rate_ratio;

pub mod dispersion;

pub mod quantile;

pub mod student;

pub mod quotient;

pub mod amplification;

pub mod evidence;

pub mod power;

pub mod trend;

pub mod variation;

#[cfg(test)]
pub(crate) mod simulation;

/// A confidence interval; `hi` is infinite where the data give no upper bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub lo: f64,
    /// Upper end, not below `lo`.
    pub hi: f64,
}

/// The error probability spent at each end of an interval, both in (0, 0.5).
///
/// A verdict tests each side on its own, so an interval with 5% at each end is a 90% interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tails {
    /// Probability that the truth lies below `lo`.
    pub below: f64,
    /// Probability that the truth lies above `hi`.
    pub above: f64,
}

impl Tails {
    /// The same probability at both ends.
    #[must_use]
    pub const fn each(alpha: f64) -> Self {
        Self { below: alpha, above: alpha }
    }
}
