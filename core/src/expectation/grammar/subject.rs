//! The front of a line: `[edge] metric`.

use super::super::Metric;
use super::super::metric::{METRICS, Qualified, Qualifier, Row};
use super::super::words::Word;
use super::{GrammarError, GrammarErrorKind, Reader, meant, order};
use crate::edge::{EdgeSpec, Role};
use crate::expectation::RetryBase;
use crate::wording::{article, nearest};

/// What a line is about.
pub(super) struct Subject {
    pub(super) edge: Option<String>,
    pub(super) metric: Metric,
    pub(super) row: &'static Row,
}

pub(super) fn read(reader: &mut Reader<'_>, edges: &[EdgeSpec]) -> Result<Subject, GrammarError> {
    let Some(first) = reader.peek() else {
        let error = GrammarError::new(GrammarErrorKind::Syntax, 0..reader.line.len(), "the line is empty");
        return Err(error.advice("write it as in `downstream QPS increase <= 20%`"));
    };
    if let Some(error) = order::limit_first(reader) {
        return Err(error);
    }
    let edge = edges.iter().find(|edge| edge.name == first.text);
    let (edge, start, (row, length)) = match (edge, row_at(reader, 1), row_at(reader, 0)) {
        (Some(edge), Some(found), _) => (Some(edge), 1, found),
        (_, _, Some(found)) => (None, 0, found),
        (edge, _, None) => return Err(not_understood(reader, edge, edges)),
    };
    if let Some(error) = meant::longer_name(reader, start, row, length) {
        return Err(error);
    }
    reader.at = start + length;
    let range = reader.range(start);
    let Some(make) = row.make else {
        let message = format!("`{}` is not in this version of stormdrill", row.name);
        let error = GrammarError::new(GrammarErrorKind::NotInThisVersion, range, message);
        return Err(error.advice(format!("this version measures {}", measured())));
    };
    let metric = make(qualified(reader, row).map_err(|error| order::edge_behind(reader, edges).unwrap_or(error))?);
    if reader.peek().is_some_and(|word| !word.is_sign())
        && let Some(error) = order::edge_behind(reader, edges)
    {
        return Err(error);
    }
    if metric == Metric::Metastable {
        let error = GrammarError::new(GrammarErrorKind::NotAllowed, range, "`metastable` is a verdict and no number");
        return Err(error.advice("demand `not metastable`, in `expect:` and without an edge"));
    }
    applies(row, edge, edges, range)?;
    Ok(Subject { edge: edge.map(|edge| edge.name.clone()), metric, row: Row::of(metric) })
}

/// The metric with the longest name that starts at a word, and its length in words.
pub(super) fn row_at(reader: &Reader<'_>, start: usize) -> Option<(&'static Row, usize)> {
    let words = reader.words.get(start..)?;
    (1..=words.len().min(4)).rev().find_map(|length| {
        let name = joined(&words[..length]);
        METRICS.iter().find(|row| row.name.eq_ignore_ascii_case(&name)).map(|row| (row, length))
    })
}

fn joined(words: &[Word]) -> String {
    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    texts.join(" ").replace('-', " ")
}

