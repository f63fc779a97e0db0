//! Windows: closed intervals of counts, and the phases that they belong to.

use std::collections::BTreeMap;

use crate::edge::{EdgeId, Protocol};
use crate::event::{ConnectFailure, Epoch};
use crate::track::burst::Burst;

pub mod merge;

/// The three parts of a drill, and the single one of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PhaseName {
    /// Before the fault.
    Baseline,
    /// While the fault lasts.
    Fault,
    /// After it was removed.
    Recovery,
    /// Between two phases, while faults are applied or removed: shown, never judged.
    Transition,
    /// The only phase of `observe`.
    All,
}

impl PhaseName {
    /// The word used in playbooks and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Fault => "fault",
            Self::Recovery => "recovery",
            Self::Transition => "transition",
            Self::All => "all",
        }
    }
}

/// A phase as it really was: its bounds are instants that the kernel acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// Which one.
    pub name: PhaseName,
    /// First nanosecond, monotonic clock.
    pub start_ns: u64,
    /// End, exclusive.
    pub end_ns: u64,
}

/// What the kernel counted for one edge. Exact; never sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EdgeCounts {
    /// Requests whose head was complete.
    pub requests: u64,
    /// Final responses (101 included, other 1xx not).
    pub responses: u64,
    /// Connections established.
    pub connections_opened: u64,
    /// Connections ended.
    pub connections_closed: u64,
    /// Segments that TCP sent again.
    pub tcp_retransmits: u64,
    /// `connect()` calls that came to nothing, and logins that were answered with an error.
    pub connect_failures: u64,
    /// Payload bytes in the request direction.
    pub request_bytes: u64,
    /// Payload bytes in the response direction.
    pub response_bytes: u64,
    /// Answers that are no errors, of protocols without HTTP's codes.
    pub ok: u64,
    /// Answers that are errors, of protocols without HTTP's codes.
    pub errors: u64,
    /// Connections by the protocol that was recognised on them.
    pub recognised: Recognised,
}

/// Connections by protocol. Those of gRPC are HTTP/2's: only heads tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recognised {
    counts: [u64; Protocol::ALL.len()],
}

impl Recognised {
    /// Adds connections.
    pub fn add(&mut self, protocol: Protocol, count: u64) {
        let known = Protocol::ALL.iter().position(|other| *other == protocol);
        if let Some(total) = known.and_then(|at| self.counts.get_mut(at)) {
            *total = total.saturating_add(count);
        }
    }

    /// Those on which there were any.
    pub fn iter(&self) -> impl Iterator<Item = (Protocol, u64)> {
        Protocol::ALL.into_iter().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    fn with(&self, other: &Self, each: fn(u64, u64) -> u64) -> Self {
        let mut counts = self.counts;
        for (count, other) in counts.iter_mut().zip(other.counts) {
            *count = each(*count, other);
        }
        Self { counts }
    }
}

impl EdgeCounts {
    /// What was added since `earlier`. A counter that is below its earlier value started anew, and counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: grown(self.requests, earlier.requests),
            responses: grown(self.responses, earlier.responses),
            connections_opened: grown(self.connections_opened, earlier.connections_opened),
            connections_closed: grown(self.connections_closed, earlier.connections_closed),
            tcp_retransmits: grown(self.tcp_retransmits, earlier.tcp_retransmits),
            connect_failures: grown(self.connect_failures, earlier.connect_failures),
            request_bytes: grown(self.request_bytes, earlier.request_bytes),
            response_bytes: grown(self.response_bytes, earlier.response_bytes),
            ok: grown(self.ok, earlier.ok),
            errors: grown(self.errors, earlier.errors),
            recognised: self.recognised.with(&earlier.recognised, grown),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            responses: self.responses.saturating_add(other.responses),
            connections_opened: self.connections_opened.saturating_add(other.connections_opened),
            connections_closed: self.connections_closed.saturating_add(other.connections_closed),
            tcp_retransmits: self.tcp_retransmits.saturating_add(other.tcp_retransmits),
            connect_failures: self.connect_failures.saturating_add(other.connect_failures),
            request_bytes: self.request_bytes.saturating_add(other.request_bytes),
            response_bytes: self.response_bytes.saturating_add(other.response_bytes),
            ok: self.ok.saturating_add(other.ok),
            errors: self.errors.saturating_add(other.errors),
            recognised: self.recognised.with(&other.recognised, u64::saturating_add),
        }
    }
}

