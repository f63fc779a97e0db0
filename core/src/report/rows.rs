//! What every written report says, as rows of text: the phases of each edge, the faults, and what may be missing.

use super::json::edge::Edge;
use super::json::{FaultView, Run};
use crate::wording::decimals;

/// Column heads of [`edges`].
pub const EDGE_HEADS: [&str; 8] = ["edge", "phase", "requests", "per second", "retries", "failed", "p50 / p99", "TCP retransmits"];

/// Column heads of [`faults`].
pub const FAULT_HEADS: [&str; 6] = ["fault", "injected", "on", "by", "hit", "felt by requests"];

/// One row for each edge and phase, transitions left out.
#[must_use]
pub fn edges(run: &Run) -> Vec<[String; 8]> {
    run.edges.iter().flat_map(edge).collect()
}

fn edge(edge: &Edge) -> Vec<[String; 8]> {
    phase_order(edge)
        .into_iter()
        .filter_map(|name| {
            let phase = edge.phases.get(name)?;
            Some([
                format!("{} ({})", edge.name, edge.role),
                name.to_owned(),
                phase.requests.to_string(),
                phase.qps.map_or_else(unknown, |qps| decimals(qps, 1)),
                phase.retry_ratio.map_or_else(unknown, percent),
                phase.failed().to_string(),
                match (phase.latency_ms.p50, phase.latency_ms.p99) {
                    (Some(p50), Some(p99)) => format!("{} / {} ms", decimals(p50, 1), decimals(p99, 1)),
                    _ => unknown(),
                },
                phase.tcp_retransmits.to_string(),
            ])
        })
        .collect()
}

/// The phases' names in the order in which a drill has them.
fn phase_order(edge: &Edge) -> Vec<&str> {
    const KNOWN: [&str; 4] = ["baseline", "fault", "recovery", "all"];
    KNOWN.into_iter().filter(|name| edge.phases.contains_key(*name)).collect()
}

/// One row for each fault.
#[must_use]
pub fn faults(run: &Run) -> Vec<[String; 6]> {
    run.faults.iter().map(|view| fault(view, &run.faults)).collect()
}

/// `http_status 503 for 30% of answers to store`.
#[must_use]
pub fn injected(fault: &FaultView) -> String {
    let parameters = fault.parameters.as_ref().map(|parameters| format!(" {parameters},")).unwrap_or_default();
    format!("{}{parameters} to {}", fault.kind, fault.target)
}

/// The guards in one phrase; `None` if the result does not say.
#[must_use]
pub fn guards(run: &Run) -> Option<String> {
    let guards = run.guards.as_ref()?;
    Some(if guards.is_empty() { "none".to_owned() } else { guards.join("; ") })
}

fn fault(fault: &FaultView, all: &[FaultView]) -> [String; 6] {
    // Requests do not say which of two faults at the same time they felt.
    let together = all.iter().filter(|other| {
        let ends = |one: &FaultView| one.removed_ns.unwrap_or(u64::MAX);
        other.packets_hit > 0 && other.applied_ns < ends(fault) && fault.applied_ns < ends(other)
    });
    let is_one_of_several = together.count() > 1;
    let things = if fault.kind == "http_status" { "answers" } else { "packets" };
    let share = if fault.packets_selected == 0 {
        String::new()
    } else {
        format!(" ({})", percent(fault.packets_hit as f64 / fault.packets_selected as f64))
    };
    [
        fault.kind.clone(),
        fault.parameters.clone().unwrap_or_else(unknown),
        fault.target.clone(),
        fault.backend.clone(),
        format!("{} of {} {things}{share}", fault.packets_hit, fault.packets_selected),
        match (fault.removed_ns, fault.effective) {
            (None, _) => "removal not confirmed".to_owned(),
            (Some(_), true) if is_one_of_several => "yes, by all together".to_owned(),
            (Some(_), true) => "yes".to_owned(),
            (Some(_), false) => "no".to_owned(),
        },
    ]
}

/// What the measurement did not see, one phrase each; empty if it saw everything.
#[must_use]
pub fn unseen(run: &Run) -> Vec<String> {
    let quality = &run.data_quality;
    let mut phrases: Vec<String> = [
        (quality.events_lost, "events lost"),
        (quality.unknown_role_connections, "connections of unknown role"),
        (quality.unparsed_connections, "connections that no recogniser took"),
        (quality.gaps.unwrap_or(0), "gaps in streams"),
        (quality.segments_over_budget.unwrap_or(0), "segments too rich to be read"),
        (quality.headers_partial.unwrap_or(0), "header blocks read in part"),
        (quality.storage_failed.unwrap_or(0), "sockets without room in the kernel"),
        (quality.forgotten.unwrap_or(0), "requests or connections forgotten for want of room"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    if let Some(sampling) = quality.sampling.filter(|sampling| *sampling < 1.0) {
        phrases.push(format!("events of {} of the requests kept, by identity: retries, failures and times are theirs", percent(sampling)));
    }
    phrases
}

/// A sum that a result from elsewhere cannot make overflow.
pub(super) fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// `12.3%`.
pub(super) fn percent(ratio: f64) -> String {
    format!("{}%", decimals(100.0 * ratio, 1))
}

/// For a value that is not known.
pub(super) fn unknown() -> String {
    "-".to_owned()
}
