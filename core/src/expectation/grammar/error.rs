//! What a line can be refused for.

use std::ops::Range;

/// The first thing in a line that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct GrammarError {
    /// What is wrong, in kind.
    pub kind: GrammarErrorKind,
    /// Where, in bytes of the line.
    pub range: Range<usize>,
    /// What is wrong, in words.
    pub message: String,
    /// What to do.
    pub advice: Option<String>,
    /// What to put there instead: the line then reads.
    pub replace: Option<String>,
    /// Where it belongs, if not at `range`.
    pub replace_at: Option<Range<usize>>,
}

/// The ways in which a line can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrammarErrorKind {
    /// A word is missing, or too many.
    Syntax,
    /// A metric that does not exist.
    UnknownMetric,
    /// An edge or a phase that does not exist.
    UnknownName,
    /// A metric or form of a later version.
    NotInThisVersion,
    /// A form that this metric does not have, or not on this edge.
    NotAllowed,
    /// A value that cannot be read, or has the wrong unit.
    Value,
    /// A value that makes no sense.
    OutOfRange,
}

impl GrammarError {
    pub(super) fn new(kind: GrammarErrorKind, range: Range<usize>, message: impl Into<String>) -> Self {
        Self { kind, range, message: message.into(), advice: None, replace: None, replace_at: None }
    }

    /// The line with what is proposed in its place.
    pub(crate) fn with(&self, line: &str) -> Option<String> {
        let range = self.replace_at.as_ref().unwrap_or(&self.range);
        Some(format!("{}{}{}", line.get(..range.start)?, self.replace.as_ref()?, line.get(range.end..)?))
    }

    pub(super) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    pub(super) fn replace(mut self, text: impl Into<String>) -> Self {
        self.replace = Some(text.into());
        self
    }

    /// What to put somewhere else than where the error is.
    pub(super) fn replace_in(mut self, range: Range<usize>, text: impl Into<String>) -> Self {
        self.replace_at = Some(range);
        self.replace(text)
    }
}
