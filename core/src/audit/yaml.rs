//! YAML, and JSON with it, to trees with places.

use std::ops::Range;

use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{Location, NonFiniteFloatPolicy, Spanned};

use super::Refused;
use super::source::Source;
use super::tree::{Entry, Node, Value};
use crate::yaml::{self, Raw};

/// Larger files are refused before they are parsed: an Envoy `config_dump` of a large mesh is a few megabytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Reads every document of a text.
pub(super) fn read(source: &Source<'_>) -> Result<Vec<Node>, Refused> {
    let text = source.text();
    if text.len() > MAX_BYTES {
        return Err(source.refuse(0..0, format!("larger than {} MiB", MAX_BYTES / 1024 / 1024)));
    }
    let skipped = yaml::mark(text);
    let places = Places { text: &text[skipped..], skipped };
    match parse(places.text) {
        Ok(documents) => Ok(documents.iter().map(|raw| places.node(raw)).filter(|node| node.value != Value::Null).collect()),
        Err(error) => {
            let error = error.without_snippet();
            let at = error.location().map_or(0..0, |location| places.error(&location));
            Err(source.refuse(at, yaml::message(error)).label("this cannot be read as YAML or JSON"))
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
                written if yaml::is_null(written) => Value::Null,
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

    /// The first line of a location's text. A scalar that spans lines is needed whole; it is never typed, so its text does not come from here.
    fn range(&self, location: &Location) -> Range<usize> {
        let range = yaml::range(self.text, location);
        let shown = self.text[range.clone()].lines().next().unwrap_or_default().trim_end();
        let start = range.start + self.skipped;
        start..start + shown.len()
    }

    fn error(&self, location: &Location) -> Range<usize> {
        let at = yaml::error_at(self.text, location) + self.skipped;
        at..at + 1
    }
}
