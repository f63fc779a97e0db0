//! Windows in JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::edge::{LatencyView, RetriesView, failures, latency, retries};
use super::ratio;
use crate::edge::EdgeSpec;
use crate::window::{EdgeWindow, Window};

/// One window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WindowView {
    /// The number that an expectation's `windows` refer to.
    pub index: u32,
    /// The phase's name; `transition` between two phases.
    pub phase: String,
    /// First nanosecond, monotonic clock.
    pub start_ns: u64,
    /// End, exclusive.
    pub end_ns: u64,
    /// Events that were lost in it.
    pub events_lost: u64,
    /// The share of the identities of which events were kept, where that is not all: retries, failures and times are those of the kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<f64>,
    /// The edges in their order.
    pub edges: Vec<EdgeWindowView>,
}

/// One edge in one window; the keys are those of an edge's phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "as in EdgePhase")]
pub struct EdgeWindowView {
    pub name: String,
    pub requests: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    pub qps: Option<f64>,
    pub responses: u64,
    pub retries: RetriesView,
    pub retry_ratio: Option<f64>,
    pub status: BTreeMap<String, u64>,
    pub failures: BTreeMap<String, u64>,
    pub latency_ms: LatencyView,
}

impl WindowView {
    /// The view of a window over these edges.
    #[must_use]
    pub fn of(window: &Window, edges: &[EdgeSpec]) -> Self {
        Self {
            index: window.epoch,
            phase: window.phase.as_str().to_owned(),
            start_ns: window.start_ns,
            end_ns: window.end_ns,
            events_lost: window.events_lost,
            sampling: (window.sampling < 1.0).then_some(window.sampling),
            edges: (0..)
                .zip(edges.iter().zip(&window.edges))
                .map(|(at, (spec, edge))| EdgeWindowView::of(&spec.name, edge, window.seconds(), window.sampling_of(at) < 1.0))
                .collect(),
        }
    }
}

impl EdgeWindowView {
    /// What retries and failures are a part of.
    pub(in crate::report) fn seen(&self) -> u64 {
        self.attempts.unwrap_or(self.requests)
    }

    fn of(name: &str, edge: &EdgeWindow, seconds: f64, is_of_a_share: bool) -> Self {
        Self {
            name: name.to_owned(),
            requests: edge.counts.requests,
            attempts: is_of_a_share.then_some(edge.attempts),
            qps: ratio(edge.counts.requests, seconds),
            responses: edge.counts.responses,
            retries: retries(edge.retries),
            retry_ratio: ratio(edge.retries.total(), edge.attempts as f64),
            status: edge.status.clone(),
            failures: failures(&edge.failures),
            latency_ms: latency(edge.latency_ns.clone()),
        }
    }
}
