//! What a line that is refused was meant to be. A corrected line is proposed only if it reads, and is another than the one written.

use std::ops::Range;

use super::super::metric::Row;
use super::super::value;
use super::super::words::Word;
use super::{GrammarError, GrammarErrorKind, Reader, subject};
use crate::edge::EdgeSpec;
use crate::units::{UnitError, UnitErrorKind, share};
use crate::wording::nearest;

/// Slips in one line that are mended together.
const SLIPS: usize = 4;

/// Keeps what an error proposes if the line reads with it; else says how such a line is written.
pub(super) fn checked(
    line: &str,
    edges: &[EdgeSpec],
    guard: bool,
    mut error: GrammarError,
    read: impl Fn(&str) -> Option<GrammarError>,
) -> GrammarError {
    let mended = error.replace.is_some().then(|| mended(line, &error, read)).flatten();
    match mended {
        Some((corrected, readings)) => {
            // Of a later slip, what else it may have meant.
            error.advice = match (error.advice, readings) {
                (None, readings) => readings,
                (Some(advice), Some(readings)) if advice.ends_with('?') => {
                    Some(format!("{advice} {}", readings.replacen("write", "Write", 1)))
                }
                (advice, _) => advice,
            };
            if error.with(line).as_ref() != Some(&corrected) {
                // More than one slip: the part of the line that differs, whole.
                let (range, text) = difference(line, &corrected);
                error = error.replace_in(range, text);
            }
        }
        None => {
            (error.replace, error.replace_at) = (None, None);
            error.advice = error.advice.or_else(|| Some(example(line, edges, guard)));
        }
    }
    error
}

/// The line with everything mended that the reader can name, and what another slip than the first may mean; `None` if it still does not read.
fn mended(line: &str, error: &GrammarError, read: impl Fn(&str) -> Option<GrammarError>) -> Option<(String, Option<String>)> {
    let mut corrected = error.with(line)?;
    let mut readings = None;
    for _ in 0..SLIPS {
        match read(&corrected) {
            None => return (corrected.trim() != line.trim()).then_some((corrected, readings)),
            Some(next) => {
                corrected = next.with(&corrected)?;
                let is_one_of_two = |advice: &String| next.kind == GrammarErrorKind::Value && advice.contains(" or `");
                readings = readings.or(next.advice.filter(is_one_of_two));
            }
        }
    }
    None
}

/// What of `from` is something else in `to`.
fn difference(from: &str, to: &str) -> (Range<usize>, String) {
    let same = |(a, b): &(char, char)| a == b;
    let front: usize = from.chars().zip(to.chars()).take_while(same).map(|(c, _)| c.len_utf8()).sum();
    let (rest, other) = (&from[front..], &to[front..]);
    let back: usize = rest.chars().rev().zip(other.chars().rev()).take_while(same).map(|(c, _)| c.len_utf8()).sum();
    (front..from.len() - back, other[..other.len() - back].to_owned())
}

/// How a line about the same is written, without a guess at what this one's numbers mean.
fn example(line: &str, edges: &[EdgeSpec], guard: bool) -> String {
    let mut reader = Reader { guard, ..Reader::new(line) };
    let Ok(subject) = subject::read(&mut reader, edges) else {
        return "write it as in `downstream QPS increase <= 20%`".to_owned();
    };
    let (row, says) = (subject.row, |word: &str| reader.words.iter().any(|said| said.text.starts_with(word)));
    let name = subject.metric;
    if guard {
        format!("write a guard as in `{name} {} for 3 windows`", row.demand(true))
    } else if row.increase && says("increase") {
        format!("write it as in `{name} increase <= 20%`")
    } else if row.recovery != super::Recovery::No && says("recover") {
        format!("write it as in `{name} recovers within 2 windows`")
    } else {
        format!("write it as in `{name} {}`", row.demand(false))
    }
}

/// What a value that was refused can be written as without another meaning.
pub(crate) fn rewritten(text: &str, error: &UnitError) -> Vec<String> {
    let trimmed = text.trim_end_matches([',', ';', '.']);
    let candidates = error.write.iter().cloned().chain(spelled(trimmed));
    candidates.filter(|write| keeps(trimmed, write, error)).collect()
}

