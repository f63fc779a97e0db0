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
    let Some(&(_, bits)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(foreign(number, digits, unit, text.trim()));
    };
    match number.times(bits).map(|bits| (bits / 8, bits % 8)) {
        Some((0, 0)) => refuse(UnitErrorKind::Zero, "10mbit".to_owned()),
        Some((bytes, 0)) => u64::try_from(bytes).or_else(|_| refuse(UnitErrorKind::TooLarge, "100gbit".to_owned())),
        // The nearest that is whole bytes.
        Some((bytes, rest)) => refuse(UnitErrorKind::TooFine, spelled((bytes + u128::from(rest >= 4)).max(1) * 8)),
        None => {
            let bytes = number.to_f64(0) * bits as f64 / 8.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rounded number that is not negative")]
            let nearest = bytes.round().max(1.0) as u128;
            refuse(UnitErrorKind::TooFine, spelled(nearest * 8))
        }
    }
}

/// The refusal of a unit that is not ours. A capital `B` is bytes; what is in small letters, or ends in `bps`, is bits to most and bytes to tc.
fn foreign(number: Decimal, digits: &str, unit: &str, text: &str) -> UnitError {
    let unit = unit.trim();
    let size = |prefix: &str| UNITS.iter().find(|(name, _)| *name != "bit" && name.starts_with(prefix));
    let first = unit.get(..1).map(str::to_ascii_lowercase).filter(|first| !first.starts_with('b'));
    let rest = if first.is_some() { unit.get(1..).unwrap_or("") } else { unit };
    let (near, bits) = match first.as_deref().map_or(Some(&UNITS[4]), size) {
        Some(&(near, bits)) => (near, u128::from(bits)),
        None => return UnitError::new(text, UnitErrorKind::UnknownUnit, vec![format!("{digits}mbit")]),
    };
    let (rest, bits) = match rest.strip_prefix('i') {
        Some(rest) if bits > 1 => (rest, 1024_u128.pow(bits.ilog10() / 3)),
        _ => (rest, bits),
    };
    let per_second =
        ["", "s", "/s", "/sec", "ps"].iter().find_map(|end| rest.strip_suffix(end).filter(|rest| ["b", "B", "bit", "bits"].contains(rest)));
    let exact = |factor: u128| number.times(u64::try_from(bits * factor).ok()?).filter(|bits| bits % 8 == 0 && *bits > 0).map(spelled);
    let write: Vec<String> = match per_second.or_else(|| rest.is_empty().then_some("bit")) {
        Some("B") => [exact(8)].into_iter().flatten().collect(),
        Some("b") => [exact(1), exact(8)].into_iter().flatten().collect(),
        Some(_) => [exact(1)].into_iter().flatten().collect(),
        None => Vec::new(),
    };
    if write.is_empty() {
        return UnitError::new(text, UnitErrorKind::UnknownUnit, vec![format!("{digits}{near}")]);
    }
    UnitError::new(text, UnitErrorKind::ForeignUnit, write)
}

/// Writes bytes a second so that it reads back as the same number.
#[must_use]
pub fn print(bytes_per_second: u64) -> String {
    spelled(u128::from(bytes_per_second) * 8)
}

fn spelled(bits: u128) -> String {
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
            ("10Mbps", "write `10mbit` or `80mbit`"),
            ("10MB/s", "write `80mbit`"),
            ("1.5MBps", "write `12mbit`"),
            ("10MiB/s", "write `83886080bit`"),
            ("10Mbit/s", "write `10mbit`"),
            ("1Gb", "write `1gbit` or `8gbit`"),
            ("10M", "write `10mbit`"),
            ("100B/s", "write `800bit`"),
            ("3parsec", "write `3mbit`"),
            ("1e3kbit", "write `1000kbit`"),
            ("0mbit", "write `10mbit`"),
            ("1bit", "write `8bit`"),
            ("12bit", "write `16bit`"),
            ("1.0000000001mbit", "write `1mbit`"),
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
