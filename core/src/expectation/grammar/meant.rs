//! Things said in other words than the grammar's, recognised so that the line can be written in its own.

use super::super::metric::{Qualifier, Row};
use super::super::value;
use super::super::words::Word;
use super::subject::row_at;
use super::{GrammarError, GrammarErrorKind, Reader, Recovery, Unit, mend};
use crate::units::share;
use crate::wording::{excerpt, nearest};

/// Names of the failures' share, which is the success ratio's other side.
const FAILING: [&str; 8] =
    ["failure ratio", "failure rate", "failed ratio", "error ratio", "error rate", "errors ratio", "failures ratio", "failures"];

/// Other names of metrics.
const OTHER_NAMES: [(&str, &str); 4] =
    [("availability", "success ratio"), ("success", "success ratio"), ("throughput", "goodput"), ("response time", "latency p99")];

/// `not metastable`, misspelt, of an edge, or in other words.
pub(super) fn not_metastable(reader: &Reader<'_>) -> Option<GrammarError> {
    let (last, front) = reader.words.split_last()?;
    let denied = front.iter().any(|word| ["not", "never", "no", "isn't", "is-not"].contains(&word.text.as_str()));
    if front.len() > 3 || !denied || nearest(&last.text, ["metastable"]).is_none() {
        return None;
    }
    let range = reader.words.first()?.range.start..last.range.end;
    let message = format!("`{}` is no demand", excerpt(reader.line.trim()));
    let error = GrammarError::new(GrammarErrorKind::UnknownMetric, range, message);
    Some(error.advice("that the service comes back is demanded of the whole drill: write").replace("not metastable"))
}

/// `increases`, `recovery within`: the words almost.
pub(super) fn increase_or_recovers(reader: &Reader<'_>, row: &Row) -> Option<GrammarError> {
    let word = reader.peek().filter(|word| !word.is_sign() && !word.is_quantity())?;
    let meant = match word.text.as_str() {
        "rises" | "rise" | "grows" | "growth" | "increases" | "increased" => "increase",
        "recovery" | "recovered" => "recovers",
        // The opposite is nearer than some slips.
        text if text.starts_with("de") => return None,
        text => nearest(text, ["increase", "recovers"])?,
    };
    let can = if meant == "increase" { row.increase } else { row.recovery != Recovery::No };
    let message = format!("`{}` cannot be understood here", excerpt(&word.text));
    let error = GrammarError::new(GrammarErrorKind::Syntax, word.range.clone(), message);
    can.then(|| error.replace(meant))
}

/// Another word where a guard's `for` belongs.
pub(super) fn for_windows(reader: &Reader<'_>) -> Option<GrammarError> {
    let word = reader.peek().filter(|word| word.text != "for")?;
    let counted = reader.words.get(reader.at + 1).is_some_and(|next| next.is_quantity() || mend::numeral(&next.text).is_some());
    let meant = ["within", "during", "over", "in"].contains(&word.text.as_str()) || nearest(&word.text, ["for"]).is_some();
    let message = format!("`{}` cannot be understood here", excerpt(&word.text));
    let error = GrammarError::new(GrammarErrorKind::Syntax, word.range.clone(), message);
    (counted && meant).then(|| error.replace("for"))
}

/// A metric by another name; `phrase` is what stands where it belongs, `skipped` how many words of it are an edge.
pub(super) fn otherwise_said(reader: &Reader<'_>, phrase: &[&Word], skipped: usize) -> Option<GrammarError> {
    quantile_first(reader, phrase).or_else(|| other_name(reader, phrase, skipped))
}

/// `p99 latency`, or a quantile of nothing.
fn quantile_first(reader: &Reader<'_>, phrase: &[&Word]) -> Option<GrammarError> {
    let at =
        phrase.iter().position(|word| word.text.strip_prefix('p').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))?;
    let quantile = phrase.get(at)?;
    let (name, range) = if at + 1 == phrase.len() && at <= 1 && row_at(reader, 0).is_none() {
        ("latency", quantile.range.clone())
    } else {
        let (row, length) = row_at(reader, at + 1).filter(|(row, _)| row.qualifier == Qualifier::Quantile)?;
        (row.name, quantile.range.start..reader.words.get(at + length)?.range.end)
    };
    // `latncy p99` is a metric misspelt, and not a quantile of nothing.
    if name == "latency" && at == 1 && row_at(reader, 1).is_none() && range.end == quantile.range.end && !is_edge_like(phrase) {
        return None;
    }
    let message = "a quantile stands behind its metric";
    Some(GrammarError::new(GrammarErrorKind::Syntax, range, message).replace(format!("{name} {}", quantile.text)))
}

/// Whether the first word is no metric's, however misspelt.
fn is_edge_like(phrase: &[&Word]) -> bool {
    phrase.first().is_some_and(|word| nearest(&word.text, ["latency", "failure"]).is_none())
}

fn other_name(reader: &Reader<'_>, phrase: &[&Word], skipped: usize) -> Option<GrammarError> {
    let words = phrase.get(skipped..)?;
    let name = words.iter().map(|word| word.text.replace('-', " ")).collect::<Vec<_>>().join(" ");
    let range = words.first()?.range.start..words.last()?.range.end;
    let error = GrammarError::new(GrammarErrorKind::UnknownMetric, range.clone(), format!("there is no metric `{}`", excerpt(&name)));
    if let Some((_, ours)) = OTHER_NAMES.iter().find(|(other, _)| *other == name) {
        return Some(error.advice(format!("did you mean `{ours}`?")).replace(*ours));
    }
    if !FAILING.contains(&name.as_str()) {
        return None;
    }
    let error = error.advice("say it of those that succeed, as in `success ratio >= 99%`");
    let mut behind = Reader { at: skipped + words.len(), ..Reader::new(reader.line) };
    let flipped = match behind.peek().map(|word| word.text.as_str()) {
        Some("<=" | "≤") => ">=",
        Some("<") => ">",
        Some(">=" | "≥") => "<=",
        Some(">") => "<",
        _ => return Some(error),
    };
    behind.at += 1;
    let limit = behind.peek_quantity().and_then(|(text, words)| Some((value::parse(&text, Unit::Share).ok()?, words)));
    Some(match limit {
        Some((failing, words)) => {
            behind.at += words;
            let whole = range.start..behind.range(behind.at - 1).end;
            let succeeding = share::print(((1.0 - failing) * 1e9).round() / 1e9);
            error.replace_in(whole, format!("success ratio {flipped} {succeeding}"))
        }
        None => error,
    })
}
