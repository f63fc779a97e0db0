//! An outage hidden behind "no amplification".
//!
//! A gateway that ejects its upstreams, or a breaker that stays open, answers with errors of its own and sends nothing
//! on. Attempts fall, every limit on them holds, and the service is down. Such a pass must say so.

use crate::expectation::{Metric, Op};
use crate::judge::limit::Limit;
use crate::judge::measure::{self, Scene};
use crate::judge::wording::{quantity, unit};
use crate::judge::{ALPHA, sample::Share};
use crate::stats::{Tails, quotient};

/// Attempts below this part of the baseline's are a fall.
const FALL: f64 = 0.9;

/// Points by which more ingress requests must fail than in the baseline.
const LEAST_CHANGE: f64 = 0.05;

/// The sentence that belongs to a pass on few attempts, if the requests above them fail.
pub(crate) fn behind_pass(limit: Limit, scene: Scene<'_>) -> Option<String> {
    let on_attempts = matches!(limit.metric, Metric::DownstreamQps | Metric::DownstreamPerIngress | Metric::Amplification);
    if !on_attempts || matches!(limit.op, Op::Greater | Op::AtLeast) {
        return None;
    }
    let tails = Tails::each(ALPHA);
    let rate = measure::over_baseline(Metric::DownstreamQps, scene).ok()?;
    if rate.value() >= FALL || rate.interval(tails, 1.0).hi >= 1.0 {
        return None;
    }
    measure::ingress_edges(scene.edges).find_map(|edge| {
        let failed = measure::shares::failed_share(edge, scene.judged)?.estimate(tails, 1.0);
        let before = measure::shares::failed_share(edge, scene.baseline).unwrap_or(Share::of_all(0, 1)).estimate(tails, 1.0);
        let worse = failed.value - before.value > LEAST_CHANGE && quotient::difference_at_least(failed, before) > 0.0;
        worse.then(|| {
            let name = &scene.edges[edge].name;
            format!(
                "attempts fell to {} of the baseline's while {} of the requests on {name} failed: an outage without \
                 amplification, so add an expectation such as `{name} success ratio >= 95%`",
                quantity(rate.value(), unit::RATIO),
                quantity(failed.value, unit::RATIO),
            )
        })
    })
}