/// Whether a text that was proposed means what was written.
fn keeps(text: &str, write: &str, error: &UnitError) -> bool {
    if spelled(text).as_deref() == Some(write) {
        return true;
    }
    let ((number, unit), (new, new_unit)) = (parts(text), parts(write));
    let unit = unit.trim();
    match error.kind {
        // The least that is something, for nothing.
        UnitErrorKind::NoUnit | UnitErrorKind::Zero => true,
        // The nearest number that there is; the parser's example is none.
        UnitErrorKind::TooFine => {
            number.parse::<f64>().ok().zip(new.parse::<f64>().ok()).is_some_and(|(was, is)| (was - is).abs() <= was.abs() * 1e-9)
        }
        UnitErrorKind::UnknownUnit if number == new => {
            unit.eq_ignore_ascii_case(new_unit)
                || match new_unit {
                    "%" => ["percent", "pct", "percents"].contains(&unit),
                    "/s" => ["rps", "qps", "req/s", "/sec", "/second", "hz"].contains(&unit),
                    "x" => ["times", "×"].contains(&unit),
                    "" => unit == "x" || unit == "times",
                    // One is proposed for another spelling of it; seconds and milliseconds for whatever is not known.
                    "h" | "m" | "s" | "ms" | "us" | "ns" => error.write.len() == 1,
                    // A bandwidth; what is said in bytes, or in bytes or bits, is another one.
                    _ => unit.to_ascii_lowercase().strip_prefix(new_unit).is_some_and(|rest| ["s", "/s", "/sec"].contains(&rest)),
                }
        }
        // Percent as a factor of it, and the other way round; 20% of something is seldom what is meant by a factor.
        UnitErrorKind::UnknownUnit => match (unit, new_unit) {
            ("%", "x") => new.parse::<f64>().is_ok_and(|factor| factor >= 1.0),
            // A coefficient of variation is often told in percent.
            ("x", "%") | ("%", "") | ("/m" | "/min", "/s") => true,
            _ => false,
        },
        _ => false,
    }
}

/// A number as people also write it: with a decimal comma, the factor's sign in front, the percent sign twice, nothing before the point, or in words.
fn spelled(text: &str) -> Option<String> {
    if let Some(number) = numeral(text) {
        return Some(number.to_string());
    }
    if let Some(rest) = text.strip_prefix(['x', '×']) {
        return parts(rest).1.is_empty().then(|| format!("{rest}x"));
    }
    if let Some(front) = text.strip_suffix("%%").or_else(|| text.strip_suffix("% %")) {
        return Some(format!("{front}%"));
    }
    if let Some(rest) = text.strip_prefix('.').filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Some(format!("0.{rest}"));
    }
    let (whole, rest) = text.split_once(',')?;
    let (fraction, unit) = parts(rest);
    // Three digits behind a comma may be thousands.
    let is_decimal = whole.bytes().all(|b| b.is_ascii_digit()) && !whole.is_empty() && (1..=2).contains(&fraction.len());
    (is_decimal && !fraction.contains('.')).then(|| format!("{whole}.{fraction}{unit}"))
}

fn parts(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

/// A small number in words.
pub(super) fn numeral(word: &str) -> Option<u32> {
    let words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    words.iter().position(|known| *known == word).and_then(|number| u32::try_from(number).ok())
}

/// A demand below the baseline, which `increase` cannot say: `increase >= -5%` is `>= 0.95x`.
pub(super) fn of_baseline(row: &Row, text: &str) -> Option<String> {
    let percent = text.strip_prefix(['-', '−'])?;
    let down = share::parse(percent).ok().filter(|down| *down < 1.0 && row.unit != super::Unit::Factor)?;
    Some(value::print_times(-down))
}

/// What follows a limit, in an order or in words that are not ours; `None` if there is more in it than a phase and the windows.
pub(super) fn tail(words: &[Word]) -> Option<String> {
    let (mut phase, mut every, mut window) = (None, false, false);
    for word in words {
        let word = word.text.trim_matches([',', ';', '.']);
        match word {
            "in" | "the" | "during" | "of" | "phase" | "at" => {}
            "every" | "each" | "all" | "any" | "per" => every = true,
            "window" | "windows" => window = true,
            _ => match nearest(word, ["baseline", "fault", "recovery", "every", "each", "window", "windows", "during"])? {
                "every" | "each" => every = true,
                "window" | "windows" => window = true,
                "during" => {}
                name if phase.is_none() => phase = Some(name),
                _ => return None,
            },
        }
    }
    let said = [phase.map(|phase| format!("during {phase}")), window.then(|| "in every window".to_owned())];
    let said: Vec<String> = said.into_iter().flatten().collect();
    (every == window && !said.is_empty()).then(|| said.join(" "))
}
