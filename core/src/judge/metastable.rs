//! `not metastable`: whether the service comes back by itself once the fault is gone, and if not, whether retries keep it down.
//!
//! Four answers, after N. Bronson et al. (HotOS 2021) and L. Huang et al. (OSDI 2022):
//!
//! | state | when | the expectation |
//! |---|---|---|
//! | recovered | the last two windows are back: success per ingress request, and retries | pass |
//! | slow | not yet, but success is shown to rise (where it is back: attempts per request or times to fall) | pass, with the projected time |
//! | metastable | success at most 0.8 of the baseline's, attempts per request at least 1.1 of it, and no rise | fail |
//! | degraded | success as low, attempts as ever: a leak, an ejection, a cold cache, a breaker stuck open | fail, and says so |
//!
//! Success is taken per ingress request, which takes the noise of the load out; and more load than in the baseline settles nothing.

use crate::edge::Role;
use crate::expectation::RetryBase;
use crate::judge::limit::Outcome;
use crate::judge::measure::{self, Gap, Scene, shares};
use crate::judge::wording::{quantity, unit};
use crate::judge::{ALPHA, FEWEST_ATTEMPTS, Verdict};
use crate::stats::quantile;
use crate::stats::trend::{self, Trend};
use crate::window::Window;

/// Part of the baseline's success at which the service is back.
pub(crate) const BACK: f64 = 0.95;

/// Part of it at which it is down.
const DOWN: f64 = 0.8;

/// Attempts per request, over the baseline's, that are amplification.
const AMPLIFIED: f64 = 1.1;

/// More load than this part of the baseline's is another drill.
const MOST_LOAD: f64 = 1.1;

/// Points of the retry ratio above the baseline's that count as back.
const RATIO_MARGIN: f64 = 0.02;

/// Windows from which a trend can be told, and no fewer.
const FEWEST_WINDOWS: usize = 6;

/// A recovery that would take more than so many times the time that was watched is none.
const MOST_PROJECTED: f64 = 10.0;

/// Part of the requests that may be without an outcome.
const MOST_OPEN: f64 = 0.05;

/// Windows that must be back.
const HOLD: usize = 2;

/// What a group of windows shows.
struct Shown {
    /// Success per ingress request over the baseline's.
    success: f64,
    /// Attempts per ingress request over the baseline's.
    amplification: f64,
    /// Retries among the attempts of all downstream edges, less the baseline's.
    more_retries: f64,
    /// Part of the ingress requests that had no outcome yet.
    open: f64,
}

