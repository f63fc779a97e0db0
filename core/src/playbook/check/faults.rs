//! `faults:`, one kind of fault an item.

use super::super::Phases;
use super::super::fields::{self, Fields, Keys};
use super::super::node::{Entry, Node, Value};
use super::super::problem::{Code, Draft, Place, Problems};
use crate::edge::{EdgeSpec, Role};
use crate::fault::{Direction, FaultKind, FaultSpec, Requests, Select, Transport, Tuning};
use crate::wording::nearest;

mod kinds;

mod members;

mod netns;

mod nothing;

mod packets;

mod requests;

mod select;

mod together;

/// `share` and `status` are here only so that the short form of `http_status` may have `share` beside it.
const FAULT: Keys = Keys {
    of: "a fault",
    known: &[
        "loss",
        "delay",
        "duplicate",
        "corrupt",
        "reorder",
        "rate",
        "partition",
        "refuse",
        "http_status",
        "to",
        "direction",
        "interface",
        "netns",
        "select",
        "share",
    ],
    later: &[],
    offer: &KINDS,
};

/// The keys that say what is injected.
const KINDS: [&str; 9] = ["loss", "delay", "duplicate", "corrupt", "reorder", "rate", "partition", "refuse", "http_status"];

pub(super) fn check(entry: &Entry, edges: Option<&[EdgeSpec]>, phases: Option<Phases>, problems: &mut Problems<'_>) -> Vec<FaultSpec> {
    let mut faults: Vec<FaultSpec> = Vec::new();
    for item in fields::items(entry, problems).unwrap_or_default() {
        let before = problems.count();
        let Some(spec) = fault(item, edges, phases, problems) else {
            continue;
        };
        // What was refused of it seems to select other than it does.
        if problems.count() == before {
            nothing::check(item, &spec, edges, problems);
        }
        together::check(item, &spec, &faults, edges, problems);
        faults.push(spec);
    }
    together::needs_delay(entry, &faults, problems);
    faults
}

fn fault(item: &Node, edges: Option<&[EdgeSpec]>, phases: Option<Phases>, problems: &mut Problems<'_>) -> Option<FaultSpec> {
    let fields = Fields::open(item, &item.place, FAULT, problems)?;
    let (mut tuning, mut requests) = (Tuning::default(), Requests::default());
    let kinds: Vec<&Entry> = KINDS.into_iter().filter_map(|kind| fields.get(kind)).collect();
    let kind = match kinds.as_slice() {
        [] => {
            // A kind of another version, or a mistyped one, was reported already.
            if fields.all_known() {
                let draft = Draft::new(Code::MissingKey, &item.place, "this fault injects nothing");
                let advice = "add one of `loss: 30%`, `delay: 100ms` and `http_status: {status: 503, share: 30%}`";
                problems.report(draft.label("the kind of fault is missing").advice(advice));
            }
            None
        }
        [entry] => kinds::kind(entry, fields.get("share"), phases, &mut tuning, &mut requests, problems),
        [first, second, ..] => {
            let message = format!("`{}` and `{}` are one fault", first.key.text, second.key.text);
            let draft = Draft::new(Code::Conflict, &second.key.place, message).label("the second kind");
            problems.report(draft.advice("write each as an item of its own; they take effect together"));
            None
        }
    };
    let to = fields.require("to", "to: the name of an edge", problems);
    let edge = to.and_then(|entry| target(entry, edges, problems));
    let direction = direction(&fields, kind.as_ref(), edge, problems);
    let interface = fields.get("interface").map(|entry| interface(entry, problems));
    let netns = fields.get("netns").map(|entry| netns::netns(entry, problems));
    let select = fields.get("select").map(|entry| (entry, select::select(entry, edge, problems)));
    let (kind, edge) = (kind?, edge?);
    if matches!(kind, FaultKind::HttpStatus { .. } | FaultKind::Refuse { .. })
        && let Some((entry, Some(select))) = &select
        && select.protocol.is_some_and(|protocol| protocol != Transport::Tcp)
    {
        let message = format!("`{}` acts on TCP only", kind.as_str());
        problems.report(Draft::new(Code::Conflict, &entry.key.place, message).advice("leave `protocol` out"));
    }
    if matches!(kind, FaultKind::Refuse { .. }) {
        refuse(item, &fields, edge, problems);
    }
    if let FaultKind::HttpStatus { status, .. } = kind {
        let place = to.map_or(&item.place, |to| &to.value.place);
        if let Some(draft) = requests::speaks(edge, status, &requests, place) {
            problems.report(draft);
        }
    }
    let select = select.map_or_else(|| Some(Select::default()), |(_, select)| select);
    let select = select.map(|select| Select { requests, ..select });
    Some(FaultSpec {
        kind,
        to: edge.name.clone(),
        direction: direction?,
        interface: interface.flatten(),
        netns: netns.flatten(),
        select: select?,
        tuning,
    })
}

