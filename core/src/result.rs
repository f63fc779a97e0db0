//! The result of a drill: one value from which every report is made.

use crate::edge::EdgeSpec;
use crate::fault::FaultOutcome;
use crate::judge::{Judgement, Verdict};
use crate::window::{Phase, Window};

/// A finished drill, or a finished observation (no playbook, no verdict).
#[derive(Debug, Clone)]
pub struct DrillResult {
    /// Random identifier of the run.
    pub id: String,
    /// Name of the playbook.
    pub playbook: String,
    /// What the playbook says of itself.
    pub description: Option<String>,
    /// Its guards, as they were written.
    pub guards: Vec<String>,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Version of stormdrill.
    pub version: String,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// The worst of the judgements; `None` for an observation.
    pub verdict: Option<Verdict>,
    /// Why the drill ended early (guard, signal, API), if it did.
    pub aborted: Option<String>,
    /// The expectations, judged.
    pub judgements: Vec<Judgement>,
    /// The phases.
    pub phases: Vec<Phase>,
    /// The faults.
    pub faults: Vec<FaultOutcome>,
    /// The edges.
    pub edges: Vec<EdgeSpec>,
    /// The windows.
    pub windows: Vec<Window>,
    /// What may be missing.
    pub quality: DataQuality,
}

/// What the observation could not see, counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DataQuality {
    /// Events that found no room in the ring buffer.
    pub events_lost: u64,
    /// Share of requests whose events were kept, 0 to 1; counts are always exact.
    pub sampling: f64,
    /// Connections whose role could not be told.
    pub unknown_role_connections: u64,
    /// Connections with bytes that no recogniser took.
    pub unparsed_connections: u64,
    /// What was seen and not understood, or not kept.
    pub missed: Missed,
}

/// What was not understood or not kept, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Missed {
    /// Stretches of streams that were missing when later ones came, and could not be remembered.
    pub gaps: u64,
    /// Segments too rich in messages to be read in one go; the rest of each was skipped.
    pub segments_over_budget: u64,
    /// Requests counted though a part of their head had passed out of order, unread.
    pub assumed_heads: u64,
    /// HTTP/2's header blocks of which not all fields could be read.
    pub headers_partial: u64,
    /// Packets whose headers could not be read.
    pub headers_unreadable: u64,
    /// Sockets for which the kernel had no memory.
    pub storage_failed: u64,
    /// Records that could not be decoded.
    pub records_malformed: u64,
    /// Answers whose request was not seen, and requests whose answer was not.
    pub unpaired: u64,
    /// Connections, attempts, identities and failures forgotten for want of room.
    pub forgotten: u64,
}