/// Judges the scene's windows, which are those after the fault. The observed value is the success that remains at their end.
pub(crate) fn judge(scene: Scene<'_>) -> Outcome {
    let open = |reason: String| Outcome { verdict: Verdict::Inconclusive, observed: None, interval: None, reason: Some(reason) };
    if let Some(gap) = gap(scene) {
        return open(gap.to_string());
    }
    let load = |windows: &[&Window]| ingress(scene, windows, measure::requests) as f64 / windows.iter().map(|w| w.seconds()).sum::<f64>();
    let windows = scene.judged;
    let tail = &windows[windows.len() - (windows.len() / 3).max(FEWEST_WINDOWS).min(windows.len())..];
    let Some(shown) = show(scene, tail) else {
        return open(format!("fewer than {FEWEST_ATTEMPTS} requests came in after the fault, or none had an outcome"));
    };
    let outcome = |verdict, reason| Outcome { verdict, observed: Some(shown.success), interval: None, reason };
    let percent = |value: f64| quantity(value, unit::RATIO);
    let last = windows.len().saturating_sub(HOLD);
    if windows.len() >= HOLD && windows[last..].iter().all(|window| show(scene, &[window]).is_some_and(|shown| shown.is_back())) {
        return outcome(Verdict::Pass, None);
    }
    let more = load(windows) / load(scene.baseline);
    if more > MOST_LOAD {
        return outcome(
            Verdict::Inconclusive,
            Some(format!("{} of the baseline's load came in after the fault, so that it proves nothing", percent(more))),
        );
    }
    if tail.len() < FEWEST_WINDOWS {
        let reason =
            format!("it had not recovered after {} windows, too few for a trend: at least {FEWEST_WINDOWS} would tell", windows.len());
        return outcome(Verdict::Inconclusive, Some(reason));
    }
    if shown.is_back() && windows[last..].iter().any(|window| show(scene, &[window]).is_none()) {
        let reason = format!(
            "success is {} of the baseline's at the end, but the last {HOLD} windows had fewer than {FEWEST_ATTEMPTS} requests each or none with \
             an outcome: longer windows or more traffic would show that it is back",
            percent(shown.success)
        );
        return outcome(Verdict::Inconclusive, Some(reason));
    }
    if shown.open > MOST_OPEN {
        return outcome(Verdict::Inconclusive, Some(format!("{} of the requests after the fault had no outcome", percent(shown.open))));
    }
    let watched: f64 = windows.iter().map(|window| window.seconds()).sum();
    let most = watched * MOST_PROJECTED;
    let projected = recovering(scene, tail, shown.success >= BACK);
    if let Some((what, seconds)) = projected
        && seconds <= most
    {
        let reason = format!("it recovers slowly: {what}, and at this pace is back in {}", quantity(seconds, unit::SECONDS));
        return outcome(Verdict::Pass, Some(reason));
    }
    if shown.success > DOWN {
        let is = if shown.success < BACK { "neither back nor down" } else { "back, and the retries are not" };
        let trend = projected.map_or_else(
            || "no trend is shown".to_owned(),
            |(what, _)| format!("{what}, but so slowly that it would take more than {}", quantity(most, unit::SECONDS)),
        );
        let reason = format!("success is {} of the baseline's: {is}, and {trend}", percent(shown.success));
        return outcome(Verdict::Inconclusive, Some(reason));
    }
    let reason = if shown.amplification >= AMPLIFIED {
        format!(
            "metastable: the fault is gone, yet success stays at {} of the baseline's and attempts per request at {}, and does \
             not rise: retries keep it down",
            percent(shown.success),
            quantity(shown.amplification, unit::TIMES)
        )
    } else {
        format!(
            "not metastable, but degraded: success stays at {} of the baseline's although attempts per request are as before ({}): \
             look for a leak, an ejection, a cold cache or a breaker that is stuck open",
            percent(shown.success),
            quantity(shown.amplification, unit::TIMES)
        )
    };
    outcome(Verdict::Fail, Some(reason))
}

impl Shown {
    /// What has no outcome yet is not back.
    fn is_back(&self) -> bool {
        self.success * (1.0 - self.open) >= BACK && self.more_retries <= RATIO_MARGIN
    }
}

/// What is missing for any answer.
fn gap(scene: Scene<'_>) -> Option<Gap> {
    if measure::ingress_edges(scene.edges).next().is_none() {
        return Some(Gap::NoIngress);
    }
    for (windows, phase) in [(scene.baseline, "baseline"), (scene.judged, scene.phase)] {
        if windows.is_empty() {
            return Some(Gap::NoWindow(phase));
        }
        if ingress(scene, windows, measure::requests) == 0 {
            return Some(Gap::NoIngressTraffic(phase));
        }
    }
    (success(scene, scene.baseline).unwrap_or(0.0) <= 0.0).then_some(Gap::ZeroBaseline)
}

fn ingress(scene: Scene<'_>, windows: &[&Window], count: impl Fn(usize, &[&Window]) -> u64) -> u64 {
    measure::ingress_edges(scene.edges).map(|edge| count(edge, windows)).sum()
}

fn downstream_edges(scene: Scene<'_>) -> impl Iterator<Item = usize> {
    (0..scene.edges.len()).filter(move |&edge| scene.edges[edge].role == Role::Downstream)
}

/// Good answers per ingress request that has an outcome.
fn success(scene: Scene<'_>, windows: &[&Window]) -> Option<f64> {
    let parts = measure::ingress_edges(scene.edges).filter_map(|edge| shares::success_share(edge, windows));
    let (good, of) = parts.fold((0.0, 0.0), |(good, of), share| (good + share.hits, of + share.of - share.unknown));
    (of > 0.0).then(|| good / of)
}

