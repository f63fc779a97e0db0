//! `select`: which of the edge's packets, and which are spared.

use super::super::super::fields::{self, Fields, Keys};
use super::super::super::node::{Entry, Node, Value};
use super::super::super::problem::{Code, Draft, Problems};
use super::{members, packets};
use crate::edge::{Cidr, EdgeSpec, PortRange, Role};
use crate::fault::{Select, Transport};
use crate::units::{UnitError, UnitErrorKind, net, share};
use crate::wording::{excerpt, listed, nearest};

const SELECT: Keys = Keys::new(
    "`select`",
    &["addresses", "ports", "protocol", "peers", "exclude", "flows", "cgroup", "container", "pid", "include_management"],
);
const EXCLUDE: Keys = Keys::new("`exclude`", &["addresses", "ports", "peers"]);

pub(super) fn select(entry: &Entry, edge: Option<&EdgeSpec>, problems: &mut Problems<'_>) -> Option<Select> {
    let fields = Fields::open(&entry.value, &entry.key.place, SELECT, problems)?;
    let (addresses, hosts) = networks(&fields, edge, problems);
    let mut select = Select {
        addresses,
        hosts,
        ports: ports(&fields, edge, problems),
        protocol: fields.get("protocol").and_then(|entry| protocol(entry, problems)),
        peers: peers(&fields, edge, problems),
        members: members::members(&fields, problems),
        flows: fields.get("flows").and_then(|entry| flows(entry, problems)),
        ..Select::default()
    };
    if let Some(entry) = fields.get("exclude")
        && let Some(fields) = Fields::open(&entry.value, &entry.key.place, EXCLUDE, problems)
    {
        (select.exclude_addresses, select.exclude_hosts) = networks(&fields, edge, problems);
        select.exclude_ports = ports(&fields, edge, problems);
        select.exclude_peers = peers(&fields, edge, problems);
    }
    if let Some(entry) = fields.get("include_management") {
        select.include_management = packets::flag(entry, problems)?;
    }
    if let Some(edge) = edge {
        within(&fields, &select, edge, problems);
    }
    let portless = select.protocol.filter(|protocol| !protocol.has_ports());
    let has_ports = !select.ports.is_empty() || !select.exclude_ports.is_empty() || edge.is_some_and(|edge| edge.ports.is_some());
    if let (Some(protocol), true, Some(entry)) = (portless, has_ports, fields.get("protocol")) {
        let message = format!("{} has no ports, so that nothing would be selected", protocol.as_str());
        problems.report(Draft::new(Code::Conflict, &entry.value.place, message).advice("aim at an edge that has only an address"));
    }
    Some(select)
}

/// What is selected must lie within the edge: its traffic is what the drill observes.
fn within(fields: &Fields<'_>, select: &Select, edge: &EdgeSpec, problems: &mut Problems<'_>) {
    if let (Some(outer), Some(entry)) = (edge.address, fields.get("addresses"))
        && let Some(stray) = select.addresses.iter().find(|inner| !outer.covers(inner))
    {
        let message = format!("{stray} lies outside of the edge `{}`, which is {outer}", edge.name);
        problems.report(Draft::new(Code::Conflict, &entry.value.place, message).advice("a selection narrows its edge"));
    }
    if let (Some(outer), Some(entry)) = (edge.ports, fields.get("ports"))
        && let Some(stray) = select.ports.iter().find(|inner| inner.first < outer.first || inner.last > outer.last)
    {
        let message = format!("port {stray} lies outside of the edge `{}`, which has {outer}", edge.name);
        problems.report(Draft::new(Code::Conflict, &entry.value.place, message).advice("a selection narrows its edge"));
    }
}

/// Networks, and names of hosts among them.
fn networks(fields: &Fields<'_>, edge: Option<&EdgeSpec>, problems: &mut Problems<'_>) -> (Vec<Cidr>, Vec<String>) {
    let either = |text: &str| match net::parse_cidr(text) {
        Err(error) if error.kind == UnitErrorKind::NameForAddress && is_host(text) => Ok(Err(text.to_owned())),
        parsed => parsed.map(Ok),
    };
    let (mut networks, mut hosts) = (Vec::new(), Vec::new());
    let example = edge.and_then(|edge| edge.address).map(|network| network.to_string());
    for found in each(fields, "addresses", either, example.as_deref(), problems) {
        match found {
            Ok(network) => networks.push(network),
            Err(host) => hosts.push(host),
        }
    }
    (networks, hosts)
}

