//! `metric recovers [to value] within N windows|duration`: how soon after the fault's removal the metric is back.
//!
//! The metric has recovered in the first window after the removal that is within the level together with the one after
//! it (a hold of two windows, so that one lucky window is not called a recovery). Whether it has not is held to a higher
//! bar: some window of each such pair must be *shown* to be outside, at [`ALPHA`]; otherwise the traffic was too little
//! to tell. Windows with too few attempts are neither within nor outside.

use crate::expectation::{Metric, Op, Within};
use crate::judge::limit::{Limit, compare};
use crate::judge::measure::{self, Gap, Scene};
use crate::judge::wording::{counted, quantity, unit};
use crate::judge::{ALPHA, FEWEST_ATTEMPTS, Verdict};
use crate::stats::Interval;
use crate::window::Window;

/// Consecutive windows that must be within the level.
const HOLD: usize = 2;

/// Points above the baseline's ratio that still count as recovered.
const RATIO_MARGIN: f64 = 0.02;

/// Part of the baseline's goodput that counts as recovered.
const GOODPUT_MARGIN: f64 = 0.95;

/// Factor over the baseline that still counts as recovered, for what is not a ratio.
const FACTOR_MARGIN: f64 = 1.1;

/// What the recovery came to. The interval and the limit are in windows, or in seconds if the time was given so.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recovery {
    pub(crate) verdict: Verdict,
    pub(crate) observed: Option<f64>,
    pub(crate) interval: Option<Interval>,
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
    pub(crate) reason: Option<String>,
}

/// How one window after the fault stands to the level.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Standing {
    /// The value is within the level.
    within: bool,
    /// It is shown to be outside.
    outside: bool,
    value: Option<f64>,
}

/// Judges the scene's windows, which are those of the recovery phase; `fault` has those of the fault phase.
pub(crate) fn judge(metric: Metric, to: Option<f64>, within: Within, scene: Scene<'_>, fault: &[&Window]) -> Recovery {
    let (allowed, unit) = match within {
        Within::Windows(windows) => (f64::from(windows), unit::WINDOWS),
        Within::Time(time) => (time.as_secs_f64(), unit::SECONDS),
    };
    let undecided = |reason: String| Recovery {
        verdict: Verdict::Inconclusive,
        observed: None,
        interval: None,
        limit: allowed,
        unit,
        reason: Some(reason),
    };
    if scene.judged.is_empty() {
        return undecided(Gap::NoWindow(scene.phase).to_string());
    }
    if let Some(gap) = measure::silence(metric, scene) {
        return undecided(gap.to_string());
    }
    let level = match to.map_or_else(|| default_level(metric, scene), Ok) {
        Ok(level) => level,
        Err(gap) => {
            return undecided(format!("{gap}, so say what level counts as recovered: `recovers to …`"));
        }
    };
    let limit = Limit { metric, op: if metric.is_good() { Op::AtLeast } else { Op::AtMost }, value: level, increase: false };
    let standings: Vec<Standing> = scene.judged.iter().map(|window| standing(limit, scene, window)).collect();
    let allowed_windows = windows_allowed(within, scene.judged);
    let last_allowed = allowed_windows.whole + usize::from(allowed_windows.cuts_window);
    let first_within = first_held(&standings, |standing| standing.within);
    // What is not shown to be outside may have recovered.
    let first_possible = first_held(&standings, |standing| !standing.outside);
    let measured = |window: Option<usize>| window.map(|index| elapsed(within, scene.judged, index));
    let recovery = |verdict, reason: Option<String>| Recovery {
        verdict,
        observed: measured(first_within),
        interval: measured(first_within).map(|hi| Interval { lo: measured(first_possible).unwrap_or(hi).min(hi), hi }),
        limit: allowed,
        unit,
        reason,
    };
    let name = metric;
    let spelled = quantity(level, limit.unit());
    match first_within {
        Some(window) if window < allowed_windows.whole => recovery(Verdict::Pass, never_left(limit, scene, fault)),
        Some(window) if window == allowed_windows.whole && allowed_windows.cuts_window => undecided(format!(
            "the {name} was back at {spelled} between {} and {} after the fault: shorter windows would tell",
            quantity(elapsed(within, scene.judged, window) - scene.judged[window].seconds(), unit),
            quantity(elapsed(within, scene.judged, window), unit),
        )),
        _ if standings.iter().all(|standing| standing.value.is_none()) => {
            undecided(format!("no window after the fault had {FEWEST_ATTEMPTS} attempts: longer windows or more traffic would tell"))
        }
        _ if standings.len() < last_allowed => recovery(
            Verdict::Inconclusive,
            Some(format!(
                "the recovery phase had only {}, of {last_allowed} allowed, and the {name} was not back at {spelled}",
                counted(standings.len() as u64, "window"),
            )),
        ),
        _ if first_possible.is_some_and(|window| window < last_allowed) => recovery(
            Verdict::Inconclusive,
            Some(format!(
                "the {name} was not seen within {spelled} in time, but the windows had too little traffic to show that \
                 it was outside: {}",
                trace(&standings, limit)
            )),
        ),
        Some(window) => recovery(
            Verdict::Fail,
            Some(format!(
                "the {name} was back at {spelled} only after {} ({} allowed): {}",
                quantity(elapsed(within, scene.judged, window), unit),
                quantity(allowed, unit),
                trace(&standings, limit)
            )),
        ),
        None => recovery(
            Verdict::Fail,
            Some(format!(
                "the {name} was not back at {spelled} in {}: {}",
                counted(standings.len() as u64, "window"),
                trace(&standings, limit)
            )),
        ),
    }
}

