//! From windows and expectations to judgements.
//!
//! An expectation is first held against the windows of its phase (`limit`, `every_window`, `recovery`), edge by
//! edge. Then come the questions that come before any number: can the measurement be trusted (`health`), and did the
//! fault do anything (`effect`)? `doubt` lets them overrule it. A pass that hides an outage is told apart
//! (`outage`), and one for which hardly a request came in is none (`arrivals`). Of several edges the worst stands for the expectation (`expectation`).

use crate::edge::EdgeSpec;
use crate::expectation::Expectation;
use crate::fault::FaultOutcome;
use crate::window::{Phase, PhaseName, Window};

pub mod guard;

mod windows;

mod sample;

mod times;

mod measure;

mod limit;

mod every_window;

mod recovery;

mod metastable;

mod health;

mod effect;

pub(crate) mod hidden;

mod outage;

mod arrivals;

mod doubt;

mod expectation;

mod wording;

pub(crate) use measure::SHORTEST_PAUSE_NS;
pub(crate) use wording::quantity;

#[cfg(test)]
pub(crate) mod tests;

/// Error probability of each side of a test: an interval has 90%, and a wrong pass or a wrong fail at the limit itself
/// happens at most once in twenty.
pub const ALPHA: f64 = 0.05;

/// Attempts that a window needs before a ratio of its own means something.
pub const FEWEST_ATTEMPTS: u64 = 30;

/// Everything that a verdict may rest on.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    /// The edges, by [`crate::edge::EdgeId`].
    pub edges: &'a [EdgeSpec],
    /// The phases as they were, in order.
    pub phases: &'a [Phase],
    /// All closed windows, in order of time.
    pub windows: &'a [Window],
    /// The faults and what they hit.
    pub faults: &'a [FaultOutcome],
    /// Health of the built-in load generator, if one ran.
    pub load: Option<LoadHealth>,
    /// When stormdrill itself stood still for longer than [`MOST_HELD_UP_NS`].
    pub held_up: &'a [HeldUp],
    /// Why the drill was not observed to its end, if it was not.
    pub blind: Option<&'a str>,
}

/// For how long stormdrill may stand still before its windows are doubted, nanoseconds. Its load starts late then, its windows end late, and
/// what it drives out of step afterwards is no fault of the service.
pub const MOST_HELD_UP_NS: u64 = 500_000_000;

/// A time in which stormdrill did not run: stopped, starved or suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldUp {
    /// The last instant at which it ran before, monotonic nanoseconds.
    pub start_ns: u64,
    /// The first at which it ran again.
    pub end_ns: u64,
}

/// How late a request of the load generator may start before it counts as late, nanoseconds.
pub const MOST_LAG_NS: u64 = 10_000_000;

/// Whether the load was what the playbook asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadHealth {
    /// 99th percentile of how late requests started, nanoseconds.
    pub lag_p99_ns: u64,
    /// Requests that started more than [`MOST_LAG_NS`] late.
    pub late: u64,
    /// Requests that should have started.
    pub scheduled: u64,
    /// Requests that did.
    pub sent: u64,
    /// Requests that got any answer.
    pub answered: u64,
    /// Connections that the generator itself could not open for want of ports or descriptors.
    pub local_errors: u64,
}

/// Outcome of one expectation, or of the drill. Ordered from best to worst as DESIGN fixes it: a drill's verdict is its worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It holds.
    Pass,
    /// Too little traffic to tell.
    Inconclusive,
    /// The fault had no effect, so nothing was tested.
    Vacuous,
    /// The measurement cannot be trusted.
    Invalid,
    /// It does not hold.
    Fail,
}

impl Verdict {
    /// The word used in JSON and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Inconclusive => "inconclusive",
            Self::Vacuous => "vacuous",
            Self::Invalid => "invalid",
            Self::Fail => "fail",
        }
    }
}

/// An expectation, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The expectation's text.
    pub text: String,
    /// The edge it was judged on; an expectation without an edge yields one judgement for its worst edge.
    pub edge: Option<String>,
    /// Outcome.
    pub verdict: Verdict,
    /// Point estimate in `unit`.
    pub observed: Option<f64>,
    /// The limit in `unit`.
    pub limit: Option<f64>,
    /// `ratio`, `1/s`, `x`, `1` (a number without a unit), `s`, `windows`, `count`.
    pub unit: &'static str,
    /// Confidence interval of `observed`, at the level that the verdict used.
    pub interval: Option<(f64, f64)>,
    /// The phase judged.
    pub phase: PhaseName,
    /// Epochs of the windows used.
    pub windows: Vec<u32>,
    /// Why, in one sentence; always present when the verdict is not pass.
    pub reason: Option<String>,
}

/// Judges all expectations: one judgement each, in their order.
#[must_use]
pub fn judge(expectations: &[Expectation], evidence: &Evidence<'_>) -> Vec<Judgement> {
    expectations.iter().map(|expectation| expectation::judge(expectation, evidence)).collect()
}

/// The drill's verdict: the worst of its judgements. Without any, nothing was shown.
#[must_use]
pub fn drill_verdict(judgements: &[Judgement]) -> Verdict {
    judgements.iter().map(|judgement| judgement.verdict).max().unwrap_or(Verdict::Inconclusive)
}

/// Whether the fault had an effect that the drill could rest on.
#[must_use]
pub fn is_effective(fault: &FaultOutcome, evidence: &Evidence<'_>) -> bool {
    effect::of(fault, evidence) >= effect::Effect::Slowed
}
