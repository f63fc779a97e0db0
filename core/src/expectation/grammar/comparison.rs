//! The comparison between a metric and its limit.

use super::super::Op;
use super::super::bounds::Bounds;
use super::super::metric::Row;
use super::{GrammarError, GrammarErrorKind, Reader};

/// Reads one of `<`, `<=`, `≤`, `>`, `>=`, `≥`.
pub(super) fn read(reader: &mut Reader<'_>, row: &Row) -> Result<Op, GrammarError> {
    let usual = row.usual_op(reader.guard);
    let example = if reader.words.len() > reader.at { usual.to_owned() } else { row.demand(reader.guard) };
    let Some(word) = reader.peek().filter(|word| word.is_sign()) else {
        return Err(in_words(reader).unwrap_or_else(|| reader.expected("a comparison", &example)));
    };
    let signs: String = reader.words.iter().skip(reader.at).map_while(|word| word.is_sign().then_some(word.text.as_str())).collect();
    if signs != word.text {
        let start = reader.at;
        reader.at += reader.words.iter().skip(start).take_while(|word| word.is_sign()).count();
        let error = GrammarError::new(GrammarErrorKind::Syntax, reader.range(start), "a comparison is written without spaces");
        let error = error.advice("write `<`, `<=`, `>` or `>=`");
        return Err(if ["<=", ">=", "=<", "=>"].contains(&signs.as_str()) { error.replace(sorted(&signs)) } else { error });
    }
    let op = match word.text.as_str() {
        "<" => Op::Less,
        "<=" | "≤" => Op::AtMost,
        ">" => Op::Greater,
        ">=" | "≥" => Op::AtLeast,
        other => {
            let message = format!("`{other}` is no comparison here");
            let error = GrammarError::new(GrammarErrorKind::Syntax, word.range.clone(), message);
            let error = error.advice("write `<`, `<=`, `>` or `>=`");
            return Err(match other {
                "=<" | "=>" => error.replace(sorted(other)),
                // Nothing measured equals a limit: what is meant is that it is no worse.
                "=" | "==" => error.replace(usual),
                _ => error,
            });
        }
    };
    reader.at += 1;
    Ok(op)
}

/// Refuses what nothing that can be measured satisfies: more than all of a share, less than nothing.
pub(super) fn possible(reader: &Reader<'_>, (start, row): (usize, &Row), bounds: &Bounds, op: Op, value: f64) -> Result<(), GrammarError> {
    let Some((message, write)) = bounds.never(op, value) else { return Ok(()) };
    let what = if reader.guard { "this guard could never trip" } else { "this could never pass" };
    let error = GrammarError::new(GrammarErrorKind::OutOfRange, reader.range(start), format!("{message}: {what}"));
    let usual = row.usual_op(true);
    // With the limit itself on that side, it would trip on a service that is well.
    if reader.guard && !op.to_string().starts_with(usual) {
        return Err(error.advice(format!(
            "a guard trips when its comparison is true, and this one is probably reversed: `{}` is guarded by `{usual}`",
            row.name
        )));
    }
    let sign = reader.words.get(start).map_or(0..0, |word| word.range.clone());
    Err(match write {
        Some(op) => error.replace_in(sign, op.to_string()),
        None => error,
    })
}

/// `=>` as `>=`.
fn sorted(signs: &str) -> &'static str {
    if signs.contains('>') { ">=" } else { "<=" }
}

/// A comparison that was written in words.
fn in_words(reader: &mut Reader<'_>) -> Option<GrammarError> {
    let fillers = ["is", "are", "be", "must", "should", "shall", "may", "stays", "stay", "remains", "always", "has", "to"];
    let start = reader.at;
    while reader.peek().is_some_and(|word| fillers.contains(&word.text.as_str())) {
        reader.at += 1;
    }
    let error = |reader: &Reader<'_>, sign: &str| {
        let message = "a comparison is written as a sign";
        Some(GrammarError::new(GrammarErrorKind::Syntax, reader.range(start), message).replace(sign))
    };
    if let Some(sign) = reader.peek().filter(|word| reader.at > start && word.is_sign()).map(|word| word.text.clone()) {
        reader.at += 1;
        return error(reader, &sign);
    }
    let phrases: [(&[&str], &str); 26] = [
        (&["not", "more", "than"], "<="),
        (&["no", "greater", "than"], "<="),
        (&["no", "higher", "than"], "<="),
        (&["not", "above"], "<="),
        (&["not", "exceed"], "<="),
        (&["does", "not", "exceed"], "<="),
        (&["not", "less", "than"], ">="),
        (&["not", "below"], ">="),
        (&["fewer", "than"], "<"),
        (&["smaller", "than"], "<"),
        (&["higher", "than"], ">"),
        (&["by", "at", "most"], "<="),
        (&["by", "no", "more", "than"], "<="),
        (&["no", "less", "than"], ">="),
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
    let found = phrases.iter().find(|(phrase, _)| reader.skip(phrase));
    match found {
        Some((_, sign)) => error(reader, sign),
        None => {
            reader.at = start;
            None
        }
    }
}
