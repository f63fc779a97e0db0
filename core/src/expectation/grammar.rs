//! How expectations and guards are written.
//!
//! ```text
//! expectation = [edge] metric ["increase"] op value ["during" phase] ["in every window"]
//!             | [edge] metric "recovers" ["to" value] "within" (N "windows" | duration)
//!             | "not metastable"
//! guard       = [edge] metric op value ["for" N "windows"]
//! metric      = name ["of first" | "of all"] [p50 … p99.9]
//! value       = a limit in the metric's unit | factor "x" of the baseline's value
//! op          = "<" | "<=" | "≤" | ">" | ">=" | "≥"
//! ```
//! Case does not matter, nor whether words are parted by spaces or underscores. The first word is an edge if there is
//! an edge of that name *and* a metric follows it; so `retry ratio` stays a metric beside an edge called `retry`.

use std::time::Duration;

use super::bounds::Bounds;
use super::metric::{Qualifier, Recovery, Row, Unit};
use super::value;
use super::{Demand, Expectation, Metric, Op, Within};
use crate::edge::EdgeSpec;
use crate::playbook::Guard;
use crate::units::{UnitError, duration};
use crate::window::PhaseName;
use crate::wording::nearest;

mod comparison;

mod error;

mod meant;

mod order;

pub(crate) mod mend;

mod reader;

mod subject;

pub use error::{GrammarError, GrammarErrorKind};
use reader::Reader;
use subject::Subject;

/// Reads one line of `expect:`.
///
/// # Errors
/// The first thing in the line that cannot be understood, with its place in the line and what to write instead.
pub fn parse_expectation(line: &str, edges: &[EdgeSpec]) -> Result<Expectation, GrammarError> {
    read_expectation(line, edges).map_err(|error| mend::checked(line, edges, false, error, |line| read_expectation(line, edges).err()))
}

fn read_expectation(line: &str, edges: &[EdgeSpec]) -> Result<Expectation, GrammarError> {
    let mut reader = Reader::new(line);
    if reader.skip(&["not", "metastable"]) {
        reader.end(&[])?;
        subject::needs_ingress("metastability", 0..line.trim_end().len(), edges)?;
        return Ok(Expectation { text: line.trim().to_owned(), edge: None, metric: Metric::Metastable, demand: NOT_METASTABLE });
    }
    if let Some(error) = meant::not_metastable(&reader) {
        return Err(error);
    }
    let Subject { edge, metric, row } = subject::read(&mut reader, edges)?;
    let demand = if reader.skip(&["recovers"]) || reader.skip(&["recover"]) {
        recovery(&mut reader, row, &Bounds::of(metric, false, edges))?
    } else {
        limit(&mut reader, row, |increase| Bounds::of(metric, increase, edges))?
    };
    Ok(Expectation { text: line.trim().to_owned(), edge, metric, demand })
}

/// The demand of `not metastable`, which takes no other.
const NOT_METASTABLE: Demand =
    Demand::Limit { op: Op::AtMost, value: 0.0, increase: false, phase: PhaseName::Recovery, every_window: false };

/// Reads one line of `guards:`.
///
/// # Errors
/// As [`parse_expectation`].
pub fn parse_guard(line: &str, edges: &[EdgeSpec]) -> Result<Guard, GrammarError> {
    read_guard(line, edges).map_err(|error| mend::checked(line, edges, true, error, |line| read_guard(line, edges).err()))
}

fn read_guard(line: &str, edges: &[EdgeSpec]) -> Result<Guard, GrammarError> {
    let mut reader = Reader { guard: true, ..Reader::new(line) };
    let Subject { edge, metric, row } = subject::read(&mut reader, edges)?;
    if let Some(word) = reader.peek().filter(|word| ["increase", "recovers", "recover"].contains(&word.text.as_str())) {
        let message = format!("a guard cannot say `{}`", word.text);
        let error = GrammarError::new(GrammarErrorKind::NotAllowed, word.range.clone(), message);
        return Err(error.advice(format!("write a guard as in `{metric} {} for 3 windows`", row.demand(true))));
    }
    let start = reader.at;
    let op = comparison::read(&mut reader, row)?;
    let value = reader.limit(row)?;
    comparison::possible(&reader, (start, row), &Bounds::of(metric, false, edges), op, value)?;
    if let Some(error) = meant::for_windows(&reader) {
        return Err(error);
    }
    let windows = if reader.skip(&["for"]) { windows(&mut reader)? } else { 1 };
    reader.end(&["for 3 windows"])?;
    Ok(Guard { text: line.trim().to_owned(), edge, metric, op, value, windows })
}

