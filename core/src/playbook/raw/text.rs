//! From the YAML library's values and locations to nodes and places.

use serde_saphyr::{Location, Spanned};

use super::super::node::{Entry, Key, Node, Value};
use super::super::problem::{Code, Draft, Place, Source};
use crate::yaml::{self, Raw};

/// A text with its position in the whole that places refer to.
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
    pub(super) offset: usize,
    pub(super) source: Source,
}

impl Text<'_> {
    pub(super) fn node(&self, raw: &Spanned<Raw>) -> Node {
        let mut place = self.located(&raw.referenced);
        let value = match &raw.value {
            Raw::Typed => match self.written(&raw.defined) {
                written if yaml::is_null(written) => Value::Null,
                written => Value::Scalar(written.to_owned()),
            },
            Raw::Text(text) => Value::Scalar(text.clone()),
            Raw::List(items) => Value::List(items.iter().map(|item| self.node(item)).collect()),
            Raw::Map(entries) => Value::Map(entries.iter().map(|(key, value)| self.entry(key, value)).collect()),
        };
        // A block's own extent is empty, and a brace says little: a first key, or a first dash, stands for the whole.
        let extent = self.text.get(place.start - self.offset..place.end - self.offset);
        match &value {
            Value::Map(entries) if matches!(extent, Some("" | "{")) => {
                place = entries.first().map_or(place, |entry| entry.key.place.clone());
            }
            Value::List(_) if extent == Some("") => place = self.character(place.start - self.offset),
            _ => {}
        }
        Node { place, value }
    }

    fn entry(&self, key: &Spanned<Raw>, value: &Spanned<Raw>) -> Entry {
        let Node { place, value: text } = self.node(key);
        let text = match text {
            Value::Scalar(text) => text,
            Value::Null | Value::List(_) | Value::Map(_) => "null".to_owned(),
        };
        Entry { key: Key { place, text }, value: self.node(value) }
    }

    /// The source text of a location.
    fn written(&self, location: &Location) -> &str {
        &self.text[yaml::range(self.text, location)]
    }

    fn located(&self, location: &Location) -> Place {
        let range = yaml::range(self.text, location);
        self.place(range.start, range.end)
    }

    pub(super) fn place(&self, start: usize, end: usize) -> Place {
        Place { source: self.source, start: self.offset + start, end: self.offset + end }
    }

    /// The place of the single character at a byte offset; empty at the end of a line.
    fn character(&self, start: usize) -> Place {
        let next = self.text.get(start..).and_then(|rest| rest.chars().next()).filter(|c| !matches!(c, '\n' | '\r'));
        self.place(start, start + next.map_or(0, char::len_utf8))
    }

    pub(super) fn syntax_error(&self, error: &serde_saphyr::Error) -> Draft {
        let error = error.without_snippet();
        let place = error.location().map_or_else(|| self.place(0, 0), |location| self.character(yaml::error_at(self.text, &location)));
        match error {
            serde_saphyr::Error::MultipleDocuments { .. } => Draft::new(Code::Syntax, &place, "more than one document")
                .label("the second starts here")
                .advice("write one playbook a file"),
            serde_saphyr::Error::Budget { .. }
            | serde_saphyr::Error::AliasReplayLimitExceeded { .. }
            | serde_saphyr::Error::AliasReplayStackDepthExceeded { .. } => {
                Draft::new(Code::Syntax, &place, "larger or deeper than any playbook").label("reading stopped here")
            }
            _ => Draft::new(Code::Syntax, &place, yaml::message(error)).label("this cannot be read as YAML"),
        }
    }
}
