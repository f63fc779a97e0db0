//! `in every window`: each window on its own, without crying wolf because there are many.
//!
//! A window is called broken by Holm's step-down procedure over the windows (S. Holm, Scandinavian Journal of Statistics
//! 6 (1979)), so that the chance of a single false call stays bounded however many windows there are. That some window is broken, without
//! saying which, is shown by all of them together as well where they have a mean (`together`). Each of the two ways to fail then has half of
//! [`ALPHA`], so that the chance that either errs is no more than all of it (Bonferroni). All windows are good only if each is shown to be so at [`ALPHA`]: an
//! intersection-union test (R. L. Berger, Technometrics 24 (1982)), which needs no correction.

use std::fmt;

use crate::expectation::Metric;
use crate::judge::health::Basis;
use crate::judge::limit::{Limit, Outcome};
use crate::judge::measure::{Gap, Scene};
use crate::judge::sample::Sample;
use crate::judge::wording::{apart, quantity};
use crate::judge::{ALPHA, FEWEST_ATTEMPTS, Verdict, doubt, measure};
use crate::stats::Tails;
use crate::window::Window;

/// Judges each of the scene's windows; the outcome's numbers are those of the worst.
pub(crate) fn judge(limit: Limit, scene: Scene<'_>) -> Outcome {
    if scene.judged.is_empty() {
        return limit.judge_gap(Gap::NoWindow(scene.phase));
    }
    if let Some(gap) = measure::silence(limit.metric, scene) {
        return limit.judge_gap(gap);
    }
    let mut samples: Vec<(Span, Sample)> = Vec::new();
    let mut gap: Option<(Weight, Gap)> = None;
    let groups = groups(limit.metric, scene);
    let joined = groups.len() < scene.judged.len();
    let (noun, nouns) = if joined { ("group of windows", "groups of windows") } else { ("window", "windows") };
    for group in groups {
        match limit.sample(Scene { judged: group, ..scene }) {
            Ok(sample) => samples.extend(Span::of(group).map(|span| (span, sample))),
            Err(found) => {
                let weight = weight(limit, found);
                if gap.is_none_or(|(heaviest, _)| weight > heaviest) {
                    gap = Some((weight, found));
                }
            }
        }
    }
    let Some((span, worst)) = worst(limit, &samples) else {
        return limit.judge_gap(gap.map_or(Gap::NoTraffic(scene.phase), |(_, gap)| gap));
    };
    let by_all = samples.len() > 1 && is_mean(worst);
    let alpha = if by_all { ALPHA / 2.0 } else { ALPHA };
    let level = alpha / samples.len() as f64;
    let observed = limit.observed(worst);
    let tails = Tails::each(level);
    let outcome = |verdict, reason| Outcome { verdict, observed: Some(observed), interval: limit.shown(worst, tails), reason };
    let broken = broken(limit, &samples, alpha);
    if broken > 0 {
        let (worst, value) = apart(observed, limit.value, limit.unit());
        let reason = format!("{broken} of {} {nouns} break the limit of {value}; the worst is {span} with {worst}", samples.len());
        return outcome(Verdict::Fail, Some(reason));
    }
    if let Some((Weight::Broken, broken)) = gap {
        return outcome(Verdict::Fail, Some(format!("in at least one {noun} {broken}")));
    }
    if by_all && let Some(all) = together(limit, scene, alpha) {
        let (value, interval) = (limit.observed(&all), limit.interval(&all, Tails::each(alpha)));
        let (spelled, at) = apart(value, limit.value, limit.unit());
        let reason = format!(
            "all {} {nouns} together come to {spelled} ({}) and break the limit of {at}, so that at least one of them does, though none is shown to \
             by itself; the worst is {span} with {}",
            samples.len(),
            limit.spelled(interval),
            quantity(observed, limit.unit()),
        );
        return Outcome { verdict: Verdict::Fail, observed: Some(value), interval: Some(interval), reason: Some(reason) };
    }
    if let Some((Weight::Open, open)) = gap {
        return outcome(Verdict::Inconclusive, Some(format!("in at least one {noun} {open}")));
    }
    let open = samples.iter().filter(|(_, sample)| limit.holds(sample, ALPHA, 1.0) != Some(true)).count();
    if open > 0 {
        let reason = format!(
            "{open} of {} {nouns} cannot be told from the limit of {}; the worst is {span} with {} ({}): {}",
            samples.len(),
            quantity(limit.value, limit.unit()),
            quantity(observed, limit.unit()),
            limit.spelled(limit.interval(worst, tails)),
            limit.endless(worst).unwrap_or_else(|| "longer windows or more traffic would tell".to_owned()),
        );
        return outcome(Verdict::Inconclusive, Some(reason));
    }
    // Each was shown to be good at this level, and so lies on the good side with its interval.
    let within = |verdict, reason| Outcome { interval: limit.shown(worst, Tails::each(ALPHA)), ..outcome(verdict, reason) };
    let unseen = unseen(limit.metric, scene);
    if unseen > 0 {
        let reason = format!(
            "the windows that were seen are within the limit, but of {unseen} of {} no event of this edge was kept at this rate",
            scene.judged.len()
        );
        return within(Verdict::Inconclusive, Some(reason));
    }
    within(Verdict::Pass, None)
}

