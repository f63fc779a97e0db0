//! Quantities as people write them in a playbook, parsed exactly or refused.
//!
//! Every parser takes the text as written and answers with a value or with a [`UnitError`] that says what to write
//! instead. Decimals are never read through a binary float: `0.5ms` is 500000 nanoseconds, not about that.

use std::fmt;

mod decimal;

pub mod duration;

pub mod share;

pub mod rate;

pub mod bandwidth;

pub mod net;

/// Why a text is no quantity of the kind that was wanted, and what would be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct UnitError {
    /// The text as written.
    pub text: String,
    /// What is wrong with it.
    pub kind: UnitErrorKind,
    /// What to write instead, best first; never empty.
    pub write: Vec<String>,
}

/// The ways in which a quantity can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitErrorKind {
    /// Nothing is there.
    Empty,
    /// Not a number, or not written as one here (`1e3`, `.5`, `1_000`).
    Malformed,
    /// Below zero.
    Negative,
    /// NaN or an infinity.
    NotFinite,
    /// A number alone, where only a unit says what is meant.
    NoUnit,
    /// A number with something else than a unit of this quantity behind it.
    UnknownUnit,
    /// A unit that is used elsewhere, and is told exactly, or in its two readings, in ours.
    ForeignUnit,
    /// Finer than the quantity's resolution.
    TooFine,
    /// A share so near to nothing or to all that the kernel's draws of 32 bits cannot tell it from that.
    BeyondDraws,
    /// Beyond the quantity's largest value.
    TooLarge,
    /// Zero, where that means nothing.
    Zero,
    /// A port where an address belongs.
    PortForAddress,
    /// An address where a port belongs.
    AddressForPort,
    /// A name where an address belongs.
    NameForAddress,
    /// A network whose address has bits set beyond its prefix.
    HostBits,
    /// `0.0.0.0` or `::`, on which a server may listen, but which no packet comes from or goes to.
    Unspecified,
    /// A range whose end comes before its start.
    Backwards,
}

/// What is proposed where a text gives no idea.
const EXAMPLES: [&str; 7] = ["30%", "100ms", "10mbit", "200/s", net::EXAMPLES[0], net::EXAMPLES[1], net::EXAMPLES[2]];

impl UnitError {
    /// Whether what is proposed is only how such a quantity looks, not what may have been meant.
    pub(crate) fn is_example(&self) -> bool {
        use UnitErrorKind::*;
        let says_nothing = !matches!(self.kind, Negative | NoUnit | UnknownUnit | ForeignUnit | Backwards | AddressForPort);
        says_nothing && self.write.first().is_some_and(|write| EXAMPLES.contains(&write.as_str()))
    }

    pub(crate) fn new(text: &str, kind: UnitErrorKind, write: Vec<String>) -> Self {
        Self { text: crate::wording::excerpt(text), kind, write }
    }

    /// The alternatives in words: "write `0.5s` or `500ms`".
    #[must_use]
    pub fn advice(&self) -> String {
        let quoted: Vec<String> = self.write.iter().map(|text| format!("`{text}`")).collect();
        format!("write {}", quoted.join(" or "))
    }

    fn sentence(&self) -> String {
        let text = &self.text;
        match self.kind {
            UnitErrorKind::Empty => "a value is missing".to_owned(),
            UnitErrorKind::Malformed => format!("`{text}` cannot be read here"),
            UnitErrorKind::Negative => format!("`{text}` is negative"),
            UnitErrorKind::NotFinite => format!("`{text}` is not a finite number"),
            UnitErrorKind::NoUnit => format!("`{text}` has no unit"),
            UnitErrorKind::UnknownUnit | UnitErrorKind::ForeignUnit => format!("`{text}` has a unit that is not known here"),
            UnitErrorKind::TooFine => format!("`{text}` is finer than can be told apart"),
            UnitErrorKind::BeyondDraws => {
                format!("`{text}` is nearer to 0% or 100% than the kernel's 32 bits can tell")
            }
            UnitErrorKind::TooLarge => format!("`{text}` is too large"),
            UnitErrorKind::Zero => format!("`{text}` is zero"),
            UnitErrorKind::PortForAddress => {
                format!("`{text}` is a port, where an address belongs")
            }
            UnitErrorKind::AddressForPort => {
                format!("`{text}` is an address, where a port belongs")
            }
            UnitErrorKind::NameForAddress => format!("`{text}` is not an address"),
            UnitErrorKind::HostBits => format!("`{text}` has bits set beyond its prefix"),
            UnitErrorKind::Unspecified => format!("`{text}` stands for every address when listening, and no packet has it"),
            UnitErrorKind::Backwards => format!("`{text}` ends before it starts"),
        }
    }
}

/// Writes a finite number that is not negative in plain decimals, so that reading it back gives the same number.
pub(crate) struct Plain(pub(crate) f64);

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Display` of f64 is the shortest decimal that reads back as itself, and never uses an exponent.
        write!(f, "{}", self.0)
    }
}
