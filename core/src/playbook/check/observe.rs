//! `observe:`, the edges, the scope and the window.

use std::time::Duration;

use super::super::Scope;
use super::super::fields::{self, Fields, Keys};
use super::super::node::{Entry, Node, Value};
use super::super::problem::{Code, Draft, Place, Problems};
use crate::edge::{Cidr, EdgeSpec, MAX_EDGES, Protocol, Role};
use crate::units::{UnitErrorKind, duration, net};
use crate::wording::nearest;

const OBSERVE: Keys = Keys {
    of: "`observe`",
    known: &["ingress", "downstream", "scope", "window"],
    later: &[],
};
const EDGE: Keys = Keys {
    of: "an edge",
    known: &["address", "port", "protocol"],
    later: &[],
};
const SCOPE: Keys = Keys {
    of: "`scope`",
    known: &["cgroup", "pid"],
    later: &["container", "netns"],
};

/// Window when the playbook names none: long enough for retry budgets and ejections to act within one.
const DEFAULT_WINDOW: Duration = Duration::from_secs(10);
const MIN_WINDOW: Duration = Duration::from_millis(100);
const MAX_WINDOW: Duration = Duration::from_hours(1);

/// What `observe` says, as far as it could be read.
pub(super) struct Observed {
    pub(super) edges: Vec<EdgeSpec>,
    pub(super) scope: Option<Scope>,
    /// `None` after a problem.
    pub(super) window: Option<Duration>,
}

pub(super) fn check(entry: &Entry, problems: &mut Problems<'_>) -> Option<Observed> {
    let observe = Fields::open(&entry.value, &entry.key.place, OBSERVE, problems)?;
    let mut edges = Vec::new();
    for role in [Role::Ingress, Role::Downstream] {
        if let Some(entry) = observe.get(role.as_str()) {
            role_edges(entry, role, &mut edges, problems);
        }
    }
    if observe.get("ingress").is_none() && observe.get("downstream").is_none() {
        let draft = Draft::new(Code::MissingKey, &entry.key.place, "nothing is observed")
            .label("no edge here");
        problems
            .report(draft.advice("name at least one edge, as in `ingress: {web: {port: 8080}}`"));
    }
    if edges.len() > MAX_EDGES {
        let message = format!(
            "{} edges are more than the {MAX_EDGES} that can be observed at once",
            edges.len()
        );
        problems.report(Draft::new(Code::OutOfRange, &entry.key.place, message));
    }
    let scope = observe
        .get("scope")
        .and_then(|entry| scope(entry, problems));
    let window = match observe.get("window") {
        None => Some(DEFAULT_WINDOW),
        Some(entry) => fields::quantity(entry, duration::parse, problems).and_then(|window| {
            super::phases::within(entry, window, MIN_WINDOW, MAX_WINDOW, problems)
        }),
    };
    Some(Observed {
        edges,
        scope,
        window,
    })
}

fn role_edges(entry: &Entry, role: Role, edges: &mut Vec<EdgeSpec>, problems: &mut Problems<'_>) {
    let what = format!("`{}`", entry.key.text);
    let Some(entries) = fields::entries(&entry.value, &entry.key.place, &what, problems) else {
        return;
    };
    for entry in entries {
        let key = &entry.key;
        let Some(name) = super::name(&key.text, &key.place, "an edge's name", problems) else {
            continue;
        };
        if let Some(other) = edges
            .iter()
            .find(|edge| edge.name == name && edge.role != role)
        {
            let message = format!("`{name}` names an {} edge already", other.role.as_str());
            let draft = Draft::new(Code::Conflict, &key.place, message)
                .label("the second edge of that name");
            problems.report(
                draft
                    .advice("a name stands for one edge")
                    .replace(format!("{name}-{}", role.as_str())),
            );
            continue;
        }
        // Even a broken edge has a name, which expectations may use.
        let spec = edge(entry, name, role, problems);
        let same = |edge: &&EdgeSpec| {
            edge.role == role
                && (edge.address, edge.ports) == (spec.address, spec.ports)
                && edge.name != spec.name
        };
        if let Some(other) = edges
            .iter()
            .find(same)
            .filter(|_| spec.ports.is_some() || spec.address.is_some())
        {
            let message = format!(
                "`{}` selects the same connections as `{}`",
                spec.name, other.name
            );
            problems.report(
                Draft::new(Code::Conflict, &key.place, message)
                    .advice("give it another port or address"),
            );
        }
        edges.push(spec);
    }
}

fn edge(entry: &Entry, name: String, role: Role, problems: &mut Problems<'_>) -> EdgeSpec {
    let mut spec = EdgeSpec {
        name,
        role,
        address: None,
        ports: None,
        protocol: None,
    };
    let Some(fields) = Fields::open(&entry.value, &entry.key.place, EDGE, problems) else {
        return spec;
    };
    spec.address = fields
        .get("address")
        .and_then(|entry| address(entry, problems));
    spec.ports = fields
        .get("port")
        .and_then(|entry| fields::quantity(entry, net::parse_ports, problems));
    spec.protocol = fields
        .get("protocol")
        .and_then(|entry| protocol(entry, problems));
    if fields.get("address").is_none() && fields.get("port").is_none() {
        let message = format!("edge `{}` has neither `port` nor `address`", spec.name);
        let draft = Draft::new(Code::MissingKey, &entry.key.place, message)
            .label("this would be every connection");
        problems.report(draft.advice("add `port: 8080`"));
    }
    spec
}

