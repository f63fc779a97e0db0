//! Edges on the command line: `NAME=[ADDRESS]:PORT[/PROTOCOL]`, as in `web=:8080` or `store=[::1]:9000/http`.

use super::{EdgeSpec, Protocol, Role};
use crate::units::{UnitError, net};

/// Why an argument is no edge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// There is no `NAME=`.
    #[error("`{0}` has no name: write `NAME=ADDRESS:PORT`, as in `web=:8080`")]
    NoName(String),
    /// The name is not `[a-z0-9-]`.
    #[error("an edge cannot be called `{0}`: use lower-case letters, digits and hyphens")]
    BadName(String),
    /// The name stands for what belongs to no edge.
    #[error("an edge cannot be called `{}`, which stands for all other traffic", super::OTHER)]
    Reserved,
    /// There is no `:PORT`.
    #[error("`{0}` has no port: write `ADDRESS:PORT`, as in `10.2.0.7:9000`, `[::1]:9000` or `:9000`")]
    NoPort(String),
    /// The address cannot be read.
    #[error("{}: {}", .0, .0.advice())]
    Address(UnitError),
    /// The port cannot be read.
    #[error("{}: {}", .0, .0.advice())]
    Port(UnitError),
    /// There is no such protocol.
    #[error("there is no protocol `{0}`: stormdrill knows {known}", known = known())]
    Protocol(String),
}

/// Reads an edge. The address may be a network; ports may be a range.
///
/// # Errors
/// When the text is not of that form.
pub fn parse(role: Role, text: &str) -> Result<EdgeSpec, ArgumentError> {
    let shown = || crate::wording::excerpt(text);
    let (name, target) = text.split_once('=').ok_or_else(|| ArgumentError::NoName(shown()))?;
    if name == super::OTHER {
        return Err(ArgumentError::Reserved);
    }
    if !super::is_name(name) {
        return Err(ArgumentError::BadName(crate::wording::excerpt(name)));
    }
    // A network has a slash too: only what follows the port is the protocol.
    let (address, rest) = target.rsplit_once(':').ok_or_else(|| ArgumentError::NoPort(shown()))?;
    if address.contains(':') && !address.starts_with('[') {
        return Err(ArgumentError::NoPort(shown()));
    }
    let (ports, protocol) = rest.split_once('/').map_or((rest, None), |(ports, protocol)| (ports, Some(protocol)));
    let address = match address {
        "" => None,
        address => Some(net::parse_cidr(address).map_err(ArgumentError::Address)?),
    };
    let ports = Some(net::parse_ports(ports).map_err(ArgumentError::Port)?);
    let protocol = match protocol {
        None => None,
        Some(word) => {
            let found = Protocol::ALL.into_iter().find(|protocol| protocol.as_str() == word);
            Some(found.ok_or_else(|| ArgumentError::Protocol(crate::wording::excerpt(word)))?)
        }
    };
    Ok(EdgeSpec { name: name.to_owned(), role, address, ports, protocol })
}

/// The protocols' words.
fn known() -> String {
    crate::wording::listed(&Protocol::ALL.map(Protocol::as_str))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn edges_read_with_and_without_their_parts() {
        for (text, name, address, ports, protocol) in [
            ("web=:8080", "web", None, "8080", None),
            ("store=127.0.0.1:9000/http", "store", Some("127.0.0.1"), "9000", Some(Protocol::Http)),
            ("store=[::1]:9000", "store", Some("::1"), "9000", None),
            ("store=10.2.0.0/16:9000-9010", "store", Some("10.2.0.0/16"), "9000-9010", None),
            ("order-db=[fd00::]/8:65535/http", "order-db", Some("fd00::/8"), "65535", Some(Protocol::Http)),
        ] {
            let edge = parse(Role::Downstream, text).unwrap();
            assert_eq!(edge.name, name);
            assert_eq!(edge.address.map(|address| address.to_string()).as_deref(), address, "{text}");
            assert_eq!(edge.ports.map(|ports| ports.to_string()).as_deref(), Some(ports));
            assert_eq!(edge.protocol, protocol);
        }
    }

    #[test]
    fn what_is_no_edge_is_refused_with_what_to_write() {
        for (text, message) in [
            (":8080", "`:8080` has no name: write `NAME=ADDRESS:PORT`, as in `web=:8080`"),
            ("Web=:8080", "an edge cannot be called `Web`: use lower-case letters, digits and hyphens"),
            ("other=:80", "an edge cannot be called `other`, which stands for all other traffic"),
            ("web=8080", "`web=8080` has no port: write `ADDRESS:PORT`, as in `10.2.0.7:9000`, `[::1]:9000` or `:9000`"),
            ("web=::1:80", "`web=::1:80` has no port: write `ADDRESS:PORT`, as in `10.2.0.7:9000`, `[::1]:9000` or `:9000`"),
            ("web=:0", "`0` is zero: write `8080`"),
            ("web=db:80", "`db` is not an address: write `10.2.0.0/16`"),
            (
                "web=:80/gopher",
                "there is no protocol `gopher`: stormdrill knows `http`, `http2`, `grpc`, `redis`, `mysql`, `postgres` and `tls`",
            ),
        ] {
            assert_eq!(parse(Role::Ingress, text).unwrap_err().to_string(), message);
        }
    }
}
