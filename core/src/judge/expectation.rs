//! One expectation on each edge that it holds for, and the worst of them.

use crate::expectation::{Demand, Expectation, Metric, Op};
use crate::judge::limit::{Limit, Outcome};
use crate::judge::measure::{self, Scene};
use crate::judge::{Evidence, Judgement, Verdict, arrivals, doubt, every_window, metastable, outage, recovery, windows, wording};
use crate::window::{PhaseName, Window};

/// A judgement, and how far its value is on the wrong side.
struct Ranked {
    judgement: Judgement,
    excess: f64,
}

/// Judges one expectation.
pub(crate) fn judge(expectation: &Expectation, evidence: &Evidence<'_>) -> Judgement {
    let edges: Vec<usize> = (0..evidence.edges.len())
        .filter(|&edge| {
            let spec = &evidence.edges[edge];
            let named = expectation.edge.as_ref().is_none_or(|name| *name == spec.name);
            named && measure::applies_to(expectation.metric, spec.role)
        })
        .collect();
    let edges: Vec<usize> = if expectation.metric.is_of_drill() { edges.into_iter().take(1).collect() } else { edges };
    let judged: Vec<Ranked> = edges.iter().map(|&edge| judge_edge(expectation, edge, evidence)).collect();
    // Of those that are equally bad the first: `max_by` takes the last.
    let judged = judged.into_iter().rev();
    let worst = judged.max_by(|a, b| (a.judgement.verdict.cmp(&b.judgement.verdict)).then(a.excess.total_cmp(&b.excess)));
    match worst {
        Some(mut worst) => {
            // Without an edge in the text, the reader must be told which one is meant.
            if expectation.edge.is_none()
                && edges.len() > 1
                && let (Some(edge), Some(reason)) = (&worst.judgement.edge, &worst.judgement.reason)
            {
                worst.judgement.reason = Some(format!("{edge}: {reason}"));
            }
            worst.judgement
        }
        None => not_applicable(expectation),
    }
}

fn not_applicable(expectation: &Expectation) -> Judgement {
    let name = expectation.metric;
    let reason = match &expectation.edge {
        Some(edge) => format!("no edge {edge} is observed that {name} applies to"),
        None => format!("no edge is observed that {name} applies to"),
    };
    Judgement {
        text: expectation.text.clone(),
        edge: expectation.edge.clone(),
        verdict: Verdict::Inconclusive,
        observed: None,
        limit: None,
        unit: wording::unit_of(expectation.metric),
        interval: None,
        phase: phase_of(expectation),
        windows: Vec::new(),
        reason: Some(reason),
    }
}

const fn phase_of(expectation: &Expectation) -> PhaseName {
    match expectation.demand {
        Demand::Limit { phase, .. } => phase,
        Demand::Recovers { .. } => PhaseName::Recovery,
    }
}

/// Whether the demand is on the phase's steady state: not on a peak, nor on how a recovery goes. The baseline, as the measure of others, always is.
const fn is_steady(expectation: &Expectation) -> bool {
    let Demand::Limit { phase: PhaseName::Baseline | PhaseName::Fault, every_window: false, .. } = expectation.demand else {
        return false;
    };
    !matches!(
        expectation.metric,
        Metric::AttemptsMax
            | Metric::Connections
            | Metric::ConnectionsOpened
            | Metric::ConnectFailures
            | Metric::NonIdempotentRetries
            | Metric::NonretryableRetries
            | Metric::RetryAfterViolations
            | Metric::RetryPeakToMean
            | Metric::LateStarts
            | Metric::OrphanWork
            | Metric::Metastable
    )
}

