//! Numbers in the sentences of a report.

use crate::expectation::{Metric, Op};
use crate::wording;

/// Units of [`super::Judgement`].
pub(crate) mod unit {
    pub(crate) const RATIO: &str = "ratio";
    pub(crate) const PER_SECOND: &str = "1/s";
    pub(crate) const TIMES: &str = "x";
    /// A number of no dimension, which is no multiple of anything either.
    pub(crate) const NUMBER: &str = "1";
    pub(crate) const SECONDS: &str = "s";
    pub(crate) const WINDOWS: &str = "windows";
    pub(crate) const COUNT: &str = "count";
}

/// The unit of the metric's absolute value.
pub(crate) const fn unit_of(metric: Metric) -> &'static str {
    match metric {
        Metric::DownstreamQps | Metric::IngressQps | Metric::Goodput => unit::PER_SECOND,
        Metric::Amplification | Metric::DownstreamPerIngress | Metric::CostPerSuccess | Metric::RetryPeakToMean => unit::TIMES,
        Metric::BackoffJitter => unit::NUMBER,
        Metric::RetryRatio { .. } | Metric::SuccessRatio | Metric::ExplicitFailureRatio | Metric::RetransmitRatio | Metric::Metastable => {
            unit::RATIO
        }
        Metric::FailureLatency { .. } | Metric::Latency { .. } | Metric::OrphanWork => unit::SECONDS,
        Metric::AttemptsMax
        | Metric::LayersRetrying
        | Metric::Connections
        | Metric::ConnectionsOpened
        | Metric::ConnectFailures
        | Metric::NonIdempotentRetries
        | Metric::NonretryableRetries
        | Metric::RetryAfterViolations
        | Metric::LateStarts => unit::COUNT,
    }
}

/// A value with its unit as people write it: `12.5%`, `120/s`, `1.93x`, `1.24 s`, `2 windows`. What the usual decimals would round away of a small
/// one is written out: `0.0012%`.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    spelled(value, unit, 0)
}

/// Two values with their unit, with as many decimals as it takes to tell them apart: `20.004%` and `20%`, and not twice the same.
pub(crate) fn apart(a: f64, b: f64, unit: &str) -> (String, String) {
    /// More is beyond what a float of that size holds.
    const MOST: usize = 8;
    let both = |more| (spelled(a, unit, more), spelled(b, unit, more));
    let differing = (0..=MOST).map(both).find(|(a, b)| a != b);
    differing.unwrap_or_else(|| both(0))
}

/// `more` decimals than usual.
fn spelled(value: f64, unit: &str, more: usize) -> String {
    if !value.is_finite() {
        return "unbounded".to_owned();
    }
    let (scaled, usual, after) = match unit {
        unit::RATIO => (value * 100.0, 2, "%"),
        unit::PER_SECOND => (value, 1, "/s"),
        unit::TIMES => (value, 3, "x"),
        unit::NUMBER => (value, 3, ""),
        unit::SECONDS => (value, 3, " s"),
        unit::COUNT => return short(value, 2 + more),
        unit::WINDOWS if (value - 1.0).abs() < 1e-9 => return "1 window".to_owned(),
        _ => return format!("{} {unit}", short(value, 2 + more)),
    };
    // Below what floats of this size hold it is nothing.
    let is_small = scaled.abs() < 1.0 && scaled.abs() > 1e-9;
    let number = if is_small { trimmed(wording::decimals(scaled, usual + more)) } else { short(scaled, usual + more) };
    format!("{number}{after}")
}

/// At most so many decimals, without trailing zeros.
pub(crate) fn short(value: f64, decimals: usize) -> String {
    let text = trimmed(format!("{value:.decimals$}"));
    if text == "-0" { "0".to_owned() } else { text }
}

/// Without zeros that say nothing.
fn trimmed(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The side of the limit that a comparison forbids.
pub(crate) const fn wrong_side(op: Op) -> &'static str {
    match op {
        Op::Less | Op::AtMost => "above",
        Op::Greater | Op::AtLeast => "below",
    }
}

/// `1 request`, `2 requests`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_people_write_them() {
        for (value, unit, want) in [
            (0.2, unit::RATIO, "20%"),
            (0.12345, unit::RATIO, "12.35%"),
            (-0.00001, unit::RATIO, "-0.001%"),
            (0.000_012, unit::RATIO, "0.0012%"),
            (1e-16, unit::RATIO, "0%"),
            (-0.0, unit::RATIO, "0%"),
            (0.000_432_1, unit::SECONDS, "0.00043 s"),
            (0.05, unit::PER_SECOND, "0.05/s"),
            (120.0, unit::PER_SECOND, "120/s"),
            (1.934_1, unit::TIMES, "1.934x"),
            (0.577_35, unit::NUMBER, "0.577"),
            (3.0, unit::SECONDS, "3 s"),
            (1.0, unit::WINDOWS, "1 window"),
            (2.0, unit::WINDOWS, "2 windows"),
            (f64::INFINITY, unit::RATIO, "unbounded"),
        ] {
            assert_eq!(quantity(value, unit), want);
        }
    }

    #[test]
    fn values_that_differ_are_not_written_alike() {
        let pair = |a, b, unit| -> (String, String) { apart(a, b, unit) };
        assert_eq!(pair(0.200_04, 0.2, unit::RATIO), ("20.004%".to_owned(), "20%".to_owned()));
        assert_eq!(pair(0.000_001, 0.0, unit::RATIO), ("0.0001%".to_owned(), "0%".to_owned()));
        assert_eq!(pair(1.2, 1.2, unit::TIMES), ("1.2x".to_owned(), "1.2x".to_owned()));
        assert_eq!(pair(1.3, 1.2, unit::TIMES), ("1.3x".to_owned(), "1.2x".to_owned()));
        assert_eq!(pair(f64::INFINITY, 1.2, unit::TIMES).0, "unbounded");
    }
}
