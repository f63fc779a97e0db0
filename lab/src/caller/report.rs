//! What a caller did, as the lab prints it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Caller;

/// The counts of one caller, the ground truth of one downstream edge.
///
/// `attempts` are the requests that were handed to a connection. At rest the callee has counted as many, save those
/// `abandoned` before they got there. They are the sum of `answers`, of `resets` (save those of connections that broke
/// before they carried a request) and of `abandoned`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallerReport {
    /// The callee.
    pub to: String,
    /// Logical requests.
    pub requests: u64,
    /// Requests on the wire, first attempts and retries.
    pub attempts: u64,
    /// Tries begun; those that failed to connect never became an attempt.
    pub tries: u64,
    /// Tries after the first.
    pub retries: u64,
    /// Attempts by the status of their answer.
    pub answers: BTreeMap<String, u64>,
    /// Tries that could not connect.
    pub connect_errors: u64,
    /// Tries whose connection broke.
    pub resets: u64,
    /// Tries that had no answer in time, the connect included.
    pub timeouts: u64,
    /// Attempts whose connection was closed unanswered: the time was up, or the caller was gone.
    pub abandoned: u64,
    /// Retries that the budget refused.
    pub budget_refusals: u64,
    /// Tries that the deadline refused.
    pub deadline_refusals: u64,
    /// Requests that the breaker refused.
    pub breaker_refusals: u64,
    /// Connections opened.
    pub connections: u64,
    /// Kept connections found closed before they were used again.
    pub stale_connections: u64,
    /// Requests that did not reach the wire on one connection and went out on another; counted once in `attempts`.
    pub replays: u64,
}

impl Caller {
    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> CallerReport {
        let (counts, pool) = (&self.counts, self.pool.counts());
        CallerReport {
            to: self.pool.to().to_string(),
            requests: counts.requests.get(),
            attempts: pool.sent.get(),
            tries: counts.tries.get(),
            retries: counts.retries.get(),
            answers: counts.answers.report(),
            connect_errors: counts.connect_errors.get(),
            resets: counts.resets.get(),
            timeouts: counts.timeouts.get(),
            abandoned: pool.abandoned.get(),
            budget_refusals: counts.budget_refusals.get(),
            deadline_refusals: counts.deadline_refusals.get(),
            breaker_refusals: counts.breaker_refusals.get(),
            connections: pool.opened.get(),
            stale_connections: pool.stale.get(),
            replays: pool.replays.get(),
        }
    }
}
