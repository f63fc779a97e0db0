//! The parameters of a fault in words, as asked and as netem is told them.

use crate::fault::model::LossModel;
use crate::fault::{FaultKind, FaultSpec, Slot, Spacing, queue};
use crate::units::{bandwidth, duration, share};

/// What the playbook says of a fault: "30%, seed 42", "503 for 30% of answers".
pub(crate) fn asked(spec: &FaultSpec) -> String {
    let limit = spec.tuning.limit.map(|limit| format!("limit {limit}"));
    let seed = spec.tuning.seed.map(|seed| format!("seed {seed}"));
    std::iter::once(told(spec)).chain(limit).chain(seed).collect::<Vec<_>>().join(", ")
}

/// All that one netem is told which carries out several faults, the worked out limit with it.
pub(super) fn of_netem(specs: &[&FaultSpec]) -> String {
    let parts = specs.iter().map(|spec| format!("{} {}", spec.kind.as_str(), told(spec)));
    let is_given = specs.iter().any(|spec| spec.tuning.limit.is_some());
    let limit = format!("limit {} packets{}", queue::limit_of(specs), if is_given { "" } else { " (worked out)" });
    // A playbook with two seeds was refused.
    let seed = specs.iter().find_map(|spec| spec.tuning.seed).map(|seed| format!("seed {seed}"));
    parts.chain([limit]).chain(seed).collect::<Vec<_>>().join(", ")
}

/// What a fault adds to a netem, but for the queue's limit and the seed, which it has but one of.
fn told(spec: &FaultSpec) -> String {
    let tuning = &spec.tuning;
    let mut parts = vec![of(spec)];
    if tuning.jitter_correlation > 0.0 {
        parts.push(format!("correlation {}", share::print(tuning.jitter_correlation)));
    }
    parts.extend(tuning.slot.map(slot));
    if tuning.ecn {
        parts.push("ecn".to_owned());
    }
    parts.join(", ")
}

fn slot(slot: Slot) -> String {
    let mut text = match slot.every {
        Spacing::Between(least, most) if least == most => format!("slot every {}", duration::print(least)),
        Spacing::Between(least, most) => format!("slot every {} to {}", duration::print(least), duration::print(most)),
        Spacing::Around { time, jitter, distribution } => {
            format!("slot every {}, jitter {} ({})", duration::print(time), duration::print(jitter), distribution.as_str())
        }
    };
    for (number, what) in [(slot.packets, "packets"), (slot.bytes, "bytes")] {
        if number > 0 {
            text = format!("{text} of at most {number} {what}");
        }
    }
    text
}

/// The parameters of the fault itself: "30%", "100ms, jitter 20ms (normal)", "503 for 30% of answers".
fn of(spec: &FaultSpec) -> String {
    match &spec.kind {
        FaultKind::Loss { share } => share::print(*share),
        FaultKind::Delay { time, jitter, .. } if jitter.is_zero() => duration::print(*time),
        FaultKind::Delay { time, jitter, distribution } => {
            let shape = match &spec.tuning.table {
                Some(path) => format!("table {path}"),
                None => distribution.as_str().to_owned(),
            };
            format!("{}, jitter {} ({shape})", duration::print(*time), duration::print(*jitter))
        }
        FaultKind::LossModel(LossModel::Gemodel(model)) => format!(
            "gemodel p {}, r {}, h {}, k {}",
            share::print(model.p),
            share::print(model.r),
            share::print(model.h),
            share::print(model.k)
        ),
        FaultKind::LossModel(LossModel::State(model)) => format!(
            "state p13 {}, p31 {}, p32 {}, p23 {}, p14 {}",
            share::print(model.p13),
            share::print(model.p31),
            share::print(model.p32),
            share::print(model.p23),
            share::print(model.p14)
        ),
        FaultKind::Duplicate { share, correlation } | FaultKind::Corrupt { share, correlation } => drawn(*share, *correlation),
        FaultKind::Reorder { share, correlation, gap } => {
            let gap = if *gap > 1 { format!(", gap {gap}") } else { String::new() };
            format!("{}{gap}", drawn(*share, *correlation))
        }
        FaultKind::Rate(limit) => {
            let mut text = bandwidth::print(limit.bytes_per_second);
            for (word, value) in [("overhead", limit.overhead), ("cell overhead", limit.cell_overhead)] {
                if value != 0 {
                    text = format!("{text}, {word} {value}");
                }
            }
            if limit.cell_size == 0 { text } else { format!("{text}, cells of {}", limit.cell_size) }
        }
        FaultKind::Partition => "100%".to_owned(),
        FaultKind::Refuse { share } => format!("{} of connections", share::print(*share)),
        FaultKind::HttpStatus { status, share } => {
            format!("{status} for {} of answers", share::print(*share))
        }
    }
}

fn drawn(share: f64, correlation: f64) -> String {
    if correlation == 0.0 { share::print(share) } else { format!("{}, correlation {}", share::print(share), share::print(correlation)) }
}
