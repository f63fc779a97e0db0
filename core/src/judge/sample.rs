//! The data behind one number of a verdict: its estimate, and its interval at any level and for any amount of data.

use crate::expectation::{Op, RetryBase};
use crate::judge::ALPHA;
use crate::judge::limit::compare;
use crate::judge::times::Times;
use crate::stats::amplification::{self, Pair};
use crate::stats::quotient::{self, Estimate};
use crate::stats::rate_ratio::{self, Tally};
use crate::stats::{Interval, Tails, beta, poisson, proportion, quantile, variation};

/// What was observed, in the form that its exact interval needs. No variant is empty: [`super::measure`] sees to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sample {
    /// Events over seconds; counts are divided by `phi` for over-dispersion.
    Rate { tally: Tally, phi: f64 },
    /// A rate over the baseline's.
    RateRatio { judged: Tally, base: Tally, phi: f64 },
    /// A share of requests.
    Share(Share),
    /// A share over the baseline's.
    ShareRatio { judged: Share, base: Share },
    /// Attempts per ingress request, over the same in the baseline.
    Amplification { judged: Vec<Pair>, baseline: Vec<Pair> },
    /// A quantile of times; in seconds.
    Latency { times: Times, quantile: f64 },
    /// Attempts per success: one over the share of attempts that succeeded.
    Cost(Share),
    /// What was seen, and the ends that it may have: equal where there is nothing to estimate.
    Exact { value: f64, lo: f64, hi: f64 },
    /// Downstream edges, of which those that retry are counted.
    Layers(Vec<Layer>),
    /// The fullest of `bins` equal stretches of time over their mean: `peak` of `of` events.
    Peak { peak: f64, of: f64, bins: f64 },
    /// How times in nanoseconds are spread: their coefficient of variation.
    Variation(Vec<u64>),
    /// A quantile over the baseline's.
    LatencyRatio { judged: Times, base: Times, quantile: f64 },
}

/// Retries over first attempts from which on a layer counts as retrying.
const LEAST_RETRYING: f64 = 0.01;

/// What is known of an edge's retries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Layer {
    /// It has no attempts.
    Silent,
    /// Its calls are too alike to tell.
    Unknown,
    Retries(Share),
}

/// `hits` of `of` requests, of which `unknown` had no outcome.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share {
    pub(crate) hits: f64,
    pub(crate) of: f64,
    pub(crate) unknown: f64,
    /// `First` turns the share of all into hits over the rest.
    pub(crate) base: RetryBase,
}

impl Share {
    /// `hits` of `of`, each with an outcome.
    pub(crate) fn of_all(hits: u64, of: u64) -> Self {
        Self { hits: hits as f64, of: of as f64, unknown: 0.0, base: RetryBase::All }
    }

    /// The same share of so much less data: `by` times as much.
    pub(crate) fn thinned(self, by: f64) -> Self {
        Self { hits: self.hits * by, of: self.of * by, unknown: self.unknown * by, ..self }
    }

    pub(crate) fn estimate(self, tails: Tails, more: f64) -> Estimate {
        let (hits, of, unknown) = (self.hits * more, self.of * more, self.unknown * more);
        // A request without an outcome counts as a miss for the lower end and as a hit for the upper.
        let shares =
            Interval { lo: proportion::interval(hits, of, tails).lo, hi: proportion::interval((hits + unknown).min(of), of, tails).hi };
        Estimate {
            value: self.scaled(hits / (of - unknown)),
            interval: Interval { lo: self.scaled(shares.lo), hi: self.scaled(shares.hi) },
        }
    }

    /// The share if what has no outcome came out as a miss, and if it came out as a hit.
    fn ends(self) -> (f64, f64) {
        (self.scaled(self.hits / self.of), self.scaled((self.hits + self.unknown).min(self.of) / self.of))
    }

    fn scaled(self, share: f64) -> f64 {
        match self.base {
            RetryBase::All => share,
            RetryBase::First if share >= 1.0 => f64::INFINITY,
            RetryBase::First => share / (1.0 - share),
        }
    }

