//! Edges in JSON: counts by phase, ratios recomputed from the sums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ratio;
use crate::result::DrillResult;
use crate::stats::quantile;
use crate::window::{EdgeWindow, Failure, PhaseName, Retries, Window};

/// One edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Edge {
    /// Its name.
    pub name: String,
    /// `ingress` or `downstream`.
    pub role: String,
    /// The pinned protocol; `null` if it is detected.
    pub protocol: Option<String>,
    /// By the phase's name.
    pub phases: BTreeMap<String, EdgePhase>,
}

/// One edge in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EdgePhase {
    /// Requests, exact.
    pub requests: u64,
    /// Requests a second.
    pub qps: Option<f64>,
    /// Final responses, exact.
    pub responses: u64,
    /// Retries by evidence.
    pub retries: RetriesView,
    /// Retries over attempts.
    pub retry_ratio: Option<f64>,
    /// Answers by status.
    pub status: BTreeMap<String, u64>,
    /// Failures by reason, each reason named.
    pub failures: BTreeMap<String, u64>,
    /// Time to the answer.
    pub latency_ms: LatencyView,
    /// Connections open at the phase's end.
    pub connections: u64,
    /// Connections opened in the phase.
    pub connections_opened: u64,
    /// Segments that TCP sent again.
    pub tcp_retransmits: u64,
}

/// Retries by evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "as in Retries")]
pub struct RetriesView {
    pub marker: u64,
    pub id: u64,
    pub matched: u64,
}

/// Quantiles of a time in milliseconds; `null` without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "the keys say it")]
pub struct LatencyView {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// The result's edges.
pub(super) fn of_result(result: &DrillResult) -> Vec<Edge> {
    result
        .edges
        .iter()
        .enumerate()
        .map(|(index, spec)| Edge {
            name: spec.name.clone(),
            role: spec.role.as_str().to_owned(),
            protocol: spec.protocol.map(|protocol| protocol.as_str().to_owned()),
            phases: result
                .phases
                .iter()
                .map(|phase| (phase.name.as_str().to_owned(), EdgePhase::of(index, phase.name, &result.windows)))
                .collect(),
        })
        .collect()
}

impl EdgePhase {
    fn of(edge: usize, phase: PhaseName, windows: &[Window]) -> Self {
        let mut sum = Sum::default();
        for window in windows.iter().filter(|window| window.phase == phase) {
            sum.add(window.seconds(), window.edges.get(edge));
        }
        Self {
            requests: sum.requests,
            qps: ratio(sum.requests, sum.seconds),
            responses: sum.responses,
            retries: retries(sum.retries),
            retry_ratio: ratio(sum.retries.total(), sum.attempts as f64),
            // Within a drill a status belongs to the phase of its request. An observation has one phase, and there the kernel's own
            // count is exact whatever became of the events.
            status: if phase == PhaseName::All { sum.kernel_status } else { sum.status },
            failures: failures(&sum.failures),
            latency_ms: latency(sum.latency_ns),
            connections: open_at_end(edge, phase, windows),
            connections_opened: sum.connections_opened,
            tcp_retransmits: sum.tcp_retransmits,
        }
    }
}

#[derive(Default)]
struct Sum {
    seconds: f64,
    requests: u64,
    responses: u64,
    attempts: u64,
    retries: Retries,
    status: BTreeMap<String, u64>,
    kernel_status: BTreeMap<String, u64>,
    failures: BTreeMap<Failure, u64>,
    latency_ns: Vec<u64>,
    connections_opened: u64,
    tcp_retransmits: u64,
}

impl Sum {
    fn add(&mut self, seconds: f64, edge: Option<&EdgeWindow>) {
        self.seconds += seconds;
        let Some(edge) = edge else {
            return;
        };
        self.requests += edge.counts.requests;
        self.responses += edge.counts.responses;
        self.attempts += edge.attempts;
        self.retries.marker += edge.retries.marker;
        self.retries.id += edge.retries.id;
        self.retries.matched += edge.retries.matched;
        for (status, count) in &edge.status {
            *self.status.entry(status.clone()).or_default() += count;
        }
        for (code, count) in &edge.kernel_status {
            *self.kernel_status.entry(code.to_string()).or_default() += count;
        }
        for (failure, count) in &edge.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        self.latency_ns.extend(&edge.latency_ns);
        self.connections_opened += edge.counts.connections_opened;
        self.tcp_retransmits += edge.counts.tcp_retransmits;
    }
}

/// Connections opened less those closed, from the first window to the last of the phase.
fn open_at_end(edge: usize, phase: PhaseName, windows: &[Window]) -> u64 {
    let Some(last) = windows.iter().rposition(|window| window.phase == phase) else {
        return 0;
    };
    let counts = || windows.iter().take(last + 1).filter_map(|window| window.edges.get(edge)).map(|edge| edge.counts);
    let opened: u64 = counts().map(|counts| counts.connections_opened).sum();
    opened.saturating_sub(counts().map(|counts| counts.connections_closed).sum())
}

pub(super) const fn retries(retries: Retries) -> RetriesView {
    RetriesView { marker: retries.marker, id: retries.id, matched: retries.matched }
}

/// All reasons, also those that did not occur: a missing key would read as unknown.
pub(super) fn failures(counts: &BTreeMap<Failure, u64>) -> BTreeMap<String, u64> {
    Failure::ALL
        .into_iter()
        .map(|failure| (failure.as_str().to_owned(), counts.get(&failure).copied().unwrap_or(0)))
        .collect()
}

pub(super) fn latency(mut times_ns: Vec<u64>) -> LatencyView {
    times_ns.sort_unstable();
    let at = |q: f64| {
        let index = quantile::rank(times_ns.len(), q).checked_sub(1)?;
        times_ns.get(index).map(|ns| *ns as f64 / 1e6)
    };
    LatencyView { p50: at(0.5), p99: at(0.99) }
}
