//! Edges whose traffic rose in the fault though no expectation names them: a cascade starts where nobody looked.
//!
//! A downstream edge is compared per ingress request where ingress was seen, so that a change of load is no rise.

use super::json::Run;
use super::json::edge::Edge;
use super::text::quantity;
use crate::judge::ALPHA;
use crate::stats::dispersion;
use crate::stats::rate_ratio::{self, Tally};
use crate::stats::{Interval, Tails};

/// A rise below this factor is not worth a line.
const LEAST: f64 = 1.2;

/// An edge that rose.
#[derive(Debug, Clone, PartialEq)]
pub struct Risen {
    /// Its name.
    pub edge: String,
    /// Its rate in the fault over the baseline's, per ingress request for downstream edges.
    pub factor: f64,
    /// 90% interval of `factor`.
    pub interval: Interval,
    /// The ingress was divided by.
    pub per_ingress: bool,
}

impl Risen {
    /// A sentence for a report.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!(
            "{} rose to {} of its baseline{} ({} to {}), and no expectation names it",
            self.edge,
            quantity(self.factor, "x"),
            if self.per_ingress { " per ingress request" } else { "" },
            quantity(self.interval.lo, "x"),
            quantity(self.interval.hi, "x"),
        )
    }
}

/// The edges that rose by more than a fifth, and shown to have risen, without their name in any expectation.
#[must_use]
pub fn unnamed(run: &Run) -> Vec<Risen> {
    run.edges.iter().filter(|edge| !is_named(&edge.name, run)).filter_map(|edge| rise(edge, run)).collect()
}

/// Names are compared as words, so that `db` is not named by `db-replica`.
fn is_named(name: &str, run: &Run) -> bool {
    run.expectations.iter().any(|view| view.text.split_whitespace().any(|word| word.eq_ignore_ascii_case(name)))
}

fn rise(edge: &Edge, run: &Run) -> Option<Risen> {
    let count = |phase: &str| windows(run, phase, |name| name == edge.name);
    let ingress = |phase: &str| {
        let is_ingress = |name: &str| run.edges.iter().any(|edge| edge.name == name && edge.role == "ingress");
        total(&windows(run, phase, is_ingress)).count
    };
    let (baseline, fault) = (count("baseline"), count("fault"));
    let phi = dispersion::divisor(&baseline);
    let (mut base, mut judged) = (total(&baseline), total(&fault));
    let per_ingress = edge.role == "downstream" && ingress("baseline") > 0.0 && ingress("fault") > 0.0;
    if per_ingress {
        base.exposure = ingress("baseline");
        judged.exposure = ingress("fault");
    }
    if base.count <= 0.0 || base.exposure <= 0.0 || judged.exposure <= 0.0 {
        return None;
    }
    let shrunk = |tally: Tally| Tally { count: tally.count / phi, ..tally };
    let interval = rate_ratio::interval(shrunk(judged), shrunk(base), Tails::each(ALPHA));
    let factor = judged.rate() / base.rate();
    (factor > LEAST && interval.lo > 1.0).then(|| Risen { edge: edge.name.clone(), factor, interval, per_ingress })
}

/// Requests and seconds of each window of the phase, over the edges that `wanted` takes.
fn windows(run: &Run, phase: &str, wanted: impl Fn(&str) -> bool) -> Vec<Tally> {
    run.windows
        .iter()
        .filter(|window| window.phase == phase)
        .map(|window| Tally {
            count: window.edges.iter().filter(|edge| wanted(&edge.name)).map(|edge| edge.requests as f64).sum(),
            exposure: window.end_ns.saturating_sub(window.start_ns) as f64 / 1e9,
        })
        .collect()
}

fn total(tallies: &[Tally]) -> Tally {
    tallies.iter().fold(Tally { count: 0.0, exposure: 0.0 }, |sum, next| Tally {
        count: sum.count + next.count,
        exposure: sum.exposure + next.exposure,
    })
}
