//! Edges in JSON: counts by phase, ratios recomputed from the sums.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ratio;
use super::retrying::{self, Retrying};
use crate::edge::{EdgeId, EdgeSpec, Protocol};
use crate::event::ConnectFailure;
use crate::judge::ALPHA;
use crate::report::rows::total;
use crate::result::DrillResult;
use crate::retry::matching;
use crate::stats::{Tails, quantile};
use crate::status;
use crate::window::{EdgeWindow, Failure, PhaseName, Retries, Window};

/// One edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Edge {
    /// Its name.
    pub name: String,
    /// `ingress` or `downstream`.
    pub role: String,
    /// The protocol that was recognised on most of its connections, else the one that was pinned; `null` if neither is known.
    pub protocol: Option<String>,
    /// How often `matched` speaks up where nothing failed, of all attempts: so much of it may be wrong. Left out without such a window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_false_rate: Option<f64>,
    /// By the phase's name.
    pub phases: BTreeMap<String, EdgePhase>,
}

/// One edge in one phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EdgePhase {
    /// Requests, exact.
    pub requests: u64,
    /// Those of them that were seen one by one, where that is a share: what retries, failures and times are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// Requests a second.
    pub qps: Option<f64>,
    /// Final responses, exact.
    pub responses: u64,
    /// Retries by evidence.
    pub retries: RetriesView,
    /// Retries over attempts.
    pub retry_ratio: Option<f64>,
    /// Answers by status, and the errors that logins were answered with, which are no responses.
    pub status: BTreeMap<String, u64>,
    /// Failures by reason, each reason named.
    pub failures: BTreeMap<String, u64>,
    /// Time to the answer.
    pub latency_ms: LatencyView,
    /// 90% intervals of these quantiles. Results of earlier versions lack them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_interval_ms: Option<LatencyBounds>,
    /// Connections open at the phase's end.
    pub connections: u64,
    /// Connections opened in the phase.
    pub connections_opened: u64,
    /// Segments that TCP sent again.
    pub tcp_retransmits: u64,
    /// Connects that came to nothing, by reason, each reason named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_failures: Option<BTreeMap<String, u64>>,
    /// How the retries were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retrying: Option<Retrying>,
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

/// Lower and upper ends in milliseconds; `null` for an end that the data do not bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "the keys say it")]
pub struct LatencyBounds {
    pub p50: [Option<f64>; 2],
    pub p99: [Option<f64>; 2],
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
            protocol: recognised(index, spec, &result.windows).map(|protocol| protocol.as_str().to_owned()),
            matched_false_rate: u8::try_from(index).ok().and_then(|index| matching::false_rate(&result.windows, EdgeId(index))),
            phases: result
                .phases
                .iter()
                .map(|phase| (phase.name.as_str().to_owned(), EdgePhase::of(index, phase.name, &result.windows)))
                .collect(),
        })
        .collect()
}

impl EdgePhase {
    /// What retries and failures are a part of.
    pub(in crate::report) fn seen(&self) -> u64 {
        self.attempts.unwrap_or(self.requests)
    }

    /// Retries, whatever tells of them.
    pub(in crate::report) fn retried(&self) -> u64 {
        total([self.retries.marker, self.retries.id, self.retries.matched])
    }

    /// Failures, whatever the reason.
    pub(in crate::report) fn failed(&self) -> u64 {
        total(self.failures.values().copied())
    }

    /// Connects that came to nothing, whatever the reason.
    pub(in crate::report) fn failed_connects(&self) -> u64 {
        self.connect_failures.as_ref().map_or(0, |reasons| total(reasons.values().copied()))
    }

    fn of(edge: usize, phase: PhaseName, windows: &[Window]) -> Self {
        let mut sum = Sum::default();
        for window in windows.iter().filter(|window| window.phase == phase) {
            sum.add(window.seconds(), window.edges.get(edge));
            sum.is_of_a_share |= window.sampling_of(edge) < 1.0;
        }
        sum.latency_ns.sort_unstable();
        Self {
            requests: sum.requests,
            attempts: sum.is_of_a_share.then_some(sum.attempts),
            qps: ratio(sum.requests, sum.seconds),
            responses: sum.responses,
            retries: retries(sum.retries),
            retry_ratio: ratio(sum.retries.total(), sum.attempts as f64),
            // Within a drill a status belongs to the phase of its request. An observation has one phase, and there the kernel's own
            // count is exact whatever became of the events.
            status: if phase == PhaseName::All { sum.exact_status() } else { sum.status },
            failures: failures(&sum.failures),
            latency_interval_ms: Some(bounds(&sum.latency_ns)),
            latency_ms: latency(sum.latency_ns),
            connections: open_at_end(edge, phase, windows),
            connections_opened: sum.connections_opened,
            tcp_retransmits: sum.tcp_retransmits,
            connect_failures: Some(connect_failures(sum.connect_failed, &sum.connect_failures)),
            retrying: Some(sum.retrying.view()),
        }
    }
}

