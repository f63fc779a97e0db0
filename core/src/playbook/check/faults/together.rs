//! Faults beside each other: which of them exclude each other, and which need another.

use super::super::super::node::{Entry, Node, Value};
use super::super::super::problem::{Code, Draft, Problems};
use super::nothing::find;
use crate::edge::EdgeSpec;
use crate::fault::{Direction, FaultKind, FaultSpec, Requests, reach};

/// Reports what of the faults before it excludes a fault.
pub(super) fn check(item: &Node, spec: &FaultSpec, before: &[FaultSpec], edges: Option<&[EdgeSpec]>, problems: &mut Problems<'_>) {
    let place = &item.place;
    if before.iter().any(|other| is_twice(other, spec, edges)) {
        let message = format!("`{}` towards `{}` is injected twice", spec.kind.as_str(), spec.to);
        let draft = Draft::new(Code::Conflict, place, message).label("the second one");
        problems.report(draft.advice("say once how much of it there is to be"));
        return;
    }
    if let Some(draft) = before.iter().find_map(|other| contradiction(item, spec, other)) {
        problems.report(draft);
        return;
    }
    // An edge that could not be read whole seems to select more than it does.
    if !problems.is_empty() {
        return;
    }
    let of_packets = before.iter().filter(|other| other.kind.is_of_packets() && spec.kind.is_of_packets());
    for other in of_packets.filter(|other| shares_a_hook(other, spec) && !other.selects_as(spec)) {
        if may_overlap(other, spec, edges) {
            let message = format!(
                "`{}` towards `{}` and `{}` towards `{}` may select the same packets",
                other.kind.as_str(),
                other.to,
                spec.kind.as_str(),
                spec.to
            );
            let draft = Draft::new(Code::Conflict, place, message).label("a packet can go through one of them only");
            problems.report(draft.advice("give both the same target and selection, or exclude one's packets from the other"));
            return;
        }
    }
}

/// What one netem cannot be told of both: it has one seed, and one loss.
fn contradiction(item: &Node, spec: &FaultSpec, other: &FaultSpec) -> Option<Draft> {
    if !spec.kind.is_of_packets() || !other.kind.is_of_packets() || !spec.selects_as(other) {
        return None;
    }
    let (kind, others) = (spec.kind.as_str(), other.kind.as_str());
    let is_loss = |kind: &FaultKind| matches!(kind, FaultKind::Loss { .. } | FaultKind::LossModel(_));
    let is_partition = |kind: &FaultKind| matches!(kind, FaultKind::Partition);
    if is_loss(&spec.kind) && is_partition(&other.kind) || is_partition(&spec.kind) && is_loss(&other.kind) {
        let message = format!("`{kind}` and `{others}` on the same packets of `{}`: where nothing passes, nothing more is lost", spec.to);
        let draft = Draft::new(Code::Conflict, &item.place, message).label("the second one");
        return Some(draft.advice("keep one of them, or give them directions that do not meet"));
    }
    match (spec.tuning.seed, other.tuning.seed) {
        (Some(seed), Some(before)) if seed != before => {
            let place = find(item, &[kind, "seed"]).unwrap_or(&item.place);
            let message = format!("`{kind}` and `{others}` share one netem, which has one `seed`: {before} or {seed}");
            let draft = Draft::new(Code::Conflict, place, message).label("another seed");
            Some(draft.advice("give both the same, or leave one out").replace(before.to_string()))
        }
        _ => None,
    }
}

/// The same fault once more. Of the packets that two of them do not share, each is the only one.
fn is_twice(a: &FaultSpec, b: &FaultSpec, edges: Option<&[EdgeSpec]>) -> bool {
    let same = match a.kind {
        FaultKind::HttpStatus { .. } => meet_in_requests(&a.select.requests, &b.select.requests) && may_overlap(a, b, edges),
        FaultKind::Refuse { .. } => may_overlap(a, b, edges),
        _ => a.select == b.select || !a.kind.is_of_packets(),
    };
    a.kind.as_str() == b.kind.as_str() && a.to == b.to && shares_a_hook(a, b) && same
}

/// Whether a request can be in both.
fn meet_in_requests(a: &Requests, b: &Requests) -> bool {
    let methods = a.method.is_none() || b.method.is_none() || a.method == b.method;
    let path = |requests: &Requests| requests.path.clone().unwrap_or_default();
    let (path_a, path_b) = (path(a), path(b));
    methods && (path_a.starts_with(&path_b) || path_b.starts_with(&path_a))
}

fn shares_a_hook(a: &FaultSpec, b: &FaultSpec) -> bool {
    let interface = a.interface == b.interface || a.interface.is_none() || b.interface.is_none();
    a.direction.meets(b.direction) && interface && a.netns == b.netns
}

/// Whether a packet can be in both selections.
fn may_overlap(a: &FaultSpec, b: &FaultSpec, edges: Option<&[EdgeSpec]>) -> bool {
    let edge = |spec: &FaultSpec| edges.and_then(|edges| edges.iter().find(|edge| edge.name == spec.to));
    matches!((edge(a), edge(b)), (Some(edge_a), Some(edge_b)) if reach::meet((a, edge_a), (b, edge_b)))
}

/// Whether every packet of a fault goes through the netem of another.
fn holds_back(delay: &FaultSpec, fault: &FaultSpec) -> bool {
    delay.selects_as(fault) && (delay.direction == fault.direction || delay.direction == Direction::Both)
}

/// A packet that skips the delay needs a delay to skip.
pub(super) fn needs_delay(entry: &Entry, faults: &[FaultSpec], problems: &mut Problems<'_>) {
    let lonely = faults.iter().filter(|fault| matches!(fault.kind, FaultKind::Reorder { .. })).any(|fault| {
        !faults.iter().any(|other| matches!(other.kind, FaultKind::Delay { time, .. } if !time.is_zero()) && holds_back(other, fault))
    });
    if lonely {
        let reorder = match &entry.value.value {
            Value::List(items) => items.iter().find_map(|item| match &item.value {
                Value::Map(entries) => entries.iter().find(|entry| entry.key.text == "reorder"),
                _ => None,
            }),
            _ => None,
        };
        let place = reorder.map_or(&entry.key.place, |entry| &entry.key.place);
        let draft = Draft::new(Code::Conflict, place, "`reorder` without a delay on the same packets changes nothing");
        problems.report(draft.label("nothing to overtake").advice("add `{delay: 10ms, …}` with the same target, direction and selection"));
    }
}
