//! From a metric, an edge and windows to a sample: the definitions of the metrics.
//!
//! Request counts are the kernel's, which are exact. Retries, outcomes and times come from events; their denominator is
//! the attempts seen as events, so that sampling neither biases a ratio nor feigns more data than there is.

use thiserror::Error;

use crate::edge::{EdgeSpec, Role};
use crate::expectation::metric::Row;
use crate::expectation::{Metric, RetryBase};
use crate::judge::sample::{Sample, Share};
use crate::judge::times::Times;
use crate::stats::amplification::Pair;
use crate::stats::dispersion;
use crate::stats::rate_ratio::Tally;
use crate::window::{EdgeWindow, Window};

mod connecting;

mod layers;

mod retrying;

pub(crate) mod shares;

pub(crate) use retrying::{FEWEST_RETRIES, SHORTEST_PAUSE_NS, pauses, retries_in_bursts};
use shares::{explicit_share, success_share};

/// Why there is no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Gap {
    #[error("no window of the {0} phase was closed")]
    NoWindow(&'static str),
    #[error("no request was seen in the {0} phase")]
    NoTraffic(&'static str),
    #[error("none of {of} requests was answered in the {phase} phase")]
    NoneAnswered { of: u64, phase: &'static str },
    #[error("no request failed in the {0} phase")]
    NoFailure(&'static str),
    #[error("no ingress edge is observed, so attempts cannot be related to requests: add one under observe.ingress")]
    NoIngress,
    #[error("no ingress request was seen in the {0} phase, so attempts cannot be related to requests")]
    NoIngressTraffic(&'static str),
    #[error("no request was retried in the {0} phase")]
    NoRetry(&'static str),
    #[error("{pauses} pauses before first retries are too few to tell their spread: {least} are needed")]
    FewPauses { pauses: usize, least: u64 },
    #[error("{retries} retries are too few to tell how they are spread: {least} are needed")]
    FewRetries { retries: u64, least: u64 },
    #[error("retries come at once: half of the pauses before them are {micros} us or shorter, which is no backoff (less than 5 ms)")]
    AtOnce { micros: u64, is_shown: bool },
    #[error(
        "no request of the {0} phase says by a deadline, a request id or a trace for whom it is made, so that nobody can be seen to give up"
    )]
    NoDeadline(&'static str),
    #[error(
        "{}.{}% of the attempts look like retries where nothing failed: these calls are too alike to be matched, so mark retries by a header or give requests an id",
        .0 / 10,
        .0 % 10
    )]
    TooAlike(u32),
    #[error("at this rate events of a share of the requests are kept, and of the {0} phase of none of this edge: longer phases would tell")]
    NoneKept(&'static str),
    #[error("how retries crowd cannot be told from a share of them, and events of only {}% of the requests were kept", .0)]
    OfAShare(u32),
    #[error(
        "{unread} of {of} requests could be compared with none, as on HTTP/2 connections that were open before the drill: have retries marked, or the connections made anew"
    )]
    Unread { unread: u64, of: u64 },
    #[error("the baseline is zero, so an increase is undefined: give an absolute limit instead")]
    ZeroBaseline,
    #[error("it is zero in the baseline, and coming back to nothing shows nothing")]
    NothingBefore,
    #[error("this metric cannot be compared with the baseline: give an absolute limit instead")]
    NoIncrease,
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
    /// Every window of the drill so far, those between two phases included.
    pub(crate) all: &'a [Window],
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
pub(crate) fn silence(metric: Metric, scene: Scene<'_>) -> Option<Gap> {
    let about_connections = matches!(metric, Metric::Connections | Metric::ConnectionsOpened | Metric::ConnectFailures);
    if about_connections && connecting::attempted(scene.edge, scene.judged) > 0 {
        return None;
    }
    if metric.is_of_drill() {
        let downstream = (0..scene.edges.len()).filter(|&edge| scene.edges[edge].role == Role::Downstream);
        return (downstream.map(|edge| attempts(edge, scene.judged)).sum::<u64>() == 0).then_some(Gap::NoTraffic(scene.phase));
    }
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
        Metric::DownstreamPerIngress => attempts_per_ingress(scene),
        Metric::Latency { quantile } => {
            let times = answered(scene.edge, windows);
            if times.is_empty() { Err(unanswered(scene.edge, windows, scene.phase)) } else { Ok(Sample::Latency { times, quantile }) }
        }
        Metric::Goodput => Ok(Sample::Rate { tally: good_tally(scene.edge, windows, scene.phase)?, phi: burstiness(scene) }),
        Metric::ExplicitFailureRatio => {
            explicit_share(scene.edge, windows).map(Sample::Share).ok_or_else(|| unfailed(scene.edge, windows, scene.phase))
        }
        Metric::AttemptsMax => {
            let most = of_edge(scene.edge, windows).map(|(_, counts)| counts.attempts_max).max().unwrap_or(0);
            Ok(at_least(scene, f64::from(most)))
        }
        Metric::LayersRetrying => Ok(layers::retrying(scene)),
        Metric::CostPerSuccess => {
            success_share(scene.edge, windows).map(Sample::Cost).ok_or_else(|| unanswered(scene.edge, windows, scene.phase))
        }
        Metric::Connections => Ok(exact(connecting::most_open(scene) as f64)),
        Metric::ConnectionsOpened => Ok(exact(connecting::opened(scene.edge, windows) as f64)),
        Metric::ConnectFailures => Ok(exact(connecting::failed(scene.edge, windows) as f64)),
        // No number, but a verdict: see `metastable`.
        Metric::Metastable => Err(Gap::NoIncrease),
        Metric::RetransmitRatio => {
            let retransmits: u64 = of_edge(scene.edge, windows).map(|(_, counts)| counts.counts.tcp_retransmits).sum();
            let tally = Tally { count: retransmits as f64, exposure: requests(scene.edge, windows) as f64 };
            if tally.exposure > 0.0 { Ok(Sample::Rate { tally, phi: 1.0 }) } else { Err(Gap::NoTraffic(scene.phase)) }
        }
        Metric::RetryRatio { of } => retrying::share(scene, windows, of, scene.phase).map(Sample::Share),
        Metric::NonIdempotentRetries => Ok(at_least(scene, retrying::count(scene, |edge| edge.non_idempotent_retries))),
        Metric::NonretryableRetries => Ok(at_least(scene, retrying::count(scene, |edge| edge.nonretryable_retries))),
        Metric::RetryAfterViolations => Ok(at_least(scene, retrying::count(scene, |edge| edge.retry_after_violations))),
        Metric::BackoffJitter => retrying::jitter(scene),
        Metric::RetryPeakToMean => retrying::peak_to_mean(scene),
        Metric::LateStarts => retrying::of_deadlines(scene, |edge| edge.late_starts as f64).map(|value| at_least(scene, value)),
        Metric::OrphanWork => retrying::of_deadlines(scene, |edge| edge.orphan_ns as f64 / 1e9).map(|value| at_least(scene, value)),
        Metric::SuccessRatio => {
            success_share(scene.edge, windows).map(Sample::Share).ok_or_else(|| unanswered(scene.edge, windows, scene.phase))
        }
        Metric::FailureLatency { quantile } => {
            let times = failed(scene.edge, windows);
            if times.is_empty() {
                let is_seen = attempts(scene.edge, windows) > 0;
                return Err(if is_seen { Gap::NoFailure(scene.phase) } else { unseen(scene.edge, windows, scene.phase) });
            }
            Ok(Sample::Latency { times, quantile })
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
        Metric::Amplification | Metric::DownstreamPerIngress => amplification(scene),
        Metric::Goodput => {
            let base = good_tally(edge, scene.baseline, "baseline")?;
            if base.count <= 0.0 {
                return Err(Gap::ZeroBaseline);
            }
            Ok(Sample::RateRatio { judged: good_tally(edge, scene.judged, scene.phase)?, base, phi: burstiness(scene) })
        }
        Metric::ConnectionsOpened => {
            let tally = |windows: &[&Window]| Tally { count: connecting::opened(edge, windows) as f64, exposure: seconds(windows) };
            let base = tally(scene.baseline);
            if base.count <= 0.0 {
                return Err(Gap::ZeroBaseline);
            }
            Ok(Sample::RateRatio { judged: tally(scene.judged), base, phi: 1.0 })
        }
        Metric::Latency { quantile } => latency_ratio(answered(edge, scene.judged), answered(edge, scene.baseline), quantile, scene)
            .ok_or_else(|| unanswered(edge, scene.judged, scene.phase))?,
        Metric::ExplicitFailureRatio
        | Metric::AttemptsMax
        | Metric::LayersRetrying
        | Metric::CostPerSuccess
        | Metric::Connections
        | Metric::ConnectFailures
        | Metric::RetransmitRatio
        | Metric::NonIdempotentRetries
        | Metric::NonretryableRetries
        | Metric::RetryAfterViolations
        | Metric::BackoffJitter
        | Metric::RetryPeakToMean
        | Metric::LateStarts
        | Metric::OrphanWork
        | Metric::Metastable => Err(Gap::NoIncrease),
        Metric::RetryRatio { of } => {
            let judged = retrying::share(scene, scene.judged, of, scene.phase)?;
            let base = retrying::share(scene, scene.baseline, of, "baseline")?;
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
            let judged = success_share(edge, scene.judged).ok_or_else(|| unanswered(edge, scene.judged, scene.phase))?;
            let base = success_share(edge, scene.baseline).ok_or_else(|| unanswered(edge, scene.baseline, "baseline"))?;
            if base.hits <= 0.0 {
                return Err(Gap::ZeroBaseline);
            }
            Ok(Sample::ShareRatio { judged, base })
        }
        Metric::FailureLatency { quantile } => latency_ratio(failed(edge, scene.judged), failed(edge, scene.baseline), quantile, scene)
            .ok_or_else(|| unfailed(edge, scene.judged, scene.phase))?,
    }
}

/// Times to the answer.
fn answered(edge: usize, windows: &[&Window]) -> Times {
    Times::to_answer(of_edge(edge, windows).map(|(_, counts)| counts)).weighing(weight(edge, windows))
}

/// Times to the failure.
fn failed(edge: usize, windows: &[&Window]) -> Times {
    Times::to_failure(of_edge(edge, windows).map(|(_, counts)| counts)).weighing(weight(edge, windows))
}

/// The quantile over the baseline's; `None` if there is nothing to judge.
fn latency_ratio(judged: Times, base: Times, quantile: f64, scene: Scene<'_>) -> Option<Result<Sample, Gap>> {
    if judged.is_empty() {
        return None;
    }
    if none_kept(scene.edge, scene.baseline) {
        return Some(Err(Gap::NoneKept("baseline")));
    }
    if base.longest_seen().is_none_or(|longest| longest == 0) {
        return Some(Err(Gap::ZeroBaseline));
    }
    Some(Ok(Sample::LatencyRatio { judged, base, quantile }))
}

/// Why there is no answer to speak of.
fn unanswered(edge: usize, windows: &[&Window], phase: &'static str) -> Gap {
    match attempts(edge, windows) {
        0 => unseen(edge, windows, phase),
        of => Gap::NoneAnswered { of, phase },
    }
}

/// Why there is no failure to speak of.
fn unfailed(edge: usize, windows: &[&Window], phase: &'static str) -> Gap {
    if none_kept(edge, windows) { Gap::NoneKept(phase) } else { Gap::NoFailure(phase) }
}

/// Attempts are taken as Poisson given the ingress, which errs on the side of a wider interval.
fn attempts_per_ingress(scene: Scene<'_>) -> Result<Sample, Gap> {
    if ingress_edges(scene.edges).next().is_none() {
        return Err(Gap::NoIngress);
    }
    let ingress = ingress_requests(scene.edges, scene.judged);
    if ingress == 0 {
        return Err(Gap::NoIngressTraffic(scene.phase));
    }
    let tally = Tally { count: requests(scene.edge, scene.judged) as f64, exposure: ingress as f64 };
    Ok(Sample::Rate { tally, phi: burstiness(scene) })
}

/// A number of what was seen, with nothing to estimate.
const fn exact(value: f64) -> Sample {
    Sample::Exact { value, lo: value, hi: value }
}

/// A number of what was seen. Where events of a share of the requests were kept, there may be any number of others.
fn at_least(scene: Scene<'_>, value: f64) -> Sample {
    let hi = if is_of_a_share(scene.edge, scene.judged) { f64::INFINITY } else { value };
    Sample::Exact { value, lo: value, hi }
}

/// The least share of the edge's requests of which events were kept in a window.
fn kept(edge: usize, windows: &[&Window]) -> f64 {
    windows.iter().map(|window| window.sampling_of(edge)).fold(1.0, f64::min)
}

/// Whether events of only a share of the edge's requests were kept.
pub(crate) fn is_of_a_share(edge: usize, windows: &[&Window]) -> bool {
    kept(edge, windows) < 1.0
}

/// How much an attempt counts for in an interval. What was kept are identities, with all their attempts, which fare alike, and nothing is known of those left
/// out: of a share of the attempts, each counts for that share of one, so that the variance is that of so much less data.
fn weight(edge: usize, windows: &[&Window]) -> f64 {
    let (seen, all) = (attempts(edge, windows), requests(edge, windows));
    if seen > 0 && seen < all && is_of_a_share(edge, windows) { seen as f64 / all as f64 } else { 1.0 }
}

/// Why nothing was seen of an edge's requests.
fn unseen(edge: usize, windows: &[&Window], phase: &'static str) -> Gap {
    if none_kept(edge, windows) { Gap::NoneKept(phase) } else { Gap::NoTraffic(phase) }
}

/// There were requests, and by design nothing is known of any.
pub(crate) fn none_kept(edge: usize, windows: &[&Window]) -> bool {
    requests(edge, windows) > 0 && attempts(edge, windows) == 0 && is_of_a_share(edge, windows)
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
    Tally { count: requests(edge, windows) as f64, exposure: seconds(windows) }
}

fn seconds(windows: &[&Window]) -> f64 {
    windows.iter().map(|window| window.seconds()).sum()
}

/// Answers without failure over seconds. Outcomes come from events: where those are sampled, so are the seconds.
fn good_tally(edge: usize, windows: &[&Window], phase: &'static str) -> Result<Tally, Gap> {
    if none_kept(edge, windows) {
        return Err(Gap::NoneKept(phase));
    }
    let good = success_share(edge, windows).map_or(0.0, |share| share.hits);
    // The count is of thinned attempts, see `weight`.
    let (seen, all) = (attempts(edge, windows) as f64 * weight(edge, windows), requests(edge, windows) as f64);
    let kept = if all > 0.0 && seen > 0.0 { (seen / all).min(1.0) } else { 1.0 };
    Ok(Tally { count: good, exposure: seconds(windows) * kept })
}

/// What the baseline's scatter divides counts by.
pub(crate) fn burstiness(scene: Scene<'_>) -> f64 {
    let tallies: Vec<Tally> = of_edge(scene.edge, scene.baseline)
        .map(|(window, counts)| Tally { count: counts.counts.requests as f64, exposure: window.seconds() })
        .collect();
    dispersion::divisor(&tallies)
}

/// Times to the answer in nanoseconds, ascending.
pub(crate) fn answer_times(edge: usize, windows: &[&Window]) -> Vec<u64> {
    let mut times: Vec<u64> = of_edge(edge, windows).flat_map(|(_, counts)| counts.latency_ns.iter().copied()).collect();
    times.sort_unstable();
    times
}
