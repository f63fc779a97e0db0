//! Things said in other words than the grammar's, recognised so that the line can be written in its own.

use super::super::Op;
use super::super::metric::{METRICS, Qualifier, Row};
use super::super::value;
use super::super::words::Word;
use super::subject::row_at;
use super::{GrammarError, GrammarErrorKind, Reader, Recovery, Unit, mend, order};
use crate::edge::EdgeSpec;
use crate::units::share;
use crate::wording::{excerpt, nearest};

/// Names of the failures' share, which is the success ratio's other side.
const FAILING: [&str; 9] =
    ["failure ratio", "failure rate", "failed ratio", "error ratio", "error rate", "errors ratio", "failures ratio", "failures", "errors"];

/// Other names of metrics.
const OTHER_NAMES: [(&str, &str); 17] = [
    ("availability", "success ratio"),
    ("success rate", "success ratio"),
    ("success", "success ratio"),
    ("throughput", "goodput"),
    ("response time", "latency p99"),
    ("error latency", "failure latency p99"),
    ("retry rate", "retry ratio"),
    ("retry share", "retry ratio"),
    ("retry amplification", "amplification"),
    ("amplification factor", "amplification"),
    ("downstream rps", "downstream QPS"),
    ("ingress rps", "ingress QPS"),
    ("open connections", "connections"),
    ("connection failures", "connect failures"),
    ("connect errors", "connect failures"),
    ("failed connects", "connect failures"),
    ("retransmission rate", "retransmit ratio"),
];

/// Counts by whose name a share is meant if the limit is one; else nobody can tell what is counted.
const COUNTS: [(&str, &str); 4] = [
    ("retries", "retry ratio"),
    ("retransmits", "retransmit ratio"),
    ("retransmissions", "retransmit ratio"),
    ("successes", "success ratio"),
];

/// Other ends of a name that begins another.
const OTHER_ENDS: [(&str, &str); 5] = [
    ("downstream qps per request", "downstream QPS per ingress"),
    ("downstream qps per ingress request", "downstream QPS per ingress"),
    ("downstream qps per ingress requests", "downstream QPS per ingress"),
    ("downstream qps per incoming request", "downstream QPS per ingress"),
    ("connections open", "connections"),
];

/// `downstream QPS per ingres`: a metric's name of which the rest is misspelt, and another's as far as it goes.
pub(super) fn longer_name(reader: &Reader<'_>, start: usize, row: &Row, length: usize) -> Option<GrammarError> {
    let stops = ["increase", "recovers", "recover", "during", "within", "for", "in", "of"];
    let ends = |word: &&Word| word.is_sign() || word.is_quantity() || stops.contains(&word.text.as_str());
    let rest: Vec<&Word> = reader.words.get(start + length..)?.iter().take_while(|word| !ends(word)).take(3).collect();
    let begin = row.name.to_lowercase();
    let found = (1..=rest.len()).rev().find_map(|count| {
        let end = rest[..count].iter().map(|word| word.text.replace('-', " ")).collect::<Vec<_>>().join(" ");
        let whole = format!("{begin} {end}");
        let said = OTHER_ENDS.iter().find(|(other, _)| *other == whole).map(|(_, ours)| *ours);
        let longer = METRICS.iter().find(|other| {
            let name = other.name.to_lowercase();
            let theirs = name.strip_prefix(&begin).and_then(|theirs| theirs.strip_prefix(' '));
            theirs.is_some_and(|theirs| nearest(&end, [theirs]).is_some())
        });
        Some((count, whole, said.or(longer.map(|longer| longer.name))?))
    });
    let (count, whole, ours) = found?;
    let range = reader.words.get(start)?.range.start..rest.get(count - 1)?.range.end;
    let error = GrammarError::new(GrammarErrorKind::UnknownMetric, range, format!("there is no metric `{}`", excerpt(&whole)));
    Some(error.advice(format!("did you mean `{ours}`?")).replace(ours))
}

