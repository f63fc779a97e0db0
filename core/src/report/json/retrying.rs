//! How an edge's retries were made, in JSON: what was wrong with them, and how long they waited.

use serde::{Deserialize, Serialize};

use crate::track::burst::Burst;
use crate::window::EdgeWindow;

/// Upper ends of the histogram's bins but for the last, milliseconds: six to the decade.
const BINS_MS: [f64; 24] = [
    1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 70.0, 100.0, 150.0, 200.0, 300.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0,
    3000.0, 5000.0, 10_000.0,
];

/// How retries were made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Retrying {
    /// Part of `matched`: the attempt before had no outcome yet.
    pub hedges: u64,
    /// Part of all retries: the server had not looked at the attempt before, so that sending it again is what the protocol wants.
    pub replays: u64,
    /// Retries that may carry something out twice, with harm.
    pub non_idempotent: u64,
    /// Retries of what was turned down for good.
    pub nonretryable: u64,
    /// Retries before the time that the server had asked for.
    pub retry_after_violations: u64,
    /// Attempts that began after whoever they were made for had given up.
    pub late_starts: u64,
    /// How long attempts went on after that, milliseconds.
    pub orphan_ms: f64,
    /// Standard deviation over mean of the pause before a first retry; `null` with less than two.
    pub backoff_jitter: Option<f64>,
    /// Retries in the fullest hundredth of a second over the mean of all from first to last; `null` without a retry.
    pub peak_to_mean: Option<f64>,
    /// Pauses before retries, by length; empty bins are left out.
    pub gaps: Vec<Gap>,
}

/// Pauses of up to a length, and longer than those of the bin before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Gap {
    /// Milliseconds; `null` for all longer ones.
    pub up_to_ms: Option<f64>,
    /// How many.
    pub count: u64,
}

/// Adds windows up.
#[derive(Debug, Default)]
pub(super) struct Sum {
    total: Retrying,
    orphan_ns: u64,
    burst: Burst,
    first_gaps_ns: Vec<u64>,
    bins: [u64; BINS_MS.len() + 1],
}

impl Sum {
    pub(super) fn add(&mut self, edge: &EdgeWindow) {
        self.total.hedges += edge.hedges;
        self.total.replays += edge.replays;
        self.total.non_idempotent += edge.non_idempotent_retries;
        self.total.nonretryable += edge.nonretryable_retries;
        self.total.retry_after_violations += edge.retry_after_violations;
        self.total.late_starts += edge.late_starts;
        self.orphan_ns = self.orphan_ns.saturating_add(edge.orphan_ns);
        self.burst = self.burst.and(edge.burst);
        self.first_gaps_ns.extend(&edge.first_gaps_ns);
        for gap_ns in &edge.gaps_ns {
            let ms = *gap_ns as f64 / 1e6;
            let bin = BINS_MS.iter().position(|end| ms <= *end).unwrap_or(BINS_MS.len());
            self.bins[bin] += 1;
        }
    }

    pub(super) fn view(self) -> Retrying {
        let ends = BINS_MS.into_iter().map(Some).chain([None]);
        let gaps = ends.zip(self.bins).filter(|(_, count)| *count > 0).map(|(up_to_ms, count)| Gap { up_to_ms, count });
        Retrying {
            orphan_ms: self.orphan_ns as f64 / 1e6,
            backoff_jitter: crate::stats::variation::of(&self.first_gaps_ns),
            peak_to_mean: self.burst.peak_to_mean(),
            gaps: gaps.collect(),
            ..self.total
        }
    }
}
