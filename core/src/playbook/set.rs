//! Overrides from the command line: `phases.fault=10s`, `faults.0.loss=10%`.
//!
//! They change the tree before pass two, so that an overridden value is checked like a written one, and a problem in it
//! is shown at its place on the command line.

use super::node::{Entry, Key, Node, Value};
use super::problem::{Code, Draft, Place, Problems, Source};
use super::raw;

/// Applies all overrides, in order.
pub(super) fn apply(root: &mut Node, overrides: &[(&str, &str)], problems: &mut Problems<'_>) {
    for (index, (path, value)) in overrides.iter().enumerate() {
        let Some(value) = raw::read_override(index, value, path.len() + 1, problems) else {
            continue;
        };
        if let Err(draft) = put(root, index, path, value) {
            problems.report(*draft);
        }
    }
}

fn put(root: &mut Node, index: usize, path: &str, value: Node) -> Result<(), Box<Draft>> {
    let mut node = root;
    let mut start = 0;
    for step in path.split('.') {
        let place = Place { source: Source::Set(index), start, end: start + step.len() };
        start += step.len() + 1;
        if step.is_empty() {
            let draft = Draft::new(Code::BadOverride, &place, "an override's path has an empty step");
            return Err(Box::new(draft.advice("write the keys with dots between, as in `phases.fault=10s`")));
        }
        node = step_into(node, step, place)?;
    }
    *node = value;
    Ok(())
}

fn step_into<'n>(node: &'n mut Node, step: &str, place: Place) -> Result<&'n mut Node, Box<Draft>> {
    if node.value == Value::Null {
        node.value = Value::Map(Vec::new());
    }
    match &mut node.value {
        Value::Map(entries) => {
            let found = entries.iter().position(|entry| entry.key.text == step);
            let at = found.unwrap_or_else(|| {
                let value = Node { place: place.clone(), value: Value::Null };
                entries.push(Entry { key: Key { place, text: step.to_owned() }, value });
                entries.len() - 1
            });
            Ok(&mut entries[at].value)
        }
        Value::List(items) => {
            let count = items.len();
            match step.parse::<usize>() {
                Ok(at) if at < count => Ok(&mut items[at]),
                // One behind the last adds an item.
                Ok(at) if at == count => {
                    items.push(Node { place, value: Value::Null });
                    Ok(&mut items[at])
                }
                _ => {
                    let message = format!("`{step}` is no position in a list of {count}");
                    let draft = Draft::new(Code::BadOverride, &place, message).label("a number belongs here");
                    Err(Box::new(draft.advice(format!("positions run from 0; {count} adds one"))))
                }
            }
        }
        Value::Scalar(_) | Value::Null => {
            let message = format!("`{step}` leads into a single value");
            Err(Box::new(Draft::new(Code::BadOverride, &place, message).label("there is nothing inside")))
        }
    }
}