fn qualified(reader: &mut Reader<'_>, row: &Row) -> Result<Qualified, GrammarError> {
    let mut with = Qualified::default();
    match row.qualifier {
        Qualifier::None => {}
        Qualifier::Base => {
            let before = reader.at;
            if reader.skip(&["of", "first"]) {
                with.base = RetryBase::First;
            } else if !reader.skip(&["of", "all"]) && reader.skip(&["of"]) {
                let near = reader.peek().and_then(|word| Some((word.range.clone(), nearest(&word.text, ["first", "all"])?)));
                let error = reader.expected("`first` or `all`", "first");
                return Err(match near {
                    Some((range, near)) => error.replace_in(range, near),
                    None => error,
                });
            }
            if reader.at > before
                && let Some(error) = meant::longer_base(reader)
            {
                return Err(error);
            }
        }
        Qualifier::Quantile => {
            let Some(word) = reader.peek().filter(|word| word.text.starts_with('p')) else {
                let number = reader.peek().and_then(|word| Some((word.range.clone(), bare_quantile(&word.text)?)));
                let error = reader.expected("a quantile", "p99");
                return Err(match number {
                    Some((range, quantile)) => error.replace_in(range, quantile),
                    None => error,
                });
            };
            match quantile(&word.text[1..]) {
                Some(quantile) => with.quantile = quantile,
                None => {
                    let message = format!("`{}` is no quantile", crate::wording::excerpt(&word.text));
                    let error = GrammarError::new(GrammarErrorKind::Value, word.range.clone(), message);
                    return Err(error.advice("write `p50`, `p90`, `p99` or `p99.9`: above 0 and below 100, with at most four decimals"));
                }
            }
            reader.at += 1;
        }
    }
    Ok(with)
}

/// Reads a quantile in percent, as finely as any drill has answers to tell it.
fn quantile(percent: &str) -> Option<f64> {
    let decimals = percent.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let quantile = crate::units::share::parse(&format!("{percent}%")).ok()?;
    (quantile > 0.0 && quantile < 1.0 && decimals <= 4).then_some(quantile)
}

/// `99`, `99%` or `99th` where `p99` belongs.
fn bare_quantile(word: &str) -> Option<String> {
    let number = word.trim_end_matches('%').trim_end_matches("th");
    quantile(number).map(|_| format!("p{number}"))
}

/// Whether there is an edge that has the metric.
fn applies(row: &Row, edge: Option<&EdgeSpec>, edges: &[EdgeSpec], range: std::ops::Range<usize>) -> Result<(), GrammarError> {
    let roles: Vec<&str> = row.roles.iter().map(|role| role.as_str()).collect();
    let refuse =
        |message: String, advice: String| Err(GrammarError::new(GrammarErrorKind::NotAllowed, range.clone(), message).advice(advice));
    match edge {
        Some(edge) if !row.roles.contains(&edge.role) => {
            let role = edge.role.as_str();
            let message = format!("`{}` is {} {role} edge, which has no {}", edge.name, article(role), row.name);
            return refuse(
                message,
                format!("name {} {} edge, or none", article(roles.first().copied().unwrap_or_default()), roles.join(" or ")),
            );
        }
        None if !edges.iter().any(|edge| row.roles.contains(&edge.role)) => {
            let message = format!("no edge has {}", row.name);
            return refuse(message, format!("observe {} {} edge", article(roles.first().copied().unwrap_or_default()), roles.join(" or ")));
        }
        _ => {}
    }
    if let (true, Some(edge)) = (row.is_of_drill(), edge) {
        let message = format!("`{}` is of the whole drill, not of `{}`", row.name, edge.name);
        return refuse(message, "name no edge".to_owned());
    }
    if ["amplification", "downstream QPS per ingress"].contains(&row.name) {
        needs_ingress(row.name, range.clone(), edges)?;
    }
    Ok(())
}

/// Refuses what is counted per ingress request where none is observed.
pub(super) fn needs_ingress(what: &str, range: std::ops::Range<usize>, edges: &[EdgeSpec]) -> Result<(), GrammarError> {
    if !edges.iter().any(|edge| edge.role == Role::Ingress) {
        let message = format!("{what} is counted per ingress request, and no ingress edge is observed");
        let error = GrammarError::new(GrammarErrorKind::NotAllowed, range, message);
        return Err(error.advice("observe an ingress edge, or judge `downstream QPS increase`"));
    }
    Ok(())
}

