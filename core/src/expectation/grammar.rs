//! How expectations and guards are written.
//!
//! ```text
//! expectation = [edge] metric ["increase"] op value ["during" phase] ["in every window"]
//!             | [edge] metric "recovers" ["to" value] "within" (N "windows" | duration)
//! guard       = [edge] metric op value ["for" N "windows"]
//! metric      = name ["of first" | "of all"] [p50 … p99.9]
//! op          = "<" | "<=" | "≤" | ">" | ">=" | "≥"
//! ```
//! Case does not matter, nor whether words are parted by spaces or underscores. The first word is an edge if there is
//! an edge of that name *and* a metric follows it; so `retry ratio` stays a metric beside an edge called `retry`.

use std::ops::Range;
use std::time::Duration;

use super::metric::{Recovery, Row};
use super::value;
use super::words::{self, Word};
use super::{Demand, Expectation, Op, Within};
use crate::edge::EdgeSpec;
use crate::playbook::Guard;
use crate::units::{UnitError, duration};
use crate::window::PhaseName;
use crate::wording::nearest;

mod error;

mod subject;

pub use error::{GrammarError, GrammarErrorKind};
use subject::Subject;

/// Reads one line of `expect:`.
///
/// # Errors
/// The first thing in the line that cannot be understood, with its place in the line and what to write instead.
pub fn parse_expectation(line: &str, edges: &[EdgeSpec]) -> Result<Expectation, GrammarError> {
    let mut reader = Reader::new(line);
    let Subject { edge, metric, row } = subject::read(&mut reader, edges)?;
    let demand = if reader.skip(&["recovers"]) || reader.skip(&["recover"]) {
        recovery(&mut reader, row)?
    } else {
        limit(&mut reader, row)?
    };
    Ok(Expectation {
        text: line.trim().to_owned(),
        edge,
        metric,
        demand,
    })
}

/// Reads one line of `guards:`.
///
/// # Errors
/// As [`parse_expectation`].
pub fn parse_guard(line: &str, edges: &[EdgeSpec]) -> Result<Guard, GrammarError> {
    let mut reader = Reader::new(line);
    let Subject { edge, metric, row } = subject::read(&mut reader, edges)?;
    if let Some(word) = reader
        .peek()
        .filter(|word| ["increase", "recovers", "recover"].contains(&word.text.as_str()))
    {
        let message = format!("a guard cannot say `{}`", word.text);
        let error = GrammarError::new(GrammarErrorKind::NotAllowed, word.range.clone(), message);
        return Err(error.advice(format!(
            "write a guard as in `{} < {} for 3 windows`",
            row.name,
            row.example()
        )));
    }
    let op = comparison(&mut reader, row)?;
    let value = reader.quantity(row.example(), |text| value::parse(text, row.unit))?;
    let windows = if reader.skip(&["for"]) {
        windows(&mut reader)?
    } else {
        1
    };
    reader.end(&["for 3 windows"])?;
    Ok(Guard {
        text: line.trim().to_owned(),
        edge,
        metric,
        op,
        value,
        windows,
    })
}

fn limit(reader: &mut Reader<'_>, row: &Row) -> Result<Demand, GrammarError> {
    let before = reader.at;
    let increase = reader.skip(&["increase"]);
    if increase && !row.increase {
        let message = format!("`{}` has no `increase`", row.name);
        let error = GrammarError::new(GrammarErrorKind::NotAllowed, reader.range(before), message);
        return Err(error.advice(format!(
            "give its limit itself, as in `{} <= {}`",
            row.name,
            row.example()
        )));
    }
    let op = comparison(reader, row)?;
    let value = if increase {
        reader.quantity("20%", value::parse_increase)?
    } else {
        reader.quantity(row.example(), |text| value::parse(text, row.unit))?
    };
    let mut phase = PhaseName::Fault;
    if reader.skip(&["during"]) {
        phase = self::phase(reader, increase)?;
    }
    let every_window =
        reader.skip(&["in", "every", "window"]) || reader.skip(&["in", "each", "window"]);
    reader.end(&["during fault", "in every window"])?;
    Ok(Demand::Limit {
        op,
        value,
        increase,
        phase,
        every_window,
    })
}

