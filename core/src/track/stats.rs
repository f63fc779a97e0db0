//! What the tracker could not see, place or keep. Whoever reports a number reports these with it.

/// What the tracker could not see, place, or keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrackStats {
    /// Events taken in.
    pub events: u64,
    /// Events that came after their time had been dealt with; used all the same.
    pub late_events: u64,
    /// Events of connections whose role is unknown; booked on no edge.
    pub unknown_role: u64,
    /// Events for an edge that does not exist, or that has the other role; booked on no edge.
    pub misplaced: u64,
    /// What did not fit together on a connection.
    pub mismatches: Mismatches,
    /// What fitted into no window.
    pub misfits: Misfits,
    /// Identities forgotten for want of room.
    pub evicted_ids: u64,
    /// Failures forgotten for want of room.
    pub evicted_failures: u64,
}

/// What did not fit together, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mismatches {
    /// Responses whose request was not seen.
    pub unpaired_responses: u64,
    /// Attempts whose response was not seen, though it must have come.
    pub unseen_outcomes: u64,
    /// Requests whose head never ended; no requests, and not counted by the kernel either.
    pub unfinished_heads: u64,
    /// Requests whose head could not be read; counted as first attempts.
    pub unread_heads: u64,
    /// HTTP/2's header blocks of which not all could be read.
    pub headers_partial: u64,
    /// Requests that were told twice.
    pub repeated_requests: u64,
    /// Connections let go for want of room.
    pub evicted_connections: u64,
    /// Open attempts let go for want of room.
    pub evicted_attempts: u64,
}

/// What could not be put into any window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Misfits {
    /// Attempts whose window was final already, or of an epoch that no window closed.
    pub attempts: u64,
    /// Outcomes of attempts whose window was final already.
    pub outcomes: u64,
    /// Durations left out of a window's sample.
    pub durations: u64,
}
