//! How an answer says that it went, in all protocols: a few bytes, and the text under which it is counted.

use std::fmt;

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// HTTP's code.
    Code(u16),
    /// gRPC's status.
    Grpc(u8),
    /// No error, in a protocol without codes.
    Ok,
    /// An error by its name or number.
    Error(ErrorName),
}

/// What an answer means for whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// It was done, or sent elsewhere.
    Good,
    /// It was turned down for good: asking again cannot help.
    TurnedDown,
    /// The server failed at it, or had no room for it.
    Failed,
}

impl Status {
    /// What the status means. Of an error, see [`crate::track`]'s protocols: there the text matters too.
    #[must_use]
    pub const fn meaning(self) -> Meaning {
        match self {
            Self::Code(429 | 500..) => Meaning::Failed,
            Self::Code(400 | 401 | 403 | 404 | 405 | 409 | 422) => Meaning::TurnedDown,
            Self::Code(_) | Self::Ok | Self::Grpc(0) => Meaning::Good,
            // INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE, UNAUTHENTICATED
            Self::Grpc(3 | 5 | 6 | 7 | 9 | 11 | 16) | Self::Error(_) => Meaning::TurnedDown,
            Self::Grpc(_) => Meaning::Failed,
        }
    }

    /// The class under which metrics count it.
    #[must_use]
    pub const fn class(self) -> &'static str {
        match self {
            Self::Code(100..=199) => "1xx",
            Self::Code(200..=299) => "2xx",
            Self::Code(300..=399) => "3xx",
            Self::Code(400..=499) => "4xx",
            Self::Code(500..=599) => "5xx",
            Self::Code(_) => "other",
            Self::Ok | Self::Grpc(0) => "ok",
            Self::Grpc(_) | Self::Error(_) => "error",
        }
    }

    /// The status of gRPC's number; what is no number of its is `UNKNOWN`, as clients take it.
    #[must_use]
    pub fn grpc(value: &[u8]) -> Self {
        const UNKNOWN: u8 = 2;
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        Self::Grpc(number.filter(|number| usize::from(*number) < GRPC.len()).unwrap_or(UNKNOWN))
    }
}

/// gRPC statuses by number; 0 is success.
pub(crate) const GRPC: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

impl fmt::Display for Status {
    /// `200`, `grpc:UNAVAILABLE`, `ok`, `err:1040`, `err:MOVED`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Grpc(number) => write!(f, "grpc:{}", GRPC.get(usize::from(*number)).unwrap_or(&"UNKNOWN")),
            Self::Ok => f.write_str(OK),
            Self::Error(name) => write!(f, "{ERROR}{}", name.as_str()),
        }
    }
}

/// The text of [`Status::Ok`].
pub const OK: &str = "ok";
/// What the text of an error begins with.
pub const ERROR: &str = "err:";

/// The name or number of an error: capitals, digits and underscores, 15 at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorName {
    bytes: [u8; Self::LONGEST],
    len: u8,
}

impl ErrorName {
    const LONGEST: usize = 15;
    /// An error whose name was not seen, or is none.
    pub const OTHER: Self = Self { bytes: *b"other\0\0\0\0\0\0\0\0\0\0", len: 5 };

    /// No error of its own: one that came before had the request passed over.
    pub const SKIPPED: Self = Self { bytes: *b"skipped\0\0\0\0\0\0\0\0", len: 7 };

    /// The name that some bytes are; [`Self::OTHER`] if they are none. Servers may let scripts choose them, hence the narrow alphabet.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let allowed = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
        if text.is_empty() || text.len() > Self::LONGEST || !text.iter().all(allowed) {
            return Self::OTHER;
        }
        let mut bytes = [0; Self::LONGEST];
        bytes[..text.len()].copy_from_slice(text);
        Self { bytes, len: u8::try_from(text.len()).unwrap_or(0) }
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or("other")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_its_text_meaning_and_class() {
        let error = |name: &str| Status::Error(ErrorName::new(name.as_bytes()));
        for (status, text, meaning, class) in [
            (Status::Code(200), "200", Meaning::Good, "2xx"),
            (Status::Code(404), "404", Meaning::TurnedDown, "4xx"),
            (Status::Code(408), "408", Meaning::Good, "4xx"),
            (Status::Code(429), "429", Meaning::Failed, "4xx"),
            (Status::Code(503), "503", Meaning::Failed, "5xx"),
            (Status::grpc(b"0"), "grpc:OK", Meaning::Good, "ok"),
            (Status::grpc(b"14"), "grpc:UNAVAILABLE", Meaning::Failed, "error"),
            (Status::grpc(b"5"), "grpc:NOT_FOUND", Meaning::TurnedDown, "error"),
            (Status::grpc(b"17"), "grpc:UNKNOWN", Meaning::Failed, "error"),
            (Status::grpc(b""), "grpc:UNKNOWN", Meaning::Failed, "error"),
            (Status::Ok, "ok", Meaning::Good, "ok"),
            (error("1040"), "err:1040", Meaning::TurnedDown, "error"),
            (error("MOVED"), "err:MOVED", Meaning::TurnedDown, "error"),
        ] {
            assert_eq!((status.to_string().as_str(), status.meaning(), status.class()), (text, meaning, class));
        }
    }

    #[test]
    fn what_is_no_name_is_other() {
        for text in ["", "lower", "TWO WORDS", "A_NAME_OF_SIXTEEN"] {
            assert_eq!(ErrorName::new(text.as_bytes()), ErrorName::OTHER, "{text}");
        }
        assert_eq!(ErrorName::OTHER.as_str(), "other");
    }
}
