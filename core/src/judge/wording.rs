//! Numbers in the sentences of a report.

use crate::expectation::{Metric, Op};

/// Units of [`super::Judgement`].
pub(crate) mod unit {
    pub(crate) const RATIO: &str = "ratio";
    pub(crate) const PER_SECOND: &str = "1/s";
    pub(crate) const TIMES: &str = "x";
    pub(crate) const SECONDS: &str = "s";
    pub(crate) const WINDOWS: &str = "windows";
    pub(crate) const COUNT: &str = "count";
}

/// The unit of the metric's absolute value.
pub(crate) const fn unit_of(metric: Metric) -> &'static str {
    match metric {
        Metric::DownstreamQps | Metric::IngressQps | Metric::Goodput => unit::PER_SECOND,
        Metric::Amplification | Metric::DownstreamPerIngress | Metric::CostPerSuccess | Metric::BackoffJitter | Metric::RetryPeakToMean => {
            unit::TIMES
        }
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

/// A value with its unit: `12.5%`, `120/s`, `1.93x`, `1.24 s`, `2 windows`.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "unbounded".to_owned();
    }
    match unit {
        unit::RATIO => format!("{}%", short(value * 100.0, 2)),
        unit::PER_SECOND => format!("{}/s", short(value, 1)),
        unit::TIMES => format!("{}x", short(value, 3)),
        unit::SECONDS => format!("{} s", short(value, 3)),
        unit::COUNT => short(value, 2),
        unit::WINDOWS if (value - 1.0).abs() < 1e-9 => "1 window".to_owned(),
        _ => format!("{} {unit}", short(value, 2)),
    }
}

/// At most so many decimals, without trailing zeros.
fn short(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
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
            (-0.00001, unit::RATIO, "0%"),
            (120.0, unit::PER_SECOND, "120/s"),
            (1.934_1, unit::TIMES, "1.934x"),
            (3.0, unit::SECONDS, "3 s"),
            (1.0, unit::WINDOWS, "1 window"),
            (2.0, unit::WINDOWS, "2 windows"),
            (f64::INFINITY, unit::RATIO, "unbounded"),
        ] {
            assert_eq!(quantity(value, unit), want);
        }
    }
}