/// How far a cumulative counter has come; one that went back was started anew.
#[must_use]
pub const fn grown(now: u64, earlier: u64) -> u64 {
    if now >= earlier { now - earlier } else { now }
}

/// What the kernel counted in one closed window.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelWindow {
    /// The epoch that it counted under.
    pub epoch: Epoch,
    /// The phase that contains it.
    pub phase: PhaseName,
    /// First nanosecond, monotonic clock.
    pub start_ns: u64,
    /// End, exclusive.
    pub end_ns: u64,
    /// By [`EdgeId`]; an edge that is missing counts nothing.
    pub counts: Vec<EdgeCounts>,
    /// Responses by status code, by [`EdgeId`]; may be shorter than `counts`.
    pub status: Vec<BTreeMap<u16, u64>>,
    /// Events that the ring buffer had no room for.
    pub events_lost: u64,
    /// The share of the identities of which events were sent and counted, 0 to 1.
    pub sampling: f64,
}

impl KernelWindow {
    /// The window that it makes with what was found out of each edge.
    pub(crate) const fn of(&self, edges: Vec<EdgeWindow>) -> Window {
        let Self { epoch, phase, start_ns, end_ns, events_lost, sampling, .. } = *self;
        Window { epoch, phase, start_ns, end_ns, edges, events_lost, sampling }
    }
}

/// Retries by the evidence that they were recognised with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retries {
    /// An attempt number on the wire said so.
    pub marker: u64,
    /// The same request, idempotency or invocation id on the same edge.
    pub id: u64,
    /// The same fingerprint after an attempt that failed.
    pub matched: u64,
}

impl Retries {
    /// All retries; each is counted under one evidence only.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.marker + self.id + self.matched
    }
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// An answer that says so: 5xx, 429, and what other protocols have like it (docs/retries.md).
    Status,
    /// Turned away before anybody looked at it, so that it may be sent again: HTTP/2's `REFUSED_STREAM` and `GOAWAY`.
    Unprocessed,
    /// The connection was reset before the answer.
    Reset,
    /// The server's side closed without an answer.
    NoAnswer,
    /// The requester gave up and closed before the answer.
    ClientAbort,
    /// No answer until the horizon; still open.
    Hang,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Status, Self::Unprocessed, Self::Reset, Self::NoAnswer, Self::ClientAbort, Self::Hang];

    /// The key in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Unprocessed => "unprocessed",
            Self::Reset => "reset",
            Self::NoAnswer => "no_answer",
            Self::ClientAbort => "client_abort",
            Self::Hang => "hang",
        }
    }
}

