//! Rates: `200/s`.

use super::decimal::Decimal;
use super::{Plain, UnitError, UnitErrorKind};

/// Reads a rate in events a second; zero is a rate.
///
/// # Errors
/// When the text is negative, not finite, does not end in `/s`, or has more digits than a number here keeps.
pub fn parse(text: &str) -> Result<f64, UnitError> {
    let (number, digits, unit) = Decimal::split(text, "200/s")?;
    match unit {
        "/s" => {
            let rate = number.to_f64(0);
            // Another number would be meant than was written.
            if Plain(rate).to_string() == number.digits() {
                Ok(rate)
            } else {
                Err(UnitError::new(text.trim(), UnitErrorKind::TooFine, vec![print(rate)]))
            }
        }
        "" => Err(UnitError::new(text.trim(), UnitErrorKind::NoUnit, vec![format!("{digits}/s")])),
        _ => Err(UnitError::new(text.trim(), UnitErrorKind::UnknownUnit, vec![per_second(number, digits, unit)])),
    }
}

/// Writes a rate so that it reads back as the same number.
#[must_use]
pub fn print(rate: f64) -> String {
    format!("{}/s", Plain(rate))
}

fn per_second(number: Decimal, digits: &str, unit: &str) -> String {
    match unit.trim() {
        "/m" | "/min" if !number.is_zero() => print(number.to_f64(0) / 60.0),
        _ => format!("{digits}/s"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_are_per_second() {
        assert_eq!(parse("200/s"), Ok(200.0));
        assert_eq!(parse("0.5/s"), Ok(0.5));
        for (text, advice) in [
            ("200", "write `200/s`"),
            ("200rps", "write `200/s`"),
            ("200 /s", "write `200/s`"),
            ("600/m", "write `10/s`"),
            ("-1/s", "write `1/s`"),
            ("NaN/s", "write `200/s`"),
            ("fast", "write `200/s`"),
            ("200.0000000000000000001/s", "write `200/s`"),
        ] {
            assert_eq!(parse(text).unwrap_err().advice(), advice, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(micros in 0_u32..) {
            let rate = f64::from(micros) / 1e3;
            prop_assert_eq!(parse(&print(rate)), Ok(rate));
        }
    }
}
