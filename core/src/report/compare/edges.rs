//! What can get better or worse about an edge: under the fault, and after it.

use super::{Change, LEVEL, Row};
use crate::report::json::Run;
use crate::report::json::edge::{Edge, EdgePhase};
use crate::report::json::retrying::Retrying;
use crate::report::rows::{percent, unknown};
use crate::report::{risen, text::quantity};
use crate::stats::quotient::{self, Estimate};
use crate::stats::rate_ratio::{self, Tally};
use crate::stats::{Tails, dispersion, proportion};
use crate::wording::decimals;

const FAULT: &str = "fault";

/// The edges that both drills have.
pub(super) fn rows(before: &Run, after: &Run) -> Vec<Row> {
    let mut rows = Vec::new();
    for was in &before.edges {
        let Some(is) = after.edges.iter().find(|other| other.name == was.name && other.role == was.role) else { continue };
        let phase = |name: &str| Some((was.phases.get(name)?, is.phases.get(name)?));
        if let Some((was_phase, is_phase)) = phase(FAULT) {
            rows.extend(under_fault(&was.name, was_phase, is_phase));
            rows.extend(per_ingress((was, before), (is, after)));
        }
        if let Some((was_phase, is_phase)) = phase("recovery") {
            rows.push(share(format!("{}: retries after the fault", was.name), retries(was_phase), retries(is_phase)));
            rows.push(share(format!("{}: failed after the fault", was.name), failed(was_phase), failed(is_phase)));
        }
    }
    rows
}

fn under_fault(name: &str, was: &EdgePhase, is: &EdgePhase) -> Vec<Row> {
    let mut rows = vec![
        share(format!("{name}: retries"), retries(was), retries(is)),
        share(format!("{name}: failed"), failed(was), failed(is)),
        latency(format!("{name}: latency p50"), middle(was), middle(is)),
        latency(format!("{name}: latency p99"), tail(was), tail(is)),
    ];
    // What is counted, and of which requests: all, or those that were seen one by one.
    type Of = fn(&EdgePhase) -> u64;
    type Counted = (&'static str, Of, Of);
    let all: Of = |phase| phase.requests;
    let counted: [Counted; 7] = [
        ("TCP retransmits", |phase| phase.tcp_retransmits, all),
        ("connect failures", EdgePhase::failed_connects, all),
        ("connections opened", |phase| phase.connections_opened, all),
        ("non-idempotent retries", |phase| retrying(phase, |made| made.non_idempotent), EdgePhase::seen),
        ("retries of what was turned down", |phase| retrying(phase, |made| made.nonretryable), EdgePhase::seen),
        ("retries before Retry-After", |phase| retrying(phase, |made| made.retry_after_violations), EdgePhase::seen),
        ("late starts", |phase| retrying(phase, |made| made.late_starts), EdgePhase::seen),
    ];
    for (what, of, per) in counted {
        // What neither drill has is not worth a line.
        if of(was) > 0 || of(is) > 0 {
            let tally = |phase: &EdgePhase| Tally { count: of(phase) as f64, exposure: per(phase) as f64 };
            rows.push(rate(format!("{name}: {what} per request"), tally(was), tally(is)));
        }
    }
    rows
}

/// Requests per ingress request, where ingress was seen in both.
fn per_ingress((was, before): (&Edge, &Run), (is, after): (&Edge, &Run)) -> Option<Row> {
    let both = |run: &Run, edge: &Edge| edge.role == "downstream" && risen::is_per_ingress(edge, run);
    if !both(before, was) || !both(after, is) {
        return None;
    }
    // Bursts as in the baselines: the more of the two.
    let phi =
        dispersion::divisor(&risen::tallies(was, before, "baseline")).max(dispersion::divisor(&risen::tallies(is, after, "baseline")));
    let tally = |edge: &Edge, run: &Run| {
        let sum = risen::total(&risen::tallies(edge, run, FAULT));
        Tally { count: sum.count / phi, exposure: sum.exposure / phi }
    };
    let mut row = rate(format!("{}: requests per ingress request", was.name), tally(was, before), tally(is, after));
    // Fewer because more of what is asked, or of who asks, failed are no gain.
    if row.change == Change::Better && (suffers(was, is) || callers(before, after).any(|(was, is)| suffers(was, is))) {
        row.change = Change::Unknown;
    }
    Some(row)
}

/// The ingress edges that both drills have.
fn callers<'a>(before: &'a Run, after: &'a Run) -> impl Iterator<Item = (&'a Edge, &'a Edge)> {
    let ingress = before.edges.iter().filter(|edge| edge.role == "ingress");
    ingress.filter_map(|was| Some((was, after.edges.iter().find(|is| is.name == was.name && is.role == was.role)?)))
}