/// Names what stands where `[edge] metric` belongs, and what may have been meant.
fn not_understood(reader: &Reader<'_>, edge: Option<&EdgeSpec>, edges: &[EdgeSpec]) -> GrammarError {
    let stops = ["increase", "recovers", "recover", "during", "within", "for"];
    let phrase = reader.words.iter().take_while(|word| !word.is_sign() && !word.is_quantity() && !stops.contains(&word.text.as_str()));
    let phrase: Vec<&Word> = phrase.collect();
    let skipped = usize::from(edge.is_some() && !phrase.is_empty());
    let range = |words: &[&Word]| match (words.first(), words.last()) {
        (Some(first), Some(last)) => first.range.start..last.range.end,
        _ => {
            let at = reader.words.get(skipped).map_or(reader.line.trim_end().len(), |word| word.range.start);
            at..at
        }
    };
    if let Some(error) = meant::joined_edge(reader, edges).or_else(|| meant::otherwise_said(reader, &phrase, skipped)) {
        return error;
    }
    // A metric behind words that are no edge: the edge is what is wrong.
    let tail = (1..phrase.len()).find(|at| row_at(reader, *at).is_some());
    if let Some(at) = tail.filter(|_| edge.is_none()) {
        let name: Vec<&str> = phrase[..at].iter().map(|word| word.text.as_str()).collect();
        let name = name.join("-");
        let names: Vec<&str> = edges.iter().map(|edge| edge.name.as_str()).collect();
        let message = format!("there is no edge `{}`", crate::wording::excerpt(&name));
        let error = GrammarError::new(GrammarErrorKind::UnknownName, range(&phrase[..at]), message);
        return match nearest(&name, names.iter().copied()) {
            Some(near) => error.advice(format!("did you mean `{near}`?")).replace(near),
            None => error.advice(format!("the edges are {}", crate::wording::listed(&names))),
        };
    }
    let words = phrase.get(skipped..).unwrap_or_default();
    if words.is_empty() {
        let error = GrammarError::new(GrammarErrorKind::Syntax, range(words), "a metric is missing");
        return error.advice(format!("this version measures {}", measured()));
    }
    let name = words.iter().map(|word| word.text.replace('-', " ")).collect::<Vec<_>>().join(" ");
    let message = format!("there is no metric `{}`", crate::wording::excerpt(&name));
    let error = GrammarError::new(GrammarErrorKind::UnknownMetric, range(words), message);
    match nearest_metric(&name, edge) {
        Some(near) => error.advice(format!("did you mean `{near}`?")).replace(near),
        None => error.advice(format!("this version measures {}", measured())),
    }
}

/// The metric that a name was probably meant to be, as it is to be written.
fn nearest_metric(name: &str, edge: Option<&EdgeSpec>) -> Option<String> {
    let (name, quantile) = match name.rsplit_once(' ') {
        Some((front, last)) if last.starts_with('p') && last[1..].starts_with(|c: char| c.is_ascii_digit()) => (front, format!(" {last}")),
        _ => (name, " p99".to_owned()),
    };
    let here = || METRICS.iter().filter(|row| row.is_in_this_version());
    let fits = |row: &&Row| edge.is_none_or(|edge| row.roles.contains(&edge.role));
    // `qps` alone is what the edge's role makes of it.
    let part = || here().filter(fits).find(|row| row.name.to_lowercase().split(' ').any(|word| word == name));
    let sorted = |name: &str| {
        let name = name.to_lowercase();
        let mut words: Vec<&str> = name.split(' ').collect();
        words.sort_unstable();
        words.join(" ")
    };
    let turned = here().filter(fits).find(|row| sorted(row.name) == sorted(name)).map(|row| row.name);
    let near = turned.or_else(|| nearest(name, here().filter(fits).map(|row| row.name)));
    let row = near.and_then(|near| here().find(|row| row.name == near)).or_else(part)?;
    let quantile = if row.qualifier == Qualifier::Quantile { quantile } else { String::new() };
    Some(format!("{}{quantile}", row.name))
}

fn measured() -> String {
    let here = METRICS.iter().filter(|row| row.is_in_this_version());
    crate::wording::listed(&here.map(|row| row.name).collect::<Vec<_>>())
}
