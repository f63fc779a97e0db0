//! The parameters of netem's faults: loss and its models, duplicate, corrupt, reorder, rate, and what tunes them.

use super::super::super::fields::{self, Fields, Keys};
use super::super::super::node::{Entry, Value};
use super::super::super::problem::{Code, Draft, Problems};
use crate::fault::model::{FourState, Gemodel, LossModel, correlated_share};
use crate::fault::{Distribution, FaultKind, RateLimit, Slot, Spacing, Tuning};
use crate::units::{bandwidth, duration, share};

const LOSS: Keys = Keys::new("`loss`", &["share", "correlation", "gemodel", "state", "ecn", "limit", "seed"]);
const GEMODEL: Keys = Keys::new("`gemodel`", &["p", "r", "h", "k"]);
const STATE: Keys = Keys::new("`state`", &["p13", "p31", "p32", "p23", "p14"]);
const DUPLICATE: Keys = Keys::new("`duplicate`", &["share", "correlation", "limit", "seed"]);
const CORRUPT: Keys = Keys::new("`corrupt`", &["share", "correlation", "limit", "seed"]);
const REORDER: Keys = Keys::new("`reorder`", &["share", "correlation", "gap", "limit", "seed"]);
const RATE: Keys = Keys::new("`rate`", &["bandwidth", "overhead", "cell_size", "cell_overhead", "limit"]);
const SLOT: Keys = Keys::new("`slot`", &["min", "max", "time", "jitter", "distribution", "packets", "bytes"]);

/// Mean burst that is proposed in the place of a correlation, packets.
const PROPOSED_BURST: f64 = 4.0;

pub(super) fn loss(entry: &Entry, tuning: &mut Tuning, problems: &mut Problems<'_>) -> Option<FaultKind> {
    if !matches!(entry.value.value, Value::Map(_)) {
        return Some(FaultKind::Loss { share: fields::quantity(entry, share::parse_drawn, problems)? });
    }
    let fields = Fields::open(&entry.value, &entry.key.place, LOSS, problems)?;
    queue(&fields, tuning, problems);
    if let Some(entry) = fields.get("ecn") {
        tuning.ecn = flag(entry, problems)?;
    }
    let models: Vec<&Entry> = ["share", "gemodel", "state"].into_iter().filter_map(|key| fields.get(key)).collect();
    match models.as_slice() {
        [] => {
            let _ = fields.require("share", "share: 30%", problems);
            None
        }
        [entry] => match entry.key.text.as_str() {
            "share" => {
                let share = fields::quantity(entry, share::parse_drawn, problems)?;
                if let Some(entry) = fields.get("correlation") {
                    let correlation = fields::quantity(entry, share::parse_drawn, problems)?;
                    if correlation > 0.0 {
                        problems.report(correlated(entry, share, correlation));
                        return None;
                    }
                }
                Some(FaultKind::Loss { share })
            }
            "gemodel" => Some(FaultKind::LossModel(LossModel::Gemodel(gemodel(entry, problems)?))),
            _ => Some(FaultKind::LossModel(LossModel::State(state(entry, problems)?))),
        },
        [first, second, ..] => {
            let message = format!("`{}` and `{}` are two ways to lose", first.key.text, second.key.text);
            problems.report(Draft::new(Code::Conflict, &second.key.place, message).advice("keep one of them"));
            None
        }
    }
}

/// netem's correlation is no burstiness: it changes how much is lost.
fn correlated(entry: &Entry, asked: f64, correlation: f64) -> Draft {
    let real = correlated_share(asked, correlation);
    let given = share::print(correlation);
    // None and all are what they are; of a half the model loses a half, but hardly in bursts.
    let (message, label) = if (real - asked).abs() < 0.0005 {
        (
            format!("a `correlation` of {given} is not that of a burst: the kernel draws each packet from a mean of the last draws"),
            "not what it says",
        )
    } else {
        let message =
            format!("with a `correlation` of {given} the kernel loses {:.1}% of the packets, not {}", real * 100.0, share::print(asked));
        (message, "this changes how much is lost")
    };
    let draft = Draft::new(Code::Conflict, &entry.key.place, message).label(label);
    if asked >= 1.0 || asked <= 0.0 {
        return draft.advice("leave `correlation` out");
    }
    let Gemodel { p, r, .. } = Gemodel::of_bursts(asked, PROPOSED_BURST);
    draft.advice(format!(
        "for bursts write `loss: {{gemodel: {{p: {:.2}%, r: {}}}}}`, which loses as much in bursts of 4",
        p * 100.0,
        share::print(r)
    ))
}

fn gemodel(entry: &Entry, problems: &mut Problems<'_>) -> Option<Gemodel> {
    let fields = Fields::open(&entry.value, &entry.key.place, GEMODEL, problems)?;
    let p = fields.require("p", "p: 2%", problems).and_then(|entry| fields::quantity(entry, share::parse_drawn, problems));
    let r = optional(&fields, "r", 1.0, problems);
    let h = optional(&fields, "h", 0.0, problems);
    let k = optional(&fields, "k", 1.0, problems);
    Some(Gemodel { p: p?, r: r?, h: h?, k: k? })
}