    /// The share of all that a value in this share's denominator is.
    pub(crate) fn unscaled(self, value: f64) -> f64 {
        match self.base {
            RetryBase::All => value,
            RetryBase::First => value / (1.0 + value),
        }
    }
}

impl Sample {
    /// The estimate.
    pub(crate) fn value(&self) -> f64 {
        match self {
            Self::Rate { tally, .. } => tally.rate(),
            Self::RateRatio { judged, base, .. } => judged.rate() / base.rate(),
            Self::Share(share) => share.estimate(Tails::each(0.05), 1.0).value,
            Self::ShareRatio { judged, base } => {
                let at = |share: &Share| share.estimate(Tails::each(0.05), 1.0).value;
                at(judged) / at(base)
            }
            Self::Amplification { judged, baseline } => amplification::normalised(judged, baseline).unwrap_or(f64::NAN),
            Self::Cost(share) => 1.0 / share.estimate(Tails::each(0.05), 1.0).value,
            Self::Exact { value, .. } => *value,
            Self::Layers(layers) => count(layers, Tails::each(ALPHA), 1.0).lo,
            Self::Peak { peak, of, bins } => peak * bins / of,
            Self::Latency { times, quantile } => times.value(*quantile),
            Self::Variation(times) => variation::of(times).unwrap_or(f64::NAN),
            Self::LatencyRatio { judged, base, quantile } => judged.value(*quantile) / base.value(*quantile),
        }
    }

    /// The interval with `tails` at its ends if there were `more` times as much of the same data.
    pub(crate) fn interval(&self, tails: Tails, more: f64) -> Interval {
        match self {
            Self::Rate { tally, phi } => {
                let counts = poisson::interval(tally.count * more / phi, tails);
                let unit = phi / (tally.exposure * more);
                Interval { lo: counts.lo * unit, hi: counts.hi * unit }
            }
            Self::RateRatio { judged, base, phi } => rate_ratio::interval(scaled(*judged, more, *phi), scaled(*base, more, *phi), tails),
            Self::Share(share) => share.estimate(tails, more).interval,
            Self::ShareRatio { judged, base } => quotient::interval(judged.estimate(tails, more), base.estimate(tails, more)),
            Self::Amplification { judged, baseline } => amplification::interval(judged, baseline, tails, more).unwrap_or(UNKNOWN),
            Self::Cost(share) => {
                let turned = Tails { below: tails.above, above: tails.below };
                let shares = share.estimate(turned, more).interval;
                Interval { lo: 1.0 / shares.hi, hi: 1.0 / shares.lo }
            }
            Self::Exact { lo, hi, .. } => Interval { lo: *lo, hi: *hi },
            Self::Layers(layers) => count(layers, tails, more),
            Self::Peak { peak, of, bins } => {
                // Any of the bins may be the fullest by chance; but the one that is so in truth had no more than the peak.
                let counts = poisson::interval(peak * more, Tails { below: tails.below / bins, above: tails.above });
                let mean = of * more / bins;
                // The fullest of them is never below their mean.
                Interval { lo: (counts.lo / mean).max(1.0), hi: (counts.hi / mean).max(1.0) }
            }
            Self::Latency { times, quantile } => seconds(times, *quantile, tails, more).interval,
            Self::Variation(times) => variation::interval(times, tails, more).unwrap_or(UNKNOWN),
            Self::LatencyRatio { judged, base, quantile } => {
                quotient::interval(seconds(judged, *quantile, tails, more), seconds(base, *quantile, tails, more))
            }
        }
    }

    /// Whether it was counted, with nothing to estimate: such a number has no interval.
    pub(crate) fn is_fact(&self) -> bool {
        matches!(self, Self::Exact { lo, hi, .. } if lo.total_cmp(hi).is_eq())
    }

