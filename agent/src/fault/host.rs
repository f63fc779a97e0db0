//! Host names in a selection: resolved once, before anything is changed, so that the fault does not follow a name that changes.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};

use stormdrill_core::edge::{Cidr, EdgeSpec};
use stormdrill_core::fault::Select;
use thiserror::Error;

/// Why a name cannot be selected by.
#[derive(Debug, Error)]
pub enum HostError {
    /// The resolver does not know it.
    #[error("select: resolve {name}")]
    Unresolved {
        /// The name.
        name: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Another host than the edge's.
    #[error("select: {name} is {address}, which lies outside of the edge {edge}")]
    Outside {
        /// The name.
        name: String,
        /// What it stands for.
        address: IpAddr,
        /// The edge.
        edge: String,
    },
}

/// The addresses that a name stands for, each once.
///
/// # Errors
/// What the resolver says.
pub fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let mut found: Vec<IpAddr> = (name, 0).to_socket_addrs()?.map(|address| address.ip().to_canonical()).collect();
    found.sort_unstable();
    found.dedup();
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
}

/// The selection with addresses in the place of names.
///
/// # Errors
/// When a name cannot be resolved, or is no part of the edge. A spared one may be elsewhere.
pub(crate) fn resolved(select: &Select, edge: &EdgeSpec) -> Result<Select, HostError> {
    let mut select = select.clone();
    for name in std::mem::take(&mut select.hosts) {
        for address in look_up(&name)? {
            let network = whole(address);
            if edge.address.is_some_and(|outer| !outer.covers(&network)) {
                return Err(HostError::Outside { name, address, edge: edge.name.clone() });
            }
            select.addresses.push(network);
        }
    }
    for name in std::mem::take(&mut select.exclude_hosts) {
        select.exclude_addresses.extend(look_up(&name)?.into_iter().map(whole));
    }
    Ok(select)
}

fn look_up(name: &str) -> Result<Vec<IpAddr>, HostError> {
    addresses(name).map_err(|source| HostError::Unresolved { name: name.to_owned(), source })
}

const fn whole(address: IpAddr) -> Cidr {
    Cidr { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use stormdrill_core::edge::Role;

    use super::*;

    fn edge(network: Option<(&str, u8)>) -> EdgeSpec {
        let address = network.map(|(address, prefix)| Cidr { address: address.parse().unwrap(), prefix });
        EdgeSpec { name: "store".to_owned(), role: Role::Downstream, address, ports: None, protocol: None }
    }

    #[test]
    fn a_name_becomes_its_addresses_and_must_be_of_the_edge() {
        let select = Select { hosts: vec!["localhost".to_owned()], exclude_hosts: vec!["localhost".to_owned()], ..Select::default() };
        let found = resolved(&select, &edge(None)).unwrap();
        assert!(found.hosts.is_empty() && found.exclude_hosts.is_empty());
        assert!(found.addresses.iter().all(|network| network.address.is_loopback()) && !found.addresses.is_empty());
        assert_eq!(found.addresses, found.exclude_addresses);
        let error = resolved(&select, &edge(Some(("10.0.0.0", 8)))).unwrap_err();
        assert!(error.to_string().ends_with("lies outside of the edge store"), "{error}");
        let nobody = Select { hosts: vec!["nobody.invalid".to_owned()], ..Select::default() };
        assert!(matches!(resolved(&nobody, &edge(None)), Err(HostError::Unresolved { .. })));
    }
}
