//! `metric op value`: one side of an interval against a limit, and the honest third answer.
//!
//! Each side is tested once, at the phase's end, at [`ALPHA`]. The interval and the test are the same thing: a demand
//! holds if the whole interval is on its good side, is broken if the whole interval is on the bad side, and between
//! them the traffic was too little to tell.

use crate::expectation::{Metric, Op};
use crate::judge::measure::{self, Gap, Scene};
use crate::judge::sample::Sample;
use crate::judge::wording::{self, counted, quantity, short};
use crate::judge::{ALPHA, Verdict};
use crate::stats::{Interval, Tails};

/// More traffic than this many times what was seen is not worth suggesting.
const MOST_SCALE: f64 = 1e4;

/// A limit as the playbook gives it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limit {
    pub(crate) metric: Metric,
    pub(crate) op: Op,
    pub(crate) value: f64,
    pub(crate) increase: bool,
}

/// A number held against a limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    pub(crate) observed: Option<f64>,
    pub(crate) interval: Option<Interval>,
    pub(crate) reason: Option<String>,
}

impl Limit {
    /// The unit of the observed value: an increase is a share.
    pub(crate) const fn unit(self) -> &'static str {
        if self.increase { wording::unit::RATIO } else { wording::unit_of(self.metric) }
    }

    /// What is subtracted from a sample's value to get the observed one.
    const fn offset(self) -> f64 {
        if self.increase { 1.0 } else { 0.0 }
    }

    /// The sample whose value, less the offset, is the observed one.
    pub(crate) fn sample(self, scene: Scene<'_>) -> Result<Sample, Gap> {
        if self.increase { measure::over_baseline(self.metric, scene) } else { measure::absolute(self.metric, scene) }
    }

    /// Where a sample stands: `Some(true)` good, `Some(false)` broken, `None` cannot tell.
    pub(crate) fn holds(self, sample: &Sample, alpha: f64, more: f64) -> Option<bool> {
        let limit = self.value + self.offset();
        if matches!(sample, Sample::Exact { .. } | Sample::Layers(_)) {
            let Interval { lo, hi } = sample.interval(Tails::each(alpha), more);
            let (low, high) = (compare(self.op, lo, limit), compare(self.op, hi, limit));
            return (low == high).then_some(low);
        }
        if sample.is_demand_on_each(self.op, limit) {
            return sample.is_held_by_each(self.op, limit);
        }
        let below = sample.is_shown_at_most(limit, alpha, more);
        let above = sample.is_shown_at_least(limit, alpha, more);
        match self.op {
            // A value on the limit with nothing to spare is on both sides.
            Op::Less | Op::AtMost => (below || above).then_some(below),
            Op::Greater | Op::AtLeast => (below || above).then_some(above),
        }
    }

    pub(crate) fn observed(self, sample: &Sample) -> f64 {
        sample.value() - self.offset()
    }

    pub(crate) fn interval(self, sample: &Sample, tails: Tails) -> Interval {
        let interval = sample.interval(tails, 1.0);
        Interval { lo: interval.lo - self.offset(), hi: interval.hi - self.offset() }
    }

    /// How far the observed value is on the wrong side; negative on the good one.
    pub(crate) fn excess(self, observed: f64) -> f64 {
        match self.op {
            Op::Less | Op::AtMost => observed - self.value,
            Op::Greater | Op::AtLeast => self.value - observed,
        }
    }

    /// Judges the scene's windows as a whole.
    pub(crate) fn judge(self, scene: Scene<'_>) -> Outcome {
        let sample = self.sample(scene).and_then(|sample| match measure::silence(self.metric, scene) {
            Some(gap) => Err(gap),
            None => Ok(sample),
        });
        match sample {
            Ok(sample) => self.judge_sample(&sample),
            Err(gap) => self.judge_gap(gap),
        }
    }

    pub(crate) fn judge_gap(self, gap: Gap) -> Outcome {
        let bounded_above = matches!(self.op, Op::Less | Op::AtMost);
        let verdict = match gap {
            // Without a pause nothing is spread.
            Gap::AtOnce { is_shown: true, .. } if !bounded_above => Verdict::Fail,
            // What did not happen cannot have taken too long, nor hung.
            Gap::NoFailure(_) | Gap::NoRetry(_) if bounded_above != self.metric.is_good() => Verdict::Pass,
            _ => Verdict::Inconclusive,
        };
        Outcome { verdict, observed: None, interval: None, reason: Some(gap.to_string()) }
    }

    fn judge_sample(self, sample: &Sample) -> Outcome {
        let tails = Tails::each(ALPHA);
        let observed = self.observed(sample);
        let interval = self.interval(sample, tails);
        let shown = self.shown(sample, tails);
        let outcome = |verdict, reason| Outcome { verdict, observed: Some(observed), interval: shown, reason };
        match self.holds(sample, ALPHA, 1.0) {
            Some(true) => outcome(Verdict::Pass, None),
            Some(false) => outcome(Verdict::Fail, Some(self.broken(observed, shown))),
            None => {
                if let Some(reason) = self.every_failure_within(sample) {
                    return outcome(Verdict::Pass, Some(reason));
                }
                outcome(Verdict::Inconclusive, Some(self.undecided(sample, observed, interval)))
            }
        }
    }

    /// The interval that a reader is shown: none of a fact.
    pub(crate) fn shown(self, sample: &Sample, tails: Tails) -> Option<Interval> {
        (!sample.is_fact()).then(|| self.interval(sample, tails))
    }

    fn broken(self, observed: f64, interval: Option<Interval>) -> String {
        let side = if self.excess(observed) == 0.0 { "at" } else { wording::wrong_side(self.op) };
        let (observed, limit) = wording::apart(observed, self.value, self.unit());
        let interval = interval.map(|interval| format!(" (90% interval {})", self.spelled(interval)));
        format!("{observed} is {side} the limit of {limit}{}", interval.unwrap_or_default())
    }

    pub(crate) fn spelled(self, interval: Interval) -> String {
        format!("{} to {}", quantity(interval.lo, self.unit()), quantity(interval.hi, self.unit()))
    }

    fn undecided(self, sample: &Sample, observed: f64, interval: Interval) -> String {
        if interval.hi == f64::INFINITY && matches!(sample, Sample::Exact { .. }) {
            return format!(
                "{} is what was seen, but events of only a share of the requests were kept at this rate, so that there may have been more",
                quantity(observed, self.unit()),
            );
        }
        let cannot = format!(
            "{} ({}) cannot be told from the limit of {}",
            quantity(observed, self.unit()),
            self.spelled(interval),
            quantity(self.value, self.unit()),
        );
        let Some(scale) = self.scale_to_decide(sample) else {
            if let Some(endless) = self.endless(sample) {
                return format!("{cannot}: {endless}");
            }
            if sample.unknown() > 0.0 {
                let unknown = counted(whole(sample.unknown()), "request");
                return match self.metric {
                    Metric::RetryRatio { .. } => {
                        format!("{cannot}: {unknown} could be compared with none, so it is not known whether they are retries")
                    }
                    _ => format!("{cannot}: {unknown} had no outcome"),
                };
            }
            return format!("{cannot}, and hardly could with more traffic");
        };
        let more = whole((scale - 1.0) * sample.requests());
        let noun = match self.metric {
            Metric::FailureLatency { .. } => "more failed request",
            Metric::ExplicitFailureRatio => "more failure",
            Metric::Latency { .. } => "more answer",
            Metric::BackoffJitter => "more pause",
            Metric::RetryPeakToMean => "more retried request",
            _ => "more request",
        };
        if more == 0 {
            format!("{cannot}: about {scale:.1} times as long would tell")
        } else {
            format!("{cannot}: about {} would tell", counted(more, noun))
        }
    }

    /// What is said of waits in vain.
    pub(crate) fn endless(self, sample: &Sample) -> Option<String> {
        let (endless, of) = sample.endless()?;
        Some(match self.metric {
            Metric::FailureLatency { .. } => {
                format!("{endless} of {of} failed requests still hung when they were last looked at, and took that long or longer")
            }
            _ if endless == of => format!("none of {of} requests was answered"),
            _ => format!("{endless} of {of} requests had no answer, and waited for it at least that long"),
        })
    }

    /// By what factor the same traffic would have to grow to decide.
    pub(crate) fn scale_to_decide(self, sample: &Sample) -> Option<f64> {
        let decides = |scale: f64| self.holds(sample, ALPHA, scale).is_some();
        let mut enough = 2.0;
        while !decides(enough) {
            enough *= 2.0;
            if enough > MOST_SCALE {
                return None;
            }
        }
        let mut short = enough / 2.0;
        for _ in 0..12 {
            let middle = f64::midpoint(short, enough);
            if decides(middle) {
                enough = middle;
            } else {
                short = middle;
            }
        }
        Some(enough)
    }

    /// A high quantile of few failures has no upper bound; but if the slowest is within the limit, so are all.
    fn every_failure_within(self, sample: &Sample) -> Option<String> {
        let Sample::Latency { times, quantile } = sample else {
            return None;
        };
        let slowest = times.longest()? as f64 / 1e9;
        if !matches!(self.op, Op::Less | Op::AtMost) || !compare(self.op, slowest, self.value) {
            return None;
        }
        Some(format!(
            "{} {} too few to bound p{} ({} are needed), so the slowest was used: {}",
            counted(times.len() as u64, if matches!(self.metric, Metric::Latency { .. }) { "answer" } else { "failed request" }),
            if times.len() == 1 { "is" } else { "are" },
            short(quantile * 100.0, 4),
            // The chance that all of so many are below the quantile is the test's error probability.
            whole(ALPHA.ln() / quantile.ln()),
            quantity(slowest, self.unit()),
        ))
    }
}

/// `value op limit`.
pub(crate) fn compare(op: Op, value: f64, limit: f64) -> bool {
    match op {
        Op::Less => value < limit,
        Op::AtMost => value <= limit,
        Op::Greater => value > limit,
        Op::AtLeast => value >= limit,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates, and the value is not negative")]
fn whole(value: f64) -> u64 {
    value.max(0.0).ceil() as u64
}
