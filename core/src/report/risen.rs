//! Edges whose traffic rose in the fault though no expectation names them: a cascade starts where nobody looked.
//!
//! A downstream edge is compared per ingress request where ingress was seen, so that a change of load is no rise.

use super::json::Run;
use super::json::edge::Edge;
use super::json::window::WindowView;
use super::text::quantity;
use crate::judge::ALPHA;
use crate::stats::dispersion;
use crate::stats::rate_ratio::{self, Tally};
use crate::stats::{Interval, Tails};
use crate::wording::decimals;

/// A rise below this factor is not worth a line.
pub(super) const LEAST: f64 = 1.2;

/// An edge that rose.
#[derive(Debug, Clone, PartialEq)]
pub struct Risen {
    /// Its name.
    pub edge: String,
    /// Its rate in the fault over the baseline's, per ingress request for downstream edges; `None` if the baseline had nothing.
    pub factor: Option<f64>,
    /// 90% interval of `factor`.
    pub interval: Interval,
    /// Its rate in the fault.
    pub rate: f64,
    /// The ingress was divided by.
    pub per_ingress: bool,
}

impl Risen {
    /// A sentence for a report.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("{} {}, and no expectation names it", self.edge, self.told())
    }

    /// What it did, without its name.
    #[must_use]
    pub fn told(&self) -> String {
        let per = if self.per_ingress { " per ingress request" } else { "" };
        let lo = quantity(self.interval.lo, "x");
        match self.factor {
            Some(factor) if self.interval.hi.is_finite() => {
                format!("rose to {} of its baseline{per} ({lo} to {})", quantity(factor, "x"), quantity(self.interval.hi, "x"))
            }
            Some(factor) => format!("rose to {} of its baseline{per} ({lo} or more)", quantity(factor, "x")),
            None if self.per_ingress => format!("rose from nothing to {} requests for each that came in", decimals(self.rate, 3)),
            None => format!("rose from nothing to {}", quantity(self.rate, "1/s")),
        }
    }
}

/// The edges that rose by more than a fifth, and shown to have risen, without their name in any expectation.
#[must_use]
pub fn unnamed(run: &Run) -> Vec<Risen> {
    let edges: Vec<&Edge> = run.edges.iter().filter(|edge| !is_named(&edge.name, run)).collect();
    // One false rise in twenty drills, and not in twenty edges.
    let tails = Tails::each(ALPHA / edges.len().max(1) as f64);
    edges.into_iter().filter_map(|edge| rise(edge, run, tails)).collect()
}

/// Names are compared as words, so that `db` is not named by `db-replica`. What is expected of all that is downstream names the only edge there is.
pub(super) fn is_named(name: &str, run: &Run) -> bool {
    let mut downstream = run.edges.iter().filter(|edge| edge.role == "downstream");
    let is_only = downstream.next().is_some_and(|edge| edge.name == name) && downstream.next().is_none();
    let names = |word: &str| word.eq_ignore_ascii_case(name) || (is_only && word.eq_ignore_ascii_case("downstream"));
    run.expectations.iter().any(|view| view.text.split_whitespace().any(names))
}

/// The edge's rise, if it is one and shown to be.
pub(super) fn rise(edge: &Edge, run: &Run, tails: Tails) -> Option<Risen> {
    let fault = total(&tallies(edge, run, "fault"));
    let interval = is_risen(fault, &tallies(edge, run, "baseline"), tails)?;
    let base = total(&tallies(edge, run, "baseline"));
    let factor = (base.count > 0.0).then(|| fault.rate() / base.rate());
    Some(Risen { edge: edge.name.clone(), factor, interval, rate: fault.rate(), per_ingress: is_per_ingress(edge, run) })
}

/// The interval of the factor by which `judged` exceeds the baseline, if that is a rise.
pub(super) fn is_risen(judged: Tally, baseline: &[Tally], tails: Tails) -> Option<Interval> {
    // Windows without any ingress have nothing to be divided by, and say nothing of the scatter.
    let phi = dispersion::divisor(baseline);
    let base = total(baseline);
    if base.exposure <= 0.0 || judged.exposure <= 0.0 || judged.count <= 0.0 {
        return None;
    }
    let shrunk = |tally: Tally| Tally { count: tally.count / phi, ..tally };
    let interval = rate_ratio::interval(shrunk(judged), shrunk(base), tails);
    let is_more = judged.rate() > LEAST * base.rate();
    // From nothing to a few is no rise: the interval must leave a fifth more behind, too.
    let is_shown = if base.count > 0.0 { interval.lo > 1.0 } else { interval.lo > LEAST };
    (is_more && is_shown).then_some(interval)
}

pub(super) fn is_per_ingress(edge: &Edge, run: &Run) -> bool {
    let ingress = |phase: &str| -> u64 { windows(run, phase).map(|window| ingress_of(window, run)).fold(0, u64::saturating_add) };
    edge.role == "downstream" && ingress("baseline") > 0 && ingress("fault") > 0
}

/// Requests of each window of the phase over its seconds, or over its ingress requests where that makes sense.
pub(super) fn tallies(edge: &Edge, run: &Run, phase: &str) -> Vec<Tally> {
    let per_ingress = is_per_ingress(edge, run);
    windows(run, phase)
        .map(|window| {
            let requests = window.edges.iter().filter(|other| other.name == edge.name).map(|other| other.requests);
            let seconds = window.end_ns.saturating_sub(window.start_ns) as f64 / 1e9;
            Tally {
                count: requests.fold(0, u64::saturating_add) as f64,
                exposure: if per_ingress { ingress_of(window, run) as f64 } else { seconds },
            }
        })
        .collect()
}

fn windows<'a>(run: &'a Run, phase: &'a str) -> impl Iterator<Item = &'a WindowView> {
    run.windows.iter().filter(move |window| window.phase == phase)
}

fn ingress_of(window: &WindowView, run: &Run) -> u64 {
    let is_ingress = |name: &str| run.edges.iter().any(|edge| edge.name == name && edge.role == "ingress");
    window.edges.iter().filter(|edge| is_ingress(&edge.name)).map(|edge| edge.requests).fold(0, u64::saturating_add)
}

pub(super) fn total(tallies: &[Tally]) -> Tally {
    tallies.iter().fold(Tally { count: 0.0, exposure: 0.0 }, |sum, next| Tally {
        count: sum.count + next.count,
        exposure: sum.exposure + next.exposure,
    })
}
