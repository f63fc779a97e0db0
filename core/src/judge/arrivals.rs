//! Whether requests still came in.
//!
//! A service that has crashed, or turns its callers' connections away, is asked for nothing: no request fails, no answer is late, and no call goes
//! out, so that every limit holds. What never arrived is not among what was counted. And callers who ask less because they wait longer hide a storm:
//! attempts are no more than before, and yet twice as many for each request.

use crate::edge::{EdgeSpec, Role};
use crate::expectation::{Metric, Op};
use crate::judge::limit::{Limit, Outcome};
use crate::judge::measure::{self, Scene};
use crate::judge::wording::{quantity, unit};
use crate::judge::{ALPHA, Evidence, Verdict, windows};
use crate::stats::rate_ratio::{self, Tally};
use crate::stats::{Tails, dispersion};
use crate::window::{PhaseName, Window};

/// Part of the baseline's requests below which too few came in to say that a service stands its ground.
const FEW: f64 = 0.5;

/// The same where stormdrill makes the load itself: that is the same all the time, so whatever is missing was turned away.
const FEW_OF_OUR_OWN: f64 = 0.9;

/// The number of requests that came in over that of the baseline, if it fell below `part` and not by chance.
fn fell_below(part: f64, edges: &[usize], judged: &[&Window], baseline: &[&Window]) -> Option<(f64, f64)> {
    let sum = |windows: &[&Window]| {
        edges.iter().map(|&edge| measure::request_tally(edge, windows)).reduce(|a, b| Tally { count: a.count + b.count, ..a })
    };
    let (judged, base) = (sum(judged)?, sum(baseline)?);
    if base.count <= 0.0 || judged.exposure <= 0.0 {
        return None;
    }
    let each: Vec<Tally> = baseline.iter().filter_map(|window| sum(&[window])).collect();
    let phi = dispersion::divisor(&each);
    let less = |tally: Tally| Tally { count: tally.count / phi, ..tally };
    let interval = rate_ratio::interval(less(judged), less(base), Tails::each(ALPHA));
    (interval.hi < part).then(|| (judged.rate(), judged.rate() / base.rate()))
}

/// Why a pass shows nothing: most of the requests that there were before did not come in.
pub(crate) fn missing(metric: Metric, edge: &EdgeSpec, phase: PhaseName, evidence: &Evidence<'_>) -> Option<String> {
    let counts_arrivals = matches!(metric, Metric::IngressQps | Metric::Goodput);
    if counts_arrivals || !matches!(phase, PhaseName::Fault | PhaseName::Recovery) {
        return None;
    }
    // A fault between the callers and the service is to keep requests away.
    let is_aimed = |&at: &usize| evidence.faults.iter().any(|fault| fault.spec.to == evidence.edges[at].name);
    if phase == PhaseName::Fault && measure::ingress_edges(evidence.edges).any(|at| is_aimed(&at)) {
        return None;
    }
    let part = if evidence.load.is_some() { FEW_OF_OUR_OWN } else { FEW };
    let (judged, baseline) = (windows::of_phase(evidence, phase), windows::steady(evidence, PhaseName::Baseline));
    let ingress: Vec<usize> = measure::ingress_edges(evidence.edges).collect();
    let all = fell_below(part, &ingress, &judged, &baseline)?;
    // Behind a layer that still gets its requests fewer may come on purpose: that is what a breaker is for.
    let own = ingress.iter().copied().find(|&at| edge.role == Role::Ingress && evidence.edges[at].name == edge.name);
    let still = ingress.iter().filter(|&&at| measure::requests(at, &baseline) > 0);
    if still.clone().any(|&at| fell_below(part, &[at], &judged, &baseline).is_none()) {
        return None;
    }
    let (rate, of) = own.and_then(|at| fell_below(part, &[at], &judged, &baseline)).unwrap_or(all);
    Some(format!(
        "only {} of the baseline's requests came in ({}): a service that is down or turns callers away is asked for nothing, so this shows nothing",
        quantity(of, unit::RATIO),
        quantity(rate, unit::PER_SECOND),
    ))
}

/// What remains of a pass on the rise of attempts that only holds since fewer requests came in: for each of them they rose by more than the limit.
pub(crate) fn hidden_rise(limit: Limit, scene: Scene<'_>) -> Option<Outcome> {
    if limit.metric != Metric::DownstreamQps || !limit.increase || !matches!(limit.op, Op::Less | Op::AtMost) {
        return None;
    }
    let ingress: Vec<usize> = measure::ingress_edges(scene.edges).collect();
    let (_, of) = fell_below(FEW_OF_OUR_OWN, &ingress, scene.judged, scene.baseline)?;
    let each = Limit { metric: Metric::DownstreamPerIngress, ..limit };
    let sample = each.sample(scene).ok()?;
    let is_broken = each.holds(&sample, ALPHA, 1.0) == Some(false);
    let whole = limit.sample(scene).ok()?;
    is_broken.then(|| Outcome {
        verdict: Verdict::Inconclusive,
        observed: Some(limit.observed(&whole)),
        interval: Some(limit.interval(&whole, Tails::each(ALPHA))),
        reason: Some(format!(
            "it holds only because no more than {} of the baseline's requests came in: for each of them attempts rose by {} ({}); \
             `amplification` judges that",
            quantity(of, unit::RATIO),
            quantity(each.observed(&sample), unit::RATIO),
            each.spelled(each.interval(&sample, Tails::each(ALPHA))),
        )),
    })
}
