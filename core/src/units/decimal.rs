//! A decimal number, kept exactly: digits and the place of the point. The common ground of all quantities.

use super::{UnitError, UnitErrorKind};

/// Digits enough for any playbook; more are refused so that no arithmetic can overflow unnoticed.
const MAX_DIGITS: usize = 30;

/// `mantissa / 10^scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decimal {
    mantissa: u128,
    scale: u32,
}

impl Decimal {
    /// Splits a quantity into its number and what follows it, its unit.
    ///
    /// `example` is what the error proposes when the text gives no better idea.
    pub(super) fn split<'a>(text: &'a str, example: &str) -> Result<(Self, &'a str, &'a str), UnitError> {
        let whole = text.trim();
        let refuse = |kind, write: &str| Err(UnitError::new(whole, kind, vec![write.to_owned()]));
        if whole.is_empty() {
            return refuse(UnitErrorKind::Empty, example);
        }
        let lower = whole.to_ascii_lowercase();
        let bare = lower.trim_start_matches(['-', '+', '.']);
        if bare.starts_with("nan") || bare.starts_with("inf") {
            return refuse(UnitErrorKind::NotFinite, example);
        }
        if let Some(rest) = whole.strip_prefix('-') {
            let positive = rest.trim_start();
            let write = if positive.starts_with(|c: char| c.is_ascii_digit()) { positive } else { example };
            return refuse(UnitErrorKind::Negative, write);
        }
        let end = whole.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(whole.len());
        let (number, unit) = whole.split_at(end);
        if let Some((exponent, unit)) = exponent(unit) {
            let plain = Self::parse(number).and_then(|decimal| decimal.shifted(exponent));
            let write = plain.map_or_else(|| example.to_owned(), |plain| format!("{}{unit}", plain.digits()));
            return refuse(UnitErrorKind::Malformed, &write);
        }
        match Self::parse(number) {
            Some(decimal) => Ok((decimal, number, unit)),
            None if number.ends_with('.') && Self::parse(number.trim_end_matches('.')).is_some() && number.matches('.').count() == 1 => {
                refuse(UnitErrorKind::Malformed, &format!("{}{unit}", number.trim_end_matches('.')))
            }
            None if whole.starts_with('.') && Self::parse(&format!("0{number}")).is_some() => {
                refuse(UnitErrorKind::Malformed, &format!("0{whole}"))
            }
            None if number.len() > MAX_DIGITS => {
                // Of a long number it is the whole part that makes it large, and the rest that makes it fine.
                let whole_digits = number.split('.').next().unwrap_or(number).trim_start_matches('0').len();
                refuse(if whole_digits > MAX_DIGITS { UnitErrorKind::TooLarge } else { UnitErrorKind::TooFine }, example)
            }
            None => refuse(UnitErrorKind::Malformed, example),
        }
    }

    fn parse(number: &str) -> Option<Self> {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() > MAX_DIGITS {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let mantissa = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { mantissa, scale: u32::try_from(fraction.len()).ok()? })
    }

    /// Times a power of ten; `None` if it would have more digits than are read.
    fn shifted(self, exponent: i32) -> Option<Self> {
        let scale = i32::try_from(self.scale).ok()?.checked_sub(exponent)?;
        if usize::try_from(scale.unsigned_abs()).is_ok_and(|scale| scale >= MAX_DIGITS) {
            return None;
        }
        let factor = 10_u128.checked_pow(u32::try_from(-scale.min(0)).ok()?)?;
        let shifted = Self { mantissa: self.mantissa.checked_mul(factor)?, scale: u32::try_from(scale.max(0)).ok()? };
        (shifted.digits().len() <= MAX_DIGITS).then_some(shifted)
    }

    pub(super) const fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    /// `self * factor` as a whole number; `None` if it is not one. What exceeds 128 bits saturates.
    pub(super) fn times(self, factor: u64) -> Option<u128> {
        // At most 30 digits, so the power fits; a product that does not fit is beyond every unit's limit anyway.
        let divisor = 10_u128.pow(self.scale);
        let Some(product) = self.mantissa.checked_mul(u128::from(factor)) else {
            return Some(u128::MAX);
        };
        product.is_multiple_of(divisor).then(|| product / divisor)
    }

    /// Whether it is more than a whole number.
    pub(super) fn exceeds(self, whole: u32) -> bool {
        self.mantissa > u128::from(whole).saturating_mul(10_u128.pow(self.scale))
    }

    /// The digits, without zeros that say nothing.
    pub(super) fn digits(self) -> String {
        let digits = format!("{:0>width$}", self.mantissa, width = self.scale as usize + 1);
        let (whole, fraction) = digits.split_at(digits.len() - self.scale as usize);
        if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
    }

    /// The float that is nearest to `self / 10^shift`.
    pub(super) fn to_f64(self, shift: u32) -> f64 {
        // The standard parser rounds correctly; a division here would round twice.
        format!("{}e-{}", self.mantissa, self.scale + shift).parse().unwrap_or(f64::MAX)
    }
}

/// The power of ten that a text begins with, as in `e-9%`, and what follows it.
fn exponent(text: &str) -> Option<(i32, &str)> {
    let rest = text.strip_prefix(['e', 'E'])?;
    let digits = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, unit) = digits.split_at(end);
    let size: i32 = digits.parse().ok()?;
    Some((if rest.starts_with('-') { -size } else { size }, unit))
}
