//! What a store served, as the lab prints it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Store;

/// The counts of a store. `requests` = all of `responses` + `client_gone` + `in_flight`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreReport {
    /// Always `store`.
    pub service: &'static str,
    /// The address it listened on.
    pub address: String,
    /// Connections accepted.
    pub connections: u64,
    /// Requests whose head arrived.
    pub requests: u64,
    /// Answers by status.
    pub responses: BTreeMap<String, u64>,
    /// Distinct `x-request-id`s: first attempts, where the callers send the id.
    pub request_ids: u64,
    /// Requests with an id that was seen before.
    pub repeats: u64,
    /// Requests without an id.
    pub without_id: u64,
    /// Requests whose `x-envoy-attempt-count` is above 1: retries on the last edge, where the caller counts them.
    pub marked_retries: u64,
    /// Requests whose client closed the connection before the answer.
    pub client_gone: u64,
    /// Requests not yet answered when the store ended.
    pub in_flight: u64,
    /// Requests answered 503 by chance, as `--fail` says.
    pub failed: u64,
    /// Requests answered 503 for want of capacity.
    pub rejected: u64,
    /// Requests whose deadline had passed on arrival or when their turn came.
    pub expired: u64,
    /// Of those, how many were answered 504 and not served.
    pub dropped: u64,
    /// The longest the queue was, in requests.
    pub queue_peak: u64,
}

impl Store {
    pub(super) fn report(&self, address: String) -> StoreReport {
        let counts = &self.counts;
        let (requests, gone) = (counts.requests.get(), counts.client_gone.get());
        StoreReport {
            service: "store",
            address,
            connections: counts.connections.get(),
            requests,
            responses: counts.responses.report(),
            request_ids: counts.request_ids.get(),
            repeats: counts.repeats.get(),
            without_id: counts.without_id.get(),
            marked_retries: counts.marked_retries.get(),
            client_gone: gone,
            in_flight: requests.saturating_sub(counts.responses.total() + gone),
            failed: counts.failed.get(),
            rejected: counts.rejected.get(),
            expired: counts.expired.get(),
            dropped: counts.dropped.get(),
            queue_peak: counts.queue_peak.get(),
        }
    }
}