fn judge_edge(expectation: &Expectation, edge: usize, evidence: &Evidence<'_>) -> Ranked {
    let phase = phase_of(expectation);
    let judged = if is_steady(expectation) { windows::steady(evidence, phase) } else { windows::of_phase(evidence, phase) };
    let baseline = windows::steady(evidence, PhaseName::Baseline);
    let scene = Scene { edges: evidence.edges, edge, judged: &judged, baseline: &baseline, all: evidence.windows, phase: phase.as_str() };
    let (outcome, limit, unit, excess) = hold_against(expectation, scene, evidence);
    let used = windows_used(expectation, scene);
    let (verdict, reason) =
        doubt::overrule(expectation.metric, &evidence.edges[edge], phase, &used, evidence, outcome.verdict, outcome.reason);
    Ranked {
        judgement: Judgement {
            text: expectation.text.clone(),
            edge: (!expectation.metric.is_of_drill()).then(|| evidence.edges[edge].name.clone()),
            verdict,
            observed: outcome.observed,
            limit: Some(limit),
            unit,
            interval: outcome.interval.map(|interval| (interval.lo, interval.hi)),
            phase,
            windows: windows::epochs(&used),
            reason,
        },
        excess,
    }
}

/// The bare comparison, its limit and unit, and how far the value is on the wrong side.
fn hold_against(expectation: &Expectation, scene: Scene<'_>, evidence: &Evidence<'_>) -> (Outcome, f64, &'static str, f64) {
    if expectation.metric == Metric::Metastable {
        return (metastable::judge(scene), metastable::BACK, wording::unit::RATIO, 0.0);
    }
    match expectation.demand {
        Demand::Limit { op, value, increase, every_window, .. } => {
            let limit = Limit { metric: expectation.metric, op, value, increase };
            let mut outcome = if every_window { every_window::judge(limit, scene) } else { limit.judge(scene) };
            if outcome.verdict == Verdict::Pass
                && let Some(hidden) = outage::behind_pass(limit, scene)
            {
                outcome.reason = Some(hidden);
            }
            if outcome.verdict == Verdict::Pass
                && let Some(hidden) = arrivals::hidden_rise(limit, scene)
            {
                outcome = hidden;
            }
            if expectation.metric == Metric::Connections && outcome.reason.is_none() {
                outcome.reason = Some("connections that were open before the drill are not counted".to_owned());
            }
            let excess = outcome.observed.map_or(f64::NEG_INFINITY, |observed| limit.excess(observed));
            (outcome, value, limit.unit(), excess)
        }
        Demand::Recovers { to, within } => {
            let fault = windows::of_phase(evidence, PhaseName::Fault);
            let recovery = recovery::judge(expectation.metric, to, within, scene, &fault);
            let excess = match (recovery.observed, recovery.verdict) {
                (Some(observed), _) => observed - recovery.limit,
                // Never recovered is worse than late.
                (None, Verdict::Fail) => f64::INFINITY,
                (None, _) => f64::NEG_INFINITY,
            };
            // A breaker that stays open brings attempts back to nothing, and below any level.
            let level = Limit { metric: expectation.metric, op: Op::AtMost, value: 0.0, increase: false };
            let hidden = if recovery.verdict == Verdict::Pass { outage::behind_pass(level, scene) } else { None };
            let reason = hidden.or(recovery.reason);
            let outcome = Outcome { verdict: recovery.verdict, observed: recovery.observed, interval: recovery.interval, reason };
            (outcome, recovery.limit, recovery.unit, excess)
        }
    }
}

/// The judged windows, and the baseline's where the value or the level is relative to it; in order of time.
fn windows_used<'a>(expectation: &Expectation, scene: Scene<'a>) -> Vec<&'a Window> {
    let relative = match expectation.demand {
        Demand::Limit { increase, .. } => increase || expectation.metric == Metric::Amplification,
        Demand::Recovers { to, .. } => to.is_none() || expectation.metric == Metric::Amplification,
    };
    let relative = relative || expectation.metric == Metric::Metastable;
    let mut used: Vec<&Window> = scene.judged.to_vec();
    // Where a drill ended before the phase, nothing was judged, and the baseline's windows are no other phase's.
    if !used.is_empty() && relative && scene.phase != PhaseName::Baseline.as_str() {
        used.extend(scene.baseline);
    }
    used.sort_by_key(|window| window.start_ns);
    used
}
