//! Edges as arguments: `NAME=[ADDR]:PORT[/PROTO]`.

use std::net::{IpAddr, Ipv6Addr};

use stormdrill_core::edge::{Cidr, EdgeSpec, PortRange, Protocol, Role};
use thiserror::Error;

/// Why an edge argument was refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum EdgeArgError {
    #[error("`{given}` has no name: write {example}")]
    NoName { given: String, example: &'static str },
    #[error("`{given}`: an edge's name has lower-case letters, digits and hyphens, as in {example}")]
    BadName { given: String, example: &'static str },
    #[error("`{given}` has no port: write {example}")]
    NoPort { given: String, example: &'static str },
    #[error("`{port}` in `{given}` is no port; ports are 1 to 65535")]
    BadPort { given: String, port: String },
    #[error("`{address}` in `{given}` is no address; write an IPv4 address or a bracketed IPv6 one, as `[::1]:8080`")]
    BadAddress { given: String, address: String },
    #[error("`{given}`: a downstream edge needs the peer's address: write {example}")]
    NoAddress { given: String, example: &'static str },
    #[error("two edges are named `{name}`; give each a name of its own")]
    Twice { name: String },
    #[error("`{protocol}` in `{given}` is no protocol that this version knows; write {known}")]
    BadProtocol { given: String, protocol: String, known: &'static str },
}

/// Refuses two edges of one name: their results could not be told apart.
pub(super) fn unique(edges: &[EdgeSpec]) -> Result<(), EdgeArgError> {
    let again = edges.iter().enumerate().find(|(i, edge)| edges.iter().take(*i).any(|e| e.name == edge.name));
    match again {
        Some((_, edge)) => Err(EdgeArgError::Twice { name: edge.name.clone() }),
        None => Ok(()),
    }
}

const fn example(role: Role) -> &'static str {
    match role {
        Role::Ingress => "`web=:8080/http`",
        Role::Downstream => "`db=10.0.0.5:3306`",
    }
}

/// Reads one `--ingress` or `--downstream` argument.
pub(super) fn parse(role: Role, given: &str) -> Result<EdgeSpec, EdgeArgError> {
    let example = example(role);
    let Some((name, place)) = given.split_once('=') else {
        return Err(EdgeArgError::NoName { given: given.to_owned(), example });
    };
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || !name.chars().all(ok) {
        return Err(EdgeArgError::BadName { given: given.to_owned(), example });
    }
    let (place, protocol) = match place.split_once('/') {
        Some((place, word)) => (place, Some(protocol(given, word)?)),
        None => (place, None),
    };
    let Some((address, port)) = place.rsplit_once(':') else {
        return Err(EdgeArgError::NoPort { given: given.to_owned(), example });
    };
    let port = match port.parse::<u16>() {
        Ok(port) if port > 0 => port,
        _ => return Err(EdgeArgError::BadPort { given: given.to_owned(), port: port.to_owned() }),
    };
    let address = match address {
        "" | "*" if role == Role::Downstream && address.is_empty() => {
            return Err(EdgeArgError::NoAddress { given: given.to_owned(), example });
        }
        "" | "*" => None,
        text => Some(host(given, text)?),
    };
    Ok(EdgeSpec {
        name: name.to_owned(),
        role,
        address,
        ports: Some(PortRange { first: port, last: port }),
        protocol,
    })
}

fn host(given: &str, text: &str) -> Result<Cidr, EdgeArgError> {
    let bad = || EdgeArgError::BadAddress { given: given.to_owned(), address: text.to_owned() };
    let address = match text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        Some(inner) => IpAddr::V6(inner.parse::<Ipv6Addr>().map_err(|_| bad())?),
        None => IpAddr::V4(text.parse().map_err(|_| bad())?),
    }
    .to_canonical();
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    Ok(Cidr { address, prefix })
}

fn protocol(given: &str, word: &str) -> Result<Protocol, EdgeArgError> {
    [Protocol::Http].into_iter().find(|p| p.as_str() == word).ok_or_else(|| EdgeArgError::BadProtocol {
        given: given.to_owned(),
        protocol: word.to_owned(),
        known: "`http`, or leave it out",
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn the_forms_of_the_contract_are_read() {
        let web = parse(Role::Ingress, "web=:8080/http").unwrap();
        assert_eq!((web.address, web.protocol), (None, Some(Protocol::Http)));
        let db = parse(Role::Downstream, "order-db=[::1]:3306").unwrap();
        assert_eq!(db.address, Some(Cidr { address: "::1".parse().unwrap(), prefix: 128 }));
        assert_eq!(db.ports, Some(PortRange { first: 3306, last: 3306 }));
        let mapped = parse(Role::Downstream, "db=[::ffff:10.0.0.1]:80").unwrap();
        assert_eq!(mapped.address, Some(Cidr { address: "10.0.0.1".parse().unwrap(), prefix: 32 }));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_to_write() {
        let text = |role, given: &str| parse(role, given).unwrap_err().to_string();
        assert_eq!(text(Role::Ingress, ":8080"), "`:8080` has no name: write `web=:8080/http`");
        assert_eq!(text(Role::Downstream, "db=10.0.0.1"), "`db=10.0.0.1` has no port: write `db=10.0.0.5:3306`");
        assert_eq!(
            text(Role::Downstream, "db=:3306"),
            "`db=:3306`: a downstream edge needs the peer's address: write `db=10.0.0.5:3306`"
        );
        assert_eq!(text(Role::Ingress, "w=:70000"), "`70000` in `w=:70000` is no port; ports are 1 to 65535");
        assert_eq!(
            text(Role::Ingress, "w=::1:80"),
            "`::1` in `w=::1:80` is no address; write an IPv4 address or a bracketed IPv6 one, as `[::1]:8080`"
        );
        assert!(text(Role::Ingress, "w=:80/gopher").contains("`gopher`"));
    }
}
