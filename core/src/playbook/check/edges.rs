//! `ingress:` and `downstream:`, the edges.

use super::super::fields::{self, Fields, Keys};
use super::super::node::Entry;
use super::super::problem::{Code, Draft, Place, Problems};
use crate::edge::{Cidr, EdgeSpec, OTHER, PortRange, Protocol, Role};
use crate::expectation::metric;
use crate::units::{UnitErrorKind, net};
use crate::wording::nearest;

const EDGE: Keys = Keys::new("an edge", &["address", "port", "protocol"]);

/// Reads the edges of one role, and adds them.
pub(super) fn check(entry: &Entry, role: Role, edges: &mut Vec<EdgeSpec>, problems: &mut Problems<'_>) {
    let what = format!("`{}`", entry.key.text);
    let Some(entries) = fields::entries(&entry.value, &entry.key.place, &what, problems) else {
        return;
    };
    for entry in entries {
        let key = &entry.key;
        let Some(name) = super::name(&key.text, &key.place, "an edge's name", problems) else {
            continue;
        };
        if name == OTHER {
            let draft = Draft::new(Code::Conflict, &key.place, "an edge cannot be called `other`");
            problems.report(draft.advice("`other` stands for the traffic of no edge").replace("others"));
            continue;
        }
        let taken = metric::begun_by(&name).or((name == "not").then_some("not metastable"));
        if let Some(metric) = taken {
            let draft = Draft::new(Code::Conflict, &key.place, format!("an edge cannot be called `{name}`"));
            let draft = draft.label(format!("an expectation of `{metric}` could be of this edge"));
            problems.report(draft.advice("give it a longer name").replace(format!("{name}-{}", role.as_str())));
            continue;
        }
        if let Some(other) = edges.iter().find(|edge| edge.name == name && edge.role != role) {
            let its = other.role.as_str();
            let message = format!("`{name}` names {} {its} edge already", crate::wording::article(its));
            let draft = Draft::new(Code::Conflict, &key.place, message).label("the second edge of that name");
            problems.report(draft.advice("a name stands for one edge").replace(format!("{name}-{}", role.as_str())));
            continue;
        }
        // Even a broken edge has a name, which expectations may use.
        let spec = edge(entry, name, role, problems);
        let same =
            |edge: &&EdgeSpec| edge.role == role && (edge.address, edge.ports) == (spec.address, spec.ports) && edge.name != spec.name;
        if let Some(other) = edges.iter().find(same).filter(|_| spec.ports.is_some() || spec.address.is_some()) {
            let message = format!("`{}` selects the same connections as `{}`", spec.name, other.name);
            problems.report(Draft::new(Code::Conflict, &key.place, message).advice("give it another port or address"));
        }
        edges.push(spec);
    }
}

fn edge(entry: &Entry, name: String, role: Role, problems: &mut Problems<'_>) -> EdgeSpec {
    let mut spec = EdgeSpec { name, role, address: None, ports: None, protocol: None };
    let Some(fields) = Fields::open(&entry.value, &entry.key.place, EDGE, problems) else {
        return spec;
    };
    spec.address = fields.get("address").and_then(|entry| address(entry, problems));
    spec.ports = fields.get("port").and_then(|entry| ports(entry, problems));
    spec.protocol = fields.get("protocol").and_then(|entry| protocol(entry, problems));
    if fields.get("address").is_none() && fields.get("port").is_none() {
        let message = format!("edge `{}` has neither `port` nor `address`", spec.name);
        let draft = Draft::new(Code::MissingKey, &entry.key.place, message).label("this would be every connection");
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
        (UnitErrorKind::PortForAddress, Some((address, port))) => {
            draft.advice("an address and its port are two keys").replace(format!("{}, port: {port}", address.trim_matches(['[', ']'])))
        }
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

fn ports(entry: &Entry, problems: &mut Problems<'_>) -> Option<PortRange> {
    let text = fields::text(entry, problems)?;
    let error = match net::parse_ports(text) {
        Ok(ports) => return Some(ports),
        Err(error) => error,
    };
    let draft = fields::refusal(&entry.value.place, "port", &error);
    problems.report(match error.kind {
        // `10.0.0.1:80` keeps its port; a bare address goes under its own key.
        UnitErrorKind::AddressForPort if net::parse_cidr(text).is_ok() => {
            let whole = Place { start: entry.key.place.start, ..entry.value.place.clone() };
            draft.advice("an address belongs under `address`").replace_at(whole, format!("address: {text}"))
        }
        _ => draft,
    });
    None
}

fn protocol(entry: &Entry, problems: &mut Problems<'_>) -> Option<Protocol> {
    let text = fields::text(entry, problems)?;
    let place = &entry.value.place;
    let known: Vec<&str> = Protocol::ALL.iter().map(|protocol| protocol.as_str()).collect();
    let found = Protocol::ALL.into_iter().find(|protocol| protocol.as_str() == text);
    if found.is_none() {
        let draft = Draft::new(Code::UnknownName, place, format!("there is no protocol `{}`", crate::wording::excerpt(text)));
        problems.report(match nearest(text, known.iter().copied()) {
            Some(near) => draft.advice(format!("did you mean `{near}`?")).replace(near),
            None => draft.advice(format!("stormdrill knows {}", crate::wording::listed(&known))),
        });
    }
    found
}
