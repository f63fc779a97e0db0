//! Lengths of time: `100ms`, `1.5s`, `250us`, `2m`, `1h`. A number without a unit is refused: nobody can tell what it means.

use std::time::Duration;

use super::decimal::Decimal;
use super::{UnitError, UnitErrorKind};

/// The units, with their length in nanoseconds, longest first.
const UNITS: [(&str, u64); 6] =
    [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Other ways in which people write a unit, each with ours.
const OTHER_SPELLINGS: [(&str, &str); 22] = [
    ("µs", "us"),
    ("μs", "us"),
    ("usec", "us"),
    ("usecs", "us"),
    ("microseconds", "us"),
    ("msec", "ms"),
    ("msecs", "ms"),
    ("millis", "ms"),
    ("milliseconds", "ms"),
    ("sec", "s"),
    ("secs", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("min", "m"),
    ("mins", "m"),
    ("minute", "m"),
    ("minutes", "m"),
    ("hr", "h"),
    ("hrs", "h"),
    ("hour", "h"),
    ("hours", "h"),
    ("nanoseconds", "ns"),
];

/// Reads a duration of at most 2^64 - 1 nanoseconds, exactly.
///
/// # Errors
/// When the text is negative, not finite, has no unit or an unknown one, or is no whole number of nanoseconds.
pub fn parse(text: &str) -> Result<Duration, UnitError> {
    let (number, digits, unit) = Decimal::split(text, "100ms")?;
    let refuse = |kind, write| Err(UnitError::new(text.trim(), kind, write));
    if unit.is_empty() {
        return refuse(UnitErrorKind::NoUnit, with_units(number, digits));
    }
    let Some(&(_, length)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let ours = spelling(unit.trim());
        let write = ours.map_or_else(|| with_units(number, digits), |ours| vec![format!("{digits}{ours}")]);
        return refuse(UnitErrorKind::UnknownUnit, write);
    };
    match number.times(length) {
        Some(nanos) => match u64::try_from(nanos) {
            Ok(nanos) => Ok(Duration::from_nanos(nanos)),
            Err(_) => refuse(UnitErrorKind::TooLarge, vec!["24h".to_owned()]),
        },
        None => refuse(UnitErrorKind::TooFine, vec!["1ns".to_owned()]),
    }
}

/// Reads a duration that is seldom as long as a second: a number without a unit is taken for milliseconds rather than seconds.
///
/// # Errors
/// As [`parse`].
pub fn parse_short(text: &str) -> Result<Duration, UnitError> {
    parse(text).map_err(|mut error| {
        // With a fraction both say the same.
        if error.kind == UnitErrorKind::NoUnit && !text.contains('.') {
            error.write.reverse();
        }
        error
    })
}

/// Writes a duration in the largest unit that gives a whole number: `500ms`, `90s`, `5m`.
#[must_use]
pub fn print(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let (unit, length) = UNITS.iter().find(|(_, length)| nanos.is_multiple_of(u128::from(*length))).unwrap_or(&("ns", 1));
    format!("{}{unit}", nanos / u128::from(*length))
}

fn spelling(unit: &str) -> Option<&'static str> {
    let unit = unit.to_lowercase();
    let known = UNITS.iter().map(|(name, _)| (*name, *name));
    known.chain(OTHER_SPELLINGS).find(|(other, _)| *other == unit).map(|(_, ours)| ours)
}

/// What a number without a unit may have meant: seconds, or the same in milliseconds, or milliseconds.
fn with_units(number: Decimal, digits: &str) -> Vec<String> {
    let fraction = digits.contains('.').then(|| number.times(1_000)).flatten();
    let millis = fraction.map_or_else(|| format!("{digits}ms"), |millis| format!("{millis}ms"));
    vec![format!("{digits}s"), millis]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> (UnitErrorKind, String) {
        let error = parse(text).unwrap_err();
        (error.kind, error.advice())
    }

    #[test]
    fn durations_are_read_to_the_nanosecond() {
        for (text, nanos) in [
            ("0.5ms", 500_000),
            ("1.5s", 1_500_000_000),
            ("250us", 250_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
            ("0.1s", 100_000_000),
            ("0.000000001s", 1),
            ("1.10s", 1_100_000_000),
            (" 100ms ", 100_000_000),
            ("18446744073709551615ns", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_what_to_write() {
        use UnitErrorKind::*;
        for (text, kind, advice) in [
            ("0.5", NoUnit, "write `0.5s` or `500ms`"),
            ("100", NoUnit, "write `100s` or `100ms`"),
            ("-5ms", Negative, "write `5ms`"),
            ("NaN", NotFinite, "write `100ms`"),
            (".inf", NotFinite, "write `100ms`"),
            ("-inf", NotFinite, "write `100ms`"),
            ("", Empty, "write `100ms`"),
            ("soon", Malformed, "write `100ms`"),
            ("1e3ms", Malformed, "write `1000ms`"),
            (".5s", Malformed, "write `0.5s`"),
            ("5.s", Malformed, "write `5s`"),
            ("1.2.3s", Malformed, "write `100ms`"),
            ("5 sec", UnknownUnit, "write `5s`"),
            ("5MS", UnknownUnit, "write `5ms`"),
            ("5 ms", UnknownUnit, "write `5ms`"),
            ("250µs", UnknownUnit, "write `250us`"),
            ("3d", UnknownUnit, "write `3s` or `3ms`"),
            ("0.5ns", TooFine, "write `1ns`"),
            ("18446744073709551616ns", TooLarge, "write `24h`"),
            ("99999999999999999999999999999999999999s", TooLarge, "write `100ms`"),
            ("99999999999999999999999999999h", TooLarge, "write `24h`"),
        ] {
            assert_eq!(refused(text), (kind, advice.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(nanos in any::<u64>()) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse(&print(duration)), Ok(duration));
        }

        #[test]
        fn round_values_read_back_too(count in 0_u64..100_000, unit in 0_usize..UNITS.len()) {
            let duration = Duration::from_nanos(count * UNITS[unit].1);
            prop_assert_eq!(parse(&print(duration)), Ok(duration));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
