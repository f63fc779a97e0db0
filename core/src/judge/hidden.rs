//! What an edge cannot show: a fault that lies between its socket and its callers.
//!
//! The probe counts at the socket. A fault towards an ingress edge works between that and the wire, so that the edge's own statuses and times
//! are those of the service, and not those that its callers met with. A pass on them would be empty.

use crate::edge::{EdgeSpec, Role};
use crate::expectation::Metric;
use crate::fault::FaultSpec;
use crate::judge::Evidence;
use crate::window::PhaseName;

/// Why a metric of that edge cannot show what a fault did, if one is aimed at it.
pub(crate) fn behind_the_socket(metric: Metric, phase: PhaseName, edge: &EdgeSpec, evidence: &Evidence<'_>) -> Option<String> {
    let fault = evidence.faults.iter().find_map(|fault| by(metric, phase, edge, std::slice::from_ref(&fault.spec)))?;
    Some(format!(
        "`{}` works between {}'s socket and its callers, and the edge's own answers and times do not show it; judge it at the caller's edge",
        fault.kind.as_str(),
        edge.name
    ))
}

/// The fault for which a metric of that edge could never be shown to hold in that phase: what a playbook should not ask for.
pub(crate) fn by<'f>(metric: Metric, phase: PhaseName, edge: &EdgeSpec, faults: &'f [FaultSpec]) -> Option<&'f FaultSpec> {
    let is_hidden = edge.role == Role::Ingress && phase != PhaseName::Baseline && is_of_answers(metric);
    faults.iter().find(|fault| is_hidden && fault.to == edge.name)
}

/// Whether a metric is about what became of requests, and when.
pub(crate) const fn is_of_answers(metric: Metric) -> bool {
    matches!(
        metric,
        Metric::SuccessRatio | Metric::Goodput | Metric::ExplicitFailureRatio | Metric::Latency { .. } | Metric::FailureLatency { .. }
    )
}
