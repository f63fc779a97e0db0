//! `guards:` and `expect:`, whose lines have a grammar of their own.

use std::time::Duration;

use super::super::fields;
use super::super::node::{Entry, Node};
use super::super::problem::{Code, Draft, Place, Problem, Problems};
use super::super::{Guard, Phases};
use crate::edge::EdgeSpec;
use crate::expectation::grammar::{self, GrammarError, GrammarErrorKind};
use crate::expectation::{Demand, Expectation, Within};
use crate::fault::FaultSpec;
use crate::judge::hidden;
use crate::units::duration;
use crate::window::PhaseName;

pub(super) fn expectations(
    entry: &Entry,
    edges: Option<&[EdgeSpec]>,
    faults: &[FaultSpec],
    window: Option<Duration>,
    phases: Option<Phases>,
    problems: &mut Problems<'_>,
) -> Vec<Expectation> {
    let recovery = phases.map(|phases| phases.recovery);
    lines(entry, edges, grammar::parse_expectation, problems, |line, place, problems| {
        visible(line, edges.unwrap_or_default(), faults, place, problems);
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

/// A drill in which the fault does what it should could not pass this: it would be invalid, or fail.
fn visible(line: &Expectation, edges: &[EdgeSpec], faults: &[FaultSpec], place: &Place, problems: &mut Problems<'_>) {
    let phase = match line.demand {
        Demand::Limit { phase, .. } => phase,
        Demand::Recovers { .. } => PhaseName::Recovery,
    };
    let edges = edges.iter().filter(|edge| line.edge.as_ref().is_none_or(|name| *name == edge.name));
    let hidden = edges.filter_map(|edge| Some((edge, hidden::by(line.metric, phase, edge, faults)?))).next();
    if let Some((edge, fault)) = hidden {
        let message = format!("`{}` to `{}` cannot be seen on that edge itself", fault.kind.as_str(), edge.name);
        let draft = Draft::new(Code::Conflict, place, message).label("this could never pass");
        problems.report(draft.advice(
            "the fault works between the edge's socket and its callers: judge it at the caller's edge, or aim it at a downstream edge",
        ));
    }
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
        let Some(text) = fields::scalar(item, &written(&item.place, problems), &what, problems) else {
            continue;
        };
        let Some(edges) = edges else { continue };
        match parse(text, edges) {
            Ok(line) => {
                check(&line, &item.place, problems);
                found.push(line);
            }
            Err(mut error) => {
                let again = error.with(text).and_then(|line| parse(&line, edges).ok());
                let refused = again.and_then(|line| problems.tried(|problems| check(&line, &item.place, problems)));
                if let Some(Problem { message, help, .. }) = refused {
                    // A corrected line that is refused in turn helps nobody.
                    (error.replace, error.replace_at) = (None, None);
                    error.advice = Some(match (error.advice, help) {
                        (Some(advice), _) => format!("{advice}, but {message}"),
                        (None, Some(help)) => format!("{message}: {help}"),
                        (None, None) => message,
                    });
                }
                let place = part(item, text, &error, problems);
                problems.report(draft(&place, item, error));
            }
        }
    }
    found
}

/// An item's place; of one that is empty the dash before it, where there is something to be seen.
fn written(place: &Place, problems: &Problems<'_>) -> Place {
    let before = problems.text(&Place { start: 0, ..place.clone() }).unwrap_or_default().trim_end();
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    // A comment may stand behind it.
    let code = before.get(line..).and_then(|code| code.split('#').next()).map_or(0, |code| line + code.trim_end().len());
    let dash = before.get(..code).and_then(|before| before.strip_suffix('-')).filter(|_| place.start == place.end);
    dash.map_or_else(|| place.clone(), |dash| Place { start: dash.len(), end: dash.len() + 1, ..place.clone() })
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
        Some(text) if *place != item.place || place.start + error.range.end == place.end => {
            // The line's own begin in its source; a place is never before it.
            let line = place.start.saturating_sub(if *place == item.place { 0 } else { error.range.start });
            match error.replace_at {
                Some(at) => draft.replace_at(Place { start: line + at.start, end: line + at.end, ..place.clone() }, text),
                None => draft.replace(text),
            }
        }
        _ => draft,
    }
}
