//! Whether the measurement can be trusted at all.

use crate::judge::wording::counted;
use crate::judge::{ALPHA, Evidence, LoadHealth, MOST_LAG_NS};
use crate::stats::{Tails, proportion};
use crate::window::{PhaseName, Window};

/// Share of a window's requests whose events may be lost.
const MOST_LOST: f64 = 0.001;

/// Share of the load generator's requests that may start late.
const MOST_LATE: f64 = 0.01;

/// What an expectation rests on that may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// The kernel's counts, which are exact.
    Counts,
    /// Events, which may be lost.
    Events,
}

/// Why no verdict can be drawn from the windows used; `None` if it can.
pub(crate) fn broken(phase: PhaseName, basis: Basis, used: &[&Window], evidence: &Evidence<'_>) -> Option<String> {
    // Whether it ended before the windows used or after: every comparison needs what came later, or was cut short by it.
    let blind = evidence.blind.map(str::to_owned);
    blind.or_else(|| unconfirmed(phase, evidence)).or_else(|| held_up(used, evidence)).or_else(|| match basis {
        Basis::Counts => None,
        Basis::Events => lost(used),
    })
}

/// A fault whose begin or end the kernel did not acknowledge.
fn unconfirmed(phase: PhaseName, evidence: &Evidence<'_>) -> Option<String> {
    if phase == PhaseName::Baseline {
        return None;
    }
    evidence.faults.iter().find_map(|fault| {
        let (kind, to) = (fault.spec.kind.as_str(), &fault.spec.to);
        if fault.applied_ns == 0 {
            Some(format!("{kind} to {to} was not confirmed by the kernel"))
        } else if fault.removed_ns.is_none() {
            Some(format!("the removal of {kind} to {to} was not confirmed by the kernel"))
        } else {
            None
        }
    })
}

/// A time in which stormdrill itself stood still, within a window that was used.
fn held_up(used: &[&Window], evidence: &Evidence<'_>) -> Option<String> {
    evidence.held_up.iter().find_map(|pause| {
        let window = used.iter().find(|window| pause.start_ns < window.end_ns && window.start_ns < pause.end_ns)?;
        let seconds = (pause.end_ns.saturating_sub(pause.start_ns)) as f64 / 1e9;
        Some(format!("stormdrill itself was held up for {seconds:.1} s in window {}", window.epoch))
    })
}

fn lost(used: &[&Window]) -> Option<String> {
    let bad: Vec<&&Window> = used.iter().filter(|window| is_lossy(window)).collect();
    if bad.is_empty() {
        return None;
    }
    let events: u64 = bad.iter().map(|window| window.events_lost).sum();
    let epochs: Vec<String> = bad.iter().map(|window| window.epoch.to_string()).collect();
    Some(format!(
        "{} lost in window {}, more than {}% of its requests",
        if events == 1 { "1 event was".to_owned() } else { format!("{events} events were") },
        epochs.join(", "),
        MOST_LOST * 100.0
    ))
}

fn is_lossy(window: &Window) -> bool {
    let requests: u64 = window.edges.iter().map(|edge| edge.counts.requests).sum();
    window.events_lost as f64 > MOST_LOST * window.sampling * requests as f64
}

/// What was wrong with the load, if anything.
///
/// The drill then did not happen as asked, so it can pass nothing. A limit that was broken even so stays broken.
pub(crate) fn overloaded(load: Option<LoadHealth>) -> Option<String> {
    let load = load?;
    let mut complaints = Vec::new();
    // Of a few dozen requests a single late one is more than a hundredth, and says nothing.
    let late = proportion::interval(load.late as f64, load.scheduled as f64, Tails::each(ALPHA));
    if load.scheduled > 0 && late.lo > MOST_LATE {
        complaints.push(format!(
            "started requests late (p99 {:.1} ms, at most {} ms)",
            load.lag_p99_ns as f64 / 1e6,
            MOST_LAG_NS / 1_000_000
        ));
    }
    if load.sent > 0 && load.answered == 0 {
        complaints.push(format!("got no answer to any of its {} requests; is the service listening at `load.url`?", load.sent));
    }
    if load.sent < load.scheduled {
        complaints.push(format!("sent {} of {} requests", load.sent, load.scheduled));
    }
    if load.local_errors > 0 {
        complaints.push(format!("had {} of its own", counted(load.local_errors, "connection error")));
    }
    (!complaints.is_empty()).then(|| format!("the load generator {}", complaints.join(", ")))
}
