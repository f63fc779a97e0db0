//! Taking a mapping apart by its known keys, and reporting everything that is in the way.

use super::node::{Entry, Node, Value};
use super::problem::{COMMA, Code, Draft, Place, Problems};
use crate::expectation::grammar::mend;
use crate::units::{UnitError, UnitErrorKind};
use crate::wording::{listed, nearest};

/// Most keys of one mapping; no playbook needs as many, and every one is compared with every other.
const MAX_KEYS: usize = 200;

/// The keys that a mapping may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    /// What the mapping is, for messages: "a phase".
    pub(super) of: &'static str,
    /// Keys of this version.
    pub(super) known: &'static [&'static str],
    /// Keys that the design has and this version has not.
    pub(super) later: &'static [&'static str],
    /// What to offer instead of a later key.
    pub(super) offer: &'static [&'static str],
}

impl Keys {
    /// Keys of which all are in this version.
    pub(super) const fn new(of: &'static str, known: &'static [&'static str]) -> Self {
        Self { of, known, later: &[], offer: known }
    }
}

/// A mapping whose keys have been checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'n> {
    entries: &'n [Entry],
    place: &'n Place,
    keys: Keys,
}

impl<'n> Fields<'n> {
    /// Checks the keys; unknown and repeated ones are reported and then ignored. `None` if it is no mapping.
    pub(super) fn open(node: &'n Node, place: &'n Place, keys: Keys, problems: &mut Problems<'_>) -> Option<Self> {
        let entries = entries(node, place, keys.of, problems)?;
        for (index, entry) in entries.iter().enumerate() {
            let key = entry.key.text.as_str();
            if keys.known.contains(&key) {
                continue;
            }
            let place = &entry.key.place;
            if let Some(draft) = index.checked_sub(1).and_then(|before| decimal_comma(&entries[before], entry)) {
                problems.report(draft);
                continue;
            }
            if keys.later.contains(&key) {
                let message = format!("`{key}` is not in this version of stormdrill");
                let advice = format!("this version knows {}", listed(keys.offer));
                problems.report(Draft::new(Code::NotInThisVersion, place, message).label("not yet").advice(advice));
                continue;
            }
            let message = format!("{} has no key `{}`", keys.of, crate::wording::excerpt(key));
            let draft = Draft::new(Code::UnknownKey, place, message).label("unknown key");
            problems.report(match nearest(key, keys.known.iter().copied()) {
                Some(near) => draft.advice(format!("did you mean `{near}`?")).replace(near),
                None => draft.advice(format!("the keys are {}", listed(keys.known))),
            });
        }
        Some(Self { entries, place, keys })
    }

    /// The entry of a key.
    pub(super) fn get(&self, key: &str) -> Option<&'n Entry> {
        debug_assert!(self.keys.known.contains(&key), "a key that is not listed would be reported as unknown");
        self.entries.iter().find(|entry| entry.key.text == key)
    }

    /// The entry of a key, if the mapping may have that key at all.
    pub(super) fn get_if_known(&self, key: &str) -> Option<&'n Entry> {
        if self.keys.known.contains(&key) { self.get(key) } else { None }
    }

    /// Whether every key is one of this version.
    pub(super) fn all_known(&self) -> bool {
        self.entries.iter().all(|entry| self.keys.known.contains(&entry.key.text.as_str()))
    }

    /// The entry of a key that must be there. `example` is the whole entry as it could be written.
    pub(super) fn require(&self, key: &str, example: &str, problems: &mut Problems<'_>) -> Option<&'n Entry> {
        let found = self.get(key);
        // A slip in the key was reported as unknown already; calling the key missing too would say it twice.
        let unknown = self.entries.iter().map(|entry| entry.key.text.as_str());
        let mut unknown = unknown.filter(|key| !self.keys.known.contains(key));
        let mistyped = unknown.any(|word| nearest(word, self.keys.known.iter().copied()) == Some(key));
        if found.is_none() && !mistyped {
            let message = format!("{} lacks `{key}`", self.keys.of);
            let draft = Draft::new(Code::MissingKey, self.place, message).label(format!("`{key}` is missing"));
            problems.report(draft.advice(format!("add `{example}`")));
        }
        found
    }
}

/// The report of `1,5s` in braces, which YAML takes for a value and a key.
fn decimal_comma(before: &Entry, entry: &Entry) -> Option<Draft> {
    let whole = scalar_text(before).filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (value, key) = (&before.value.place, &entry.key);
    let follows = key.text.starts_with(|c: char| c.is_ascii_digit()) && matches!(entry.value.value, Value::Null);
    if !follows || value.source != key.place.source || value.end + 1 != key.place.start {
        return None;
    }
    let all = Place { end: key.place.end, ..value.clone() };
    let draft =
        Draft::new(Code::BadValue, &all, format!("`{whole},{}` has a comma, which ends a value here", crate::wording::excerpt(&key.text)));
    Some(draft.label(COMMA).advice("write a decimal point").replace(format!("{whole}.{}", key.text)))
}

