//! `phases:`, and what lengths of time make sense.

use std::time::Duration;

use super::super::Phases;
use super::super::fields::{self, Fields, Keys};
use super::super::node::Entry;
use super::super::problem::{Code, Draft, Problems};
use crate::units::duration;

const PHASES: Keys = Keys::new("`phases`", &["baseline", "fault", "recovery"]);

/// Longest phase; a drill is not a way of life.
const MAX_PHASE: Duration = Duration::from_hours(24);

pub(super) fn check(entry: &Entry, window: Option<Duration>, problems: &mut Problems<'_>) -> Option<Phases> {
    let fields = Fields::open(&entry.value, &entry.key.place, PHASES, problems)?;
    let mut phase = |key: &str, example: &str| {
        let entry = fields.require(key, example, problems)?;
        let length = fields::quantity(entry, duration::parse, problems)?;
        let length = within(entry, length, Duration::from_nanos(1), MAX_PHASE, problems)?;
        at_least_a_window(entry, length, window, problems)
    };
    let baseline = phase("baseline", "baseline: 60s");
    let fault = phase("fault", "fault: 60s");
    let recovery = phase("recovery", "recovery: 60s");
    Some(Phases { baseline: baseline?, fault: fault?, recovery: recovery? })
}

fn at_least_a_window(entry: &Entry, length: Duration, window: Option<Duration>, problems: &mut Problems<'_>) -> Option<Duration> {
    let Some(window) = window.filter(|window| length < *window) else {
        return Some(length);
    };
    let window = duration::print(window);
    let message = format!("`{}` of {} is shorter than one window of {window}", entry.key.text, duration::print(length));
    let draft = Draft::new(Code::OutOfRange, &entry.value.place, message).label("no whole window fits in");
    problems.report(draft.advice("make the phase longer, or `observe.window` shorter").replace(window));
    None
}

/// The length, if it is between both bounds.
pub(super) fn within(entry: &Entry, length: Duration, least: Duration, most: Duration, problems: &mut Problems<'_>) -> Option<Duration> {
    let key = &entry.key.text;
    let place = &entry.value.place;
    let draft = if length.is_zero() {
        Draft::new(Code::OutOfRange, place, format!("`{key}` is zero")).label("this would never happen")
    } else if length < least {
        let message = format!("`{key}` of {} is below the least, {}", duration::print(length), duration::print(least));
        Draft::new(Code::OutOfRange, place, message).replace(duration::print(least))
    } else if length > most {
        let message = format!("`{key}` of {} is beyond the most, {}", duration::print(length), duration::print(most));
        Draft::new(Code::OutOfRange, place, message).replace(duration::print(most))
    } else {
        return Some(length);
    };
    problems.report(draft);
    None
}
