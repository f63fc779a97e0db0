//! Pass one: YAML to a tree of values with places.
//!
//! The tree is untyped on purpose. A struct that serde fills would stop at the first wrong type; a tree lets pass two
//! find every problem in one go. Aliases are followed, within limits; merge keys (`<<`) are keys like any other, hence unknown.

use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};
use serde_saphyr::{NonFiniteFloatPolicy, Spanned};

use super::node::{Node, Value};
use super::problem::{Code, Draft, Place, Problems, Source};
use crate::yaml::{self, Raw};

mod text;

use text::Text;

/// Larger files are refused before they are parsed; a playbook is a page or two.
const MAX_BYTES: usize = 256 * 1024;

/// Reads a text into a tree. A syntax error is reported and gives `None`.
pub(super) fn read(text: &str, problems: &mut Problems<'_>) -> Option<Node> {
    let whole = Place { source: Source::File, start: 0, end: 0 };
    if text.len() > MAX_BYTES {
        let message = format!("the playbook is larger than {} KiB", MAX_BYTES / 1024);
        problems.report(Draft::new(Code::Syntax, &whole, message));
        return None;
    }
    let skipped = yaml::mark(text);
    let source = Text { text: &text[skipped..], offset: skipped, source: Source::File };
    match parse(source.text) {
        Ok(raw) => Some(source.node(&raw)),
        Err(error) => {
            problems.report(source.syntax_error(&error));
            None
        }
    }
}

/// Reads the value of an override: a flow list or mapping as YAML, all else as one scalar.
pub(super) fn read_override(index: usize, value: &str, offset: usize, problems: &mut Problems<'_>) -> Option<Node> {
    let source = Text { text: value, offset, source: Source::Set(index) };
    if !value.trim_start().starts_with(['{', '[']) {
        let place = source.place(0, value.len());
        return Some(Node { place, value: Value::Scalar(value.trim().to_owned()) });
    }
    match parse(value) {
        Ok(raw) => Some(source.node(&raw)),
        Err(error) => {
            problems.report(source.syntax_error(&error));
            None
        }
    }
}

fn parse(text: &str) -> Result<Spanned<Raw>, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 24,
            flow_nesting_limit: 24,
            max_nodes: 20_000,
            max_events: 60_000,
            max_anchors: 100,
            max_aliases: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
}

#[cfg(test)]
mod tests {
    use super::super::node::Entry;
    use super::*;

    /// The tree in one line, each value with the text that its place covers.
    fn shown(text: &str) -> String {
        let mut problems = Problems::new(text, &[]);
        let node = read(text, &mut problems);
        let tree = node.map_or_else(String::new, |node| show(&node, &problems));
        let errors = problems.into_sorted().into_iter();
        tree + &errors.map(|p| format!("[{}..{}: {}]", p.place.start, p.place.end, p.message)).collect::<String>()
    }

    fn show(node: &Node, problems: &Problems<'_>) -> String {
        let at = problems.text(&node.place).unwrap_or("?");
        match &node.value {
            Value::Null => format!("null@{at:?}"),
            Value::Scalar(text) if text == at => text.clone(),
            Value::Scalar(text) => format!("{text:?}@{at:?}"),
            Value::List(items) => {
                format!("[{}]@{at:?}", items.iter().map(|item| show(item, problems)).collect::<Vec<_>>().join(", "))
            }
            Value::Map(entries) => {
                let entry = |entry: &Entry| format!("{}: {}", entry.key.text, show(&entry.value, problems));
                format!("{{{}}}@{at:?}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }

    #[test]
    fn scalars_keep_the_text_that_was_written_and_its_place() {
        for (text, tree) in [
            ("a: 0.50", r#"{a: 0.50}@"a""#),
            ("a: 1_000", r#"{a: 1_000}@"a""#),
            ("a: .nan", r#"{a: .nan}@"a""#),
            ("a: yes # why", r#"{a: yes}@"a""#),
            ("a: \"b c\"", r#"{a: "b c"@"\"b c\""}@"a""#),
            ("a:", r#"{a: null@""}@"a""#),
            ("a: ~", r#"{a: null@"~"}@"a""#),
            ("- b ≤ c\r\n- d\r\n", r#"[b ≤ c, d]@"-""#),
            ("\u{feff}é: {b: 1}", r#"{é: {b: 1}@"b"}@"é""#),
            ("a: |\n  b\n  c\n", r#"{a: "b\nc\n"@"b\n  c"}@"a""#),
            ("a: &x {b: 0.50}\nc: *x", r#"{a: {b: 0.50}@"b", c: {b: "0.50"@"*x"}@"*x"}@"a""#),
            ("a: 1\na: 2", r#"{a: 1, a: 2}@"a""#),
            ("<<: {a: 1}", r#"{<<: {a: 1}@"a"}@"<<""#),
            ("", r#"null@"""#),
        ] {
            assert_eq!(shown(text), tree, "{text}");
        }
    }

    #[test]
    fn what_is_no_yaml_is_refused_with_its_place() {
        for (text, error) in [
            ("a: [1, 2", "[3..4: unclosed bracket '[']"),
            ("a: 1\n---\nb: 2\n", "[9..10: more than one document]"),
            ("a:\n\tb: 1\n", "[4..5: tabs disallowed within this context (block indentation)]"),
            ("a: b: c", "[4..5: mapping values are not allowed in this context]"),
            ("é: *u", "[4..5: alias references unknown anchor]"),
            ("? [a]\n: b\n", "[0..0: a key must be a single word]"),
        ] {
            assert_eq!(shown(text), error, "{text}");
        }
    }

    #[test]
    fn a_billion_laughs_and_deep_nests_end_early() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let before = format!("*a{}, ", level - 1).repeat(9);
            laughs += &format!("a{level}: &a{level} [{before}]\n");
        }
        let deep = [("[", 100_000), ("{a: ", 50_000), ("- ", 100_000)].map(|(open, times)| open.repeat(times));
        let indented: String = (0..500).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        for text in deep.iter().chain([&laughs, &indented]) {
            let mut problems = Problems::new(text, &[]);
            assert_eq!(read(text, &mut problems), None);
            assert_eq!(problems.into_sorted().len(), 1);
        }
    }
}