fn recovery(reader: &mut Reader<'_>, row: &Row) -> Result<Demand, GrammarError> {
    let recovers = reader.at - 1;
    if row.recovery == Recovery::No {
        let message = format!(
            "`{} recovers` is not in this version of stormdrill",
            row.name
        );
        let error = GrammarError::new(
            GrammarErrorKind::NotInThisVersion,
            reader.range(recovers),
            message,
        );
        let advice = format!(
            "judge it after the fault, as in `{} <= {} during recovery`",
            row.name,
            row.example()
        );
        return Err(error.advice(advice));
    }
    let to = if reader.skip(&["to"]) {
        Some(reader.quantity(row.example(), |text| value::parse(text, row.unit))?)
    } else {
        None
    };
    if !reader.skip(&["within"]) {
        return Err(reader.expected("`within`", "within 2 windows"));
    }
    let within = match reader.peek_quantity() {
        Some((text, _)) if text.bytes().all(|b| b.is_ascii_digit()) => {
            Within::Windows(windows(reader)?)
        }
        _ => Within::Time(reader.quantity("2 windows", time)?),
    };
    reader.end(&["within 2 windows"])?;
    Ok(Demand::Recovers { to, within })
}

fn time(text: &str) -> Result<Duration, UnitError> {
    let time = duration::parse(text)?;
    if time.is_zero() {
        let write = vec!["1 window".to_owned()];
        return Err(UnitError::new(
            text,
            crate::units::UnitErrorKind::Zero,
            write,
        ));
    }
    Ok(time)
}

fn comparison(reader: &mut Reader<'_>, row: &Row) -> Result<Op, GrammarError> {
    let example = format!("<= {}", row.example());
    let Some(word) = reader.peek().filter(|word| word.is_sign()) else {
        return Err(reader.expected("a comparison", &example));
    };
    let op = match word.text.as_str() {
        "<" => Op::Less,
        "<=" | "≤" => Op::AtMost,
        ">" => Op::Greater,
        ">=" | "≥" => Op::AtLeast,
        other => {
            let message = format!("`{other}` is no comparison here");
            let write = if other.starts_with(['>', '≥']) || other == "=>" {
                ">="
            } else {
                "<="
            };
            let error = GrammarError::new(GrammarErrorKind::Syntax, word.range.clone(), message);
            return Err(error.advice("write `<`, `<=`, `>` or `>=`").replace(write));
        }
    };
    reader.at += 1;
    Ok(op)
}

fn phase(reader: &mut Reader<'_>, increase: bool) -> Result<PhaseName, GrammarError> {
    let phases = [PhaseName::Baseline, PhaseName::Fault, PhaseName::Recovery];
    let names = phases.map(PhaseName::as_str);
    let Some(word) = reader.peek() else {
        return Err(reader.expected("a phase", "fault"));
    };
    let Some(phase) = phases.into_iter().find(|phase| phase.as_str() == word.text) else {
        let message = format!(
            "there is no phase `{}`",
            crate::wording::excerpt(&word.text)
        );
        let error = GrammarError::new(GrammarErrorKind::UnknownName, word.range.clone(), message);
        let error = error.advice("the phases are `baseline`, `fault` and `recovery`");
        return Err(error.replace(nearest(&word.text, names).unwrap_or("fault")));
    };
    if increase && phase == PhaseName::Baseline {
        let message = "an increase during the baseline is measured against itself";
        let error = GrammarError::new(GrammarErrorKind::NotAllowed, word.range.clone(), message);
        return Err(error.advice("name another phase").replace("fault"));
    }
    reader.at += 1;
    Ok(phase)
}

/// `N windows`.
fn windows(reader: &mut Reader<'_>) -> Result<u32, GrammarError> {
    let start = reader.at;
    let Some(word) = reader.peek().filter(|word| word.is_quantity()) else {
        return Err(reader.expected("a number of windows", "3 windows"));
    };
    let text = word.text.clone();
    reader.at += 1;
    let unit = reader.skip(&["windows"]) || reader.skip(&["window"]);
    let range = reader.range(start);
    match text.parse::<u32>() {
        Ok(count) if count > 0 && unit => Ok(count),
        Ok(0) => {
            let error = GrammarError::new(
                GrammarErrorKind::OutOfRange,
                range,
                "no window is no time at all",
            );
            Err(error.replace("1 window"))
        }
        Ok(count) => {
            let error = GrammarError::new(
                GrammarErrorKind::Value,
                range,
                format!("`{text}` has no unit"),
            );
            Err(error
                .advice(format!("write `{count} windows`"))
                .replace(format!("{count} windows")))
        }
        Err(_) => {
            let message = format!(
                "`{}` is no number of windows",
                crate::wording::excerpt(&text)
            );
            Err(GrammarError::new(GrammarErrorKind::Value, range, message).replace("3 windows"))
        }
    }
}