/// Whether more failed under the fault than before, requests or connects.
fn suffers(was: &Edge, is: &Edge) -> bool {
    let (Some(was), Some(is)) = (was.phases.get(FAULT), is.phases.get(FAULT)) else {
        return false;
    };
    let connects = |phase: &EdgePhase| Tally { count: phase.failed_connects() as f64, exposure: phase.requests as f64 };
    share(String::new(), failed(was), failed(is)).change == Change::Worse
        || rate(String::new(), connects(was), connects(is)).change == Change::Worse
}

fn retries(phase: &EdgePhase) -> (u64, u64) {
    (phase.retried(), phase.seen())
}

fn failed(phase: &EdgePhase) -> (u64, u64) {
    (phase.failed(), phase.seen())
}

fn retrying(phase: &EdgePhase, of: fn(&Retrying) -> u64) -> u64 {
    phase.retrying.as_ref().map_or(0, of)
}

/// A share of which less is better.
fn share(what: String, before: (u64, u64), after: (u64, u64)) -> Row {
    let (was, is) = (estimate(before), estimate(after));
    let change = match (was, is) {
        (Some(was), Some(is)) if quotient::difference_at_least(was, is) > 0.0 => Change::Better,
        (Some(was), Some(is)) if quotient::difference_at_least(is, was) > 0.0 => Change::Worse,
        (Some(_), Some(_)) => Change::Same,
        _ => Change::Unknown,
    };
    let spelled = |estimate: Option<Estimate>| estimate.map_or_else(unknown, |estimate| percent(estimate.value));
    Row::new(what, spelled(was), spelled(is), change)
}

fn estimate((hits, of): (u64, u64)) -> Option<Estimate> {
    if of == 0 {
        return None;
    }
    let (hits, of) = (hits.min(of) as f64, of as f64);
    Some(Estimate { value: hits / of, interval: proportion::interval(hits, of, Tails::each(LEVEL)) })
}

/// A rate of which less is better.
fn rate(what: String, was: Tally, is: Tally) -> Row {
    let is_known = was.exposure > 0.0 && is.exposure > 0.0;
    let change = if is_known {
        let ratio = rate_ratio::interval(is, was, Tails::each(LEVEL));
        if ratio.hi < 1.0 {
            Change::Better
        } else if ratio.lo > 1.0 {
            Change::Worse
        } else {
            Change::Same
        }
    } else {
        Change::Unknown
    };
    let spelled = |tally: Tally| if tally.exposure > 0.0 { decimals(tally.rate(), 3) } else { unknown() };
    Row::new(what, spelled(was), spelled(is), change)
}

/// A quantile in milliseconds, and its interval if the result has one.
type Quantile = (Option<f64>, Option<[Option<f64>; 2]>);

fn middle(phase: &EdgePhase) -> Quantile {
    (phase.latency_ms.p50, phase.latency_interval_ms.map(|bounds| bounds.p50))
}

fn tail(phase: &EdgePhase) -> Quantile {
    (phase.latency_ms.p99, phase.latency_interval_ms.map(|bounds| bounds.p99))
}

/// Two 90% intervals that do not overlap are about as rare by chance as [`LEVEL`] says.
fn latency(what: String, was: Quantile, is: Quantile) -> Row {
    let change = match (was.1, is.1) {
        (Some([lo, hi]), Some([lo_after, hi_after])) => {
            let apart = |upper: Option<f64>, lower: Option<f64>| upper.zip(lower).is_some_and(|(upper, lower)| upper < lower);
            if apart(hi_after, lo) {
                Change::Better
            } else if apart(hi, lo_after) {
                Change::Worse
            } else {
                Change::Same
            }
        }
        _ => Change::Unknown,
    };
    let spelled = |value: Option<f64>| value.map_or_else(unknown, |ms| quantity(ms / 1e3, "s"));
    Row::new(what, spelled(was.0), spelled(is.0), change)
}
