//! The playbook as a tree of values with their places: what pass one leaves for pass two.

use super::problem::Place;

/// A value and where it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// A value. Scalars are not typed here: what `0.5` means is for its key to say.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// A scalar as written, without quotes.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in file order; keys may repeat.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) value: Node,
}

/// A key and where it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) place: Place,
    pub(super) text: String,
}

impl Value {
    /// What it is, in words.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}
