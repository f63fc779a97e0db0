//! Two drills side by side: what got better, what got worse, and what cannot be told apart.
//!
//! A difference is called one only where it is shown: the intervals of an expectation do not overlap, or the interval of the
//! difference of two shares (Newcombe's) leaves out zero. A latency's quantile is stored without an interval, so its change is
//! shown and not judged.

use std::fmt;

use super::json::edge::EdgePhase;
use super::json::{ExpectationView, Run};
use super::rows::{percent, total, unknown};
use super::text::quantity;
use crate::judge::ALPHA;
use crate::stats::quotient::{self, Estimate};
use crate::stats::{Tails, proportion};

/// Column heads of [`rows`].
pub const HEADS: [&str; 4] = ["", "before", "after", "change"];

/// How something changed from the one drill to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// For the better.
    Better,
    /// For the worse.
    Worse,
    /// By no more than chance.
    Same,
    /// It is in one of the two only, or has no interval.
    Unknown,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "no difference shown",
            Self::Unknown => "-",
        })
    }
}

/// One thing compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What it is.
    pub what: String,
    /// In the first drill.
    pub before: String,
    /// In the second.
    pub after: String,
    /// From the first to the second.
    pub change: Change,
}

impl Row {
    /// As text, in the order of [`HEADS`].
    #[must_use]
    pub fn cells(&self) -> [String; 4] {
        [self.what.clone(), self.before.clone(), self.after.clone(), self.change.to_string()]
    }
}

/// The drill's verdict, its expectations by their text, and the edges' fault phase by their names.
#[must_use]
pub fn rows(before: &Run, after: &Run) -> Vec<Row> {
    let verdict = |run: &Run| run.verdict.clone().unwrap_or_else(unknown);
    let mut rows = vec![Row {
        what: "verdict".to_owned(),
        before: verdict(before),
        after: verdict(after),
        change: by_rank(rank(&verdict(before)), rank(&verdict(after))),
    }];
    for text in texts(before, after) {
        let find = |run: &'_ Run| run.expectations.iter().find(|view| view.text == text).cloned();
        rows.push(expectation(text.clone(), find(before), find(after)));
    }
    for edge in before.edges.iter().filter(|edge| after.edges.iter().any(|other| other.name == edge.name && other.role == edge.role)) {
        let fault = |run: &Run| run.edges.iter().find(|other| other.name == edge.name)?.phases.get("fault").cloned();
        if let (Some(before), Some(after)) = (fault(before), fault(after)) {
            rows.extend(edge_rows(&edge.name, &before, &after));
        }
    }
    rows
}

/// Each text once, the first drill's first.
fn texts(before: &Run, after: &Run) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for view in before.expectations.iter().chain(&after.expectations) {
        if !texts.contains(&view.text) {
            texts.push(view.text.clone());
        }
    }
    texts
}

fn expectation(text: String, before: Option<ExpectationView>, after: Option<ExpectationView>) -> Row {
    let spelled = |view: &Option<ExpectationView>| {
        view.as_ref().map_or_else(unknown, |view| match view.observed {
            Some(observed) => format!("{} ({})", view.verdict, quantity(observed, &view.unit)),
            None => view.verdict.clone(),
        })
    };
    let change = match (&before, &after) {
        (Some(before), Some(after)) => match by_rank(rank(&before.verdict), rank(&after.verdict)) {
            Change::Same | Change::Unknown => by_interval(before, after),
            change => change,
        },
        _ => Change::Unknown,
    };
    Row { what: text, before: spelled(&before), after: spelled(&after), change }
}

/// Pass is best, fail worst; the three that cannot tell are one between them.
fn rank(verdict: &str) -> Option<u8> {
    match verdict {
        "pass" => Some(0),
        "inconclusive" | "vacuous" | "invalid" => Some(1),
        "fail" => Some(2),
        _ => None,
    }
}

fn by_rank(before: Option<u8>, after: Option<u8>) -> Change {
    match (before, after) {
        (Some(before), Some(after)) if after < before => Change::Better,
        (Some(before), Some(after)) if after > before => Change::Worse,
        (Some(_), Some(_)) => Change::Same,
        _ => Change::Unknown,
    }
}

/// Intervals that do not overlap differ. Which way is better the comparison in the line says.
fn by_interval(before: &ExpectationView, after: &ExpectationView) -> Change {
    let (Some([lo, hi]), Some([lo_after, hi_after])) = (before.interval, after.interval) else {
        return Change::Unknown;
    };
    if before.unit != after.unit {
        return Change::Unknown;
    }
    let wants_more = before.text.contains(['>', '≥']);
    let apart = |upper: Option<f64>, lower: Option<f64>| upper.zip(lower).is_some_and(|(upper, lower)| upper < lower);
    let (fell, rose) = (apart(hi_after, lo), apart(hi, lo_after));
    match (fell, rose) {
        (true, _) => {
            if wants_more {
                Change::Worse
            } else {
                Change::Better
            }
        }
        (_, true) => {
            if wants_more {
                Change::Better
            } else {
                Change::Worse
            }
        }
        _ => Change::Same,
    }
}

fn edge_rows(name: &str, before: &EdgePhase, after: &EdgePhase) -> Vec<Row> {
    let retries = |phase: &EdgePhase| total([phase.retries.marker, phase.retries.id, phase.retries.matched]);
    let failed = |phase: &EdgePhase| total(phase.failures.values().copied());
    let p99 = |phase: &EdgePhase| phase.latency_ms.p99.map_or_else(unknown, |ms| format!("{ms:.1} ms"));
    vec![
        share_row(format!("{name}: retries"), (retries(before), before.requests), (retries(after), after.requests)),
        share_row(format!("{name}: failed"), (failed(before), before.requests), (failed(after), after.requests)),
        Row { what: format!("{name}: latency p99"), before: p99(before), after: p99(after), change: Change::Unknown },
    ]
}

/// A share of which less is better.
fn share_row(what: String, before: (u64, u64), after: (u64, u64)) -> Row {
    let (estimated, estimated_after) = (estimate(before), estimate(after));
    let change = match (estimated, estimated_after) {
        (Some(before), Some(after)) if quotient::difference_at_least(before, after) > 0.0 => Change::Better,
        (Some(before), Some(after)) if quotient::difference_at_least(after, before) > 0.0 => Change::Worse,
        (Some(_), Some(_)) => Change::Same,
        _ => Change::Unknown,
    };
    let spelled = |estimate: Option<Estimate>| estimate.map_or_else(unknown, |estimate| percent(estimate.value));
    Row { what, before: spelled(estimated), after: spelled(estimated_after), change }
}

fn estimate((hits, of): (u64, u64)) -> Option<Estimate> {
    if of == 0 {
        return None;
    }
    let (hits, of) = (hits.min(of) as f64, of as f64);
    Some(Estimate { value: hits / of, interval: proportion::interval(hits, of, Tails::each(ALPHA)) })
}