/// The baseline's value and a margin.
fn default_level(metric: Metric, scene: Scene<'_>) -> Result<f64, Gap> {
    if matches!(metric, Metric::Amplification) {
        // Relative to the baseline already.
        return Ok(FACTOR_MARGIN);
    }
    let baseline = Scene { judged: scene.baseline, phase: "baseline", ..scene };
    let value = measure::absolute(metric, baseline)?.value();
    // Nothing comes back to nothing; a share of zero is a share.
    if value <= 0.0 && !matches!(metric, Metric::RetryRatio { .. } | Metric::SuccessRatio) {
        return Err(Gap::NothingBefore);
    }
    if metric == Metric::SuccessRatio && value <= RATIO_MARGIN {
        return Err(Gap::NothingBefore);
    }
    Ok(match metric {
        Metric::RetryRatio { .. } => value + RATIO_MARGIN,
        Metric::SuccessRatio => value - RATIO_MARGIN,
        Metric::Goodput => value * GOODPUT_MARGIN,
        _ => value * FACTOR_MARGIN,
    })
}

/// Says so if there was nothing to recover from.
fn never_left(limit: Limit, scene: Scene<'_>, fault: &[&Window]) -> Option<String> {
    let during = Scene { judged: fault, phase: "fault", ..scene };
    let sample = limit.sample(during).ok()?;
    let value = sample.value();
    sample.is_within(limit.op, limit.value).then(|| {
        format!(
            "it was within {} in the fault phase too ({}), so there was nothing to recover from",
            quantity(limit.value, limit.unit()),
            quantity(value, limit.unit())
        )
    })
}

fn standing(limit: Limit, scene: Scene<'_>, window: &Window) -> Standing {
    let too_few = Standing { within: false, outside: false, value: None };
    let is_rate = matches!(limit.metric, Metric::DownstreamQps | Metric::IngressQps | Metric::Goodput);
    if !is_rate && measure::attempts(scene.edge, &[window]) < FEWEST_ATTEMPTS {
        return too_few;
    }
    let judged = [window];
    match limit.sample(Scene { judged: &judged, ..scene }) {
        Ok(sample) => {
            let value = sample.value();
            Standing {
                within: sample.is_within(limit.op, limit.value),
                outside: limit.holds(&sample, ALPHA, 1.0) == Some(false) && !compare(limit.op, value, limit.value),
                value: Some(value),
            }
        }
        // No failure cannot be too slow a failure.
        Err(Gap::NoFailure(_)) => Standing { within: true, outside: false, value: Some(0.0) },
        Err(_) => too_few,
    }
}

/// Index of the first window from which on [`HOLD`] windows (fewer at the phase's end) are `good`.
fn first_held(standings: &[Standing], good: impl Fn(&Standing) -> bool) -> Option<usize> {
    (0..standings.len()).find(|&start| standings.iter().skip(start).take(HOLD).all(&good))
}

/// The windows that end in the time allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Allowed {
    whole: usize,
    /// The time ends within the window after them.
    cuts_window: bool,
}

fn windows_allowed(within: Within, windows: &[&Window]) -> Allowed {
    match within {
        Within::Windows(count) => Allowed { whole: usize::try_from(count).unwrap_or(usize::MAX), cuts_window: false },
        Within::Time(time) => {
            let window = windows.iter().map(|window| window.end_ns.saturating_sub(window.start_ns)).max().unwrap_or(1).max(1);
            // A boundary that comes a little late does not cost a window.
            let slack = u128::from(window / 20);
            let time = time.as_nanos() + slack;
            Allowed {
                whole: usize::try_from(time / u128::from(window)).unwrap_or(usize::MAX),
                cuts_window: time % u128::from(window) > 2 * slack,
            }
        }
    }
}

/// What had passed since the removal by the end of window `index`, in windows or in seconds.
fn elapsed(within: Within, windows: &[&Window], index: usize) -> f64 {
    match within {
        Within::Windows(_) => (index + 1) as f64,
        Within::Time(_) => {
            let start = windows.first().map_or(0, |window| window.start_ns);
            let end = windows.get(index).map_or(start, |window| window.end_ns);
            end.saturating_sub(start) as f64 / 1e9
        }
    }
}

/// The values window by window, the last eight at most.
fn trace(standings: &[Standing], limit: Limit) -> String {
    let values: Vec<String> =
        standings.iter().map(|standing| standing.value.map_or("?".to_owned(), |value| quantity(value, limit.unit()))).collect();
    let skipped = values.len().saturating_sub(8);
    let shown = values.get(skipped..).unwrap_or_default().join(", ");
    if skipped > 0 { format!("…, {shown}") } else { shown }
}
