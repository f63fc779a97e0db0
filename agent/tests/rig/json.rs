//! Reading results: numbers that must be there, and sets of keys.

use serde_json::Value;

/// A count in a value, by its path; a missing one is a failure.
pub(crate) fn count(value: &Value, path: &str) -> u64 {
    let found = value.pointer(path).unwrap_or_else(|| panic!("no {path} in {value:#}"));
    found.as_u64().unwrap_or_else(|| panic!("{path} is {found}, not a count"))
}

/// A number in a value, by its path.
pub(crate) fn number(value: &Value, path: &str) -> f64 {
    let found = value.pointer(path).unwrap_or_else(|| panic!("no {path} in {value:#}"));
    found.as_f64().unwrap_or_else(|| panic!("{path} is {found}, not a number"))
}

/// A text in a value, by its path.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("no text {path} in {value:#}"))
}

/// The keys of an object, sorted.
pub(crate) fn keys<'a>(value: &'a Value, path: &str) -> Vec<&'a str> {
    let object = value.pointer(path).and_then(Value::as_object).unwrap_or_else(|| panic!("no object {path} in {value:#}"));
    let mut keys: Vec<&str> = object.keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// Checks that an object has these keys, given as in the contract with blanks between. Further ones do not break it.
pub(crate) fn assert_keys(value: &Value, path: &str, expected: &str) {
    let found = keys(value, path);
    let missing: Vec<&str> = expected.split(' ').filter(|key| !found.contains(key)).collect();
    assert!(missing.is_empty(), "{missing:?} are not among the keys at {path:?}: {found:?}");
}

/// One phase of an edge.
pub(crate) fn phase<'a>(result: &'a Value, edge: &str, phase: &str) -> &'a Value {
    let edges = result["edges"].as_array().unwrap();
    let found = edges.iter().find(|found| found["name"] == edge).unwrap_or_else(|| panic!("no edge {edge} in {result:#}"));
    found["phases"].get(phase).unwrap_or_else(|| panic!("no phase {phase} in {found:#}"))
}
