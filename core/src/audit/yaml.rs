//! YAML, and JSON with it, to trees with places. The only module of the auditor that knows the YAML library.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Location, NonFiniteFloatPolicy, Spanned};

use super::Refused;
use super::source::Source;
use super::tree::{Entry, Node, Value};

/// Larger files are refused before they are parsed: an Envoy `config_dump` of a large mesh is a few megabytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Reads every document of a text.
pub(super) fn read(source: &Source<'_>) -> Result<Vec<Node>, Refused> {
    let text = source.text();
    if text.len() > MAX_BYTES {
        return Err(source.refuse(0..0, format!("larger than {} MiB", MAX_BYTES / 1024 / 1024)));
    }
    // The parser skips a byte order mark; places are counted from behind it.
    let skipped = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let places = Places { text: &text[skipped..], skipped };
    match parse(places.text) {
        Ok(documents) => Ok(documents.iter().map(|raw| places.node(raw)).filter(|node| node.value != Value::Null).collect()),
        Err(error) => {
            let error = error.without_snippet();
            let at = error.location().map_or(0..0, |location| places.error(&location));
            let words = error.to_string();
            let end = words.find(" at line ").or_else(|| words.find('\n')).unwrap_or(words.len());
            Err(source.refuse(at, &words[..end]).label("this cannot be read as YAML or JSON"))
        }
    }
}

fn parse(text: &str) -> Result<Vec<Spanned<Raw>>, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 64,
            flow_nesting_limit: 64,
            max_nodes: 1_000_000,
            max_events: 3_000_000,
            max_anchors: 1_000,
            max_aliases: 10_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
            max_replay_stack_depth: 16,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::Merge,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    serde_saphyr::from_multiple_with_options(text, options)
}

/// A value as the YAML library hands it over.
enum Raw {
    /// Nothing, or a scalar that the library took for a number or a truth value: its text is in the source.
    Typed,
    Text(String),
    List(Vec<Spanned<Raw>>),
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

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Raw, E> {
        Ok(Raw::Typed)
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

/// From the library's locations to byte ranges of the file.
struct Places<'a> {
    text: &'a str,
    skipped: usize,
}

impl Places<'_> {
    fn node(&self, raw: &Spanned<Raw>) -> Node {
        let range = self.range(&raw.referenced);
        let value = match &raw.value {
            Raw::Typed => match self.written(&raw.defined) {
                "" | "~" | "null" | "Null" | "NULL" => Value::Null,
                written => Value::Scalar(written.to_owned()),
            },
            Raw::Text(text) => Value::Scalar(text.clone()),
            Raw::List(items) => Value::List(items.iter().map(|item| self.node(item)).collect()),
            Raw::Map(entries) => Value::Map(entries.iter().map(|(key, value)| self.entry(key, value)).collect()),
        };
        // A block's own extent is empty, and a brace says little: the first key stands for the whole.
        let first = match &value {
            Value::Map(entries) => entries.first().map(|entry| entry.key_range.clone()),
            Value::List(items) if range.is_empty() => items.first().map(|item| item.range.clone()),
            _ => None,
        };
        Node { range: first.unwrap_or(range), value }
    }

    fn entry(&self, key: &Spanned<Raw>, value: &Spanned<Raw>) -> Entry {
        let node = self.node(key);
        let key = node.text().unwrap_or("null").to_owned();
        Entry { key, key_range: node.range, value: self.node(value) }
    }

    fn written(&self, location: &Location) -> &str {
        let range = self.range(location);
        self.text.get(range.start - self.skipped..range.end - self.skipped).unwrap_or_default()
    }

    fn range(&self, location: &Location) -> Range<usize> {
        let span = location.span();
        let number = |value: Option<u64>| value.and_then(|value| usize::try_from(value).ok()).unwrap_or(0);
        let start = self.text.floor_char_boundary(number(span.byte_offset()).min(self.text.len()));
        let end = start.saturating_add(number(span.byte_len())).min(self.text.len());
        let end = self.text.floor_char_boundary(end);
        // A block's extent ends before the next token, which may be lines below: show its own text only.
        let shown = self.text[start..end].trim_end();
        let shown = shown.split_once('\n').map_or(shown, |(line, _)| line).trim_end();
        // A scalar that spans lines is needed whole; it is never typed, so its text does not come from here.
        start + self.skipped..start + self.skipped + shown.len()
    }

    /// Errors come with line and column (in characters, from one) only.
    fn error(&self, location: &Location) -> Range<usize> {
        let number = |value: u64| usize::try_from(value.saturating_sub(1)).unwrap_or(usize::MAX);
        let mut start = 0;
        let mut lines = self.text.split_inclusive('\n');
        for line in lines.by_ref().take(number(location.line())) {
            start += line.len();
        }
        let line = lines.next().unwrap_or_default().trim_end();
        let column = line.char_indices().nth(number(location.column())).map_or(line.len(), |(at, _)| at);
        let at = start + column + self.skipped;
        at..at + 1
    }
}