/// `amplification increase <= 20%`: it is over the baseline already.
pub(super) fn amplified(reader: &mut Reader<'_>, row: &Row, increase: usize) -> Option<GrammarError> {
    if row.name != "amplification" {
        return None;
    }
    let sign = reader.peek().filter(|word| word.is_sign())?.text.clone();
    let (text, words) = Reader { at: reader.at + 1, ..Reader::new(reader.line) }.peek_quantity()?;
    let more = value::parse_increase(&text).ok()?;
    reader.at += 1 + words;
    let error =
        GrammarError::new(GrammarErrorKind::NotAllowed, reader.range(increase), "`amplification` is compared with the baseline already");
    Some(error.replace(format!("{sign} {}", value::print_times(more))))
}

/// `downstream QPS <= +20%`, `<= 20% more`: what says by its sign, or behind it, that it is added.
pub(super) fn more_by(reader: &Reader<'_>, row: &Row, op: Op, increase: bool) -> Option<GrammarError> {
    let (text, words) = reader.peek_quantity()?;
    let behind = reader.words.get(reader.at + words).filter(|word| ["increase", "more", "growth"].contains(&word.text.as_str()));
    if let Some(word) = behind.filter(|_| row.increase && !increase && share::parse_any(&text).is_ok()) {
        let start = reader.words.get(reader.at.checked_sub(1)?)?.range.start;
        let message = format!("`{}` cannot be understood here", excerpt(&word.text));
        let error = GrammarError::new(GrammarErrorKind::Syntax, word.range.clone(), message);
        return Some(error.replace_in(start..word.range.end, format!("increase {op} {text}")));
    }
    let more = text.strip_prefix('+').filter(|more| row.increase && share::parse_any(more).is_ok())?;
    let message = format!("`{}` has a sign", excerpt(&text));
    let (first, last) = (reader.words.get(reader.at)?.range.clone(), reader.words.get(reader.at + words - 1)?.range.end);
    let error = GrammarError::new(GrammarErrorKind::Value, first.start..last, message);
    if increase {
        return Some(error.replace(more));
    }
    let sign = reader.words.get(reader.at.checked_sub(1)?)?.range.start;
    Some(error.advice("what is added to the baseline is an increase: write").replace_in(sign..last, format!("increase {op} {more}")))
}

/// `<= 1.2x of the baseline`, which a factor is already; what is no factor is another limit than the one that is read up to there.
pub(super) fn of_the_baseline(reader: &Reader<'_>, is_factor: bool) -> Option<GrammarError> {
    let rest = reader.words.get(reader.at..)?;
    let is_part = |word: &Word| ["of", "the", "over", "x", "baseline", "baseline's", "baselines", "value"].contains(&word.text.as_str());
    if !rest.iter().any(|word| word.text.starts_with("baseline")) || !rest.iter().all(is_part) {
        return None;
    }
    let (start, end) = (reader.words.get(reader.at.checked_sub(1)?)?.range.end, rest.last()?.range.end);
    let range = rest.first()?.range.start..end;
    let message = format!("`{}` cannot be understood here", excerpt(reader.line.get(range.clone())?));
    let error = GrammarError::new(GrammarErrorKind::Syntax, range, message);
    Some(if is_factor {
        error.advice("a factor is of the baseline's value: write").replace_in(start..end, "")
    } else {
        error.advice("a part of the baseline's value is written as a factor, as in `goodput >= 0.95x`, where the metric has an `increase`")
    })
}

/// `web/success ratio`: an edge that is joined with its metric.
pub(super) fn joined_edge(reader: &Reader<'_>, edges: &[EdgeSpec]) -> Option<GrammarError> {
    let first = reader.words.first()?;
    let at = first.text.find(['/', '.', ':'])?;
    let (edge, rest) = (first.text.get(..at)?, first.text.get(at + 1..)?);
    let known = edges.iter().any(|known| known.name == edge) && !rest.is_empty();
    let message = "an edge stands before its metric, parted by a space";
    known.then(|| GrammarError::new(GrammarErrorKind::Syntax, first.range.clone(), message).replace(format!("{edge} {rest}")))
}

