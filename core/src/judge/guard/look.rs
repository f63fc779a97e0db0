//! What one window's sample says about a guard's limit, as evidence that adds up over windows.

use crate::judge::ALPHA;
use crate::judge::sample::{Sample, Share};
use crate::stats::evidence::{Look, Side};
use crate::stats::rate_ratio::Tally;
use crate::stats::{Tails, poisson};

/// The look, and the side on which its evidence lies for the metric to be on `side` of `limit`. `None` for a number that
/// does not add up over windows, or is a fact: then there is nothing to prove.
pub(super) fn look(sample: &Sample, limit: f64, side: Side) -> Option<(Look, Side)> {
    match sample {
        Sample::Rate { tally, phi } => Some((count(*tally, limit, *phi), side)),
        Sample::Share(share) => Some((of_share(*share, share.unscaled(limit)), side)),
        // Dear successes are rare ones.
        Sample::Cost(share) => Some((of_share(*share, (1.0 / limit).min(1.0)), opposite(side))),
        Sample::Latency { times, quantile } => {
            let (least, most) = times.longer_than(limit);
            let slower = match side {
                Side::Above => least,
                Side::Below => most,
            };
            // The p99 is above the limit if more than one of a hundred is.
            Some((Look::Share { hits: slower as f64, of: times.len() as f64, limit: 1.0 - quantile }, side))
        }
        Sample::Amplification { judged, baseline } => {
            let sum =
                |pairs: &[crate::stats::amplification::Pair]| pairs.iter().fold((0.0, 0.0), |(d, i), p| (d + p.attempts, i + p.ingress));
            let ((attempts, ingress), (before, base)) = (sum(judged), sum(baseline));
            // The baseline is not known exactly either: its far end is taken.
            let ends = poisson::interval(before, Tails::each(ALPHA / 2.0));
            let end = match side {
                Side::Above => ends.hi,
                Side::Below => ends.lo,
            };
            Some((Look::Count { count: attempts, allowed: limit * ingress * end / base }, side))
        }
        Sample::RateRatio { .. }
        | Sample::ShareRatio { .. }
        | Sample::LatencyRatio { .. }
        | Sample::Variation(_)
        | Sample::Layers(_)
        | Sample::Peak { .. }
        | Sample::Exact { .. } => None,
    }
}

fn count(tally: Tally, limit: f64, phi: f64) -> Look {
    Look::Count { count: tally.count / phi, allowed: limit * tally.exposure / phi }
}

/// What has no outcome yet says nothing.
fn of_share(share: Share, limit: f64) -> Look {
    Look::Share { hits: share.hits, of: share.of - share.unknown, limit }
}

const fn opposite(side: Side) -> Side {
    match side {
        Side::Above => Side::Below,
        Side::Below => Side::Above,
    }
}
