//! Which packets a fault selects, in words.

use crate::edge::{EdgeSpec, Role};
use crate::fault::{Direction, FaultKind, FaultSpec};

/// "TCP packets that leave for 10.2.0.0/16, port 6379".
pub(super) fn words(spec: &FaultSpec, edge: &EdgeSpec) -> String {
    let what = match spec.kind {
        FaultKind::HttpStatus { .. } => "HTTP answers",
        FaultKind::Loss { .. } | FaultKind::Delay { .. } => "TCP packets",
    };
    let end = end(edge);
    let (leaving, arriving) = match edge.role {
        Role::Downstream => ("for", "from"),
        Role::Ingress => ("from", "at"),
    };
    match spec.direction {
        Direction::Egress => format!("{what} that leave {leaving} {end}"),
        Direction::Ingress => format!("{what} that arrive {arriving} {end}"),
        Direction::Both => {
            format!("{what} that leave {leaving} {end}, and those that arrive {arriving} it")
        }
    }
}

/// The edge's end of a connection: the peer's of a downstream edge, this host's of an ingress edge.
fn end(edge: &EdgeSpec) -> String {
    let whose = match edge.role {
        Role::Downstream => "",
        Role::Ingress => "this host's ",
    };
    match (edge.address, edge.ports) {
        (Some(address), Some(ports)) => format!("{whose}{address}, {}", port(&ports.to_string())),
        (Some(address), None) => format!("{whose}{address}"),
        (None, Some(ports)) => format!("{whose}{} of any address", port(&ports.to_string())),
        (None, None) => format!("{whose}any address"),
    }
}

fn port(ports: &str) -> String {
    format!("{} {ports}", if ports.contains('-') { "ports" } else { "port" })
}
