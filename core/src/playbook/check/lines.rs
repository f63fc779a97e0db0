//! `guards:` and `expect:`, whose lines have a grammar of their own.

use std::time::Duration;

use super::super::fields;
use super::super::node::{Entry, Node};
use super::super::problem::{Code, Draft, Place, Problems};
use super::super::{Guard, Phases};
use crate::edge::EdgeSpec;
use crate::expectation::grammar::{self, GrammarError, GrammarErrorKind};
use crate::expectation::{Demand, Expectation, Within};
use crate::units::duration;

pub(super) fn expectations(
    entry: &Entry,
    edges: Option<&[EdgeSpec]>,
    window: Option<Duration>,
    phases: Option<Phases>,
    problems: &mut Problems<'_>,
) -> Vec<Expectation> {
    let recovery = phases.map(|phases| phases.recovery);
    lines(entry, edges, grammar::parse_expectation, problems, |line, place, problems| {
        let (Demand::Recovers { within, .. }, Some(recovery), Some(window)) = (line.demand, recovery, window) else {
            return;
        };
        let asked = match within {
            Within::Windows(count) => window.saturating_mul(count),
            Within::Time(time) => time,
        };
        if asked > recovery {
            let message = format!("{within} are longer than the recovery phase of {}", duration::print(recovery));
            let draft = Draft::new(Code::OutOfRange, place, message).label("this could not be told");
            problems.report(draft.advice("make `phases.recovery` longer, or the demand stricter"));
        }
    })
}

pub(super) fn guards(
    entry: &Entry,
    edges: Option<&[EdgeSpec]>,
    window: Option<Duration>,
    phases: Option<Phases>,
    problems: &mut Problems<'_>,
) -> Vec<Guard> {
    let whole = phases.map(|phases| phases.baseline + phases.fault + phases.recovery);
    lines(entry, edges, grammar::parse_guard, problems, |line, place, problems| {
        let (Some(whole), Some(window)) = (whole, window) else {
            return;
        };
        if window.saturating_mul(line.windows) > whole {
            let message = format!("{} windows are longer than the whole drill of {}", line.windows, duration::print(whole));
            problems.report(Draft::new(Code::OutOfRange, place, message).label("this guard could never trip"));
        }
    })
}

fn lines<T>(
    entry: &Entry,
    edges: Option<&[EdgeSpec]>,
    parse: impl Fn(&str, &[EdgeSpec]) -> Result<T, GrammarError>,
    problems: &mut Problems<'_>,
    check: impl Fn(&T, &Place, &mut Problems<'_>),
) -> Vec<T> {
    let mut found = Vec::new();
    for item in fields::items(entry, problems).unwrap_or_default() {
        let what = format!("a line of `{}`", entry.key.text);
        let Some(text) = fields::scalar(item, &entry.key.place, &what, problems) else {
            continue;
        };
        let Some(edges) = edges else { continue };
        match parse(text, edges) {
            Ok(line) => {
                check(&line, &item.place, problems);
                found.push(line);
            }
            Err(error) => {
                let place = part(item, text, &error, problems);
                problems.report(draft(&place, item, error));
            }
        }
    }
    found
}

/// The part of the file that an error in a line points to: the part itself if the line stands in the file as it is.
fn part(item: &Node, line: &str, error: &GrammarError, problems: &Problems<'_>) -> Place {
    let written = problems.text(&item.place).unwrap_or_default();
    match written.find(line).filter(|_| !line.is_empty()) {
        Some(at) => {
            let start = item.place.start + at;
            Place { start: start + error.range.start, end: start + error.range.end, ..item.place.clone() }
        }
        None => item.place.clone(),
    }
}

fn draft(place: &Place, item: &Node, error: GrammarError) -> Draft {
    let code = match error.kind {
        GrammarErrorKind::Syntax | GrammarErrorKind::Value => Code::BadValue,
        GrammarErrorKind::UnknownMetric => Code::UnknownMetric,
        GrammarErrorKind::UnknownName => Code::UnknownName,
        GrammarErrorKind::NotInThisVersion => Code::NotInThisVersion,
        GrammarErrorKind::NotAllowed => Code::Conflict,
        GrammarErrorKind::OutOfRange => Code::OutOfRange,
    };
    let mut draft = Draft::new(code, place, error.message);
    if let Some(advice) = error.advice {
        draft = draft.advice(advice);
    }
    match error.replace {
        // A place that stands for the whole item cannot take a replacement for a part of it.
        Some(text) if *place != item.place || place.start + error.range.end == place.end => draft.replace(text),
        _ => draft,
    }
}