/// Part of the ingress requests that has no outcome yet.
fn without_outcome(scene: Scene<'_>, windows: &[&Window]) -> f64 {
    let parts = measure::ingress_edges(scene.edges).filter_map(|edge| shares::success_share(edge, windows));
    let (open, of) = parts.fold((0.0, 0.0), |(open, of), share| (open + share.unknown, of + share.of));
    if of > 0.0 { open / of } else { 0.0 }
}

/// Attempts per ingress request.
fn attempts(scene: Scene<'_>, windows: &[&Window]) -> Option<f64> {
    let came = ingress(scene, windows, measure::requests);
    let sent: u64 = downstream_edges(scene).map(|edge| measure::requests(edge, windows)).sum();
    (came > 0).then(|| sent as f64 / came as f64)
}

fn retries(scene: Scene<'_>, windows: &[&Window]) -> f64 {
    let parts = downstream_edges(scene).filter_map(|edge| shares::retry_share(edge, windows, RetryBase::All));
    let (hits, of) = parts.fold((0.0, 0.0), |(hits, of), share| (hits + share.hits, of + share.of));
    if of > 0.0 { hits / of } else { 0.0 }
}

fn show(scene: Scene<'_>, windows: &[&Window]) -> Option<Shown> {
    if ingress(scene, windows, measure::attempts) < FEWEST_ATTEMPTS {
        return None;
    }
    let before = attempts(scene, scene.baseline).filter(|before| *before > 0.0);
    Some(Shown {
        success: success(scene, windows)? / success(scene, scene.baseline)?,
        amplification: before.map_or(1.0, |before| attempts(scene, windows).unwrap_or(0.0) / before),
        more_retries: retries(scene, windows) - retries(scene, scene.baseline),
        open: without_outcome(scene, windows),
    })
}

/// What gets better, and after how many seconds it will be back at the baseline's level.
///
/// Errors that come quicker are no recovery: unless success is back, it must rise itself.
fn recovering(scene: Scene<'_>, tail: &[&Window], is_back: bool) -> Option<(&'static str, f64)> {
    let end = tail.last().map_or(0, |window| window.end_ns);
    let since = |window: &Window| (f64::midpoint(window.start_ns as f64, window.end_ns as f64) - end as f64) / 1e9;
    let series = |value: &dyn Fn(&[&Window]) -> Option<f64>| -> Vec<(f64, f64)> {
        tail.iter().filter_map(|window| Some((since(window), value(&[window])?))).collect()
    };
    // Success is turned over, so that all three are to fall.
    let missing = |windows: &[&Window]| success(scene, windows).map(|success| -success);
    let usual = attempts(scene, scene.baseline).unwrap_or(1.0);
    let time = |windows: &[&Window]| median_time(scene, windows);
    let back = success(scene, scene.baseline).unwrap_or(0.0) * BACK;
    let left = |points: Vec<(f64, f64)>, target: f64| {
        let trend: Trend = trend::theil_sen(&points, ALPHA).filter(|trend| trend.interval.hi < 0.0)?;
        Some(((trend.at(0.0) - target) / -trend.slope).max(0.0))
    };
    let rises = if is_back { None } else { Some(("success rises", left(series(&missing), -back)?)) };
    let falls = [
        ("the number of attempts per request falls", series(&|windows| attempts(scene, windows)), usual * AMPLIFIED),
        ("the time to the answer falls", series(&time), time(scene.baseline).unwrap_or(0.0) * AMPLIFIED),
    ];
    // The last to be back is what recovery waits for.
    let falls = falls.into_iter().filter_map(|(what, points, target)| Some((what, left(points, target)?)).filter(|(_, left)| *left > 0.0));
    rises.into_iter().chain(falls).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// Median time to the answer on the downstream edges, seconds: a queue before them shows there.
fn median_time(scene: Scene<'_>, windows: &[&Window]) -> Option<f64> {
    let mut times: Vec<u64> = downstream_edges(scene).flat_map(|edge| measure::answer_times(edge, windows)).collect();
    times.sort_unstable();
    let rank = quantile::rank(times.len(), 0.5).checked_sub(1)?;
    times.get(rank).map(|ns| *ns as f64 / 1e9)
}