fn address(entry: &Entry, problems: &mut Problems<'_>) -> Option<Cidr> {
    let text = fields::text(entry, problems)?;
    let error = match net::parse_cidr(text) {
        Ok(cidr) => return Some(cidr),
        Err(error) => error,
    };
    let draft = fields::refusal(&entry.value.place, "address", &error);
    problems.report(match (error.kind, text.rsplit_once(':')) {
        (UnitErrorKind::PortForAddress, Some((address, port))) => draft
            .advice("an address and its port are two keys")
            .replace(format!("{}, port: {port}", address.trim_matches(['[', ']']))),
        (UnitErrorKind::PortForAddress, None) => {
            let whole = Place { start: entry.key.place.start, ..entry.value.place.clone() };
            draft.advice("a port belongs under `port`").replace_at(whole, format!("port: {text}"))
        }
        (UnitErrorKind::NameForAddress, _) => {
            draft.advice("names are not resolved, since they may change under a drill; write an address or a network")
        }
        _ => draft,
    });
    None
}

fn protocol(entry: &Entry, problems: &mut Problems<'_>) -> Option<Protocol> {
    let text = fields::text(entry, problems)?;
    let place = &entry.value.place;
    let known: Vec<&str> = Protocol::ALL
        .iter()
        .map(|protocol| protocol.as_str())
        .collect();
    let found = Protocol::ALL
        .into_iter()
        .find(|protocol| protocol.as_str() == text);
    if found.is_none() {
        let shown = crate::wording::excerpt(text);
        problems.report(if Protocol::LATER.contains(&text) {
            let message = format!("protocol `{shown}` is not in this version of stormdrill");
            let advice = format!("this version knows {}; without `protocol` the connections are counted all the same", crate::wording::listed(&known));
            Draft::new(Code::NotInThisVersion, place, message).label("not yet").advice(advice)
        } else {
            let draft = Draft::new(Code::UnknownName, place, format!("there is no protocol `{shown}`"));
            let all: Vec<&str> = known.iter().chain(&Protocol::LATER).copied().collect();
            match nearest(text, all) {
                Some(near) => draft.advice(format!("did you mean `{near}`?")).replace(near),
                None => draft.advice(format!("this version knows {}", crate::wording::listed(&known))),
            }
        });
    }
    found
}

fn scope(entry: &Entry, problems: &mut Problems<'_>) -> Option<Scope> {
    let fields = Fields::open(&entry.value, &entry.key.place, SCOPE, problems)?;
    match (fields.get("cgroup"), fields.get("pid")) {
        (Some(cgroup), Some(_)) => {
            let draft = Draft::new(
                Code::Conflict,
                &cgroup.key.place,
                "`scope` has both `cgroup` and `pid`",
            );
            problems
                .report(draft.advice(
                    "keep one of them; `pid` stands for the cgroup that the process is in",
                ));
            None
        }
        (Some(entry), None) => cgroup(entry, problems),
        (None, Some(entry)) => pid(entry, problems),
        (None, None) => empty_scope(&entry.value, &entry.key.place, problems),
    }
}

fn empty_scope(node: &Node, key: &Place, problems: &mut Problems<'_>) -> Option<Scope> {
    if matches!(&node.value, Value::Map(entries) if entries.is_empty()) {
        let draft = Draft::new(Code::MissingKey, key, "`scope` is empty")
            .label("neither `cgroup` nor `pid`");
        problems.report(draft.advice("leave `scope` out to observe the whole host"));
    }
    None
}

fn cgroup(entry: &Entry, problems: &mut Problems<'_>) -> Option<Scope> {
    let text = fields::text(entry, problems)?;
    let path = text.trim_matches('/');
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    if path.is_empty() || path.split('/').any(odd) || path.contains('\0') {
        let message = format!("`{}` is no path of a cgroup", crate::wording::excerpt(text));
        let draft = Draft::new(Code::BadValue, &entry.value.place, message);
        problems.report(
            draft
                .advice("write the path below the cgroup2 root")
                .replace("system.slice/order.service"),
        );
        return None;
    }
    Some(Scope::Cgroup(path.to_owned()))
}

fn pid(entry: &Entry, problems: &mut Problems<'_>) -> Option<Scope> {
    let text = fields::text(entry, problems)?;
    // The kernel's own limit is 2^22.
    match text.parse::<u32>() {
        Ok(pid) if (1..=4_194_304).contains(&pid) => Some(Scope::Pid(pid)),
        _ => {
            let message = format!("`{}` is no process id", crate::wording::excerpt(text));
            problems.report(
                Draft::new(Code::BadValue, &entry.value.place, message)
                    .advice("write a number, as in `pid: 4711`"),
            );
            None
        }
    }
}