/// `of first attempts`: more words than the denominator has.
pub(super) fn longer_base(reader: &Reader<'_>) -> Option<GrammarError> {
    let word = reader.peek().filter(|word| ["attempts", "attempt", "tries", "requests", "calls"].contains(&word.text.as_str()))?;
    let base = reader.words.get(reader.at.checked_sub(1)?)?;
    let message = format!("`{}` cannot be understood here", excerpt(&word.text));
    let error = GrammarError::new(GrammarErrorKind::Syntax, word.range.clone(), message);
    Some(error.replace_in(base.range.start..word.range.end, base.text.clone()))
}

/// `goodput >= 95%`: of the baseline's.
pub(super) fn part_of_baseline(row: &Row, op: &str, text: &str) -> Option<String> {
    let part = share::parse(text).ok().filter(|part| *part >= 0.5)?;
    let is_rate = row.increase && row.unit == Unit::PerSecond && row.is_good();
    (is_rate && matches!(op, ">=" | "≥" | ">")).then(|| value::print_times(part - 1.0))
}

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
    let is_window = |word: &Word| ["window", "windows"].contains(&word.text.as_str());
    if word.is_quantity() && reader.words.get(reader.at + 1).is_some_and(is_window) {
        return Some(reader.expected("`for`", "for"));
    }
    let counted = reader.words.get(reader.at + 1).is_some_and(|next| next.is_quantity() || mend::numeral(&next.text).is_some());
    let meant = ["within", "during", "over", "in"].contains(&word.text.as_str()) || nearest(&word.text, ["for"]).is_some();
    let message = format!("`{}` cannot be understood here", excerpt(&word.text));
    let error = GrammarError::new(GrammarErrorKind::Syntax, word.range.clone(), message);
    (counted && meant).then(|| error.replace("for"))
}

/// A metric by another name; `phrase` is what stands where it belongs, `skipped` how many words of it are an edge.
pub(super) fn otherwise_said(reader: &Reader<'_>, phrase: &[&Word], skipped: usize) -> Option<GrammarError> {
    // The first word may be an edge's name and a part of the metric's.
    let names = || [skipped, 0].into_iter().find_map(|skipped| other_name(reader, phrase, skipped));
    quantile_first(reader, phrase).or_else(names)
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
    let (front, quantile) = match name.rsplit_once(' ') {
        Some((front, last)) if last.starts_with('p') && last[1..].starts_with(|c: char| c.is_ascii_digit()) => (front, Some(last)),
        _ => (name.as_str(), None),
    };
    if let Some((_, ours)) = OTHER_NAMES.iter().find(|(other, _)| *other == front) {
        let ours = quantile.map_or_else(|| (*ours).to_owned(), |quantile| ours.replace("p99", quantile));
        return Some(error.advice(format!("did you mean `{ours}`?")).replace(ours));
    }
    if let Some((_, ours)) = COUNTS.iter().find(|(other, _)| *other == name) {
        let limit = Reader { at: skipped + words.len() + 1, ..Reader::new(reader.line) }.peek_quantity();
        let is_share = limit.is_some_and(|(text, _)| share::parse_any(&text).is_ok());
        let error = error.advice(format!(
            "say of how many, as in `{ours} {}`; or of one request: `attempts max <= 3`",
            if *ours == "success ratio" { ">= 99%" } else { "<= 5%" }
        ));
        return Some(if is_share { error.replace(*ours) } else { error });
    }
    if !FAILING.contains(&name.as_str()) {
        return None;
    }
    let error = error.advice("say it of those that succeed, as in `success ratio >= 99%`");
    let mut behind = Reader { at: skipped + words.len(), ..Reader::new(reader.line) };
    let Some(flipped) = behind.peek().and_then(|word| order::turned(&word.text)) else {
        return Some(error);
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
