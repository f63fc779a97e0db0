//! From a metric, an edge and windows to a sample: the definitions of the metrics.
//!
//! Request counts are the kernel's, which are exact. Retries, outcomes and times come from events; their denominator is
//! the attempts seen as events, so that sampling neither biases a ratio nor feigns more data than there is.

use thiserror::Error;

use crate::edge::{EdgeSpec, Role};
use crate::expectation::metric::Row;
use crate::expectation::{Metric, RetryBase};
use crate::judge::sample::{Sample, Share};
use crate::stats::amplification::Pair;
use crate::stats::dispersion;
use crate::stats::rate_ratio::Tally;
use crate::window::{EdgeWindow, Window};

/// Why there is no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Gap {
    #[error("no window of the {0} phase was closed")]
    NoWindow(&'static str),
    #[error("no request was seen in the {0} phase")]
    NoTraffic(&'static str),
    #[error("no request failed in the {0} phase")]
    NoFailure(&'static str),
    #[error("no ingress edge is observed, so attempts cannot be related to requests: add one under observe.ingress")]
    NoIngress,
    #[error("no ingress request was seen in the {0} phase, so attempts cannot be related to requests")]
    NoIngressTraffic(&'static str),
    #[error("the baseline is zero, so an increase is undefined: give an absolute limit instead")]
    ZeroBaseline,
    #[error("the baseline cannot be compared with itself: judge another phase")]
    BaselineItself,
}

/// Everything that a metric is computed from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) edges: &'a [EdgeSpec],
    /// Position of the edge in `edges` and in each window.
    pub(crate) edge: usize,
    /// The windows judged, all of one phase.
    pub(crate) judged: &'a [&'a Window],
    pub(crate) baseline: &'a [&'a Window],
    /// The judged phase's word.
    pub(crate) phase: &'static str,
}

/// Whether the metric means anything on an edge of this role.
pub(crate) fn applies_to(metric: Metric, role: Role) -> bool {
    Row::of(metric).roles.contains(&role)
}

/// Whether the judged windows hold nothing to judge the edge by.
///
/// Silence downstream does say something while requests still come in and the baseline had some.
pub(crate) fn silence(scene: Scene<'_>) -> Option<Gap> {
    let downstream = scene.edges.get(scene.edge).is_some_and(|edge| edge.role == Role::Downstream);
    let telling = downstream && requests(scene.edge, scene.baseline) > 0 && ingress_requests(scene.edges, scene.judged) > 0;
    (requests(scene.edge, scene.judged) == 0 && !telling).then_some(Gap::NoTraffic(scene.phase))
}

/// The metric itself. Amplification is relative to the baseline by definition.
pub(crate) fn absolute(metric: Metric, scene: Scene<'_>) -> Result<Sample, Gap> {
    let windows = scene.judged;
    if windows.is_empty() {
        return Err(Gap::NoWindow(scene.phase));
    }
    match metric {
        Metric::DownstreamQps | Metric::IngressQps => {
            Ok(Sample::Rate { tally: request_tally(scene.edge, windows), phi: burstiness(scene) })
        }
        Metric::Amplification => amplification(scene),
        Metric::RetryRatio { of } => retry_share(scene.edge, windows, of).map(Sample::Share).ok_or(Gap::NoTraffic(scene.phase)),
        Metric::SuccessRatio => success_share(scene.edge, windows).map(Sample::Share).ok_or(Gap::NoTraffic(scene.phase)),
        Metric::FailureLatency { quantile } => {
            let sorted = failure_times(scene.edge, windows);
            if sorted.is_empty() {
                return Err(if attempts(scene.edge, windows) > 0 { Gap::NoFailure(scene.phase) } else { Gap::NoTraffic(scene.phase) });
            }
            Ok(Sample::Latency { sorted, quantile })
        }
    }
}

