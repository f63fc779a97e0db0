//! Whether the fault did anything that the service could feel: a drill without effect tests nothing.
//!
//! A rewritten status is a failure by itself, so one hit suffices. A dropped or delayed packet is not: TCP sends it
//! again, and thirty percent loss under a three-second timeout leaves retries with nothing to do. So a packet fault must
//! show in the requests of the edge that it is aimed at, or in those that come in.

use crate::edge::{EdgeSpec, Role};
use crate::expectation::{Metric, RetryBase};
use crate::fault::{FaultKind, FaultOutcome, Requests};
use crate::judge::sample::Share;
use crate::judge::{ALPHA, Evidence, measure, windows};
use crate::stats::quotient::{self, Estimate};
use crate::stats::{Interval, Tails, quantile};
use crate::window::{PhaseName, Window};

/// By how many points more requests must fail, be retried or be slow than in the baseline.
const LEAST_CHANGE: f64 = 0.05;

/// How far a fault came, from nothing to what retries answer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effect {
    /// The kernel hit nothing.
    Missed,
    /// Packets were hit, and no request changed.
    Unfelt,
    /// Requests became slower.
    Slowed,
    /// Requests failed or were retried.
    Failed,
}

/// Whether events of a share of the requests were kept, of an edge that should have felt a fault none: it cannot be said what it felt.
fn is_unseen(fault: &FaultOutcome, evidence: &Evidence<'_>) -> bool {
    [PhaseName::Fault, PhaseName::Baseline].into_iter().any(|phase| {
        let windows = windows::of_phase(evidence, phase);
        feeling(fault, evidence).any(|edge| measure::none_kept(edge, &windows))
    })
}

/// The edges that may feel a fault: the one that it is aimed at, and those that come in.
fn feeling<'a>(fault: &'a FaultOutcome, evidence: &'a Evidence<'_>) -> impl Iterator<Item = usize> + 'a {
    (0..evidence.edges.len()).filter(move |&edge| evidence.edges[edge].name == fault.spec.to || evidence.edges[edge].role == Role::Ingress)
}

/// How far `fault` came.
pub(crate) fn of(fault: &FaultOutcome, evidence: &Evidence<'_>) -> Effect {
    if fault.counts.hit == 0 {
        return Effect::Missed;
    }
    if matches!(fault.spec.kind, FaultKind::HttpStatus { .. } | FaultKind::Refuse { .. }) {
        return Effect::Failed;
    }
    let during = windows::of_phase(evidence, PhaseName::Fault);
    let baseline = windows::of_phase(evidence, PhaseName::Baseline);
    let felt = feeling(fault, evidence)
        .map(|edge| {
            // A connection that never came about keeps a try from becoming an attempt: nothing else shows what loss does to handshakes.
            let failed = rose(measure::shares::failed_tries(edge, &during), measure::shares::failed_tries(edge, &baseline));
            let retried = rose(
                measure::shares::retry_share(edge, &during, RetryBase::All),
                measure::shares::retry_share(edge, &baseline, RetryBase::All),
            );
            if failed || retried {
                Effect::Failed
            } else if slowed(edge, &during, &baseline) {
                Effect::Slowed
            } else {
                Effect::Unfelt
            }
        })
        .max();
    felt.unwrap_or(Effect::Unfelt)
}

/// Whether the share rose by more than [`LEAST_CHANGE`], and not by chance.
///
/// A baseline without requests counts as one without failures.
fn rose(during: Option<Share>, baseline: Option<Share>) -> bool {
    let tails = Tails::each(ALPHA);
    let Some(during) = during.map(|share| share.estimate(tails, 1.0)) else {
        return false;
    };
    let baseline = baseline.map_or(NOTHING, |share| share.estimate(tails, 1.0));
    during.value - baseline.value > LEAST_CHANGE && quotient::difference_at_least(during, baseline) > 0.0
}

const NOTHING: Estimate = Estimate { value: 0.0, interval: Interval { lo: 0.0, hi: 0.0 } };

