//! Lines whose parts stand in another order than the grammar's.

use super::super::words::Word;
use super::subject::row_at;
use super::{GrammarError, GrammarErrorKind, Reader};
use crate::edge::EdgeSpec;

/// Words that an edge may stand behind: `success ratio of web`.
const PREPOSITIONS: [&str; 7] = ["of", "on", "at", "to", "for", "from", "in"];

/// `20% >= retry ratio`: the limit in front.
pub(super) fn limit_first(reader: &Reader<'_>) -> Option<GrammarError> {
    let first = reader.peek().filter(|word| word.is_quantity())?;
    let (limit, length) = reader.peek_quantity()?;
    let sign = turned(&reader.words.get(reader.at + length)?.text)?;
    let behind = reader.words.get(reader.at + length + 1..)?;
    let is_tail = |word: &&Word| !["during", "in", "for"].contains(&word.text.as_str());
    let subject: Vec<&Word> = behind.iter().take_while(is_tail).collect();
    let (from, to) = (subject.first()?.range.start, subject.last()?.range.end);
    let message = "a limit stands behind its metric";
    let error = GrammarError::new(GrammarErrorKind::Syntax, first.range.start..to, message);
    Some(error.replace(format!("{} {sign} {limit}", reader.line.get(from..to)?)))
}

/// The comparison that says the same with its sides exchanged.
pub(super) fn turned(sign: &str) -> Option<&'static str> {
    Some(match sign {
        "<=" | "≤" => ">=",
        "<" => ">",
        ">=" | "≥" => "<=",
        ">" => "<",
        "=" | "==" => "==",
        _ => return None,
    })
}

/// `success ratio of web`: the edge behind the metric.
pub(super) fn edge_behind(reader: &Reader<'_>, edges: &[EdgeSpec]) -> Option<GrammarError> {
    let (_, length) = row_at(reader, 0)?;
    let front = reader.words.iter().take_while(|word| !word.is_sign() && !word.is_quantity()).count();
    let (at, edge) = (length..front.saturating_sub(1)).find_map(|at| {
        let name = &reader.words.get(at + 1)?.text;
        let is_named = PREPOSITIONS.contains(&reader.words.get(at)?.text.as_str());
        Some((at, edges.iter().find(|edge| is_named && edge.name == *name)?))
    })?;
    let (start, end) = (reader.words.first()?.range.start, reader.words.get(at + 1)?.range.end);
    let metric = reader.line.get(start..reader.words.get(at - 1)?.range.end)?;
    let error = GrammarError::new(GrammarErrorKind::Syntax, reader.words.get(at)?.range.start..end, "an edge stands before its metric");
    Some(error.replace_in(start..end, format!("{} {metric}", edge.name)))
}
