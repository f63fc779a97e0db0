//! What the load generator notes of each request.

use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::report::{LoadReport, Spread};
use crate::caller::{CallerReport, Failure, Outcome};
use crate::counts::{Counter, StatusCounts};
use crate::lock::lock;
use crate::pool::SendError;

/// Counts and spreads. All requests that have started will have ended when it is reported.
#[derive(Debug)]
pub(super) struct Record {
    scheduled: Counter,
    started: Counter,
    ok: Counter,
    answers: StatusCounts,
    timeouts: Counter,
    connect_errors: Counter,
    resets: Counter,
    too_late: Counter,
    latency: Mutex<Histogram<u64>>,
    failure_latency: Mutex<Histogram<u64>>,
    lag: Mutex<Histogram<u64>>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            scheduled: Counter::default(),
            started: Counter::default(),
            ok: Counter::default(),
            answers: StatusCounts::default(),
            timeouts: Counter::default(),
            connect_errors: Counter::default(),
            resets: Counter::default(),
            too_late: Counter::default(),
            latency: Mutex::new(histogram()),
            failure_latency: Mutex::new(histogram()),
            lag: Mutex::new(histogram()),
        }
    }
}

impl Record {
    /// A request is due.
    pub(super) fn scheduled(&self) {
        self.scheduled.add();
    }

    /// A request starts, so much after it was due.
    pub(super) fn started(&self, lag: Duration) {
        self.started.add();
        note(&self.lag, lag);
    }

    /// A request has ended, so long after it was due.
    pub(super) fn ended(&self, outcome: &Outcome, latency: Duration) {
        let ok = match outcome {
            Outcome::Answered(answer) => {
                self.answers.add(answer.status());
                answer.status().as_u16() < 400
            }
            Outcome::Failed(failure) => {
                match failure {
                    Failure::Answer(answer) => self.answers.add(answer.status()),
                    Failure::NoAnswer(SendError::Timeout { .. }) => self.timeouts.add(),
                    Failure::NoAnswer(SendError::Connect { .. }) => self.connect_errors.add(),
                    Failure::NoAnswer(SendError::Reset(_)) => self.resets.add(),
                    // A load has no breaker.
                    Failure::Open => {}
                }
                false
            }
            Outcome::TooLate(_) => {
                self.too_late.add();
                false
            }
        };
        note(&self.latency, latency);
        if ok {
            self.ok.add();
        } else {
            note(&self.failure_latency, latency);
        }
    }

    /// The report of a load whose requests were started within `span`.
    pub(super) fn report(&self, caller: CallerReport, span: Duration) -> LoadReport {
        let (scheduled, ok) = (self.scheduled.get(), self.ok.get());
        LoadReport {
            service: "load",
            scheduled,
            sent: self.started.get(),
            attempts: caller.attempts,
            answers: self.answers.report(),
            timeouts: self.timeouts.get(),
            connect_errors: self.connect_errors.get(),
            resets: self.resets.get(),
            too_late: self.too_late.get(),
            ok,
            success_ratio: (scheduled > 0).then(|| real(ok) / real(scheduled)),
            latency_ms: Spread::of(&lock(&self.latency)),
            failure_latency_ms: Spread::of(&lock(&self.failure_latency)),
            schedule_lag_ms: Spread::of(&lock(&self.lag)),
            seconds: span.as_secs_f64(),
            achieved_rate: if span.is_zero() { 0.0 } else { real(scheduled) / span.as_secs_f64() },
            downstream: caller,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^53 requests")]
fn real(count: u64) -> f64 {
    count as f64
}

/// The longest time that is told apart from longer ones, in microseconds: a day, as long as any timeout can be.
const LONGEST_US: u64 = 24 * 3600 * 1_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_US, 3).unwrap_or_else(|_| unreachable!("these bounds are within the crate's"))
}

fn note(histogram: &Mutex<Histogram<u64>>, value: Duration) {
    lock(histogram).saturating_record(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_three_digits_from_a_microsecond_to_a_day() {
        for ms in [0.001, 1.5, 3_000.0, 86_400_000.0] {
            let spread = Mutex::new(histogram());
            note(&spread, Duration::from_secs_f64(ms / 1000.0));
            let max = Spread::of(&lock(&spread)).max;
            assert!(max.is_some_and(|max| (max / ms - 1.0).abs() < 0.002), "{max:?} for {ms}");
        }
    }
}
