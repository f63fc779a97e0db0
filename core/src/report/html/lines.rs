//! What each chart shows: named lines over time, one step a window.

use std::collections::BTreeMap;

use crate::report::json::Run;
use crate::report::json::window::{EdgeWindowView, WindowView};

/// More edges than this are drawn as one line a role.
const MOST_EDGES: usize = 6;

/// Counts something of an edge's window.
type Count = fn(&EdgeWindowView) -> u64;

/// One line of a chart.
pub(super) struct Line {
    pub(super) name: String,
    /// A value for each window that belongs to a phase; `None` leaves a gap.
    pub(super) values: Vec<Option<f64>>,
    /// Drawn thinner: it accompanies the line before it, in its colour.
    pub(super) thin: bool,
}

/// When a window was, in seconds from the first one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: f64,
    pub(super) end: f64,
}

/// The windows that belong to a phase.
pub(super) fn windows(run: &Run) -> Vec<&WindowView> {
    run.windows.iter().filter(|window| window.phase != "transition").collect()
}

/// When they were.
pub(super) fn spans(run: &Run) -> Vec<Span> {
    windows(run).iter().map(|window| span(run, window.start_ns, window.end_ns)).collect()
}

/// An interval of the drill's clock.
pub(super) fn span(run: &Run, start_ns: u64, end_ns: u64) -> Span {
    let origin = run.windows.first().map_or(0, |window| window.start_ns);
    let seconds = |ns: u64| ns.saturating_sub(origin) as f64 / 1e9;
    Span { start: seconds(start_ns), end: seconds(end_ns) }
}

/// Requests a second of each edge, or of each role.
pub(super) fn qps(run: &Run) -> Vec<Line> {
    groups(run).into_iter().map(|(name, edges)| line(run, name, |window| sum(window, &edges, |edge| edge.qps))).collect()
}

/// Quantiles of the time to the answer, milliseconds, of each edge; none for roles, since quantiles do not add up.
pub(super) fn latency(run: &Run) -> Vec<Line> {
    let mut lines = Vec::new();
    for edge in run.edges.iter().take(MOST_EDGES) {
        let at = |window: &WindowView, of: fn(&EdgeWindowView) -> Option<f64>| {
            window.edges.iter().find(|view| view.name == edge.name).and_then(of)
        };
        lines.push(line(run, format!("{} p99", edge.name), |window| at(window, |view| view.latency_ms.p99)));
        lines.push(Line { thin: true, ..line(run, format!("{} p50", edge.name), |window| at(window, |view| view.latency_ms.p50)) });
    }
    lines
}

/// Retries over requests on the downstream edges, by evidence, in percent.
pub(super) fn retries(run: &Run) -> Vec<Line> {
    let edges = of_role(run, "downstream");
    let kinds: [(&str, Count); 3] =
        [("by marker", |edge| edge.retries.marker), ("by id", |edge| edge.retries.id), ("matched", |edge| edge.retries.matched)];
    kinds
        .into_iter()
        .map(|(name, of)| {
            line(run, name.to_owned(), |window| {
                let requests = sum(window, &edges, |edge| Some(edge.seen() as f64)).filter(|requests| *requests > 0.0)?;
                Some(100.0 * sum(window, &edges, |edge| Some(of(edge) as f64))? / requests)
            })
        })
        .collect()
}

/// Shares of what became of a role's requests, in percent: classes of status, and no answer. Together they are 100; [`stacked`] draws them.
pub(super) fn outcomes(run: &Run, role: &str) -> Vec<Line> {
    let edges = of_role(run, role);
    let mut by_window: Vec<BTreeMap<String, f64>> = Vec::new();
    for window in windows(run) {
        let mut classes = BTreeMap::new();
        for edge in window.edges.iter().filter(|edge| edges.contains(&edge.name)) {
            for (status, count) in &edge.status {
                *classes.entry(class(status)).or_insert(0.0) += *count as f64;
            }
            let silent = edge.failures.iter().filter(|(reason, _)| reason.as_str() != "status").map(|(_, count)| *count as f64);
            *classes.entry(NO_ANSWER.to_owned()).or_insert(0.0) += silent.sum::<f64>();
        }
        by_window.push(classes);
    }
    let mut names: Vec<String> = by_window.iter().flat_map(BTreeMap::keys).cloned().collect();
    names.sort();
    names.dedup();
    names.retain(|name| by_window.iter().any(|classes| classes.get(name).is_some_and(|count| *count > 0.0)));
    let share = |name: &String| {
        let values = by_window.iter().map(|classes| {
            let total: f64 = classes.values().sum();
            (total > 0.0).then(|| 100.0 * classes.get(name).copied().unwrap_or(0.0) / total)
        });
        Line { name: name.clone(), values: values.collect(), thin: false }
    };
    names.iter().rev().map(share).collect()
}

/// Shares as they are drawn, one above the other: each line has those behind it added, so that the first, which is drawn first, is the highest.
pub(super) fn stacked(shares: &[Line]) -> Vec<Line> {
    let add = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
    let mut stacked: Vec<Line> = Vec::new();
    for line in shares.iter().rev() {
        let values = match stacked.last() {
            Some(below) => line.values.iter().zip(&below.values).map(|(value, below)| add(*value, *below)).collect(),
            None => line.values.clone(),
        };
        stacked.push(Line { name: line.name.clone(), values, thin: line.thin });
    }
    stacked.reverse();
    stacked
}

/// The name under which requests without an answer are shown.
pub(super) const NO_ANSWER: &str = "no answer";

/// `2xx` for HTTP, the status itself otherwise.
fn class(status: &str) -> String {
    match status.as_bytes() {
        [first @ b'1'..=b'5', _, _] => format!("{}xx", char::from(*first)),
        _ => status.to_owned(),
    }
}

fn groups(run: &Run) -> Vec<(String, Vec<String>)> {
    if run.edges.len() <= MOST_EDGES {
        return run.edges.iter().map(|edge| (format!("{} ({})", edge.name, edge.role), vec![edge.name.clone()])).collect();
    }
    ["ingress", "downstream"].map(|role| (format!("all {role}"), of_role(run, role))).to_vec()
}

fn of_role(run: &Run, role: &str) -> Vec<String> {
    run.edges.iter().filter(|edge| edge.role == role).map(|edge| edge.name.clone()).collect()
}

fn line(run: &Run, name: String, value: impl Fn(&WindowView) -> Option<f64>) -> Line {
    Line { name, values: windows(run).into_iter().map(value).collect(), thin: false }
}

/// `None` if no edge of those has a value.
fn sum(window: &WindowView, edges: &[String], of: impl Fn(&EdgeWindowView) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = window.edges.iter().filter(|edge| edges.contains(&edge.name)).filter_map(of).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}
