//! Shares of a whole: `30%`. The percent sign is required, since `0.3` and `30` are each taken for the other.

use super::decimal::Decimal;
use super::{Plain, UnitError, UnitErrorKind};

/// Reads a share between `0%` and `100%` as a number from 0 to 1.
///
/// # Errors
/// When the text has no percent sign, is negative, not finite, or above `100%`.
pub fn parse(text: &str) -> Result<f64, UnitError> {
    let share = parse_any(text)?;
    if share > 1.0 {
        return Err(UnitError::new(text.trim(), UnitErrorKind::TooLarge, vec!["100%".to_owned()]));
    }
    Ok(share)
}

/// Reads a percentage that may exceed `100%`, as an increase can.
///
/// # Errors
/// As [`parse`], save the upper bound.
pub fn parse_any(text: &str) -> Result<f64, UnitError> {
    let (number, digits, unit) = Decimal::split(text, "30%")?;
    match unit {
        "%" => Ok(number.to_f64(2)),
        "" => Err(UnitError::new(text.trim(), UnitErrorKind::NoUnit, vec![percent(number, digits)])),
        _ => Err(UnitError::new(text.trim(), UnitErrorKind::UnknownUnit, vec![format!("{digits}%")])),
    }
}

/// Writes a share as a percentage that reads back as the same number.
#[must_use]
pub fn print(share: f64) -> String {
    format!("{}%", shifted(&Plain(share).to_string()))
}

/// What a number without a sign meant: up to one it is a fraction, above it is percent already.
fn percent(number: Decimal, digits: &str) -> String {
    if number.to_f64(0) <= 1.0 { format!("{}%", shifted(digits)) } else { format!("{digits}%") }
}

/// A decimal text times one hundred, by moving its point, so that nothing is rounded.
fn shifted(decimal: &str) -> String {
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    let padded = format!("{fraction:0<2}");
    let (moved, rest) = padded.split_at(2);
    let digits = format!("{whole}{moved}");
    let whole = digits.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let rest = rest.trim_end_matches('0');
    if rest.is_empty() { whole.to_owned() } else { format!("{whole}.{rest}") }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_read_as_percentages() {
        for (text, share) in [("30%", 0.3), ("0%", 0.0), ("100%", 1.0), ("0.1%", 0.001), ("12.5%", 0.125)] {
            assert_eq!(parse(text), Ok(share), "{text}");
        }
        assert_eq!(parse_any("250%"), Ok(2.5));
    }

    #[test]
    fn what_is_no_share_is_refused_with_what_to_write() {
        use UnitErrorKind::*;
        for (text, kind, advice) in [
            ("101%", TooLarge, "write `100%`"),
            ("NaN%", NotFinite, "write `30%`"),
            ("-5%", Negative, "write `5%`"),
            ("0.3", NoUnit, "write `30%`"),
            ("0.005", NoUnit, "write `0.5%`"),
            ("0", NoUnit, "write `0%`"),
            ("1", NoUnit, "write `100%`"),
            ("30", NoUnit, "write `30%`"),
            ("30 %", UnknownUnit, "write `30%`"),
            ("30percent", UnknownUnit, "write `30%`"),
            ("", Empty, "write `30%`"),
            ("half", Malformed, "write `30%`"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.kind, error.advice().as_str()), (kind, advice), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(share in 0.0_f64..=1.0) {
            // Very small shares need more digits than the parser takes; none is meant by a person.
            let share = (share * 1e12).round() / 1e12;
            prop_assert_eq!(parse(&print(share)), Ok(share));
        }
    }
}
