//! Which packets a fault selects, in words.

use super::host::HostFacts;
use crate::edge::{Cidr, EdgeSpec, Role};
use crate::fault::{Direction, FaultKind, FaultSpec, Members, Transport};
use crate::units::share;

/// "TCP packets that leave for 10.2.0.0/16, port 6379".
pub(super) fn words(spec: &FaultSpec, edge: &EdgeSpec, facts: &HostFacts) -> String {
    let what = what(spec, edge);
    let end = end(spec, edge, facts);
    let spared = format!("{}{}", narrowed(spec), spared(spec, facts));
    if matches!(spec.kind, FaultKind::Refuse { .. }) {
        return format!("{what} to {end}{spared}");
    }
    let (leaving, arriving, again) = match edge.role {
        Role::Downstream => ("for", "from", "from there"),
        Role::Ingress => ("from", "at", "there"),
    };
    match spec.direction {
        Direction::Egress => format!("{what} that leave {leaving} {end}{spared}"),
        Direction::Ingress => format!("{what} that arrive {arriving} {end}{spared}"),
        Direction::Both => {
            format!("{what} that leave {leaving} {end}, and those that arrive {again}{spared}")
        }
    }
}

fn what(spec: &FaultSpec, edge: &EdgeSpec) -> String {
    let requests = &spec.select.requests;
    let method = requests.method.iter().map(|method| format!("{method} "));
    let path = requests.path.iter().map(|path| format!(" for {path}…"));
    let whose = method.chain(["requests".to_owned()]).chain(path).collect::<String>();
    let words = match (&spec.kind, spec.select.protocol) {
        (FaultKind::HttpStatus { .. }, _) if !requests.is_all() => return format!("HTTP/1 answers to {whose}"),
        (FaultKind::HttpStatus { .. }, _) => "HTTP answers",
        (FaultKind::Refuse { .. }, _) => "connections that this host opens",
        (_, Some(Transport::Tcp)) => "TCP packets",
        (_, Some(Transport::Udp)) => "UDP packets",
        (_, Some(Transport::Icmp)) => "ICMP packets",
        (_, Some(Transport::Icmpv6)) => "ICMPv6 packets",
        (_, None) if edge.ports.is_none() && spec.select.ports.is_empty() => "IP packets",
        (_, None) => "TCP and UDP packets",
    };
    words.to_owned()
}

/// What else must hold, in words; empty if nothing.
fn narrowed(spec: &FaultSpec) -> String {
    let select = &spec.select;
    let mut text = String::new();
    if !select.peers.is_empty() {
        text = format!(", of callers in {}", select.peers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    }
    text += &match &select.members {
        Some(Members::Cgroup(path)) => format!(", of sockets of cgroup {path}"),
        Some(Members::Container(id)) => format!(", of sockets of container {id}"),
        Some(Members::Pid(pid)) => format!(", of sockets of the cgroup of process {pid}"),
        None => String::new(),
    };
    if let Some(flows) = select.flows {
        text += &format!(", on {} of the connections, each wholly or not at all", share::print_units(flows));
    }
    text
}

/// What is left alone beyond the rule, in words; empty if nothing is.
fn spared(spec: &FaultSpec, facts: &HostFacts) -> String {
    let networks = named(&spec.select.exclude_addresses, &spec.select.exclude_hosts, facts).into_iter();
    let ports = spec.select.exclude_ports.iter().map(|ports| port(&ports.to_string()));
    let peers = spec.select.exclude_peers.iter().map(|peer| format!("callers in {peer}"));
    let all: Vec<String> = networks.chain(ports).chain(peers).collect();
    let management = if spec.select.include_management { "; SSH, DHCP, neighbour discovery, the API, etcd and the caller too" } else { "" };
    if all.is_empty() { management.to_owned() } else { format!(", but not {}{management}", all.join(", ")) }
}

/// Networks, and host names with what they stand for.
fn named(networks: &[Cidr], hosts: &[String], facts: &HostFacts) -> Vec<String> {
    let host = |host: &String| match facts.addresses(host) {
        None => host.clone(),
        Some([]) => format!("{host} (which cannot be resolved)"),
        Some(addresses) => format!("{host} ({})", addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    };
    networks.iter().map(ToString::to_string).chain(hosts.iter().map(host)).collect()
}

/// The edge's end of a connection: the peer's of a downstream edge, this host's of an ingress edge.
fn end(spec: &FaultSpec, edge: &EdgeSpec, facts: &HostFacts) -> String {
    let whose = match edge.role {
        Role::Downstream => "",
        Role::Ingress => "this host's ",
    };
    let listed = |parts: Vec<String>| (!parts.is_empty()).then(|| parts.join(", "));
    let address = listed(named(&spec.select.addresses, &spec.select.hosts, facts));
    let address = address.or_else(|| edge.address.map(|address| address.to_string()));
    let ports = listed(spec.select.ports.iter().map(ToString::to_string).collect());
    let ports = ports.or_else(|| edge.ports.map(|ports| ports.to_string()));
    match (address, ports) {
        (Some(address), Some(ports)) => format!("{whose}{address}, {}", port(&ports)),
        (Some(address), None) => format!("{whose}{address}"),
        (None, Some(ports)) => format!("{whose}{} of any address", port(&ports)),
        (None, None) => format!("{whose}any address"),
    }
}

fn port(ports: &str) -> String {
    format!("{} {ports}", if ports.contains(['-', ',']) { "ports" } else { "port" })
}