    /// Whether the truth is shown to be at most `limit`, with error probability `alpha`: the interval's `hi` ≤ `limit`.
    ///
    /// The exact tests are asked directly where there is one: that is as good, and much cheaper than inverting them.
    pub(crate) fn is_shown_at_most(&self, limit: f64, alpha: f64, more: f64) -> bool {
        match self {
            Self::Rate { tally, phi } => {
                let mean = limit * tally.exposure * more / phi;
                poisson::at_most(tally.count * more / phi, mean) <= alpha
            }
            Self::RateRatio { judged, base, phi } => {
                rate_ratio::p_below(scaled(*judged, more, *phi), scaled(*base, more, *phi), limit) <= alpha
            }
            Self::Share(share) => {
                let hits = (share.hits + share.unknown).min(share.of);
                let limit = share.unscaled(limit);
                limit >= 1.0 || beta::binomial_at_most(hits * more, share.of * more, limit) <= alpha
            }
            _ => self.interval(Tails::each(alpha), more).hi <= limit,
        }
    }

    /// Whether the truth is shown to be at least `limit`, with error probability `alpha`: the interval's `lo` ≥ `limit`.
    pub(crate) fn is_shown_at_least(&self, limit: f64, alpha: f64, more: f64) -> bool {
        if limit <= 0.0 {
            // No metric is below zero.
            return true;
        }
        match self {
            Self::Rate { tally, phi } => {
                let mean = limit * tally.exposure * more / phi;
                poisson::at_least(tally.count * more / phi, mean) <= alpha
            }
            Self::RateRatio { judged, base, phi } => {
                rate_ratio::p_above(scaled(*judged, more, *phi), scaled(*base, more, *phi), limit) <= alpha
            }
            Self::Share(share) => {
                let limit = share.unscaled(limit);
                limit < 1.0 && beta::binomial_at_least(share.hits * more, share.of * more, limit) <= alpha
            }
            _ => self.interval(Tails::each(alpha), more).lo >= limit,
        }
    }

    /// Whether the value, and what it may be if waits in vain never ended and what has no outcome came out badly, is within the limit.
    pub(crate) fn is_within(&self, op: Op, limit: f64) -> bool {
        let worst = match (self, op) {
            (Self::Latency { times, quantile }, Op::Less | Op::AtMost) => times.high(*quantile),
            (Self::Latency { times, quantile }, Op::Greater | Op::AtLeast) => times.low(*quantile),
            (Self::Share(share), Op::Less | Op::AtMost) => share.ends().1,
            (Self::Share(share), Op::Greater | Op::AtLeast) => share.ends().0,
            (Self::Cost(share), Op::Less | Op::AtMost) => 1.0 / share.ends().0,
            (Self::Cost(share), Op::Greater | Op::AtLeast) => 1.0 / share.ends().1,
            _ => self.value(),
        };
        compare(op, worst, limit)
    }

    /// How many of the judged requests had no outcome.
    pub(crate) const fn unknown(&self) -> f64 {
        match self {
            Self::Share(share) | Self::Cost(share) | Self::ShareRatio { judged: share, .. } => share.unknown,
            _ => 0.0,
        }
    }

    /// How many of its times came to no end, of how many.
    pub(crate) const fn endless(&self) -> Option<(usize, usize)> {
        let (Self::Latency { times, .. } | Self::LatencyRatio { judged: times, .. }) = self else {
            return None;
        };
        if times.endless() > 0 { Some((times.endless(), times.len())) } else { None }
    }

    /// How many requests (for latencies, failed ones) the sample rests on, all phases together.
    pub(crate) fn requests(&self) -> f64 {
        match self {
            Self::Rate { tally, .. } => tally.count,
            Self::RateRatio { judged, base, .. } => judged.count + base.count,
            Self::Share(share) | Self::Cost(share) => share.of,
            Self::Exact { .. } => 0.0,
            Self::Layers(layers) => layers.iter().map(|layer| if let Layer::Retries(share) = layer { share.of } else { 0.0 }).sum(),
            Self::Peak { of, .. } => *of,
            Self::ShareRatio { judged, base } => judged.of + base.of,
            Self::Amplification { judged, baseline } => judged.iter().chain(baseline).map(|pair| pair.ingress).sum(),
            Self::Latency { times, .. } => times.len() as f64,
            Self::Variation(sorted) => sorted.len() as f64,
            Self::LatencyRatio { judged, base, .. } => (judged.len() + base.len()) as f64,
        }
    }

