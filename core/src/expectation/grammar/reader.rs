//! A line as it is read, word by word.

use std::ops::Range;

use super::super::metric::{METRICS, Row, Unit};
use super::super::value;
use super::super::words::{self, Word};
use super::{GrammarError, GrammarErrorKind, meant, mend};
use crate::units::{UnitError, share};

/// Units that may stand apart from their number.
const UNITS: [&str; 9] = ["%", "x", "/s", "ns", "us", "ms", "s", "m", "h"];

/// Other spellings of them, which are put right.
const OTHER_UNITS: [&str; 21] = [
    "%%",
    "percent",
    "pct",
    "times",
    "×",
    "rps",
    "qps",
    "/sec",
    "sec",
    "secs",
    "second",
    "seconds",
    "msec",
    "millis",
    "milliseconds",
    "min",
    "mins",
    "minute",
    "minutes",
    "hour",
    "hours",
];

/// The line, and how far it has been read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) line: &'a str,
    pub(super) words: Vec<Word>,
    /// Position of the next word.
    pub(super) at: usize,
    /// It is a guard: it trips where an expectation would fail.
    pub(super) guard: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(line: &'a str) -> Self {
        Self { line, words: words::split(line), at: 0, guard: false }
    }

    pub(super) fn peek(&self) -> Option<&Word> {
        self.words.get(self.at)
    }

    /// Steps over these words if they come next.
    pub(super) fn skip(&mut self, expected: &[&str]) -> bool {
        let next = self.words.iter().skip(self.at).map(|word| word.text.as_str());
        let found = next.take(expected.len()).eq(expected.iter().copied());
        self.at += if found { expected.len() } else { 0 };
        found
    }

    /// From a word to the last one read.
    pub(super) fn range(&self, first: usize) -> Range<usize> {
        let start = self.words.get(first).map_or(self.line.len(), |word| word.range.start);
        let end = self.at.checked_sub(1).and_then(|last| self.words.get(last)).map_or(start, |word| word.range.end);
        start..end.max(start)
    }

    /// The next quantity and how many words it takes: a unit may stand apart, as in `20 %`.
    pub(super) fn peek_quantity(&self) -> Option<(String, usize)> {
        let word = self.peek().filter(|word| !word.is_sign())?;
        let bare = word.text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let next = self.words.get(self.at + 1).filter(|_| bare && word.is_quantity());
        match next.map(|next| next.text.as_str()) {
            Some(unit) if UNITS.contains(&unit) || OTHER_UNITS.contains(&unit) => Some((format!("{}{unit}", word.text), 2)),
            _ => Some((word.text.clone(), 1)),
        }
    }

    pub(super) fn quantity<T>(&mut self, example: &str, parse: impl FnOnce(&str) -> Result<T, UnitError>) -> Result<T, GrammarError> {
        let Some((text, words)) = self.peek_quantity() else {
            return Err(self.expected("a value", example));
        };
        let start = self.at;
        self.at += words;
        parse(&text).map_err(|error| {
            let refused = GrammarError::new(GrammarErrorKind::Value, self.range(start), error.to_string());
            let write = mend::rewritten(&text, &error);
            match write.first().cloned() {
                Some(first) => refused.advice(UnitError { write, ..error }.advice()).replace(first),
                None => refused,
            }
        })
    }

    /// A limit in the metric's unit.
    pub(super) fn limit(&mut self, row: &Row) -> Result<f64, GrammarError> {
        let text = self.peek_quantity().map(|(text, _)| text).unwrap_or_default();
        let op = self.at.checked_sub(1).and_then(|last| self.words.get(last)).map(|word| word.text.clone()).unwrap_or_default();
        self.quantity(row.usual_limit(self.guard), |text| value::parse(text, row.unit)).map_err(|mut error| {
            let percent = !matches!(row.unit, Unit::Share | Unit::Ratio) && share::parse_any(&text).is_ok();
            let other = METRICS.iter().any(|other| other.unit != Unit::Ratio && value::parse(&text, other.unit).is_ok());
            let number = value::parse(&text, Unit::Count).is_ok();
            if error.kind == GrammarErrorKind::Value && (percent || other) && !number {
                error.message = format!("`{}` is {}, not `{text}`", row.name, row.unit.noun());
            }
            match meant::part_of_baseline(row, &op, &text).filter(|_| !self.guard) {
                Some(times) => error.advice("of the baseline's value it is a factor: write").replace(times),
                None => error,
            }
        })
    }

    /// What should come next does not; `insert` is what could.
    pub(super) fn expected(&self, what: &str, insert: &str) -> GrammarError {
        match self.peek() {
            Some(word) => {
                let at = word.range.start;
                let message = format!("{what} belongs before `{}`", crate::wording::excerpt(&word.text));
                GrammarError::new(GrammarErrorKind::Syntax, at..at, message).replace(format!("{insert} "))
            }
            None => {
                let end = self.line.trim_end().len();
                let error = GrammarError::new(GrammarErrorKind::Syntax, end..end, format!("{what} is missing"));
                error.replace(format!(" {insert}"))
            }
        }
    }

    /// Nothing may follow. `more` is what could have.
    pub(super) fn end(&self, more: &[&str]) -> Result<(), GrammarError> {
        let Some(word) = self.peek() else {
            return Ok(());
        };
        let range = word.range.start..self.line.trim_end().len();
        let rest = self.line.get(range.clone()).unwrap_or_default();
        let message = format!("`{}` cannot be understood here", crate::wording::excerpt(rest));
        let quoted: Vec<String> = more.iter().map(|text| format!("`{text}`")).collect();
        let error = GrammarError::new(GrammarErrorKind::Syntax, range, message);
        if quoted.is_empty() {
            return Err(error.advice("nothing may follow"));
        }
        Err(error.advice(format!("only {} may follow", quoted.join(" and "))))
    }
}
