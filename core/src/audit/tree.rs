//! YAML or JSON as a tree of values with their places.
//!
//! Keys are compared without case, `_` and `-`: protobuf's JSON, its text fields, Spring and people write the same name
//! in different ways.

use std::ops::Range;

/// A value and where it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) range: Range<usize>,
    pub(super) value: Value,
}

/// A value. A scalar is its text without quotes.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_range: Range<usize>,
    pub(super) value: Node,
}

fn same(a: &str, b: &str) -> bool {
    fn letters(text: &str) -> impl Iterator<Item = u8> + '_ {
        text.bytes().filter(|c| !matches!(c, b'_' | b'-')).map(|c| c.to_ascii_lowercase())
    }
    // Asked for every key of a large dump: most differ in their first letter.
    letters(a).eq(letters(b))
}

impl Entry {
    pub(super) fn is(&self, key: &str) -> bool {
        same(&self.key, key)
    }
}

impl Node {
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; a single value is a list of one, nothing is a list of none.
    pub(super) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            Value::Null => &[],
            _ => std::slice::from_ref(self),
        }
    }

    /// The entry of a key; the last one, if it stands there twice.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().rev().find(|entry| entry.is(key))
    }

    /// The value of a key that is there and not null.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value).filter(|node| node.value != Value::Null)
    }

    /// The value at the end of a path of keys. A key with dots in it (Spring writes `a.b: x`) counts as several.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Self> {
        let [first, rest @ ..] = path else {
            return Some(self);
        };
        if let Some(found) = self.get(first).and_then(|node| node.at(rest)) {
            return Some(found);
        }
        self.entries().iter().filter(|entry| entry.key.contains('.')).find_map(|entry| {
            let parts: Vec<&str> = entry.key.split('.').collect();
            let fits = parts.len() <= path.len() && parts.iter().zip(path).all(|(part, key)| same(part, key));
            if fits { entry.value.at(&path[parts.len()..]) } else { None }
        })
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_true(&self) -> bool {
        self.text().is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// Protobuf wraps numbers that may be absent: `{value: 3}` is 3.
    pub(super) fn unwrapped(&self) -> &Self {
        match self.entries() {
            [only] if only.is("value") => &only.value,
            _ => self,
        }
    }

    /// Calls a function for every mapping in the tree, outer ones first.
    pub(super) fn each_map<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        match &self.value {
            Value::Map(entries) => {
                visit(self);
                for entry in entries {
                    entry.value.each_map(visit);
                }
            }
            Value::List(items) => {
                for item in items {
                    item.each_map(visit);
                }
            }
            Value::Null | Value::Scalar(_) => {}
        }
    }
}
