//! Cascades: an edge fails, and the traffic of another one that no fault touches rises. A cache that does not answer, and the database that
//! is asked in its place.
//!
//! What is needed for the word: a downstream edge that a fault is aimed at is shown to fail, to slow down or to refuse connections; another
//! downstream edge without a fault rises by more than a fifth per ingress request, shown at 5% over all such edges together; and the rise is
//! more than its own trend in the baseline would have come to.
//!
//! A drill without a fault is one whose disturbance somebody else makes: a cache stopped by hand, say. The edge that failed is then the one that
//! gave fewer good answers than before, or the same ones more slowly; one that fails because more is asked of it gives as many.

use super::json::Run;
use super::json::edge::{Edge, EdgePhase};
use super::risen::{self, LEAST, Risen};
use super::rows::percent;
use super::text::quantity;
use crate::judge::ALPHA;
use crate::stats::quotient::{self, Estimate};
use crate::stats::rate_ratio::{self, Tally};
use crate::stats::{Tails, proportion, trend};
use crate::wording::decimals;

/// By how many points more requests must fail than in the baseline.
const LEAST_CHANGE: f64 = 0.05;

/// What became of an edge under the fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// Requests failed: their share, and the baseline's.
    Failed(f64, f64),
    /// The usual answer took longer than nearly all did before: milliseconds, and the baseline's p99.
    Slowed(f64, f64),
    /// Connects came to nothing, so many.
    Refused(u64),
}

/// An edge whose failure leads to a rise elsewhere.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Its name.
    pub edge: String,
    /// What became of it.
    pub trouble: Trouble,
}

/// A rise on an edge that no fault touches, and which is not itself what failed, beside the failure of others.
#[derive(Debug, Clone, PartialEq)]
pub struct Cascade {
    /// The edges that a fault was aimed at, and that failed; in a drill without faults, those that failed.
    pub causes: Vec<Cause>,
    /// The drill injected a fault.
    pub is_injected: bool,
    /// The edge that rose.
    pub rise: Risen,
    /// An expectation names it.
    pub is_named: bool,
    /// What became of the edge itself.
    pub trouble: Option<Trouble>,
    /// Part of the requests added that are retries of the edge's own, 0 to 1.
    pub retries_of_rise: f64,
    /// Seconds from the fault's begin to the end of the first window that shows the rise on its own.
    pub seen_after_s: Option<f64>,
}

impl Cascade {
    /// A sentence for a report.
    #[must_use]
    pub fn sentence(&self) -> String {
        let causes: Vec<String> = self.causes.iter().map(|cause| format!("{} {}", cause.edge, told(cause.trouble))).collect();
        let (untouched, began) = if self.is_injected {
            (", which no fault touches,", "the fault began")
        } else {
            ("", "the fault phase began: the drill has no fault")
        };
        let mut text = format!("cascade: while {}, {}{untouched} {}", causes.join(" and "), self.rise.edge, self.rise.told());
        if let Some(seconds) = self.seen_after_s {
            text.push_str(&format!(", first seen {} after {began}", quantity(seconds, "s")));
        }
        if self.retries_of_rise > 0.5 {
            text.push_str(&format!("; {:.0}% of what was added are its own retries", 100.0 * self.retries_of_rise));
        }
        if let Some(trouble) = self.trouble {
            text.push_str(&format!("; it {} itself", told(trouble)));
        }
        if !self.is_named {
            text.push_str("; no expectation names it");
        }
        text
    }
}

fn told(trouble: Trouble) -> String {
    match trouble {
        Trouble::Failed(during, before) => format!("failed ({} of its requests, {} before)", percent(during), percent(before)),
        Trouble::Slowed(p50, p99) => format!("was slow (usually {} ms, 99% within {} ms before)", decimals(p50, 1), decimals(p99, 1)),
        Trouble::Refused(count) => format!("refused connections ({count} times)"),
    }
}

/// The cascades of a drill, one for each edge that rose.
#[must_use]
pub fn find(run: &Run) -> Vec<Cascade> {
    let is_injected = !run.faults.is_empty();
    let is_aimed_at = |edge: &Edge| run.faults.iter().any(|fault| fault.target == edge.name && fault.packets_hit > 0);
    let downstream = || run.edges.iter().filter(|edge| edge.role == "downstream");
    let causes: Vec<Cause> = downstream()
        .filter_map(|edge| Some((edge, trouble(edge)?)))
        .filter(|(edge, trouble)| if is_injected { is_aimed_at(edge) } else { is_impaired(edge, *trouble, run) })
        .map(|(edge, trouble)| Cause { edge: edge.name.clone(), trouble })
        .collect();
    if causes.is_empty() {
        return Vec::new();
    }
    let is_spared = |edge: &Edge| {
        let is_target = run.faults.iter().any(|fault| fault.target == edge.name);
        if is_injected { !is_target } else { causes.iter().all(|cause| cause.edge != edge.name) }
    };
    let spared: Vec<&Edge> = downstream().filter(|edge| is_spared(edge)).collect();
    let tails = Tails::each(ALPHA / spared.len().max(1) as f64);
    let rises = spared.iter().filter_map(|edge| Some((edge, risen::rise(edge, run, tails)?)));
    rises
        .filter(|(edge, _)| !is_own_trend(edge, run))
        .map(|(edge, rise)| Cascade {
            causes: causes.clone(),
            is_injected,
            is_named: risen::is_named(&edge.name, run),
            trouble: trouble(edge),
            retries_of_rise: retries_of_rise(edge, run),
            seen_after_s: seen_after(edge, &causes, run),
            rise,
        })
        .collect()
}

