//! The kinds of fault and their parameters.

use std::time::Duration;

use super::super::super::Phases;
use super::super::super::fields::{self, Fields, Keys};
use super::super::super::node::{Entry, Value};
use super::super::super::problem::{Code, Draft, Place, Problems};
use super::{packets, requests};
use crate::fault::{Distribution, FaultKind, Requests, Tuning};
use crate::units::{duration, share};
use crate::wording::nearest;

/// The kernel draws with 32 bits of nanoseconds, and takes what is more for 2^31 - 1 of them.
const MOST_JITTER: Duration = Duration::from_millis(2147);
/// The jitter that is proposed, for delays that are longer.
const MOST_EXAMPLE: Duration = Duration::from_millis(20);
const DELAY: Keys = Keys::new("`delay`", &["time", "jitter", "correlation", "distribution", "table", "slot", "limit", "seed"]);
const HTTP_STATUS: Keys = Keys::new("`http_status`", &["status", "share", "method", "path"]);

/// Reads the one kind of a fault. `beside` is a `share` that stands next to it.
pub(super) fn kind(
    entry: &Entry,
    beside: Option<&Entry>,
    phases: Option<Phases>,
    tuning: &mut Tuning,
    wanted: &mut Requests,
    problems: &mut Problems<'_>,
) -> Option<FaultKind> {
    let short_status = entry.key.text == "http_status" && !matches!(entry.value.value, Value::Map(_));
    if let Some(stray) = beside.filter(|_| !short_status) {
        let message = format!("`share` beside `{}` means nothing", entry.key.text);
        let draft = Draft::new(Code::Conflict, &stray.key.place, message);
        problems.report(match entry.key.text.as_str() {
            "loss" => draft.advice("the share of lost packets is the value of `loss`, as in `loss: 30%`"),
            "http_status" => draft.advice("write it inside, as in `http_status: {status: 503, share: 30%}`"),
            _ => draft.advice("leave it out"),
        });
    }
    match entry.key.text.as_str() {
        "loss" => packets::loss(entry, tuning, problems),
        "delay" => delay(entry, phases, tuning, problems),
        "duplicate" => packets::duplicate(entry, tuning, problems),
        "corrupt" => packets::corrupt(entry, tuning, problems),
        "reorder" => packets::reorder(entry, tuning, problems),
        "rate" => packets::rate(entry, tuning, problems),
        "partition" => {
            if let Some(text) = fields::scalar_text(entry).filter(|text| text.ends_with('%')) {
                let message = format!("`partition` lets nothing pass, and has no share as `{}`", crate::wording::excerpt(text));
                let whole = Place { start: entry.key.place.start, ..entry.value.place.clone() };
                let draft = Draft::new(Code::BadValue, &entry.value.place, message).advice("a share of the packets is lost by `loss`");
                problems.report(draft.replace_at(whole, format!("loss: {text}")));
                return None;
            }
            if packets::flag(entry, problems)? {
                return Some(FaultKind::Partition);
            }
            let draft = Draft::new(Code::BadValue, &entry.value.place, "`partition: false` injects nothing");
            problems.report(draft.advice("leave the fault out, or write `true`"));
            None
        }
        "refuse" => Some(FaultKind::Refuse { share: fields::quantity(entry, share::parse_drawn, problems)? }),
        _ if short_status => {
            let status = status(entry, problems);
            let share = match beside {
                Some(entry) => fields::quantity(entry, share::parse_drawn, problems),
                None => {
                    let draft = Draft::new(Code::MissingKey, &entry.key.place, "`http_status` lacks `share`");
                    let draft = draft.label("of how many answers?").advice("say which share of answers it replaces");
                    problems.report(match fields::scalar_text(entry) {
                        Some(text) => draft.replace_at(entry.value.place.clone(), format!("{{status: {text}, share: 30%}}")),
                        None => draft,
                    });
                    None
                }
            };
            Some(FaultKind::HttpStatus { status: status?, share: share? })
        }
        _ => http_status(entry, wanted, problems),
    }
}

fn http_status(entry: &Entry, wanted: &mut Requests, problems: &mut Problems<'_>) -> Option<FaultKind> {
    let fields = Fields::open(&entry.value, &entry.key.place, HTTP_STATUS, problems)?;
    let code = fields.require("status", "status: 503", problems).and_then(|entry| status(entry, problems));
    let share = fields.require("share", "share: 30%", problems);
    let share = share.and_then(|entry| fields::quantity(entry, share::parse_drawn, problems));
    *wanted = requests::requests(&fields, problems);
    Some(FaultKind::HttpStatus { status: code?, share: share? })
}