/// A window, or neighbours that were joined, by the epochs of the first and the last.
#[derive(Debug, Clone, Copy)]
struct Span {
    first: u32,
    last: u32,
}

impl Span {
    fn of(group: &[&Window]) -> Option<Self> {
        Some(Self { first: group.first()?.epoch, last: group.last()?.epoch })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { write!(f, "window {first}") } else { write!(f, "windows {first}-{last}") }
    }
}

/// Windows with requests of which events would have told, and did not.
fn unseen(metric: Metric, scene: Scene<'_>) -> usize {
    match doubt::basis(metric) {
        Basis::Counts => 0,
        Basis::Events => scene.judged.iter().filter(|window| measure::none_kept(scene.edge, &[window])).count(),
    }
}

/// What a window without a number says of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    /// Nothing: it had no request, no failure or no retry, and so nothing that could break a limit.
    Nothing,
    /// It had some, and cannot be judged: it is not good for that.
    Open,
    /// It breaks the limit.
    Broken,
}

fn weight(limit: Limit, gap: Gap) -> Weight {
    match limit.judge_gap(gap).verdict {
        Verdict::Fail => Weight::Broken,
        _ if matches!(gap, Gap::NoTraffic(_) | Gap::NoFailure(_) | Gap::NoRetry(_) | Gap::NoDeadline(_)) => Weight::Nothing,
        _ => Weight::Open,
    }
}

/// The windows, neighbours joined until a ratio has enough attempts to mean something, and what is said of retries enough of those. A rate needs
/// none: it is about how many there are.
fn groups<'a>(metric: Metric, scene: Scene<'a>) -> Vec<&'a [&'a Window]> {
    let count = match metric {
        Metric::BackoffJitter => measure::pauses,
        Metric::RetryPeakToMean => measure::retries_in_bursts,
        _ => measure::attempts,
    };
    let fewest = match metric {
        Metric::BackoffJitter | Metric::RetryPeakToMean => measure::FEWEST_RETRIES,
        Metric::Amplification
        | Metric::DownstreamPerIngress
        | Metric::RetryRatio { .. }
        | Metric::SuccessRatio
        | Metric::CostPerSuccess
        | Metric::LayersRetrying
        | Metric::RetransmitRatio => FEWEST_ATTEMPTS,
        _ => 0,
    };
    let windows = scene.judged;
    let mut starts = vec![];
    let mut start = 0;
    for end in 1..=windows.len() {
        if count(scene.edge, &windows[start..end]) >= fewest {
            starts.push(start);
            start = end;
        }
    }
    if starts.is_empty() {
        return vec![windows];
    }
    // What is left at the end joins the last group.
    let ends = starts.iter().copied().skip(1).chain([windows.len()]);
    starts.iter().zip(ends).map(|(&start, end)| &windows[start..end]).collect()
}

fn worst(limit: Limit, samples: &[(Span, Sample)]) -> Option<(Span, &Sample)> {
    samples
        .iter()
        .map(|(span, sample)| (*span, sample))
        .max_by(|a, b| limit.excess(limit.observed(a.1)).total_cmp(&limit.excess(limit.observed(b.1))))
}

/// All windows as one, if that is shown to break the limit: then one of them must.
///
/// What is measured of all windows lies between the least and the most of them. A share, a rate and a cost for each success are weighted means of
/// the windows' own (by attempts, seconds, ingress requests or successes), whatever is divided by the same baseline remains one, and a quantile is
/// above a limit if and only if the share of times above it is large enough, which is such a mean again. So if each window were good, all together
/// would be: given how much each has, the count is a sum of binomial or Poisson ones whose means are within the limit, and lies beyond it
/// no more often than the one whose windows all are on it. That is what the test of a whole phase allows for, with what had no outcome counted in the
/// limit's favour, so it errs here no more often than there.
///
/// It does not hold of what is no mean ([`is_mean`]): the most of something, how many layers retry (two, each in a window of its own), how times
/// are spread, a peak.
fn together(limit: Limit, scene: Scene<'_>, alpha: f64) -> Option<Sample> {
    let sample = limit.sample(scene).ok()?;
    (limit.holds(&sample, alpha, 1.0) == Some(false)).then_some(sample)
}

/// Whether what is measured of all windows is such a mean of theirs.
const fn is_mean(sample: &Sample) -> bool {
    match sample {
        Sample::Rate { .. }
        | Sample::RateRatio { .. }
        | Sample::Share(_)
        | Sample::ShareRatio { .. }
        | Sample::Cost(_)
        | Sample::Amplification { .. }
        | Sample::Latency { .. }
        | Sample::LatencyRatio { .. } => true,
        Sample::Exact { .. } | Sample::Layers(_) | Sample::Peak { .. } | Sample::Variation(_) => false,
    }
}

/// How many windows Holm's procedure calls broken.
fn broken(limit: Limit, samples: &[(Span, Sample)], alpha: f64) -> usize {
    let mut rejected = 0;
    while rejected < samples.len() {
        let level = alpha / (samples.len() - rejected) as f64;
        let failing = samples.iter().filter(|(_, sample)| limit.holds(sample, level, 1.0) == Some(false)).count();
        if failing <= rejected {
            break;
        }
        rejected += 1;
    }
    rejected
}