/// The line, and how far it has been read.
#[derive(Debug)]
struct Reader<'a> {
    line: &'a str,
    words: Vec<Word>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn new(line: &'a str) -> Self {
        Self {
            line,
            words: words::split(line),
            at: 0,
        }
    }

    fn peek(&self) -> Option<&Word> {
        self.words.get(self.at)
    }

    /// Steps over these words if they come next.
    fn skip(&mut self, expected: &[&str]) -> bool {
        let next = self
            .words
            .iter()
            .skip(self.at)
            .map(|word| word.text.as_str());
        let found = next.take(expected.len()).eq(expected.iter().copied());
        self.at += if found { expected.len() } else { 0 };
        found
    }

    /// From a word to the last one read.
    fn range(&self, first: usize) -> Range<usize> {
        let start = self
            .words
            .get(first)
            .map_or(self.line.len(), |word| word.range.start);
        let end = self
            .at
            .checked_sub(1)
            .and_then(|last| self.words.get(last))
            .map_or(start, |word| word.range.end);
        start..end.max(start)
    }

    /// The next quantity and how many words it takes: a unit may stand apart, as in `20 %`.
    fn peek_quantity(&self) -> Option<(String, usize)> {
        let word = self.peek().filter(|word| !word.is_sign())?;
        let bare = word.text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let next = self
            .words
            .get(self.at + 1)
            .filter(|_| bare && word.is_quantity());
        match next.map(|next| next.text.as_str()) {
            Some(unit @ ("%" | "x" | "/s" | "ns" | "us" | "ms" | "s" | "m" | "h")) => {
                Some((format!("{}{unit}", word.text), 2))
            }
            _ => Some((word.text.clone(), 1)),
        }
    }

    fn quantity<T>(
        &mut self,
        example: &str,
        parse: impl FnOnce(&str) -> Result<T, UnitError>,
    ) -> Result<T, GrammarError> {
        let Some((text, words)) = self.peek_quantity() else {
            return Err(self.expected("a value", example));
        };
        let start = self.at;
        self.at += words;
        parse(&text).map_err(|error| {
            let refused = GrammarError::new(
                GrammarErrorKind::Value,
                self.range(start),
                error.to_string(),
            );
            refused.advice(error.advice()).replace(
                error
                    .write
                    .first()
                    .cloned()
                    .unwrap_or_else(|| example.to_owned()),
            )
        })
    }

    /// What should come next does not.
    fn expected(&self, what: &str, example: &str) -> GrammarError {
        match self.peek() {
            Some(word) => {
                let message = format!(
                    "{what} belongs before `{}`",
                    crate::wording::excerpt(&word.text)
                );
                GrammarError::new(GrammarErrorKind::Syntax, word.range.clone(), message)
                    .advice(format!("write it as in `{example}`"))
            }
            None => {
                let end = self.line.trim_end().len();
                let error = GrammarError::new(
                    GrammarErrorKind::Syntax,
                    end..end,
                    format!("{what} is missing"),
                );
                error.replace(format!(" {example}"))
            }
        }
    }

    /// Nothing may follow. `more` is what could have.
    fn end(&self, more: &[&str]) -> Result<(), GrammarError> {
        let Some(word) = self.peek() else {
            return Ok(());
        };
        let range = word.range.start..self.line.trim_end().len();
        let rest = self.line.get(range.clone()).unwrap_or_default();
        let message = format!(
            "`{}` cannot be understood here",
            crate::wording::excerpt(rest)
        );
        let quoted: Vec<String> = more.iter().map(|text| format!("`{text}`")).collect();
        let error = GrammarError::new(GrammarErrorKind::Syntax, range, message);
        Err(error.advice(format!("only {} may follow", quoted.join(" and "))))
    }
}
