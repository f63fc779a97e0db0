//! Shares of a whole: `30%`. The percent sign is required, since `0.3` and `30` are each taken for the other.

use super::decimal::Decimal;
use super::{Plain, UnitError, UnitErrorKind};

/// Values of one of the kernel's draws.
const DRAWS: f64 = 4_294_967_296.0;
/// The least share that a draw can tell from `0%`, and the largest that it can tell from `100%`, rounded to where they still can.
const LEAST: &str = "0.0000000233%";
const MOST: &str = "99.9999999767%";

/// Reads a share between `0%` and `100%` as a number from 0 to 1.
///
/// # Errors
/// When the text has no percent sign, is negative, not finite, above `100%`, or has more digits than a number here keeps.
pub fn parse(text: &str) -> Result<f64, UnitError> {
    let number = percentage(text)?;
    // Before anything is rounded.
    if number.exceeds(100) {
        return Err(UnitError::new(text.trim(), UnitErrorKind::TooLarge, vec!["100%".to_owned()]));
    }
    exact(text, number)
}

/// Reads a percentage that may exceed `100%`, as an increase can.
///
/// # Errors
/// As [`parse`], save the upper bound.
pub fn parse_any(text: &str) -> Result<f64, UnitError> {
    exact(text, percentage(text)?)
}

/// Reads a share that the kernel draws for with 32 bits.
///
/// # Errors
/// As [`parse`], and when it is not 0% or 100%, but would be one of them to the kernel.
pub fn parse_drawn(text: &str) -> Result<f64, UnitError> {
    let share = parse(text)?;
    let refuse = |nearest: &str, whole: &str| {
        Err(UnitError::new(text.trim(), UnitErrorKind::BeyondDraws, vec![nearest.to_owned(), whole.to_owned()]))
    };
    if is_drawn(share) {
        Ok(share)
    } else if share < 0.5 {
        refuse(LEAST, "0%")
    } else {
        refuse(MOST, "100%")
    }
}

/// Whether the kernel can draw for a share: for nothing, for all, or for one unit at least, short of all by one unit at least.
fn is_drawn(share: f64) -> bool {
    // netem's scale, which is one short of the classifier's: what it can tell, both can. Not rounded, because half a unit is not what would be drawn.
    let (units, all) = (share * (DRAWS - 1.0), DRAWS - 1.0);
    share <= 0.0 || share >= 1.0 || (1.0..=all - 1.0).contains(&units)
}

fn percentage(text: &str) -> Result<Decimal, UnitError> {
    let (number, digits, unit) = Decimal::split(text, "30%")?;
    match unit {
        "%" => Ok(number),
        "" => Err(UnitError::new(text.trim(), UnitErrorKind::NoUnit, percents(number, digits))),
        _ => Err(UnitError::new(text.trim(), UnitErrorKind::UnknownUnit, vec![format!("{digits}%")])),
    }
}

/// The share itself, or a refusal if the nearest number here is another one.
fn exact(text: &str, number: Decimal) -> Result<f64, UnitError> {
    let share = number.to_f64(2);
    let kept = print(share);
    if kept.strip_suffix('%') == Some(number.digits().as_str()) {
        return Ok(share);
    }
    Err(UnitError::new(text.trim(), UnitErrorKind::TooFine, vec![kept]))
}

/// A share of 0 to 1 in units of 2^-32, as the classifier compares it with its draws.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is 0 to 1, and 2^32 is exact in an f64")]
pub fn units(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * DRAWS).round() as u64
}

/// Writes so many units of 2^-32 as the shortest percentage that the kernel takes for them.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "at most 2^32, exact in an f64")]
pub fn print_units(units: u64) -> String {
    let share = units as f64 / DRAWS;
    let reads_back = |text: &String| text.parse::<f64>().is_ok_and(|read| self::units(read) == units && is_drawn(read));
    let shortest = (0..=12).map(|digits| format!("{share:.digits$}")).find(reads_back);
    shortest.map_or_else(|| print(share), |text| format!("{}%", shifted(&text)))
}

/// Writes a share as a percentage that reads back as the same number.
#[must_use]
pub fn print(share: f64) -> String {
    format!("{}%", shifted(&Plain(share).to_string()))
}

/// What a number without a sign may have meant: percent already, as tc reads it, or up to one also a fraction. The milder of the two comes first where one
/// is everything.
fn percents(number: Decimal, digits: &str) -> Vec<String> {
    let (literal, fraction) = (format!("{digits}%"), format!("{}%", shifted(digits)));
    if number.is_zero() || number.exceeds(1) {
        vec![literal]
    } else if number.to_f64(0) < 1.0 {
        vec![fraction, literal]
    } else {
        vec![literal, fraction]
    }
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
            ("100.0000000000000000001%", TooLarge, "write `100%`"),
            ("99.9999999999999999999%", TooFine, "write `100%`"),
            ("33.333333333333333333333%", TooFine, "write `33.33333333333333%`"),
            ("0.0000000000000000000000000000000001%", TooFine, "write `30%`"),
            ("1000000000000000000000000000000000%", TooLarge, "write `30%`"),
            ("NaN%", NotFinite, "write `30%`"),
            ("-5%", Negative, "write `5%`"),
            ("0.3", NoUnit, "write `30%` or `0.3%`"),
            ("0.005", NoUnit, "write `0.5%` or `0.005%`"),
            ("0", NoUnit, "write `0%`"),
            ("1", NoUnit, "write `1%` or `100%`"),
            ("1e-3%", Malformed, "write `0.001%`"),
            ("2.5E1%", Malformed, "write `25%`"),
            ("1e99%", Malformed, "write `30%`"),
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

    #[test]
    fn what_the_kernels_32_bits_cannot_tell_from_nothing_or_all_is_refused_with_the_nearest_that_they_can() {
        for (text, advice) in [
            ("0.00000001%", "write `0.0000000233%` or `0%`"),
            ("0.0000000116%", "write `0.0000000233%` or `0%`"),
            ("0.00000002%", "write `0.0000000233%` or `0%`"),
            ("0.0000000232%", "write `0.0000000233%` or `0%`"),
            ("99.9999999768%", "write `99.9999999767%` or `100%`"),
            ("99.99999999%", "write `99.9999999767%` or `100%`"),
        ] {
            let error = parse_drawn(text).unwrap_err();
            assert_eq!((error.kind, error.advice().as_str()), (UnitErrorKind::BeyondDraws, advice), "{text}");
            assert!(parse(text).is_ok(), "{text}");
        }
        // What is proposed is what the kernel's least and largest draw are.
        assert_eq!(units(parse_drawn(LEAST).unwrap()), 1);
        assert_eq!(units(parse_drawn(MOST).unwrap()), (1 << 32) - 1);
        assert_eq!((parse_drawn("0%"), parse_drawn("100%"), parse_drawn("0.0000001%")), (Ok(0.0), Ok(1.0), Ok(1e-9)));
    }

    #[test]
    fn the_kernels_units_are_written_as_shortly_as_they_are_read() {
        for text in ["30%", "0.1%", "100%", "50%", "0.0000000233%", "99.9999999767%", "12.345678%"] {
            let drawn = units(parse_drawn(text).unwrap());
            let printed = print_units(drawn);
            assert_eq!(units(parse_drawn(&printed).unwrap()), drawn, "{text}");
            assert!(printed.len() <= text.len(), "{text} {printed}");
        }
        assert_eq!(print_units(1_288_490_189), "30%");
        assert_eq!([0.0, 0.5, 1.0, f64::NAN].map(units), [0, 1 << 31, 1 << 32, 0]);
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