fn state(entry: &Entry, problems: &mut Problems<'_>) -> Option<FourState> {
    let fields = Fields::open(&entry.value, &entry.key.place, STATE, problems)?;
    let p13 = fields.require("p13", "p13: 1%", problems).and_then(|entry| fields::quantity(entry, share::parse_drawn, problems));
    // As tc has it: what does not go on being lost passes.
    let p31 = optional(&fields, "p31", 1.0 - p13.unwrap_or(0.0), problems);
    let p32 = optional(&fields, "p32", 0.0, problems);
    let p23 = optional(&fields, "p23", 1.0, problems);
    let p14 = optional(&fields, "p14", 0.0, problems);
    let model = FourState { p13: p13?, p31: p31?, p32: p32?, p23: p23?, p14: p14? };
    for (sum, key, text) in [(model.p31 + model.p32, "p32", "`p31` and `p32`"), (model.p13 + model.p14, "p14", "`p13` and `p14`")] {
        if sum > 1.0 + 1e-9
            && let Some(entry) = fields.get(key)
        {
            let message = format!("{text} are more than 100% together");
            problems.report(Draft::new(Code::OutOfRange, &entry.value.place, message).advice("both leave the same state"));
            return None;
        }
    }
    Some(model)
}

pub(super) fn duplicate(entry: &Entry, tuning: &mut Tuning, problems: &mut Problems<'_>) -> Option<FaultKind> {
    let (share, correlation, _) = drawn(entry, DUPLICATE, tuning, problems)?;
    Some(FaultKind::Duplicate { share, correlation })
}

pub(super) fn corrupt(entry: &Entry, tuning: &mut Tuning, problems: &mut Problems<'_>) -> Option<FaultKind> {
    let (share, correlation, _) = drawn(entry, CORRUPT, tuning, problems)?;
    Some(FaultKind::Corrupt { share, correlation })
}

pub(super) fn reorder(entry: &Entry, tuning: &mut Tuning, problems: &mut Problems<'_>) -> Option<FaultKind> {
    let (share, correlation, fields) = drawn(entry, REORDER, tuning, problems)?;
    let gap = match fields.and_then(|fields| fields.get("gap")) {
        None => Some(1),
        Some(entry) => count(entry, 1, u32::MAX, problems),
    };
    Some(FaultKind::Reorder { share, correlation, gap: gap? })
}

/// `30%`, or a mapping with `share` and `correlation`.
fn drawn<'n>(entry: &'n Entry, keys: Keys, tuning: &mut Tuning, problems: &mut Problems<'_>) -> Option<(f64, f64, Option<Fields<'n>>)> {
    if !matches!(entry.value.value, Value::Map(_)) {
        return Some((fields::quantity(entry, share::parse_drawn, problems)?, 0.0, None));
    }
    let fields = Fields::open(&entry.value, &entry.key.place, keys, problems)?;
    queue(&fields, tuning, problems);
    let share = fields.require("share", "share: 1%", problems).and_then(|entry| fields::quantity(entry, share::parse_drawn, problems));
    let correlation = optional(&fields, "correlation", 0.0, problems);
    Some((share?, correlation?, Some(fields)))
}

pub(super) fn rate(entry: &Entry, tuning: &mut Tuning, problems: &mut Problems<'_>) -> Option<FaultKind> {
    let plain = |bytes_per_second| RateLimit { bytes_per_second, overhead: 0, cell_size: 0, cell_overhead: 0 };
    if !matches!(entry.value.value, Value::Map(_)) {
        return Some(FaultKind::Rate(plain(fields::quantity(entry, bandwidth::parse, problems)?)));
    }
    let fields = Fields::open(&entry.value, &entry.key.place, RATE, problems)?;
    queue(&fields, tuning, problems);
    let bandwidth = fields.require("bandwidth", "bandwidth: 10mbit", problems);
    let mut limit = plain(bandwidth.and_then(|entry| fields::quantity(entry, bandwidth::parse, problems))?);
    if let Some(entry) = fields.get("overhead") {
        // The kernel adds it without a sign: what is shorter than it takes off would be held for hours. A packet has a header of 20 bytes at least.
        limit.overhead = integer(entry, -20, 1500, problems)?;
    }
    if let Some(entry) = fields.get("cell_size") {
        limit.cell_size = count(entry, 1, 65_535, problems)?;
    }
    if let Some(entry) = fields.get("cell_overhead") {
        // A cell that costs nothing has no rate, and one that costs less wraps.
        let least = 1 - i32::try_from(limit.cell_size.max(1)).unwrap_or(i32::MAX);
        limit.cell_overhead = integer(entry, least.max(-1500), 1500, problems)?;
        if limit.cell_size == 0 {
            let draft = Draft::new(Code::Conflict, &entry.key.place, "`cell_overhead` without `cell_size` means nothing");
            problems.report(draft.advice("add `cell_size: 48`, or leave it out"));
            return None;
        }
    }
    Some(FaultKind::Rate(limit))
}