/// What was recognised on most of an edge's connections, else what was pinned. Only heads tell gRPC from other HTTP/2.
#[must_use]
pub fn recognised(edge: usize, spec: &EdgeSpec, windows: &[Window]) -> Option<Protocol> {
    let (mut connections, mut attempts) = (BTreeMap::new(), BTreeMap::new());
    for edge in windows.iter().filter_map(|window| window.edges.get(edge)) {
        for (protocol, count) in edge.counts.recognised.iter() {
            *connections.entry(protocol).or_insert(0) += count;
        }
        for (protocol, count) in &edge.protocols {
            *attempts.entry(*protocol).or_insert(0) += count;
        }
    }
    most(&connections, &attempts).or(spec.protocol)
}

/// The protocol of most connections, or of most attempts where no connection was recognised just then.
#[must_use]
pub fn most(connections: &BTreeMap<Protocol, u64>, attempts: &BTreeMap<Protocol, u64>) -> Option<Protocol> {
    let largest = |counts: &BTreeMap<Protocol, u64>| {
        let most = counts.iter().filter(|(_, count)| **count > 0).max_by_key(|(_, count)| **count);
        most.map(|(protocol, _)| *protocol)
    };
    let found = largest(connections).or_else(|| largest(attempts))?;
    let of = |protocol| attempts.get(&protocol).copied().unwrap_or(0);
    let is_grpc = found.has_streams() && of(Protocol::Grpc) > of(Protocol::Http2);
    Some(if is_grpc { Protocol::Grpc } else { found })
}

#[derive(Default)]
struct Sum {
    seconds: f64,
    requests: u64,
    responses: u64,
    attempts: u64,
    is_of_a_share: bool,
    retries: Retries,
    status: BTreeMap<String, u64>,
    kernel_status: BTreeMap<String, u64>,
    told_status: BTreeMap<String, u64>,
    turned_away: BTreeMap<String, u64>,
    ok: u64,
    errors: u64,
    connect_failures: BTreeMap<ConnectFailure, u64>,
    connect_failed: u64,
    retrying: retrying::Sum,
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
        for (status, count) in &edge.told_status {
            *self.told_status.entry(status.clone()).or_default() += count;
        }
        for (status, count) in &edge.turned_away {
            *self.turned_away.entry(status.clone()).or_default() += count;
        }
        self.ok += edge.counts.ok;
        self.errors += edge.counts.errors;
        self.connect_failed += edge.counts.connect_failures;
        for (reason, count) in &edge.connect_failures {
            *self.connect_failures.entry(*reason).or_default() += count;
        }
        self.retrying.add(edge);
        for (failure, count) in &edge.failures {
            *self.failures.entry(*failure).or_default() += count;
        }
        self.latency_ns.extend(&edge.latency_ns);
        self.connections_opened += edge.counts.connections_opened;
        self.tcp_retransmits += edge.counts.tcp_retransmits;
    }
}

impl Sum {
    /// The kernel's own counts, which no lost event changes. Where it counts errors as such, events name them; the rest is `other`. Errors of logins
    /// are beside them: the kernel's exact count of those is among the failed connects.
    fn exact_status(&mut self) -> BTreeMap<String, u64> {
        let mut status = std::mem::take(&mut self.kernel_status);
        let mut unnamed = self.errors;
        for (text, count) in std::mem::take(&mut self.told_status) {
            // No more errors than there were: the last answers may have come after the last count.
            let count = if text.starts_with(status::ERROR) { count.min(unnamed) } else { count };
            if text.starts_with(status::ERROR) {
                unnamed -= count;
            }
            *status.entry(text).or_default() += count;
        }
        for (text, count) in [(status::OK.to_owned(), self.ok), (format!("{}other", status::ERROR), unnamed)] {
            if count > 0 {
                *status.entry(text).or_default() += count;
            }
        }
        for (text, count) in std::mem::take(&mut self.turned_away) {
            *status.entry(text).or_default() += count;
        }
        status.retain(|_, count| *count > 0);
        status
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

/// All reasons. The kernel's count is exact; a failure whose event was lost is under `other`.
fn connect_failures(all: u64, told: &BTreeMap<ConnectFailure, u64>) -> BTreeMap<String, u64> {
    let unknown = all.saturating_sub(told.values().sum());
    let of = |reason| told.get(&reason).copied().unwrap_or(0) + if reason == ConnectFailure::Other { unknown } else { 0 };
    ConnectFailure::ALL.into_iter().map(|reason| (reason.as_str().to_owned(), of(reason))).collect()
}

/// All reasons, also those that did not occur: a missing key would read as unknown.
pub(super) fn failures(counts: &BTreeMap<Failure, u64>) -> BTreeMap<String, u64> {
    Failure::ALL.into_iter().map(|failure| (failure.as_str().to_owned(), counts.get(&failure).copied().unwrap_or(0))).collect()
}

pub(super) fn latency(mut times_ns: Vec<u64>) -> LatencyView {
    times_ns.sort_unstable();
    let at = |q: f64| {
        let index = quantile::rank(times_ns.len(), q).checked_sub(1)?;
        times_ns.get(index).map(|ns| *ns as f64 / 1e6)
    };
    LatencyView { p50: at(0.5), p99: at(0.99) }
}

fn bounds(sorted_ns: &[u64]) -> LatencyBounds {
    let of = |q: f64| {
        let found = quantile::estimate(sorted_ns, q, Tails::each(ALPHA));
        let ms = |end: Option<u64>| end.map(|ns| ns as f64 / 1e6);
        found.map_or([None, None], |found| [ms(found.lo), ms(found.hi)])
    };
    LatencyBounds { p50: of(0.5), p99: of(0.99) }
}
