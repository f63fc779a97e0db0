//! Two drills side by side: what got better, what got worse, and what cannot be told apart.
//!
//! A difference is called one only where it is shown: the intervals of an expectation or of a latency do not overlap, the interval of
//! the difference of two shares (Newcombe's) leaves out zero, or that of the ratio of two rates leaves out one, each at [`LEVEL`].

use std::fmt;

use super::json::finding::CASCADE;
use super::json::{ExpectationView, Run};
use super::rows::unknown;
use super::text::quantity;

mod edges;

/// The error probability of each side of each row about an edge: there are many of them.
pub const LEVEL: f64 = 0.01;

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
    /// Why a change may not mean what it seems to, if it may: one of the drills was ended early, or its fault did nothing.
    pub note: Option<String>,
}

impl Row {
    const fn new(what: String, before: String, after: String, change: Change) -> Self {
        Self { what, before, after, change, note: None }
    }

    /// As text, in the order of [`HEADS`].
    #[must_use]
    pub fn cells(&self) -> [String; 4] {
        let change = match &self.note {
            Some(note) => format!("{note}: {}", self.change),
            None => self.change.to_string(),
        };
        [self.what.clone(), self.before.clone(), self.after.clone(), change]
    }
}

/// The drill's verdict, its expectations by their text, and the edges' fault phase by their names.
#[must_use]
pub fn rows(before: &Run, after: &Run) -> Vec<Row> {
    let verdict = |run: &Run| run.verdict.clone().unwrap_or_else(unknown);
    let spelled = |run: &Run| format!("{}{}", verdict(run), if run.drill.aborted.is_some() { " (ended early)" } else { "" });
    let change = by_rank(rank(&verdict(before)), rank(&verdict(after)));
    let mut rows = vec![Row::new("verdict".to_owned(), spelled(before), spelled(after), change)];
    for text in texts(before, after) {
        let find = |run: &'_ Run| run.expectations.iter().find(|view| view.text == text).cloned();
        rows.push(expectation(text.clone(), find(before), find(after)));
    }
    rows.extend(cascades(before, after));
    rows.extend(edges::rows(before, after));
    let note = note(before, after);
    for row in rows.iter_mut().filter(|row| matches!(row.change, Change::Better | Change::Worse)) {
        row.note.clone_from(&note);
    }
    rows
}

/// What makes the two drills unlike each other beyond what they measured: fewer windows, or a fault that nobody felt.
fn note(before: &Run, after: &Run) -> Option<String> {
    let doubt = |name: &str, run: &Run| {
        let early = run.drill.aborted.as_ref().map(|_| "ended early");
        let verdict = run.verdict.as_deref().filter(|verdict| ["vacuous", "invalid"].contains(verdict));
        let doubts: Vec<&str> = early.into_iter().chain(verdict).collect();
        (!doubts.is_empty()).then(|| format!("{name} {}", doubts.join(" and ")))
    };
    let doubts: Vec<String> = doubt("before", before).into_iter().chain(doubt("after", after)).collect();
    (!doubts.is_empty()).then(|| doubts.join(", "))
}

/// The cascades of either drill, by the edge that rose.
fn cascades(before: &Run, after: &Run) -> Vec<Row> {
    let mut edges: Vec<&str> = Vec::new();
    for finding in before.findings.iter().chain(&after.findings).filter(|finding| finding.kind == CASCADE) {
        if !edges.contains(&finding.edge.as_str()) {
            edges.push(&finding.edge);
        }
    }
    let spelled = |run: &Run, edge: &str| {
        let found = run.findings.iter().find(|finding| finding.kind == CASCADE && finding.edge == edge);
        found.map(|finding| finding.factor.map_or_else(|| "from nothing".to_owned(), |factor| quantity(factor, "x")))
    };
    let rows = edges.into_iter().map(|edge| {
        let (was, is) = (spelled(before, edge), spelled(after, edge));
        let change = match (&was, &is) {
            (None, Some(_)) => Change::Worse,
            (Some(_), None) => Change::Better,
            _ => Change::Same,
        };
        Row::new(format!("cascade to {edge}"), was.unwrap_or_else(none), is.unwrap_or_else(none), change)
    });
    rows.collect()
}

fn none() -> String {
    "none".to_owned()
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
    Row::new(text, spelled(&before), spelled(&after), change)
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

/// The interval; a fact, which has none, is known to be what was counted.
fn ends(view: &ExpectationView) -> Option<[Option<f64>; 2]> {
    let is_fact = ["count", "s"].contains(&view.unit.as_str()) && view.observed.is_some();
    view.interval.or_else(|| is_fact.then_some([view.observed; 2]))
}

/// Intervals that do not overlap differ. Which way is better the comparison in the line says.
fn by_interval(before: &ExpectationView, after: &ExpectationView) -> Change {
    let (Some([lo, hi]), Some([lo_after, hi_after])) = (ends(before), ends(after)) else {
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