fn limit(reader: &mut Reader<'_>, row: &Row, bounds: impl Fn(bool) -> Bounds) -> Result<Demand, GrammarError> {
    let before = reader.at;
    let increase = reader.skip(&["increase"]);
    if increase && !row.increase {
        if let Some(error) = meant::amplified(reader, row, before) {
            return Err(error);
        }
        let message = format!("`{}` has no `increase`", row.name);
        let error = GrammarError::new(GrammarErrorKind::NotAllowed, reader.range(before), message);
        return Err(error.advice(format!(
            "give its limit itself, as in `{} {}{}`",
            row.name,
            if row.qualifier == Qualifier::Quantile { "p99 " } else { "" },
            row.demand(false)
        )));
    }
    if let Some(error) = meant::increase_or_recovers(reader, row) {
        return Err(error);
    }
    let start = reader.at;
    let op = comparison::read(reader, row)?;
    // `1.2x` of a metric that is no factor itself is 1.2 times the baseline's value.
    let times = reader.peek_quantity().filter(|_| row.increase && row.unit != Unit::Factor && !increase);
    if let Some((value, words)) = times.and_then(|(text, words)| Some((value::parse_times(&text)?, words))) {
        reader.at += words;
        comparison::possible(reader, (start, row), &bounds(true), op, value)?;
        return limit_tail(reader, row, Demand::Limit { op, value, increase: true, phase: PhaseName::Fault, every_window: false });
    }
    if let Some(error) = meant::more_by(reader, row, op, increase) {
        return Err(error);
    }
    let below = reader.peek_quantity().and_then(|(text, words)| Some((mend::of_baseline(row, &text)?, words)));
    let value = if increase {
        let times = reader.peek_quantity().and_then(|(text, _)| value::more_than_once(&text));
        reader.quantity("20%", value::parse_increase).map_err(|error| match (error.replace.clone(), times) {
            (Some(percent), Some(more)) => {
                error.advice(format!("write `{percent}`, or `{more}` for {text} times as much", text = percent.trim_end_matches('%')))
            }
            _ => error,
        })
    } else {
        reader.limit(row)
    };
    let value = match (value, below) {
        // Less than the baseline is no increase.
        (Err(error), Some((times, words))) if increase => {
            reader.at = start + 1 + words;
            return Err(error.replace_in(reader.range(before), format!("{op} {times}")));
        }
        (value, _) => value?,
    };
    comparison::possible(reader, (start, row), &bounds(increase), op, value)?;
    limit_tail(reader, row, Demand::Limit { op, value, increase, phase: PhaseName::Fault, every_window: false })
}

/// `["during" phase] ["in every window"]`
fn limit_tail(reader: &mut Reader<'_>, row: &Row, mut demand: Demand) -> Result<Demand, GrammarError> {
    let start = reader.at;
    if let Demand::Limit { increase, phase, every_window, .. } = &mut demand {
        // What the baseline would be compared with itself by.
        let itself = match row.name {
            "amplification" => Some("`amplification`"),
            _ => increase.then_some("an increase"),
        };
        if reader.skip(&["during"]) {
            *phase = self::phase(reader, itself)?;
        }
        *every_window = reader.skip(&["in", "every", "window"]) || reader.skip(&["in", "each", "window"]);
    }
    if let Some(error) = meant::of_the_baseline(reader, matches!(demand, Demand::Limit { increase: true, .. })) {
        return Err(error);
    }
    reader.end(&["during fault", "in every window"]).map_err(|error| match mend::tail(reader.words.get(start..).unwrap_or_default()) {
        Some(tail) => {
            let from = reader.words.get(start).map_or(error.range.start, |word| word.range.start);
            let range = from..error.range.end;
            error.replace_in(range, tail)
        }
        None => error,
    })?;
    Ok(demand)
}

