//! The ways in which a call can fail, as the layer above it sees them. A layer multiplies calls only for the kinds that it retries.

use std::collections::BTreeSet;
use std::fmt;

use crate::status::GRPC;

/// One way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The connection was refused.
    Refused,
    /// The connection was not made in time.
    ConnectTimeout,
    /// The connection broke after it was made, before an answer came.
    Reset,
    /// No answer came in time.
    Timeout,
    /// Turned away before anybody worked on it: HTTP/2's `REFUSED_STREAM`, a full queue.
    Rejected,
    /// An answer with this HTTP status.
    Http(u16),
    /// An answer with this gRPC status, 1 to 16.
    Grpc(u8),
}

/// gRPC's UNAVAILABLE, which a gRPC client also makes of every broken connection.
pub(super) const UNAVAILABLE: u8 = 14;

impl Kind {
    /// The connection-level kinds and the statuses that every audit starts from.
    pub const BASE: [Self; 13] = [
        Self::Refused,
        Self::ConnectTimeout,
        Self::Reset,
        Self::Timeout,
        Self::Rejected,
        Self::Http(429),
        Self::Http(500),
        Self::Http(502),
        Self::Http(503),
        Self::Http(504),
        Self::Grpc(8),
        Self::Grpc(13),
        Self::Grpc(UNAVAILABLE),
    ];

    /// Reads a kind as [`fmt::Display`] writes it; a bare number is an HTTP status, a gRPC status may stand without `grpc:`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let known = Self::BASE.into_iter().find(|kind| kind.to_string() == text);
        known.or_else(|| grpc(text.strip_prefix("grpc:").unwrap_or(text)).map(Self::Grpc)).or_else(|| {
            let digits = text.strip_prefix("http:").unwrap_or(text);
            let status = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
            (100..=599).contains(&status).then_some(Self::Http(status))
        })
    }

    /// The gRPC status that a gRPC client reports for it, after gRPC's table of HTTP statuses. `None` for a call that ran out of time: its
    /// deadline covers every attempt, so nothing is left to retry in.
    pub(super) const fn as_grpc(self) -> Option<u8> {
        Some(match self {
            Self::Timeout => return None,
            Self::Refused | Self::ConnectTimeout | Self::Reset | Self::Rejected | Self::Http(429 | 502 | 503 | 504) => UNAVAILABLE,
            Self::Http(400) => 13,
            Self::Http(401) => 16,
            Self::Http(403) => 7,
            Self::Http(404) => 12,
            Self::Http(_) => 2,
            Self::Grpc(code) => code,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("refused"),
            Self::ConnectTimeout => f.write_str("connect-timeout"),
            Self::Reset => f.write_str("reset"),
            Self::Timeout => f.write_str("timeout"),
            Self::Rejected => f.write_str("rejected"),
            Self::Http(status) => write!(f, "http:{status}"),
            Self::Grpc(code) => write!(f, "grpc:{}", GRPC.get(usize::from(*code)).unwrap_or(&"UNKNOWN")),
        }
    }
}

/// A gRPC status by its name (any case) or number; success is none.
pub(super) fn grpc(text: &str) -> Option<u8> {
    let upper = text.trim().to_ascii_uppercase().replace('-', "_");
    let at = GRPC.iter().position(|name| *name == upper)?;
    u8::try_from(at).ok().filter(|code| *code > 0)
}

/// A set of kinds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kinds(BTreeSet<Kind>);

impl Kinds {
    /// Everything that can fail, with every status from 400 on.
    #[must_use]
    pub fn all() -> Self {
        let http = (400..=599).map(Kind::Http);
        let grpc = (1..=16).map(Kind::Grpc);
        Self(Kind::BASE.into_iter().chain(http).chain(grpc).collect())
    }

    /// Whether it is in the set.
    #[must_use]
    pub fn contains(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Kind> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn add(&mut self, kinds: impl IntoIterator<Item = Kind>) {
        self.0.extend(kinds);
    }

    /// The kinds that were named, without the statuses that came in as part of a whole class such as `5xx`.
    pub(super) fn singled_out(&self) -> impl Iterator<Item = Kind> + '_ {
        let mut classes = [0_u16; 6];
        let mut grpc = 0;
        for kind in &self.0 {
            match kind {
                Kind::Http(status) => classes[usize::from(status / 100).min(5)] += 1,
                Kind::Grpc(_) => grpc += 1,
                _ => {}
            }
        }
        let whole = move |status: u16| classes[usize::from(status / 100).min(5)] > 20;
        let grpc = grpc > 12;
        self.iter().filter(move |kind| match kind {
            Kind::Http(status) => !whole(*status),
            Kind::Grpc(_) => !grpc,
            _ => true,
        })
    }
}

impl FromIterator<Kind> for Kinds {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        Self(kinds.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_back_as_it_is_written() {
        for kind in Kinds::all().iter() {
            assert_eq!(Kind::parse(&kind.to_string()), Some(kind), "{kind}");
        }
        assert_eq!(Kind::parse("503"), Some(Kind::Http(503)));
        assert_eq!(Kind::parse("unavailable"), Some(Kind::Grpc(UNAVAILABLE)));
        for text in ["", "OK", "grpc:OK", "99", "600", "http:+503", "http:", "slow"] {
            assert_eq!(Kind::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_class_of_statuses_is_not_singled_out() {
        let mut kinds: Kinds = (500..=599).map(Kind::Http).collect();
        kinds.add([Kind::Http(429), Kind::Reset]);
        assert_eq!(kinds.singled_out().collect::<Vec<_>>(), [Kind::Reset, Kind::Http(429)]);
    }
}