/// One edge in one window. Requests belong to the window in which they *started*, whatever became of them later.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EdgeWindow {
    /// The kernel's counts.
    pub counts: EdgeCounts,
    /// Attempts seen as events; equals `counts.requests` unless events were lost or sampled.
    pub attempts: u64,
    /// Retries among those attempts.
    pub retries: Retries,
    /// Attempts that could be compared with none, and say nothing of being retries or first ones: neither is known.
    pub uncompared: u64,
    /// The matched ones among them whose predecessor was still open: hedges, and retries after a silent timeout.
    pub hedges: u64,
    /// Retries of attempts that the server had not looked at, as the protocol allows: part of `retries`.
    pub replays: u64,
    /// Retries that may carry something out twice, with harm.
    pub non_idempotent_retries: u64,
    /// Retries of what had been turned down for good.
    pub nonretryable_retries: u64,
    /// Retries before the time that the server had asked for.
    pub retry_after_violations: u64,
    /// Attempts of which it can be told for whom they are made, or until when somebody waits for them.
    pub accountable: u64,
    /// Attempts that began after whoever they were made for had given up.
    pub late_starts: u64,
    /// Time that attempts went on after that, nanoseconds.
    pub orphan_ns: u64,
    /// From the end of each failed attempt to the retry of it, nanoseconds, unsorted.
    pub gaps_ns: Vec<u64>,
    /// The same of first retries alone.
    pub first_gaps_ns: Vec<u64>,
    /// How the retries were spread over the window.
    pub burst: Burst,
    /// Attempts by protocol.
    pub protocols: BTreeMap<Protocol, u64>,
    /// Answers to this window's attempts, by status text (`200`, `grpc:UNAVAILABLE`, `ok`, `err:1040`), and `turned_away`.
    pub status: BTreeMap<String, u64>,
    /// The part of `status` that the kernel does not count by code: HTTP/2's, gRPC's, errors by name.
    pub told_status: BTreeMap<String, u64>,
    /// Errors with which logins were answered in this window, by status text; no attempts, and no responses.
    pub turned_away: BTreeMap<String, u64>,
    /// The kernel's count of the answers that *came* in this window, by HTTP/1's code. Exact; `status` goes by the attempts'
    /// start and by events.
    pub kernel_status: BTreeMap<u16, u64>,
    /// This window's attempts that failed, by reason.
    pub failures: BTreeMap<Failure, u64>,
    /// This window's attempts without an outcome yet when the window was finalised.
    pub pending: u64,
    /// Time to the answer of each answered attempt, nanoseconds, unsorted.
    pub latency_ns: Vec<u64>,
    /// Time to the failure of each failed attempt, nanoseconds, unsorted.
    pub failure_latency_ns: Vec<u64>,
    /// For how long attempts were waited for that had no answer, and of which nobody said that they failed: those that the requester gave up,
    /// and those that were still open when the window was finalised. Nanoseconds, unsorted.
    pub waited_ns: Vec<u64>,
    /// Most attempts seen of one logical request that had an attempt in this window.
    pub attempts_max: u32,
    /// Failed connects by reason.
    pub connect_failures: BTreeMap<ConnectFailure, u64>,
}

/// A closed interval of counts over all edges.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// The epoch that the kernel counted under.
    pub epoch: Epoch,
    /// The phase that contains it.
    pub phase: PhaseName,
    /// First nanosecond, monotonic clock.
    pub start_ns: u64,
    /// End, exclusive.
    pub end_ns: u64,
    /// One entry for each edge, by [`EdgeId`].
    pub edges: Vec<EdgeWindow>,
    /// Events that the ring buffer had no room for, in this window.
    pub events_lost: u64,
    /// The share of the identities of which events were sent and counted, 0 to 1, in the mean of the window's time: see [`crate::sampling`].
    pub sampling: f64,
}

impl Window {
    /// Length in seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a window is far shorter than 2^52 ns")]
    pub fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// The share of an edge's requests that events are to be expected of: all of HTTP/2's.
    #[must_use]
    pub fn sampling_of(&self, edge: usize) -> f64 {
        let is_http2 = |protocol: &Protocol| matches!(protocol, Protocol::Http2 | Protocol::Grpc);
        let always = self.edges.get(edge).is_some_and(|edge| !edge.protocols.is_empty() && edge.protocols.keys().all(is_http2));
        if always { 1.0 } else { self.sampling }
    }

    /// The edge's part of the window.
    #[must_use]
    pub fn edge(&self, id: EdgeId) -> Option<&EdgeWindow> {
        self.edges.get(usize::from(id.0))
    }
}
