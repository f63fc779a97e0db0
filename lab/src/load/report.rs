//! What a load did and got, as the lab prints it.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::caller::CallerReport;

/// The counts of a load. `scheduled` = all of `answers` + `timeouts` + `connect_errors` + `resets` + `too_late`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadReport {
    /// Always `load`.
    pub service: &'static str,
    /// Requests that were due.
    pub scheduled: u64,
    /// Requests of which the first try began: all that were scheduled, unless the generator itself broke.
    pub sent: u64,
    /// Requests on the wire, first attempts and retries.
    pub attempts: u64,
    /// Requests by the status of their last answer.
    pub answers: BTreeMap<String, u64>,
    /// Requests whose last try had no answer in time.
    pub timeouts: u64,
    /// Requests whose last try could not connect.
    pub connect_errors: u64,
    /// Requests whose last try's connection broke.
    pub resets: u64,
    /// Requests given up because their deadline came before another try.
    pub too_late: u64,
    /// Requests answered below 400.
    pub ok: u64,
    /// `ok` of `scheduled`, 0 to 1; none without requests.
    pub success_ratio: Option<f64>,
    /// From the time at which a request was due to its end, whatever the end.
    pub latency_ms: Spread,
    /// The same for requests that were not ok.
    pub failure_latency_ms: Spread,
    /// How late requests started.
    pub schedule_lag_ms: Spread,
    /// How long starting the requests took.
    pub seconds: f64,
    /// Requests started a second.
    pub achieved_rate: f64,
    /// All that was sent, attempt by attempt.
    pub downstream: CallerReport,
}

/// A distribution of times in milliseconds; nothing where there was no value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub p50: Option<f64>,
    /// What 99 of 100 did not exceed.
    pub p99: Option<f64>,
    /// The largest.
    pub max: Option<f64>,
}

impl Spread {
    /// Reads a histogram of microseconds.
    pub(super) fn of(microseconds: &Histogram<u64>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "the histogram itself keeps three digits")]
        let ms = |value: u64| (!microseconds.is_empty()).then_some(value as f64 / 1000.0);
        Self { p50: ms(microseconds.value_at_quantile(0.5)), p99: ms(microseconds.value_at_quantile(0.99)), max: ms(microseconds.max()) }
    }
}
