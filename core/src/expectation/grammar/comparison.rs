//! The comparison between a metric and its limit.

use super::super::Op;
use super::super::metric::Row;
use super::{GrammarError, GrammarErrorKind, Reader};

/// Reads one of `<`, `<=`, `≤`, `>`, `>=`, `≥`.
pub(super) fn read(reader: &mut Reader<'_>, row: &Row) -> Result<Op, GrammarError> {
    let example = if reader.words.len() > reader.at { "<=".to_owned() } else { format!("<= {}", row.example()) };
    let Some(word) = reader.peek().filter(|word| word.is_sign()) else {
        return Err(in_words(reader).unwrap_or_else(|| reader.expected("a comparison", &example)));
    };
    let op = match word.text.as_str() {
        "<" => Op::Less,
        "<=" | "≤" => Op::AtMost,
        ">" => Op::Greater,
        ">=" | "≥" => Op::AtLeast,
        other => {
            let message = format!("`{other}` is no comparison here");
            let write = if other.starts_with(['>', '≥']) || other == "=>" { ">=" } else { "<=" };
            let error = GrammarError::new(GrammarErrorKind::Syntax, word.range.clone(), message);
            return Err(error.advice("write `<`, `<=`, `>` or `>=`").replace(write));
        }
    };
    reader.at += 1;
    Ok(op)
}

/// A comparison that was written in words.
fn in_words(reader: &mut Reader<'_>) -> Option<GrammarError> {
    let phrases: [(&[&str], &str); 12] = [
        (&["at", "most"], "<="),
        (&["no", "more", "than"], "<="),
        (&["up", "to"], "<="),
        (&["less", "than"], "<"),
        (&["lower", "than"], "<"),
        (&["below"], "<"),
        (&["under"], "<"),
        (&["at", "least"], ">="),
        (&["more", "than"], ">"),
        (&["greater", "than"], ">"),
        (&["above"], ">"),
        (&["over"], ">"),
    ];
    let start = reader.at;
    let (_, sign) = phrases.iter().find(|(phrase, _)| reader.skip(phrase))?;
    let message = "a comparison is written as a sign";
    Some(GrammarError::new(GrammarErrorKind::Syntax, reader.range(start), message).replace(*sign))
}
