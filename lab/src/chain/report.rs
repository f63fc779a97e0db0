//! What a chain served and sent, as the lab prints it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::caller::CallerReport;

/// The counts of all layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChainReport {
    /// Always `chain`.
    pub service: &'static str,
    /// Outermost first.
    pub layers: Vec<LayerReport>,
}

impl ChainReport {
    pub(super) fn new(layers: Vec<LayerReport>) -> Self {
        Self { service: "chain", layers }
    }
}

/// The counts of one layer. `requests` = all of `answers` + `callers_gone` + `in_flight`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerReport {
    /// The layer's name.
    pub name: String,
    /// The address it listened on.
    pub address: String,
    /// Connections accepted.
    pub connections: u64,
    /// Requests whose head arrived: the layer's ingress.
    pub requests: u64,
    /// Answers to the caller by status.
    pub answers: BTreeMap<String, u64>,
    /// Requests whose caller closed the connection before the answer.
    pub callers_gone: u64,
    /// Requests not yet answered when the chain ended.
    pub in_flight: u64,
    /// What it sent to the next service.
    pub downstream: CallerReport,
}