    /// Whether a demand lies at the very end of what is possible, as "success ratio ≥ 100%" does, and "success ratio > 0%".
    ///
    /// No amount of traffic proves such a demand of what was not seen, so it is one on the requests that were.
    pub(crate) fn is_demand_on_each(&self, op: Op, limit: f64) -> bool {
        let (lowest, highest) = self.ends();
        match op {
            Op::AtMost => limit <= lowest,
            Op::AtLeast => limit >= highest,
            Op::Less | Op::Greater => limit <= lowest || limit >= highest,
        }
    }

    /// Whether what was seen holds such a demand, or breaks it; `None` if what has no outcome decides.
    pub(crate) fn is_held_by_each(&self, op: Op, limit: f64) -> Option<bool> {
        let unknown = self.unknown();
        // That there is one at all is not undone by what has no outcome; that there is none may be.
        let is_of_any = match op {
            Op::Greater => limit <= self.ends().0,
            Op::Less => limit >= self.ends().1,
            Op::AtMost | Op::AtLeast => false,
        };
        match self {
            Self::Share(share) if is_of_any => {
                let of_it = if op == Op::Greater { share.hits } else { share.of - share.hits - unknown };
                if of_it > 0.0 { Some(true) } else { (unknown <= 0.0).then_some(false) }
            }
            _ => {
                let holds = compare(op, self.value(), limit);
                (!holds || unknown <= 0.0).then_some(holds)
            }
        }
    }

    /// The lowest value that there can be, and the highest.
    fn ends(&self) -> (f64, f64) {
        let highest = match self {
            Self::Share(share) if share.base == RetryBase::All => 1.0,
            _ => f64::INFINITY,
        };
        // Each success costs one attempt at least.
        (if matches!(self, Self::Cost(_)) { 1.0 } else { 0.0 }, highest)
    }
}

/// `more` times the tally, its count divided by the dispersion.
fn scaled(tally: Tally, more: f64, phi: f64) -> Tally {
    Tally { count: tally.count * more / phi, exposure: tally.exposure * more }
}

/// The edges that are shown to retry; at most, those that are not shown to keep from it. Each is tested at its part of the error probability, so
/// that the count as a whole keeps to it.
fn count(layers: &[Layer], tails: Tails, more: f64) -> Interval {
    let each = layers.len().max(1) as f64;
    let part = Tails { below: tails.below / each, above: tails.above / each };
    layers.iter().fold(Interval { lo: 0.0, hi: 0.0 }, |sum, layer| {
        let (shown, possible) = match layer {
            Layer::Silent => (false, false),
            Layer::Unknown => (false, true),
            Layer::Retries(share) => {
                let interval = share.estimate(part, more).interval;
                (interval.lo > LEAST_RETRYING, interval.hi > LEAST_RETRYING)
            }
        };
        Interval { lo: sum.lo + f64::from(u8::from(shown)), hi: sum.hi + f64::from(u8::from(possible)) }
    })
}

const UNKNOWN: Interval = Interval { lo: 0.0, hi: f64::INFINITY };

/// The quantile in seconds: below, waits ended where they were given up; above, never.
fn seconds(times: &Times, q: f64, tails: Tails, more: f64) -> Estimate {
    let imagined = scaled_length(times.len(), more * times.weight());
    let ranks = quantile::bound_ranks(imagined, q, tails);
    let part = |rank: usize| rank as f64 / imagined as f64;
    let lo = ranks.0.map_or(0.0, |rank| times.low(part(rank)));
    let hi = ranks.1.map_or(f64::INFINITY, |rank| times.high(part(rank)));
    Estimate { value: times.value(q), interval: Interval { lo, hi } }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates, and both factors are positive")]
fn scaled_length(length: usize, more: f64) -> usize {
    (length as f64 * more).round() as usize
}
