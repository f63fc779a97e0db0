//! Expectations: what a playbook demands of a drill, as parsed; see [`grammar`] for how they are written.

use std::time::Duration;

use crate::window::PhaseName;

pub mod metric;

pub(crate) mod bounds;

mod words;

mod value;

pub mod grammar;

mod print;

/// One line of `expect:`.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// The line, as the author wrote it.
    pub text: String,
    /// Edge by name; `None` holds for every edge that the metric applies to.
    pub edge: Option<String>,
    /// What is measured.
    pub metric: Metric,
    /// What is demanded of it.
    pub demand: Demand,
}

/// What an expectation measures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Metric {
    /// Attempts a second on downstream edges.
    DownstreamQps,
    /// Requests a second on ingress edges.
    IngressQps,
    /// Attempts per ingress request, over the same in the baseline.
    Amplification,
    /// Retries over attempts, or over first attempts.
    RetryRatio {
        /// The denominator.
        of: RetryBase,
    },
    /// Share of requests that were answered without failure.
    SuccessRatio,
    /// Quantile of the time that failed requests took to fail.
    FailureLatency {
        /// Quantile, 0 to 1 exclusive.
        quantile: f64,
    },
    /// Quantile of the time to the answer.
    Latency {
        /// Quantile, 0 to 1 exclusive.
        quantile: f64,
    },
    /// Attempts per ingress request, not compared with the baseline unless by `increase`.
    DownstreamPerIngress,
    /// Requests answered without failure, a second.
    Goodput,
    /// Of the failures, those that said so: an answer, a reset, a closed or refused connection. The others hung.
    ExplicitFailureRatio,
    /// Most attempts seen of one logical request.
    AttemptsMax,
    /// Downstream edges that retry, of the whole drill.
    LayersRetrying,
    /// Attempts for each one that was answered without failure.
    CostPerSuccess,
    /// Most connections open at the end of a window.
    Connections,
    /// Connections established.
    ConnectionsOpened,
    /// `connect()` calls that came to nothing.
    ConnectFailures,
    /// Segments that TCP sent again, per request.
    RetransmitRatio,
    /// Retries that may carry something out twice, with harm.
    NonIdempotentRetries,
    /// Retries of what had been turned down for good.
    NonretryableRetries,
    /// Retries before the time that the server had asked for.
    RetryAfterViolations,
    /// Standard deviation over mean of the pause before a first retry.
    BackoffJitter,
    /// Retries in the fullest hundredth of a second, over the mean.
    RetryPeakToMean,
    /// Attempts that began after whoever they were made for had given up.
    LateStarts,
    /// How long attempts went on after that.
    OrphanWork,
    /// Whether the service comes back once the fault is gone: a verdict of its own, asked for by `not metastable`.
    Metastable,
}

impl Metric {
    /// Whether it is a property of the whole drill, so that no edge can be named.
    #[must_use]
    pub const fn is_of_drill(self) -> bool {
        matches!(self, Self::LayersRetrying | Self::Metastable)
    }

    /// Whether more of it is better.
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(self, Self::SuccessRatio | Self::Goodput | Self::ExplicitFailureRatio | Self::BackoffJitter)
    }
}

/// Denominator of the retry ratio; 20% of all is 25% of first attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryBase {
    /// Retries over all attempts, as the SRE book counts.
    #[default]
    All,
    /// Retries over first attempts, as Linkerd and Finagle count.
    First,
}

/// What is demanded of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Demand {
    /// `metric op value [during phase] [in every window]`.
    Limit {
        /// Comparison.
        op: Op,
        /// The limit, in the metric's unit; a share for relative ones.
        value: f64,
        /// `Some` compares with the baseline: the limit is on `value / baseline - 1`.
        increase: bool,
        /// The phase judged.
        phase: PhaseName,
        /// Each window is judged on its own.
        every_window: bool,
    },
    /// `metric recovers [to value] within N windows|duration`.
    Recovers {
        /// Level that counts as recovered; `None`: the baseline's value plus two points.
        to: Option<f64>,
        /// The time allowed, from the fault's confirmed removal.
        within: Within,
    },
}

/// How long a recovery may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// That many windows.
    Windows(u32),
    /// That time.
    Time(Duration),
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `<`
    Less,
    /// `<=` or `≤`
    AtMost,
    /// `>`
    Greater,
    /// `>=` or `≥`
    AtLeast,
}