/// `refuse` is about connections that this host makes, on no interface in particular.
fn refuse(item: &Node, fields: &Fields<'_>, edge: &EdgeSpec, problems: &mut Problems<'_>) {
    if edge.role == Role::Ingress {
        let message = format!("`refuse` fails connections that this host makes, and `{}` is an ingress edge", edge.name);
        problems.report(Draft::new(Code::Conflict, &item.place, message).advice("aim it at a downstream edge"));
    }
    if let Some(select) = fields.get("select")
        && let Value::Map(entries) = &select.value.value
        && let Some(entry) = entries.iter().find(|entry| entry.key.text == "flows")
    {
        let draft = Draft::new(Code::Conflict, &entry.key.place, "`flows` beside `refuse` means nothing");
        problems.report(draft.advice("its own share is one of connections already"));
    }
    for key in ["direction", "interface", "netns"] {
        if let Some(entry) = fields.get(key) {
            let message = format!("`{key}` beside `refuse` means nothing");
            problems.report(Draft::new(Code::Conflict, &entry.key.place, message).advice("leave it out"));
        }
    }
}

/// The edge that `to` names.
fn target<'e>(entry: &Entry, edges: Option<&'e [EdgeSpec]>, problems: &mut Problems<'_>) -> Option<&'e EdgeSpec> {
    let text = fields::text(entry, problems)?;
    let edges = edges?;
    let found = edges.iter().find(|edge| edge.name == text);
    if found.is_none() {
        problems.report(no_such_edge(text, &entry.value.place, edges));
    }
    found
}

fn no_such_edge(text: &str, place: &Place, edges: &[EdgeSpec]) -> Draft {
    let names: Vec<&str> = edges.iter().map(|edge| edge.name.as_str()).collect();
    let message = format!("there is no edge `{}`", crate::wording::excerpt(text));
    let draft = Draft::new(Code::UnknownName, place, message).label("not under `observe`");
    match nearest(text, names.iter().copied()) {
        Some(near) => draft.advice(format!("did you mean `{near}`?")).replace(near),
        None => draft.advice(format!("the edges are {}", crate::wording::listed(&names))),
    }
}

/// The direction of the packets. Answers travel towards whoever asked, so for `http_status` there is no choice.
fn direction(fields: &Fields<'_>, kind: Option<&FaultKind>, edge: Option<&EdgeSpec>, problems: &mut Problems<'_>) -> Option<Direction> {
    let answers = matches!(kind, Some(FaultKind::HttpStatus { .. })).then_some(edge).flatten().map(|edge| edge.role);
    let answers = answers.map(|role| match role {
        Role::Downstream => Direction::Ingress,
        Role::Ingress => Direction::Egress,
    });
    let Some(entry) = fields.get("direction") else {
        let silence = if matches!(kind, Some(FaultKind::Partition)) { Direction::Both } else { Direction::Egress };
        return Some(answers.unwrap_or(silence));
    };
    let text = fields::text(entry, problems)?;
    let place = &entry.value.place;
    let Some(written) = Direction::ALL.into_iter().find(|direction| direction.as_str() == text) else {
        let words = Direction::ALL.map(Direction::as_str);
        let draft = Draft::new(Code::BadValue, place, format!("there is no direction `{}`", crate::wording::excerpt(text)));
        let advice = format!("write {}, as seen from this host", crate::wording::listed(&words).replace(" and ", " or "));
        let meant = match text.to_lowercase().as_str() {
            "in" | "inbound" | "incoming" | "input" | "rx" | "receive" | "arriving" => Some("ingress"),
            "out" | "outbound" | "outgoing" | "output" | "tx" | "send" | "leaving" => Some("egress"),
            "all" | "any" | "bidirectional" | "duplex" | "two-way" | "inout" | "*" => Some("both"),
            _ => nearest(text, words),
        };
        problems.report(match meant {
            Some(meant) => draft.advice(advice).replace(meant),
            None => draft.advice(advice),
        });
        return None;
    };
    match answers {
        Some(answers) if answers != written => {
            let message = format!("`http_status` acts on answers, which travel {} here", answers.as_str());
            let draft = Draft::new(Code::Conflict, place, message).label("answers do not go this way");
            problems.report(draft.advice(format!("leave `direction` out, or write `{}`", answers.as_str())).replace(answers.as_str()));
            None
        }
        _ => Some(written),
    }
}

fn interface(entry: &Entry, problems: &mut Problems<'_>) -> Option<String> {
    let text = fields::text(entry, problems)?;
    let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
    // IFNAMSIZ is 16 with the final NUL.
    if text.is_empty() || text.len() > 15 || text.contains(odd) || text == "." || text == ".." {
        let message = format!("`{}` cannot be the name of an interface", crate::wording::excerpt(text));
        let draft = Draft::new(Code::BadValue, &entry.value.place, message);
        problems.report(draft.advice("write a name from `ip link`, or leave `interface` out to take it from the route"));
        return None;
    }
    Some(text.to_owned())
}