/// The metric over its value in the baseline: 1 is no change.
pub(crate) fn over_baseline(metric: Metric, scene: Scene<'_>) -> Result<Sample, Gap> {
    if scene.judged.is_empty() {
        return Err(Gap::NoWindow(scene.phase));
    }
    if scene.baseline.is_empty() {
        return Err(Gap::NoWindow("baseline"));
    }
    if scene.phase == "baseline" {
        return Err(Gap::BaselineItself);
    }
    let edge = scene.edge;
    match metric {
        Metric::DownstreamQps | Metric::IngressQps => {
            let base = request_tally(edge, scene.baseline);
            if base.count <= 0.0 {
                return Err(Gap::ZeroBaseline);
            }
            let judged = request_tally(edge, scene.judged);
            Ok(Sample::RateRatio { judged, base, phi: burstiness(scene) })
        }
        Metric::Amplification => amplification(scene),
        Metric::RetryRatio { of } => {
            let judged = retry_share(edge, scene.judged, of).ok_or(Gap::NoTraffic(scene.phase))?;
            let base = retry_share(edge, scene.baseline, of).ok_or(Gap::NoTraffic("baseline"))?;
            // As rates per attempt: exact where retries are rare, and on the safe side where they are not.
            let tally = |share: Share| Tally {
                count: share.hits,
                exposure: match of {
                    RetryBase::All => share.of,
                    RetryBase::First => share.of - share.hits,
                },
            };
            let (judged, base) = (tally(judged), tally(base));
            if base.count <= 0.0 || base.exposure <= 0.0 || judged.exposure <= 0.0 {
                return Err(Gap::ZeroBaseline);
            }
            Ok(Sample::RateRatio { judged, base, phi: 1.0 })
        }
        Metric::SuccessRatio => {
            let judged = success_share(edge, scene.judged).ok_or(Gap::NoTraffic(scene.phase))?;
            let base = success_share(edge, scene.baseline).ok_or(Gap::NoTraffic("baseline"))?;
            if base.hits <= 0.0 {
                return Err(Gap::ZeroBaseline);
            }
            Ok(Sample::ShareRatio { judged, base })
        }
        Metric::FailureLatency { quantile } => {
            let (judged, base) = (failure_times(edge, scene.judged), failure_times(edge, scene.baseline));
            if judged.is_empty() {
                return Err(Gap::NoFailure(scene.phase));
            }
            if base.last().is_none_or(|longest| *longest == 0) {
                return Err(Gap::ZeroBaseline);
            }
            Ok(Sample::LatencyRatio { judged, base, quantile })
        }
    }
}

fn amplification(scene: Scene<'_>) -> Result<Sample, Gap> {
    if scene.baseline.is_empty() {
        return Err(Gap::NoWindow("baseline"));
    }
    if scene.phase == "baseline" {
        return Err(Gap::BaselineItself);
    }
    if ingress_edges(scene.edges).next().is_none() {
        return Err(Gap::NoIngress);
    }
    let pairs = |windows: &[&Window]| -> Vec<Pair> {
        windows
            .iter()
            .map(|window| Pair {
                attempts: requests(scene.edge, &[window]) as f64,
                ingress: ingress_requests(scene.edges, &[window]) as f64,
            })
            .collect()
    };
    let (judged, baseline) = (pairs(scene.judged), pairs(scene.baseline));
    let sum = |pairs: &[Pair], of: fn(&Pair) -> f64| pairs.iter().map(of).sum::<f64>();
    if sum(&baseline, |pair| pair.ingress) <= 0.0 {
        return Err(Gap::NoIngressTraffic("baseline"));
    }
    if sum(&baseline, |pair| pair.attempts) <= 0.0 {
        return Err(Gap::ZeroBaseline);
    }
    if sum(&judged, |pair| pair.ingress) <= 0.0 {
        return Err(Gap::NoIngressTraffic(scene.phase));
    }
    Ok(Sample::Amplification { judged, baseline })
}