/// The entries of a mapping, repeated keys reported. `None` if it is no mapping.
pub(super) fn entries<'n>(node: &'n Node, place: &Place, what: &str, problems: &mut Problems<'_>) -> Option<&'n [Entry]> {
    let Value::Map(entries) = &node.value else {
        wrong_shape(node, place, what, "a mapping", problems);
        return None;
    };
    if entries.len() > MAX_KEYS {
        let message = format!("{what} has {} keys, more than the {MAX_KEYS} that are read", entries.len());
        problems.report(Draft::new(Code::OutOfRange, place, message));
        return None;
    }
    for (index, entry) in entries.iter().enumerate() {
        let key = &entry.key;
        if entries[..index].iter().any(|before| before.key.text == key.text) {
            let message = format!("{what} has `{}` twice", crate::wording::excerpt(&key.text));
            let draft = Draft::new(Code::DuplicateKey, &key.place, message).label("the second one");
            problems.report(draft.advice("keep one of them"));
        }
    }
    Some(entries)
}

/// The items of a list. `None` if it is no list.
pub(super) fn items<'n>(entry: &'n Entry, problems: &mut Problems<'_>) -> Option<&'n [Node]> {
    match &entry.value.value {
        Value::List(items) => Some(items),
        Value::Null => Some(&[]),
        Value::Scalar(_) | Value::Map(_) => {
            wrong_shape(&entry.value, &entry.key.place, &format!("`{}`", entry.key.text), "a list", problems);
            None
        }
    }
}

/// The scalar that a node must be. `what` names it in messages.
pub(super) fn scalar<'n>(node: &'n Node, key: &Place, what: &str, problems: &mut Problems<'_>) -> Option<&'n str> {
    if let Value::Scalar(text) = &node.value {
        return Some(text);
    }
    wrong_shape(node, key, what, "a single value", problems);
    None
}

/// The scalar of an entry.
pub(super) fn text<'n>(entry: &'n Entry, problems: &mut Problems<'_>) -> Option<&'n str> {
    scalar(&entry.value, &entry.key.place, &format!("`{}`", entry.key.text), problems)
}

/// The scalar of an entry if it is one; reports nothing.
pub(super) fn scalar_text(entry: &Entry) -> Option<&str> {
    match &entry.value.value {
        Value::Scalar(text) => Some(text),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

/// The quantity of an entry.
pub(super) fn quantity<T>(entry: &Entry, parse: impl Fn(&str) -> Result<T, UnitError>, problems: &mut Problems<'_>) -> Option<T> {
    let text = text(entry, problems)?;
    match parse(text) {
        Ok(value) => Some(value),
        Err(mut error) => {
            // What is proposed in another spelling may be refused for what it says.
            if let Some(Err(next)) = error.write.first().map(|write| parse(write)) {
                error.write = next.write;
            }
            let draft = refusal(&entry.value.place, &entry.key.text, &error);
            problems.report(draft);
            None
        }
    }
}

/// The report of a quantity that was refused.
pub(super) fn refusal(place: &Place, key: &str, error: &UnitError) -> Draft {
    let code = match error.kind {
        UnitErrorKind::TooLarge | UnitErrorKind::Zero | UnitErrorKind::TooFine | UnitErrorKind::BeyondDraws => Code::OutOfRange,
        _ => Code::BadValue,
    };
    let draft = Draft::new(code, place, format!("`{key}`: {error}"));
    if error.is_example() {
        return draft.advice(error.advice().replacen("write ", "write it as in ", 1));
    }
    if error.kind != UnitErrorKind::UnknownUnit {
        let draft = draft.advice(error.advice());
        return match error.write.first() {
            Some(write) => draft.replace(write.clone()),
            None => draft,
        };
    }
    // A unit that is not known is put right only where that keeps what was meant: three days are not three seconds, nor 0,5% nothing.
    let write = mend::rewritten(&error.text, error);
    match write.first().cloned() {
        Some(first) => draft.advice(UnitError { write, ..error.clone() }.advice()).replace(first),
        None => draft.advice(error.advice().replacen("write ", "write it as in ", 1)),
    }
}

fn wrong_shape(node: &Node, key: &Place, what: &str, wanted: &str, problems: &mut Problems<'_>) {
    let (place, message) = match node.value {
        Value::Null => (key, format!("{what} has no value")),
        _ => (&node.place, format!("{what} is {}, where {wanted} belongs", node.value.kind())),
    };
    problems.report(Draft::new(Code::WrongShape, place, message).label(format!("{wanted} belongs here")));
}
