//! What an answer means, whatever its protocol.

use crate::event::{ANSWERED, ANSWERED_ERROR};
use crate::status::{ErrorName, Meaning, Status};

/// An answer, as the books want it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// What it says.
    pub(crate) status: Status,
    /// What that means.
    pub(crate) meaning: Meaning,
    /// The pause that it asks for before another attempt, nanoseconds.
    pub(crate) wait_ns: Option<u64>,
}

impl Answer {
    /// With the meaning that the status has by itself.
    #[must_use]
    pub(crate) const fn of(status: Status) -> Self {
        Self { status, meaning: status.meaning(), wait_ns: None }
    }

    /// HTTP's.
    #[must_use]
    pub(crate) const fn code(code: u16) -> Self {
        Self::of(Status::Code(code))
    }

    /// An error of a protocol without codes.
    #[must_use]
    pub(crate) const fn error(name: ErrorName, meaning: Meaning) -> Self {
        Self { status: Status::Error(name), meaning, wait_ns: None }
    }

    /// What the kernel tells of an answer of such a protocol, given what the error's own bytes say.
    #[must_use]
    pub(crate) fn told(status: u16, error: impl FnOnce() -> Option<Self>) -> Self {
        match status {
            ANSWERED => Self::of(Status::Ok),
            ANSWERED_ERROR => error().unwrap_or(Self::error(ErrorName::OTHER, Meaning::TurnedDown)),
            code => Self::code(code),
        }
    }
}