fn status(entry: &Entry, problems: &mut Problems<'_>) -> Option<u16> {
    let text = fields::text(entry, problems)?;
    match text.parse::<u16>() {
        // Their framing has no body: written over an answer with one they would break its connection.
        Ok(204 | 205 | 304) => {
            let message = format!("`{text}` has no body, and cannot be written over an answer that has one");
            let draft = Draft::new(Code::OutOfRange, &entry.value.place, message);
            problems.report(draft.advice("write a code from 200 to 599, but not 204, 205 or 304").replace("503"));
            None
        }
        // Interim answers (1xx) are no answers, and no client knows 6xx.
        Ok(status) if (200..=599).contains(&status) && text.len() == 3 => Some(status),
        _ => {
            let message = format!("`{}` is no status of an answer", crate::wording::excerpt(text));
            let draft = Draft::new(Code::OutOfRange, &entry.value.place, message);
            problems.report(draft.advice("write a code from 200 to 599").replace("503"));
            None
        }
    }
}

fn delay(entry: &Entry, phases: Option<Phases>, tuning: &mut Tuning, problems: &mut Problems<'_>) -> Option<FaultKind> {
    if matches!(entry.value.value, Value::Scalar(_)) {
        let time = fields::quantity(entry, duration::parse_short, problems)?;
        let time = sensible(entry, time, phases, problems)?;
        return Some(FaultKind::Delay { time, jitter: Duration::ZERO, distribution: Distribution::default() });
    }
    let fields = Fields::open(&entry.value, &entry.key.place, DELAY, problems)?;
    let time = fields.require("time", "time: 100ms", problems).and_then(|entry| {
        let time = fields::quantity(entry, duration::parse_short, problems)?;
        sensible(entry, time, phases, problems)
    });
    let jitter = match fields.get("jitter") {
        None => Some(Duration::ZERO),
        Some(entry) => fields::quantity(entry, duration::parse_short, problems).and_then(|jitter| {
            let (most, message, label) = match time.filter(|time| jitter > *time) {
                Some(time) => (time, "more than the delay itself".to_owned(), "this would reach below zero"),
                None if jitter > MOST_JITTER => {
                    (MOST_JITTER, format!("more than {}", duration::print(MOST_JITTER)), "the kernel takes no more")
                }
                None => return Some(jitter),
            };
            let message = format!("`jitter` of {} is {message}", duration::print(jitter));
            let draft = Draft::new(Code::OutOfRange, &entry.value.place, message);
            problems.report(draft.label(label).replace(duration::print(most.min(MOST_JITTER))));
            None
        }),
    };
    packets::queue(&fields, tuning, problems);
    tuning.slot = fields.get("slot").and_then(|entry| packets::slot(entry, problems));
    tuning.jitter_correlation = packets::optional(&fields, "correlation", 0.0, problems).unwrap_or(0.0);
    if let Some(entry) = fields.get("table") {
        tuning.table = fields::text(entry, problems).map(str::to_owned);
        if fields.get("distribution").is_some() {
            let draft = Draft::new(Code::Conflict, &entry.key.place, "`table` and `distribution` are both the jitter's shape");
            problems.report(draft.advice("keep one of them"));
        }
    }
    // One that the delay leaves room for.
    let example = duration::print(time.filter(|time| !time.is_zero()).map_or(MOST_EXAMPLE, |time| time.min(MOST_EXAMPLE)));
    for key in ["correlation", "table", "distribution"] {
        if let Some(entry) = fields.get(key).filter(|_| fields.get("jitter").is_none()) {
            let message = format!("`{key}` without `jitter` means nothing");
            let advice = format!("add `jitter: {example}`, or leave `{key}` out");
            problems.report(Draft::new(Code::Conflict, &entry.key.place, message).advice(advice));
        }
    }
    let shape = fields.get("distribution").map(|entry| distribution(entry, problems));
    let distribution = shape.map_or(Some(Distribution::default()), |shape| shape);
    Some(FaultKind::Delay { time: time?, jitter: jitter?, distribution: distribution? })
}

/// A delay longer than the fault phase lets nothing arrive while the fault lasts: that is a mistake, or a `loss: 100%`.
fn sensible(entry: &Entry, time: Duration, phases: Option<Phases>, problems: &mut Problems<'_>) -> Option<Duration> {
    let Some(phases) = phases.filter(|phases| time >= phases.fault) else {
        return Some(time);
    };
    let message = format!("a delay of {} is not shorter than the fault phase of {}", duration::print(time), duration::print(phases.fault));
    let draft = Draft::new(Code::OutOfRange, &entry.value.place, message);
    problems.report(draft.label("nothing would arrive in time").advice("shorten it, or write `loss: 100%`"));
    None
}

pub(super) fn distribution(entry: &Entry, problems: &mut Problems<'_>) -> Option<Distribution> {
    let text = fields::text(entry, problems)?;
    let found = Distribution::ALL.into_iter().find(|distribution| distribution.as_str() == text);
    if found.is_none() {
        let words = Distribution::ALL.map(Distribution::as_str);
        let message = format!("there is no distribution `{}`", crate::wording::excerpt(text));
        let draft = Draft::new(Code::UnknownName, &entry.value.place, message);
        let draft = draft.advice(format!("the distributions are {}", crate::wording::listed(&words)));
        problems.report(match nearest(text, words) {
            Some(near) => draft.replace(near),
            None => draft,
        });
    }
    found
}
