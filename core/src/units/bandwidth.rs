//! Bandwidths: `10mbit`. Units are decimal, as tc's are: a kbit is 1000 bits. Bytes have no unit here, since `mbps` is read both ways.

use super::decimal::Decimal;
use super::{UnitError, UnitErrorKind};

const UNITS: [(&str, u64); 5] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1000), ("tbit", 1_000_000_000_000), ("bit", 1)];

/// Reads a bandwidth, in bytes a second.
///
/// # Errors
/// When the text is negative, not finite, zero, has no unit or an unknown one, or is no whole number of bytes a second.
pub fn parse(text: &str) -> Result<u64, UnitError> {
    let (number, digits, unit) = Decimal::split(text, "10mbit")?;
    let refuse = |kind, write| Err(UnitError::new(text.trim(), kind, vec![write]));
    if unit.is_empty() {
        return refuse(UnitErrorKind::NoUnit, format!("{digits}mbit"));
    }
    let lower = unit.trim().to_ascii_lowercase();
    let Some(&(_, bits)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let near = UNITS.iter().find(|(name, _)| lower.starts_with(&name[..1]) && *name != "bit").map_or("bit", |(name, _)| name);
        return refuse(UnitErrorKind::UnknownUnit, format!("{digits}{near}"));
    };
    match number.times(bits).map(|bits| (bits / 8, bits % 8)) {
        Some((0, 0)) => refuse(UnitErrorKind::Zero, "10mbit".to_owned()),
        Some((bytes, 0)) => u64::try_from(bytes).or_else(|_| refuse(UnitErrorKind::TooLarge, "100gbit".to_owned())),
        _ => refuse(UnitErrorKind::TooFine, "8bit".to_owned()),
    }
}

/// Writes bytes a second so that it reads back as the same number.
#[must_use]
pub fn print(bytes_per_second: u64) -> String {
    let bits = u128::from(bytes_per_second) * 8;
    let unit = UNITS[..3].iter().find(|(_, size)| bits.is_multiple_of(u128::from(*size)));
    match unit {
        Some((name, size)) => format!("{}{name}", bits / u128::from(*size)),
        None => format!("{bits}bit"),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bandwidths_are_exact_or_refused() {
        for (text, bytes) in [("1mbit", 125_000), ("1.5mbit", 187_500), ("56kbit", 7000), ("100gbit", 12_500_000_000), ("8bit", 1)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for (text, advice) in [
            ("10", "write `10mbit`"),
            ("10Mbps", "write `10mbit`"),
            ("10MB/s", "write `10mbit`"),
            ("0mbit", "write `10mbit`"),
            ("1bit", "write `8bit`"),
            ("-1mbit", "write `1mbit`"),
            ("NaNmbit", "write `10mbit`"),
        ] {
            assert_eq!(parse(text).unwrap_err().advice(), advice, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(bytes in 1_u64..u64::MAX / 8) {
            prop_assert_eq!(parse(&print(bytes)), Ok(bytes));
        }
    }
}
