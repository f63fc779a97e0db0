//! The questions that come before any number, and may overrule it: was it measured right, and was anything tested?

use crate::edge::EdgeSpec;
use crate::expectation::Metric;
use crate::judge::health::{self, Basis};
use crate::judge::{Evidence, Verdict, arrivals, effect, hidden};
use crate::window::{PhaseName, Window};

/// The verdict and the reason that remain of those given.
pub(crate) fn overrule(
    metric: Metric,
    edge: &EdgeSpec,
    phase: PhaseName,
    used: &[&Window],
    evidence: &Evidence<'_>,
    verdict: Verdict,
    reason: Option<String>,
) -> (Verdict, Option<String>) {
    let basis = basis(metric);
    if let Some(broken) = health::broken(phase, basis, used, evidence) {
        return (Verdict::Invalid, Some(broken));
    }
    let doubts = [
        (Verdict::Invalid, health::overloaded(evidence.load)),
        (Verdict::Invalid, hidden::behind_the_socket(metric, phase, edge, evidence)),
        (Verdict::Vacuous, if phase == PhaseName::Baseline { None } else { effect::untested(metric, edge, evidence) }),
    ];
    let Some((doubted, doubt)) = doubts.into_iter().find_map(|(verdict, doubt)| Some((verdict, doubt?))) else {
        return match arrivals::missing(metric, edge, phase, evidence) {
            Some(missing) if verdict == Verdict::Pass => (Verdict::Inconclusive, Some(missing)),
            _ => (verdict, reason),
        };
    };
    if verdict == Verdict::Fail {
        // A limit that was broken is broken, whatever else went wrong.
        let reason = reason.map_or_else(|| doubt.clone(), |reason| format!("{reason}; and {doubt}"));
        return (Verdict::Fail, Some(reason));
    }
    (doubted, Some(doubt))
}

/// What a metric rests on.
pub(crate) const fn basis(metric: Metric) -> Basis {
    match metric {
        Metric::DownstreamQps
        | Metric::IngressQps
        | Metric::Amplification
        | Metric::DownstreamPerIngress
        | Metric::Connections
        | Metric::ConnectionsOpened
        | Metric::ConnectFailures
        | Metric::RetransmitRatio => Basis::Counts,
        Metric::RetryRatio { .. }
        | Metric::SuccessRatio
        | Metric::FailureLatency { .. }
        | Metric::Latency { .. }
        | Metric::Goodput
        | Metric::ExplicitFailureRatio
        | Metric::AttemptsMax
        | Metric::LayersRetrying
        | Metric::CostPerSuccess
        | Metric::NonIdempotentRetries
        | Metric::NonretryableRetries
        | Metric::RetryAfterViolations
        | Metric::BackoffJitter
        | Metric::RetryPeakToMean
        | Metric::LateStarts
        | Metric::OrphanWork
        | Metric::Metastable => Basis::Events,
    }
}