/// Positions of the ingress edges.
pub(crate) fn ingress_edges(edges: &[EdgeSpec]) -> impl Iterator<Item = usize> {
    (0..edges.len()).filter(|&edge| edges[edge].role == Role::Ingress)
}

fn ingress_requests(edges: &[EdgeSpec], windows: &[&Window]) -> u64 {
    ingress_edges(edges).map(|edge| requests(edge, windows)).sum()
}

fn of_edge<'a>(edge: usize, windows: &'a [&'a Window]) -> impl Iterator<Item = (&'a Window, &'a EdgeWindow)> {
    windows.iter().filter_map(move |window| Some((*window, window.edges.get(edge)?)))
}

/// Requests of an edge as the kernel counted them.
pub(crate) fn requests(edge: usize, windows: &[&Window]) -> u64 {
    of_edge(edge, windows).map(|(_, counts)| counts.counts.requests).sum()
}

/// Attempts of an edge as events showed them.
pub(crate) fn attempts(edge: usize, windows: &[&Window]) -> u64 {
    of_edge(edge, windows).map(|(_, counts)| counts.attempts).sum()
}

/// Requests over seconds.
pub(crate) fn request_tally(edge: usize, windows: &[&Window]) -> Tally {
    Tally { count: requests(edge, windows) as f64, exposure: windows.iter().map(|window| window.seconds()).sum() }
}

/// What the baseline's scatter divides counts by.
pub(crate) fn burstiness(scene: Scene<'_>) -> f64 {
    let tallies: Vec<Tally> = of_edge(scene.edge, scene.baseline)
        .map(|(window, counts)| Tally { count: counts.counts.requests as f64, exposure: window.seconds() })
        .collect();
    dispersion::divisor(&tallies)
}

/// Retries among attempts; `None` without attempts.
pub(crate) fn retry_share(edge: usize, windows: &[&Window], base: RetryBase) -> Option<Share> {
    let of = attempts(edge, windows);
    let retries: u64 = of_edge(edge, windows).map(|(_, counts)| counts.retries.total()).sum();
    (of > 0).then(|| Share { base, ..Share::of_all(retries.min(of), of) })
}

/// Attempts that failed, as a share of all; `None` without one that has an outcome.
pub(crate) fn failed_share(edge: usize, windows: &[&Window]) -> Option<Share> {
    outcome_share(edge, windows, |failed, _| failed)
}

/// Attempts that were answered without failure, as a share of all; `None` without one that has an outcome.
pub(crate) fn success_share(edge: usize, windows: &[&Window]) -> Option<Share> {
    outcome_share(edge, windows, |failed, settled| settled - failed)
}

fn outcome_share(edge: usize, windows: &[&Window], hits: fn(u64, u64) -> u64) -> Option<Share> {
    let of = attempts(edge, windows);
    let unknown = of_edge(edge, windows).map(|(_, counts)| counts.pending).sum::<u64>().min(of);
    let settled = of - unknown;
    let failed = of_edge(edge, windows).map(|(_, counts)| counts.failures.values().sum::<u64>()).sum::<u64>().min(settled);
    (settled > 0).then(|| Share { unknown: unknown as f64, ..Share::of_all(hits(failed, settled), of) })
}

/// Times to failure in nanoseconds, ascending.
fn failure_times(edge: usize, windows: &[&Window]) -> Vec<u64> {
    times(edge, windows, |counts| &counts.failure_latency_ns)
}

/// Times to the answer in nanoseconds, ascending.
pub(crate) fn answer_times(edge: usize, windows: &[&Window]) -> Vec<u64> {
    times(edge, windows, |counts| &counts.latency_ns)
}

fn times(edge: usize, windows: &[&Window], of: fn(&EdgeWindow) -> &Vec<u64>) -> Vec<u64> {
    let mut times: Vec<u64> = of_edge(edge, windows).flat_map(|(_, counts)| of(counts).iter().copied()).collect();
    times.sort_unstable();
    times
}
