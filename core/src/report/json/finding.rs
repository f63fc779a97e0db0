//! Findings in JSON: what the drill showed though nobody had asked.

use serde::{Deserialize, Serialize};

use super::Run;
use crate::report::{cascade, risen};

/// Value of a finding's `kind`: an edge failed, and another one that no fault touches rose.
pub const CASCADE: &str = "cascade";

/// Value of a finding's `kind`: an edge rose, and no expectation names it.
pub const UNNAMED_RISE: &str = "unnamed_rise";

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingView {
    /// `cascade` or `unnamed_rise`.
    pub kind: String,
    /// The edge that rose.
    pub edge: String,
    /// The edges whose failure led to it; empty for `unnamed_rise`.
    pub caused_by: Vec<String>,
    /// Its rate in the fault over the baseline's; `null` if the baseline had nothing.
    pub factor: Option<f64>,
    /// 90% interval of `factor`; `null` for an end that the data do not bound.
    pub interval: [Option<f64>; 2],
    /// The rates are per ingress request.
    pub per_ingress: bool,
    /// Seconds from the fault's begin to the end of the first window that shows the rise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_after_s: Option<f64>,
    /// Part of the requests added that are retries of the edge's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries_of_rise: Option<f64>,
    /// All of it in a sentence.
    pub text: String,
}

impl FindingView {
    /// All findings of a drill: cascades first, then the other edges that rose without an expectation on them.
    #[must_use]
    pub fn all(run: &Run) -> Vec<Self> {
        let cascades = cascade::find(run);
        let others = risen::unnamed(run).into_iter().filter(|rise| cascades.iter().all(|found| found.rise.edge != rise.edge));
        let others = others.map(|rise| Self::of(UNNAMED_RISE, &rise, rise.sentence())).collect::<Vec<_>>();
        let cascades = cascades.iter().map(|found| Self {
            caused_by: found.causes.iter().map(|cause| cause.edge.clone()).collect(),
            seen_after_s: found.seen_after_s,
            retries_of_rise: Some(found.retries_of_rise),
            ..Self::of(CASCADE, &found.rise, found.sentence())
        });
        cascades.chain(others).collect()
    }

    fn of(kind: &str, rise: &risen::Risen, text: String) -> Self {
        Self {
            kind: kind.to_owned(),
            edge: rise.edge.clone(),
            caused_by: Vec::new(),
            factor: rise.factor,
            interval: [super::finite(rise.interval.lo), super::finite(rise.interval.hi)],
            per_ingress: rise.per_ingress,
            seen_after_s: None,
            retries_of_rise: None,
            text,
        }
    }
}
