//! Edges as the kernel matches them.

use std::net::{IpAddr, SocketAddr};

use stormdrill_core::edge::{Cidr, EdgeSpec, Protocol, Role};
use stormdrill_wire::abi::{EdgeRule, MAX_NAMED_EDGES, Rules, protocol, role};

use super::ProbeError;

const NO_RULE: EdgeRule = EdgeRule { address: [0; 4], mask: [0; 4], port_first: 0, port_last: 0, role: 0, protocol: 0, flags: 0, edge: 0 };

/// The rules of the edges, in their order.
pub(super) fn of_edges(edges: &[EdgeSpec]) -> Result<Rules, ProbeError> {
    let too_many = || ProbeError::TooManyEdges { given: edges.len(), most: MAX_NAMED_EDGES };
    let mut rules = Rules { rules: [NO_RULE; MAX_NAMED_EDGES] };
    for (index, edge) in edges.iter().enumerate() {
        let rule = rules.rules.get_mut(index).ok_or_else(too_many)?;
        *rule = of_edge(edge, u8::try_from(index).map_err(|_| too_many())?);
    }
    Ok(rules)
}

fn of_edge(edge: &EdgeSpec, index: u8) -> EdgeRule {
    let (address, mask, flags) = edge.address.map_or(([0; 4], [0; 4], 0), network);
    EdgeRule {
        address,
        mask,
        port_first: edge.ports.map_or(0, |ports| ports.first),
        port_last: edge.ports.map_or(u16::MAX, |ports| ports.last),
        role: role_code(edge.role),
        protocol: match edge.protocol {
            None => protocol::ANY,
            Some(Protocol::Http) => protocol::HTTP1,
            Some(Protocol::Http2 | Protocol::Grpc) => protocol::HTTP2,
            Some(Protocol::Redis) => protocol::REDIS,
            Some(Protocol::Mysql) => protocol::MYSQL,
            Some(Protocol::Postgres) => protocol::POSTGRES,
            Some(Protocol::Tls) => protocol::TLS,
        },
        flags,
        edge: index,
    }
}

pub(super) const fn role_code(role: Role) -> u8 {
    match role {
        Role::Ingress => role::INGRESS,
        Role::Downstream => role::DOWNSTREAM,
    }
}

/// Address, mask and flags of a network; IPv4 as the IPv4-mapped part of IPv6.
fn network(cidr: Cidr) -> ([u32; 4], [u32; 4], u8) {
    let (address, prefix, flags) = match cidr.address {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped(), u32::from(cidr.prefix.min(32)) + 96, 0),
        IpAddr::V6(v6) => (v6, u32::from(cidr.prefix.min(128)), if v6.to_ipv4_mapped().is_some() { 0 } else { EdgeRule::NOT_MAPPED }),
    };
    let ones = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
    (words(address.to_bits() & ones), words(ones), flags)
}

/// Four words in network byte order, as they lie in a packet.
fn words(bits: u128) -> [u32; 4] {
    let bytes = bits.to_be_bytes();
    std::array::from_fn(|i| u32::from_ne_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]]))
}

/// Whether a rule matches, as the kernel decides it.
pub(super) fn matches(rule: &EdgeRule, role: u8, end: SocketAddr) -> bool {
    let address = match end.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mapped = address.to_ipv4_mapped().is_some();
    let differs = words(address.to_bits()).iter().zip(rule.address).zip(rule.mask).any(|((a, b), mask)| (a ^ b) & mask != 0);
    rule.role == role
        && (rule.port_first..=rule.port_last).contains(&end.port())
        && !differs
        && !(mapped && rule.flags & EdgeRule::NOT_MAPPED != 0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use stormdrill_core::edge::PortRange;

    use super::*;

    fn edge(address: Option<(&str, u8)>, ports: Option<(u16, u16)>) -> EdgeRule {
        of_edge(
            &EdgeSpec {
                name: "e".to_owned(),
                role: Role::Downstream,
                address: address.map(|(text, prefix)| Cidr { address: text.parse().unwrap(), prefix }),
                ports: ports.map(|(first, last)| PortRange { first, last }),
                protocol: None,
            },
            3,
        )
    }

    fn hits(rule: &EdgeRule, end: &str) -> bool {
        matches(rule, role::DOWNSTREAM, end.parse().unwrap())
    }

    #[test]
    fn a_mapped_peer_matches_as_ipv4() {
        let rule = edge(Some(("10.2.0.0", 16)), Some((6379, 6380)));
        assert!(hits(&rule, "10.2.9.9:6380"));
        assert!(hits(&rule, "[::ffff:10.2.9.9]:6379"));
        assert!(!hits(&rule, "10.3.9.9:6379"));
        assert!(!hits(&rule, "10.2.9.9:6381"));
    }

    #[test]
    fn an_ipv6_network_does_not_take_mapped_peers() {
        let rule = edge(Some(("::", 0)), None);
        assert!(hits(&rule, "[2001:db8::1]:80"));
        assert!(!hits(&rule, "10.0.0.1:80"));
    }

    #[test]
    fn no_address_takes_both_families() {
        let rule = edge(None, Some((80, 80)));
        assert!(hits(&rule, "[2001:db8::1]:80") && hits(&rule, "10.0.0.1:80"));
    }

    #[test]
    fn prefixes_from_0_to_128_make_masks() {
        assert_eq!(edge(Some(("1.2.3.4", 32)), None).mask, [u32::MAX; 4]);
        assert_eq!(edge(Some(("1.2.3.4", 0)), None).mask, [u32::MAX, u32::MAX, u32::MAX, 0]);
        assert_eq!(edge(Some(("::", 0)), None).mask, [0; 4]);
    }

    #[test]
    fn more_edges_than_slots_are_refused() {
        let one = EdgeSpec { name: "e".to_owned(), role: Role::Ingress, address: None, ports: None, protocol: None };
        assert!(of_edges(&vec![one.clone(); MAX_NAMED_EDGES]).is_ok());
        assert!(matches!(of_edges(&vec![one; MAX_NAMED_EDGES + 1]), Err(ProbeError::TooManyEdges { given: 63, most: 62 })));
    }
}
