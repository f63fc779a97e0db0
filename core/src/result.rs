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
}
