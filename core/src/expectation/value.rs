//! Limits: what may stand behind a comparison, by the metric's unit.

use super::metric::Unit;
use crate::units::{self, UnitError, UnitErrorKind, duration, rate, share};

/// A time without a unit from which on milliseconds are likelier to be meant than seconds.
const MANY_SECONDS: f64 = 20.0;

/// A number from which on percent are meant, and no factor.
const MANY_TIMES: f64 = 10.0;

/// Reads a limit in the metric's unit: shares from 0 to 1, times in seconds.
pub(super) fn parse(text: &str, unit: Unit) -> Result<f64, UnitError> {
    let refuse = |kind, write: String| Err(UnitError::new(text, kind, vec![write]));
    match unit {
        Unit::Share => match plain(text) {
            // `success ratio >= 60` means 60%, yet nobody should have to guess.
            Some(value) if value > 1.0 => refuse(UnitErrorKind::NoUnit, format!("{text}%")),
            Some(value) => Ok(value),
            None => share::parse(text),
        },
        Unit::Ratio => match plain(text) {
            // 150% is possible too.
            Some(value) if value > 1.0 => {
                let times = share::print(value);
                Err(UnitError::new(text, UnitErrorKind::NoUnit, vec![format!("{text}%"), times]))
            }
            Some(value) => Ok(value),
            None => share::parse_any(text),
        },
        Unit::Factor => match plain(text.strip_suffix('x').unwrap_or(text)) {
            Some(value) => Ok(value),
            None => match share::parse_any(text) {
                Ok(share) => refuse(UnitErrorKind::UnknownUnit, factor(share)),
                Err(error) if error.kind == UnitErrorKind::UnknownUnit => refuse(error.kind, format!("{}x", digits(text))),
                Err(error) => refuse(error.kind, "1.2".to_owned()),
            },
        },
        Unit::Number => match plain(text.strip_suffix('x').unwrap_or(text)) {
            Some(value) => Ok(value),
            None => match share::parse_any(text) {
                Ok(share) => refuse(UnitErrorKind::UnknownUnit, units::Plain(share).to_string()),
                Err(error) if error.kind == UnitErrorKind::UnknownUnit => refuse(error.kind, digits(text)),
                Err(error) => refuse(error.kind, "0.4".to_owned()),
            },
        },
        Unit::PerSecond => match plain(text) {
            Some(value) => Ok(value),
            None => rate::parse(text),
        },
        Unit::Time => duration::parse(text).map(|time| time.as_secs_f64()).map_err(|mut error| {
            // Both are offered, first what is likelier to be meant: nobody waits for 300 s, nor for 3 ms.
            let is_many = error.kind == UnitErrorKind::NoUnit && text.parse::<f64>().is_ok_and(|number| number >= MANY_SECONDS);
            if is_many {
                error.write.reverse();
            }
            error
        }),
        Unit::Count => match plain(text) {
            Some(value) => Ok(value),
            // All digits, and more than a number here keeps.
            None if digits(text) == text && !text.is_empty() => refuse(UnitErrorKind::TooLarge, "3".to_owned()),
            None if text.strip_prefix('-').and_then(plain).is_some() => refuse(UnitErrorKind::Negative, "3".to_owned()),
            None => refuse(UnitErrorKind::UnknownUnit, if digits(text).is_empty() { "3".into() } else { digits(text) }),
        },
    }
}

/// Reads the limit of an increase against the baseline: `20%` is a fifth more.
pub(super) fn parse_increase(text: &str) -> Result<f64, UnitError> {
    let refuse = |kind, write: String| Err(UnitError::new(text, kind, vec![write]));
    match plain(text) {
        Some(value) if value > 1.0 => refuse(UnitErrorKind::NoUnit, format!("{text}%")),
        Some(value) => Ok(value),
        None => match text.strip_suffix('x').and_then(plain) {
            // 1.2 times as much is an increase by 20%; below one it is none.
            Some(times) if times >= 1.0 => refuse(UnitErrorKind::UnknownUnit, share::print(((times - 1.0) * 1e9).round() / 1e9)),
            _ => share::parse_any(text),
        },
    }
}

/// The increase that a number without a unit says if it is a factor: `20%` for `1.2`. `None` if that is hardly meant.
pub(super) fn more_than_once(text: &str) -> Option<String> {
    plain(text).filter(|times| *times > 1.0 && *times < MANY_TIMES).map(|times| share::print(round(times - 1.0)))
}

/// Reads `1.2x` as what it is of the baseline's value: an increase by 20%. `None` if it is not written so.
pub(super) fn parse_times(text: &str) -> Option<f64> {
    text.strip_suffix('x').and_then(plain).map(|times| round(times - 1.0))
}

/// Writes an increase, which may be below zero, as a factor.
pub(super) fn print_times(increase: f64) -> String {
    format!("{}x", units::Plain(round(1.0 + increase)))
}

/// To the nine decimals in which a limit can sensibly be written, so that one less one is nothing.
fn round(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

/// Writes a limit so that it reads back as the same number.
pub(super) fn print(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Share | Unit::Ratio => share::print(value),
        Unit::Factor => format!("{}x", units::Plain(value)),
        Unit::PerSecond => rate::print(value),
        Unit::Time => duration::print(std::time::Duration::try_from_secs_f64(value).unwrap_or_default()),
        Unit::Number | Unit::Count => units::Plain(value).to_string(),
    }
}

/// A number without a unit.
fn plain(text: &str) -> Option<f64> {
    // Through the rate parser, which reads decimals exactly and nothing else.
    text.starts_with(|c: char| c.is_ascii_digit()).then(|| rate::parse(&format!("{text}/s")).ok()).flatten()
}

fn digits(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect()
}

fn factor(share: f64) -> String {
    format!("{}x", units::Plain(share))
}