pub(super) fn slot(entry: &Entry, problems: &mut Problems<'_>) -> Option<Slot> {
    let fields = Fields::open(&entry.value, &entry.key.place, SLOT, problems)?;
    let every = spacing(&fields, problems)?;
    // The kernel's counters are signed.
    let mut bound = |key| match fields.get(key) {
        None => Some(0),
        Some(entry) => count(entry, 1, u32::MAX / 2, problems),
    };
    let (packets, bytes) = (bound("packets"), bound("bytes"));
    Some(Slot { every, packets: packets?, bytes: bytes? })
}

/// `min` and `max`, or `time`, `jitter` and `distribution`.
fn spacing(fields: &Fields<'_>, problems: &mut Problems<'_>) -> Option<Spacing> {
    let Some(time) = fields.get("time") else {
        if let Some(entry) = fields.get("jitter").or_else(|| fields.get("distribution")) {
            let message = format!("`{}` without `time` means nothing", entry.key.text);
            problems.report(Draft::new(Code::Conflict, &entry.key.place, message).advice("add `time: 10ms`, or leave it out"));
            return None;
        }
        let min =
            fields.require("min", "min: 10ms", problems).and_then(|entry| fields::quantity(entry, duration::parse_short, problems))?;
        let Some(entry) = fields.get("max") else {
            return Some(Spacing::Between(min, min));
        };
        let max = fields::quantity(entry, duration::parse_short, problems)?;
        if max < min {
            let message = format!("`max` of {} is less than `min`", duration::print(max));
            problems.report(Draft::new(Code::OutOfRange, &entry.value.place, message).replace(duration::print(min)));
            return None;
        }
        return Some(Spacing::Between(min, max));
    };
    if let Some(entry) = fields.get("min").or_else(|| fields.get("max")) {
        let message = format!("`{}` and `time` are two ways to space slots", entry.key.text);
        problems.report(Draft::new(Code::Conflict, &entry.key.place, message).advice("keep one of them"));
        return None;
    }
    let middle = fields::quantity(time, duration::parse_short, problems)?;
    let shape = fields.get("distribution").map_or(Some(Distribution::Uniform), |entry| super::kinds::distribution(entry, problems))?;
    let entry = fields.require("jitter", "jitter: 2ms", problems)?;
    let jitter = fields::quantity(entry, duration::parse_short, problems)?;
    let most = middle.min(Spacing::MOST_JITTER);
    if jitter > most {
        let message = format!("`jitter` of {} is more than {}", duration::print(jitter), duration::print(most));
        let label = if most == middle { "this would reach below zero" } else { "the kernel takes no more" };
        problems.report(Draft::new(Code::OutOfRange, &entry.value.place, message).label(label).replace(duration::print(most)));
        return None;
    }
    Some(match shape {
        Distribution::Uniform => Spacing::Between(middle.saturating_sub(jitter), middle.saturating_add(jitter)),
        distribution => Spacing::Around { time: middle, jitter, distribution },
    })
}

/// `limit` and `seed`, where the mapping knows them.
pub(super) fn queue(fields: &Fields<'_>, tuning: &mut Tuning, problems: &mut Problems<'_>) {
    if let Some(entry) = fields.get_if_known("limit") {
        // A netem without room accepts nothing at all.
        tuning.limit = count(entry, 1, u32::MAX, problems);
    }
    if let Some(entry) = fields.get_if_known("seed") {
        tuning.seed = number(entry, 0, u64::MAX, problems);
    }
}

pub(super) fn flag(entry: &Entry, problems: &mut Problems<'_>) -> Option<bool> {
    match fields::text(entry, problems)? {
        "true" => Some(true),
        "false" => Some(false),
        other => {
            let message = format!("`{}` is neither `true` nor `false`", crate::wording::excerpt(other));
            problems.report(Draft::new(Code::BadValue, &entry.value.place, message).replace("true"));
            None
        }
    }
}

fn count(entry: &Entry, least: u32, most: u32, problems: &mut Problems<'_>) -> Option<u32> {
    number(entry, least, most, problems)
}

fn integer(entry: &Entry, least: i32, most: i32, problems: &mut Problems<'_>) -> Option<i32> {
    number(entry, least, most, problems)
}

fn number<T>(entry: &Entry, least: T, most: T, problems: &mut Problems<'_>) -> Option<T>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    let text = fields::text(entry, problems)?;
    match text.parse::<T>() {
        // "+5" parses, but nobody writes it.
        Ok(number) if number >= least && number <= most && !text.starts_with('+') => Some(number),
        _ => {
            let message = format!("`{}`: `{}` is no whole number from {least} to {most}", entry.key.text, crate::wording::excerpt(text));
            problems.report(Draft::new(Code::OutOfRange, &entry.value.place, message).advice("write it in plain digits"));
            None
        }
    }
}

/// A share that has a default.
pub(super) fn optional(fields: &Fields<'_>, key: &str, default: f64, problems: &mut Problems<'_>) -> Option<f64> {
    match fields.get(key) {
        None => Some(default),
        Some(entry) => fields::quantity(entry, share::parse_drawn, problems),
    }
}