/// What is shown to have become of an edge in the fault phase.
fn trouble(edge: &Edge) -> Option<Trouble> {
    let (before, during) = (edge.phases.get("baseline")?, edge.phases.get("fault")?);
    let share = |phase: &EdgePhase| {
        let of = phase.seen() as f64;
        let hits = (phase.failed() as f64).min(of);
        (of > 0.0).then(|| Estimate { value: hits / of, interval: proportion::interval(hits, of, Tails::each(ALPHA)) })
    };
    if let (Some(before), Some(during)) = (share(before), share(during))
        && during.value - before.value > LEAST_CHANGE
        && quotient::difference_at_least(during, before) > 0.0
    {
        return Some(Trouble::Failed(during.value, before.value));
    }
    if during.failed_connects() > 0 && before.failed_connects() == 0 {
        return Some(Trouble::Refused(during.failed_connects()));
    }
    let (p99, p50) = (before.latency_ms.p99?, during.latency_ms.p50?);
    (p50 > p99).then_some(Trouble::Slowed(p50, p99))
}

/// Whether an edge in trouble gives less than before: fewer good answers, by more than a fifth and not by chance, or the same more slowly.
fn is_impaired(edge: &Edge, trouble: Trouble, run: &Run) -> bool {
    let good = |phase: &str| {
        let answered = edge.phases.get(phase).map_or(0, |counts| counts.requests.saturating_sub(counts.failed()));
        Tally { count: answered as f64, ..risen::total(&risen::tallies(edge, run, phase)) }
    };
    let (before, during) = (good("baseline"), good("fault"));
    if before.exposure <= 0.0 || during.exposure <= 0.0 {
        return false;
    }
    if matches!(trouble, Trouble::Slowed(..)) && risen::rise(edge, run, Tails::each(ALPHA)).is_none() {
        return true;
    }
    let is_less = LEAST * during.rate() < before.rate();
    is_less && rate_ratio::interval(during, before, Tails::each(ALPHA)).hi < 1.0
}

/// Whether the edge would have come as far without the fault, as it rose in the baseline already.
fn is_own_trend(edge: &Edge, run: &Run) -> bool {
    let (baseline, fault) = (risen::tallies(edge, run, "baseline"), risen::tallies(edge, run, "fault"));
    let at = |index: usize, tally: &Tally| (index as f64, tally.rate());
    let points: Vec<(f64, f64)> = baseline.iter().enumerate().filter(|(_, tally)| tally.exposure > 0.0).map(|(i, t)| at(i, t)).collect();
    let Some(trend) = trend::theil_sen(&points, ALPHA).filter(|trend| trend.interval.lo > 0.0) else {
        return false;
    };
    let expected = trend.at(baseline.len() as f64 + fault.len() as f64 / 2.0);
    risen::total(&fault).rate() <= LEAST * expected
}

/// Part of the requests added over what the baseline makes one expect that are retries of the edge's own.
fn retries_of_rise(edge: &Edge, run: &Run) -> f64 {
    // Of a share of the attempts, put up to all.
    let of = |phase: &str| {
        edge.phases
            .get(phase)
            .filter(|phase| phase.seen() > 0)
            .map_or(0.0, |phase| phase.retried() as f64 * (phase.requests as f64 / phase.seen() as f64))
    };
    let (base, judged) = (risen::total(&risen::tallies(edge, run, "baseline")), risen::total(&risen::tallies(edge, run, "fault")));
    let times = judged.exposure / base.exposure;
    let added = judged.count - base.count * times;
    let retried = of("fault") - of("baseline") * times;
    if added > 0.0 { (retried / added).clamp(0.0, 1.0) } else { 0.0 }
}

/// When the first window of the fault phase that is a rise by itself was over.
fn seen_after(edge: &Edge, causes: &[Cause], run: &Run) -> Option<f64> {
    let aimed = run.faults.iter().filter(|fault| causes.iter().any(|cause| cause.edge == fault.target));
    let phase = run.windows.iter().filter(|window| window.phase == "fault").map(|window| window.start_ns).min();
    let begin = aimed.map(|fault| fault.applied_ns).min().or(phase)?;
    let baseline = risen::tallies(edge, run, "baseline");
    let fault = risen::tallies(edge, run, "fault");
    let windows = run.windows.iter().filter(|window| window.phase == "fault");
    let (window, _) = windows.zip(&fault).find(|(_, tally)| risen::is_risen(**tally, &baseline, Tails::each(ALPHA)).is_some())?;
    Some(window.end_ns.saturating_sub(begin) as f64 / 1e9)
}