/// Whether more answers than before took longer than the baseline's 99th percentile, or most took longer than nine in
/// ten did.
///
/// The second is for a baseline with a few very slow answers of its own: its 99th percentile is beyond what even a fault
/// that slows everything reaches.
fn slowed(edge: usize, during: &[&Window], baseline: &[&Window]) -> bool {
    let (before, now) = (measure::answer_times(edge, baseline), measure::answer_times(edge, during));
    let usual = |quantile: f64| quantile::estimate(&before, quantile, Tails::each(ALPHA)).map(|estimate| estimate.value);
    let slower = |times: &[u64], usual: u64| {
        let slow = times.iter().filter(|time| **time > usual).count();
        (!times.is_empty()).then(|| Share::of_all(slow as u64, times.len() as u64))
    };
    let most = |usual: u64| slower(&now, usual).is_some_and(|share| share.estimate(Tails::each(ALPHA), 1.0).interval.lo > 0.5);
    usual(0.99).is_some_and(|usual| rose(slower(&now, usual), slower(&before, usual))) || usual(0.9).is_some_and(most)
}

/// Why an expectation on `metric` of that edge was not tested; `None` if at least one fault reached what it is about.
///
/// That is the edge's own faults, where some are aimed at it: what another edge met with does not test how this one is treated.
pub(crate) fn untested(metric: Metric, edge: &EdgeSpec, evidence: &Evidence<'_>) -> Option<String> {
    let own = |fault: &&FaultOutcome| fault.spec.to == edge.name;
    let has_own = !metric.is_of_drill() && evidence.faults.iter().any(|fault| own(&fault));
    let mut reasons = Vec::new();
    for fault in evidence.faults.iter().filter(|fault| !has_own || own(fault)) {
        let effect = of(fault, evidence);
        // What was not seen may have been felt, if anything was hit.
        if effect >= needed(metric, &fault.spec.kind) || (effect > Effect::Missed && is_unseen(fault, evidence)) {
            return None;
        }
        reasons.push(reason(fault, effect));
    }
    (!reasons.is_empty()).then(|| format!("nothing was tested: {}", reasons.join("; ")))
}

/// What a fault must reach to test the metric. Retries answer to failures; a delay is meant to slow, so slowness is
/// enough for it.
const fn needed(metric: Metric, kind: &FaultKind) -> Effect {
    match (metric, kind) {
        // Of packets, not of requests: TCP is what is tested.
        (Metric::RetransmitRatio, _) => Effect::Unfelt,
        (
            Metric::SuccessRatio
            | Metric::FailureLatency { .. }
            | Metric::IngressQps
            | Metric::Latency { .. }
            | Metric::Goodput
            | Metric::ExplicitFailureRatio
            | Metric::Connections
            | Metric::ConnectionsOpened
            | Metric::ConnectFailures
            | Metric::Metastable,
            _,
        )
        | (_, FaultKind::Delay { .. } | FaultKind::Rate(_)) => Effect::Slowed,
        _ => Effect::Failed,
    }
}

fn reason(fault: &FaultOutcome, effect: Effect) -> String {
    let kind = fault.spec.kind.as_str();
    let to = &fault.spec.to;
    let things = match fault.spec.kind {
        FaultKind::HttpStatus { .. } => "answers",
        FaultKind::Refuse { .. } => "connections",
        _ => "packets",
    };
    let (hit, selected) = (fault.counts.hit, fault.counts.selected);
    match effect {
        Effect::Missed if selected == 0 => {
            let asked = if fault.spec.select.requests == Requests::default() { "" } else { "no request had its method and path, " };
            format!(
                "{kind} to {to} saw none of its {things}; {asked}the traffic took another way, was on connections that it does not \
                 select, or another tc program came first"
            )
        }
        Effect::Missed => {
            format!("{kind} to {to} hit none of the {selected} {things} that it selected")
        }
        Effect::Unfelt => format!(
            "{kind} to {to} hit {hit} of {selected} {things}, but no more than {} points of the requests failed, were \
             retried or became slow",
            LEAST_CHANGE * 100.0
        ),
        Effect::Slowed | Effect::Failed => format!(
            "{kind} to {to} hit {hit} of {selected} {things} and made requests slower, but no more than {} points of them failed or \
             were given up, so that there was next to nothing to retry: use a shorter client timeout or a stronger fault",
            LEAST_CHANGE * 100.0
        ),
    }
}