fn recovery(reader: &mut Reader<'_>, row: &Row, bounds: &Bounds) -> Result<Demand, GrammarError> {
    let recovers = reader.at - 1;
    if row.recovery == Recovery::No {
        let message = format!("`{} recovers` is not in this version of stormdrill", row.name);
        let error = GrammarError::new(GrammarErrorKind::NotInThisVersion, reader.range(recovers), message);
        let advice = format!("judge it after the fault, as in `{} {} during recovery`", row.name, row.demand(false));
        return Err(error.advice(advice));
    }
    let start = reader.at + 1;
    let to = if reader.skip(&["to"]) { Some(reader.limit(row)?) } else { None };
    if let Some(level) = to
        && let Some((why, _)) = bounds.never(if row.is_good() { Op::AtLeast } else { Op::AtMost }, level)
    {
        let message = format!("{why}: this could never pass");
        return Err(GrammarError::new(GrammarErrorKind::OutOfRange, reader.range(start), message));
    }
    if !reader.skip(&["within"]) {
        let error = reader.expected("`within`", "within 2 windows");
        let meant = reader.peek().filter(|word| word.text == "in" || word.text == "after" || nearest(&word.text, ["within"]).is_some());
        return Err(match meant {
            Some(word) => error.replace_in(word.range.clone(), "within"),
            None => error,
        });
    }
    let counted = reader.words.get(reader.at + 1).is_some_and(|word| nearest(&word.text, ["windows"]).is_some());
    let within = match reader.peek_quantity() {
        Some(_) if counted => Within::Windows(windows(reader)?),
        Some((text, _)) if text.bytes().all(|b| b.is_ascii_digit()) => Within::Windows(windows(reader).map_err(|error| {
            let windows = error.replace.clone().filter(|_| error.kind == GrammarErrorKind::Value);
            match windows {
                Some(windows) => error.advice(format!("write `{windows}` or `{text}s`")),
                None => error,
            }
        })?),
        _ => Within::Time(reader.quantity("2 windows", time)?),
    };
    reader.end(&["within 2 windows"])?;
    Ok(Demand::Recovers { to, within })
}

fn time(text: &str) -> Result<Duration, UnitError> {
    let time = duration::parse(text)?;
    if time.is_zero() {
        let write = vec!["1 window".to_owned()];
        return Err(UnitError::new(text, crate::units::UnitErrorKind::Zero, write));
    }
    Ok(time)
}

fn phase(reader: &mut Reader<'_>, itself: Option<&str>) -> Result<PhaseName, GrammarError> {
    let phases = [PhaseName::Baseline, PhaseName::Fault, PhaseName::Recovery];
    let names = phases.map(PhaseName::as_str);
    let Some(word) = reader.peek() else {
        return Err(reader.expected("a phase", "fault"));
    };
    let Some(phase) = phases.into_iter().find(|phase| phase.as_str() == word.text) else {
        let message = format!("there is no phase `{}`", crate::wording::excerpt(&word.text));
        let error = GrammarError::new(GrammarErrorKind::UnknownName, word.range.clone(), message);
        let error = error.advice("the phases are `baseline`, `fault` and `recovery`");
        if let Some((next, near)) =
            reader.words.get(reader.at + 1).filter(|_| word.text == "the").and_then(|next| Some((next, nearest(&next.text, names)?)))
        {
            return Err(error.replace_in(word.range.start..next.range.end, near));
        }
        return Err(error.replace(nearest(&word.text, names).unwrap_or("fault")));
    };
    if let Some(what) = itself.filter(|_| phase == PhaseName::Baseline) {
        let message = format!("{what} during the baseline is measured against itself");
        let error = GrammarError::new(GrammarErrorKind::NotAllowed, word.range.clone(), message);
        return Err(error.advice("name another phase").replace("fault"));
    }
    reader.at += 1;
    Ok(phase)
}

/// `N windows`.
fn windows(reader: &mut Reader<'_>) -> Result<u32, GrammarError> {
    let start = reader.at;
    let numeral = reader.peek().and_then(|word| mend::numeral(&word.text));
    let Some(word) = reader.peek().filter(|word| word.is_quantity() || numeral.is_some()) else {
        return Err(reader.expected("a number of windows", "3 windows"));
    };
    let text = word.text.clone();
    reader.at += 1;
    let unit = reader.skip(&["windows"]) || reader.skip(&["window"]);
    if !unit && reader.peek().is_some_and(|word| nearest(&word.text, ["windows"]).is_some()) {
        reader.at += 1;
    }
    let range = reader.range(start);
    match text.parse::<u32>() {
        Ok(count) if count > 0 && unit => Ok(count),
        Ok(0) => {
            let error = GrammarError::new(GrammarErrorKind::OutOfRange, range, "no window is no time at all");
            Err(error.replace("1 window"))
        }
        Ok(count) => {
            let written = reader.line.get(range.clone()).unwrap_or(&text);
            let message = format!("`{}` is no number of windows", crate::wording::excerpt(written));
            Err(GrammarError::new(GrammarErrorKind::Value, range, message).replace(Within::Windows(count).to_string()))
        }
        Err(_) => {
            let message = format!("`{}` is no number of windows", crate::wording::excerpt(&text));
            let error = GrammarError::new(GrammarErrorKind::Value, range, message);
            // Neither a part of a window nor less than none can be counted.
            Err(match numeral {
                Some(count) => error.replace(Within::Windows(count).to_string()),
                None => error.advice("write a whole number, as in `3 windows`"),
            })
        }
    }
}

#[cfg(test)]
mod tests;