/// Whether a text can be a host's name: labels of letters, digits and hyphens, not all of it numbers and dots.
fn is_host(text: &str) -> bool {
    let label = |label: &str| {
        let allowed = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        (1..=63).contains(&label.len()) && allowed && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(label) && text.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// The other end's networks. That of a downstream edge is this host, and the edge's own end is the peer.
fn peers(fields: &Fields<'_>, edge: Option<&EdgeSpec>, problems: &mut Problems<'_>) -> Vec<Cidr> {
    let found = each(fields, "peers", net::parse_cidr, None, problems);
    if let (Some(entry), Some(edge)) = (fields.get("peers"), edge.filter(|edge| edge.role == Role::Downstream)) {
        let message = format!("`peers` are the callers of an ingress edge, and `{}` is a downstream edge", edge.name);
        let draft = Draft::new(Code::Conflict, &entry.key.place, message);
        // Under the other key they would be refused where they lie outside of the edge, or the key is there.
        let fits = fields.get("addresses").is_none() && found.iter().all(|peer| edge.address.is_none_or(|outer| outer.covers(peer)));
        problems.report(if fits { draft.advice("its peers are its addresses").replace("addresses") } else { draft.advice("leave it out") });
    }
    found
}

/// A share of connections, as the kernel compares it.
fn flows(entry: &Entry, problems: &mut Problems<'_>) -> Option<u64> {
    let share = fields::quantity(entry, share::parse_drawn, problems)?;
    if share == 0.0 {
        let draft = Draft::new(Code::OutOfRange, &entry.value.place, "a share of 0% of the connections selects nothing");
        problems.report(draft.advice("leave `flows` out for all of them"));
        return None;
    }
    Some(share::units(share))
}

fn ports(fields: &Fields<'_>, edge: Option<&EdgeSpec>, problems: &mut Problems<'_>) -> Vec<PortRange> {
    let example = edge.and_then(|edge| edge.ports).map(|ports| ports.to_string());
    each(fields, "ports", net::parse_ports, example.as_deref(), problems)
}

/// A list of quantities, or one alone; every bad one is reported at its place. `example`: what is proposed where the text gives no idea, instead of an example of
/// the parser's that may lie outside of the edge.
fn each<T>(
    fields: &Fields<'_>,
    key: &str,
    parse: impl Fn(&str) -> Result<T, UnitError>,
    example: Option<&str>,
    problems: &mut Problems<'_>,
) -> Vec<T> {
    let Some(entry) = fields.get(key) else {
        return Vec::new();
    };
    let nodes: &[Node] = match &entry.value.value {
        Value::List(items) => items,
        _ => std::slice::from_ref(&entry.value),
    };
    if nodes.is_empty() {
        let message = format!("`{key}` is empty, which would select nothing");
        problems.report(Draft::new(Code::OutOfRange, &entry.value.place, message).advice("leave it out for all"));
    }
    let mut found = Vec::new();
    for node in nodes {
        let Some(text) = fields::scalar(node, &entry.key.place, &format!("`{key}`"), problems) else {
            continue;
        };
        match parse(text) {
            Ok(value) => found.push(value),
            Err(mut error) => {
                let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>();
                let is_list = error.is_example() && text.contains(',') && parts().iter().all(|part| parse(part).is_ok());
                let draft = match example.filter(|_| error.is_example()) {
                    _ if is_list => {
                        let items = parts().join(", ");
                        let is_inside = matches!(entry.value.value, Value::List(_));
                        error.write = vec![if is_inside { items } else { format!("[{items}]") }];
                        fields::refusal(&node.place, key, &error)
                    }
                    Some(example) => {
                        let message = format!("`{key}`: {error}");
                        Draft::new(Code::BadValue, &node.place, message).advice(format!("write what is within `{example}`, the edge's own"))
                    }
                    None => fields::refusal(&node.place, key, &error),
                };
                problems.report(draft);
            }
        }
    }
    found
}

fn protocol(entry: &Entry, problems: &mut Problems<'_>) -> Option<Transport> {
    let text = fields::text(entry, problems)?;
    let found = Transport::ALL.into_iter().find(|protocol| protocol.as_str() == text);
    if found.is_none() {
        let words = Transport::ALL.map(Transport::as_str);
        let draft = Draft::new(Code::UnknownName, &entry.value.place, format!("there is no protocol `{}` to select by", excerpt(text)));
        let draft = draft.advice(format!("the protocols are {}", listed(&words)));
        let near = if ["icmp6", "ipv6-icmp"].contains(&text) { Some("icmpv6") } else { nearest(text, words) };
        problems.report(match near {
            Some(near) => draft.replace(near),
            None => draft,
        });
    }
    found
}
