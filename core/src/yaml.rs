//! YAML, and JSON with it, as the library hands it over, and where it stands in the text.
//!
//! Playbooks and audited configurations are read to trees of their own from here; their limits differ, the reading does not.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// A value as the YAML library hands it over.
pub(crate) enum Raw {
    /// Nothing, or a scalar that the library took for a number or a truth value: its text is in the source.
    Typed,
    /// A scalar, unescaped.
    Text(String),
    /// A sequence.
    List(Vec<Spanned<Raw>>),
    /// A mapping; the keys are scalars.
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map = Vec::new();
        while let Some((key, value)) = entries.next_entry::<Spanned<Raw>, Spanned<Raw>>()? {
            if matches!(key.value, Raw::List(_) | Raw::Map(_)) {
                return Err(A::Error::custom("a key must be a single word"));
            }
            map.push((key, value));
        }
        Ok(Raw::Map(map))
    }
}

/// Whether what is written for a [`Raw::Typed`] is nothing.
pub(crate) fn is_null(written: &str) -> bool {
    matches!(written, "" | "~" | "null" | "Null" | "NULL")
}

/// Length of the byte order mark that a text begins with. The parser skips it and counts places from behind it.
pub(crate) fn mark(text: &str) -> usize {
    if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 }
}

/// Byte range of a location, on character boundaries whatever the library says.
pub(crate) fn range(text: &str, location: &Location) -> Range<usize> {
    let span = location.span();
    let number = |value: Option<u64>| value.and_then(|value| usize::try_from(value).ok()).unwrap_or(0);
    let start = text.floor_char_boundary(number(span.byte_offset()).min(text.len()));
    let end = text.floor_char_boundary(start.saturating_add(number(span.byte_len())).min(text.len()));
    // A block's extent ends before the next token, which may be lines below: its own text only.
    start..start + text[start..end].trim_end().len()
}

/// Byte offset of an error. Errors come with line and column (in characters, from one) only.
pub(crate) fn error_at(text: &str, location: &Location) -> usize {
    let number = |value: u64| usize::try_from(value.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut start = 0;
    let mut lines = text.split_inclusive('\n');
    for line in lines.by_ref().take(number(location.line())) {
        start += line.len();
    }
    let line = lines.next().unwrap_or_default().trim_end();
    start + line.char_indices().nth(number(location.column())).map_or(line.len(), |(at, _)| at)
}

/// What an error says, without the place, which a caret tells better.
pub(crate) fn message(error: &serde_saphyr::Error) -> String {
    let mut text = error.to_string();
    text.truncate(text.find(" at line ").or_else(|| text.find('\n')).unwrap_or(text.len()));
    text
}
