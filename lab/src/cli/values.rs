//! Reading the command line's values; each error says what to write instead.

use std::time::Duration;

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValueError {
    #[error("a duration is a number with a unit: write 250us, 100ms, 3s, 5m or 1h")]
    Duration,
    #[error("a duration here is at most 24h")]
    LongDuration,
    #[error("a share is from 0 to 1, or from 0% to 100%: write 0.3 or 30%")]
    Share,
    #[error("a rate is requests a second, from 0.001/s to 1000000/s: write 200/s")]
    Rate,
    #[error("write a first port (9001), or one port per layer (9001,9005), each from 0 to 65535")]
    Ports,
    #[error("a failure's status is from 400 to 599: write 503")]
    FailStatus,
}

const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Reads a duration above 0, such as `1.5s`.
pub(super) fn duration(text: &str) -> Result<Duration, ValueError> {
    duration_or_zero(text).and_then(|value| if value.is_zero() { Err(ValueError::Duration) } else { Ok(value) })
}

/// Reads a duration that may be 0, then also without a unit.
pub(super) fn duration_or_zero(text: &str) -> Result<Duration, ValueError> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or(ValueError::Duration)?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(ValueError::Duration),
    };
    let value = Duration::try_from_secs_f64(decimal(number).ok_or(ValueError::Duration)? * seconds);
    value.ok().filter(|value| *value <= LONGEST).ok_or(ValueError::LongDuration)
}

/// Reads a share, `0.3` or `30%`.
pub(super) fn share(text: &str) -> Result<f64, ValueError> {
    let value = match text.strip_suffix('%') {
        Some(percent) => decimal(percent).map(|value| value / 100.0),
        None => decimal(text),
    };
    value.filter(|value| (0.0..=1.0).contains(value)).ok_or(ValueError::Share)
}

/// Reads a rate above 0, `200/s` or `200`.
pub(super) fn rate(text: &str) -> Result<f64, ValueError> {
    rate_or_zero(text).ok().filter(|rate| *rate > 0.0).ok_or(ValueError::Rate)
}

/// Reads a rate; 0 is allowed.
pub(super) fn rate_or_zero(text: &str) -> Result<f64, ValueError> {
    let value = decimal(text.strip_suffix("/s").unwrap_or(text)).ok_or(ValueError::Rate)?;
    let sensible = value == 0.0 || (0.001..=1e6).contains(&value);
    if sensible { Ok(value) } else { Err(ValueError::Rate) }
}

/// The ports of a chain's layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ports {
    /// This one and those after it; 0 for any free ones.
    From(u16),
    /// One for each layer.
    Each(Vec<u16>),
}

/// Reads `9001` or `9001,9005,9009`.
pub(super) fn ports(text: &str) -> Result<Ports, ValueError> {
    let ports: Result<Vec<u16>, _> = text.split(',').map(|port| port.trim().parse()).collect();
    match ports.map_err(|_| ValueError::Ports)?.as_slice() {
        [first] => Ok(Ports::From(*first)),
        each => Ok(Ports::Each(each.to_vec())),
    }
}

/// Reads the status of a chance failure.
pub(super) fn fail_status(text: &str) -> Result<hyper::StatusCode, ValueError> {
    let code = text.parse::<u16>().ok().filter(|code| (400..600).contains(code)).ok_or(ValueError::FailStatus)?;
    hyper::StatusCode::from_u16(code).map_err(|_| ValueError::FailStatus)
}

/// Digits with at most one point: no sign, no exponent, no NaN.
fn decimal(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        for (text, micros) in [("250us", 250), ("100ms", 100_000), ("1.5s", 1_500_000), ("2m", 120_000_000)] {
            assert_eq!(duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "0.5", "5", "s", "-1s", "1 s", "1e3s", "NaNs", "1d", "0s", "0"] {
            assert_eq!(duration(text), Err(ValueError::Duration), "{text}");
        }
        assert_eq!(duration("25h"), Err(ValueError::LongDuration));
        assert_eq!(duration_or_zero("0"), Ok(Duration::ZERO));
        assert_eq!(duration_or_zero("0ms"), Ok(Duration::ZERO));
    }

    #[test]
    fn shares_are_fractions_or_percentages() {
        for (text, value) in [("0", 0.0), ("1", 1.0), ("0.25", 0.25), ("25%", 0.25), ("100%", 1.0)] {
            assert_eq!(share(text), Ok(value), "{text}");
        }
        for text in ["", "%", "30", "101%", "-0.1", "1.1", "NaN", "inf", "0,3"] {
            assert_eq!(share(text), Err(ValueError::Share), "{text}");
        }
    }

    #[test]
    fn rates_are_per_second() {
        assert_eq!(rate("200/s"), Ok(200.0));
        assert_eq!(rate("0.5"), Ok(0.5));
        assert_eq!(rate_or_zero("0/s"), Ok(0.0));
        for text in ["0/s", "", "/s", "200/m", "fast", "-1/s", "2000000/s", "0.0001/s"] {
            assert_eq!(rate(text), Err(ValueError::Rate), "{text}");
        }
    }

    #[test]
    fn ports_are_one_or_a_list() {
        assert_eq!(ports("9001"), Ok(Ports::From(9001)));
        assert_eq!(ports("9001, 9005"), Ok(Ports::Each(vec![9001, 9005])));
        for text in ["", "70000", "9001,", "a"] {
            assert_eq!(ports(text), Err(ValueError::Ports), "{text}");
        }
    }
}
