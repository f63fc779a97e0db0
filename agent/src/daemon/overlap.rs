//! Whether two drills would disturb the same traffic.

use stormdrill_core::edge::{Cidr, EdgeSpec};

/// An edge that a fault is aimed at, and the inode of the network namespace that its packets are in: the same addresses in another one are another
/// target. `None` for a namespace that cannot be opened; its drill ends before it disturbs anything.
pub type Target = (Option<u64>, EdgeSpec);

/// Whether two drills of this host disturb the same: some connection belongs to a target of each, in one network namespace.
#[must_use]
pub fn targets_overlap(these: &[Target], those: &[Target]) -> bool {
    let same = |a: &Target, b: &Target| a.0.is_some() && a.0 == b.0 && edges(&a.1, &b.1);
    these.iter().any(|this| those.iter().any(|that| same(this, that)))
}

/// Whether some connection belongs to a target of each. Roles are not compared: on one host, what leaves for a port arrives at it.
#[must_use]
pub fn overlap(these: &[EdgeSpec], those: &[EdgeSpec]) -> bool {
    these.iter().any(|this| those.iter().any(|that| edges(this, that)))
}

fn edges(a: &EdgeSpec, b: &EdgeSpec) -> bool {
    let ports = match (a.ports, b.ports) {
        (Some(a), Some(b)) => a.first <= b.last && b.first <= a.last,
        _ => true,
    };
    ports
        && match (a.address, b.address) {
            (Some(a), Some(b)) => networks(a, b),
            _ => true,
        }
}

/// Two networks share an address if their bits agree up to the shorter prefix.
fn networks(a: Cidr, b: Cidr) -> bool {
    if a.address.is_ipv4() != b.address.is_ipv4() {
        return false;
    }
    let prefix = u32::from(a.prefix.min(b.prefix));
    // IPv4 addresses are shifted up, so that both families count from the highest bit.
    prefix == 0 || (bits(a) ^ bits(b)) >> (128 - prefix.min(128)) == 0
}

const fn bits(network: Cidr) -> u128 {
    match network.address {
        std::net::IpAddr::V4(v4) => (v4.to_bits() as u128) << 96,
        std::net::IpAddr::V6(v6) => v6.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use stormdrill_core::edge::{PortRange, Role};

    use super::*;

    fn edge(address: Option<(&str, u8)>, ports: Option<(u16, u16)>) -> EdgeSpec {
        EdgeSpec {
            name: "e".to_owned(),
            role: Role::Downstream,
            address: address.map(|(text, prefix)| Cidr { address: text.parse().unwrap(), prefix }),
            ports: ports.map(|(first, last)| PortRange { first, last }),
            protocol: None,
        }
    }

    #[test]
    fn targets_overlap_when_a_connection_can_be_of_both() {
        for (a, b, expected) in [
            ((Some(("10.2.0.0", 16)), None), (Some(("10.2.9.9", 32)), Some((1, 1))), true),
            ((Some(("10.2.0.0", 16)), None), (Some(("10.3.0.0", 16)), None), false),
            ((Some(("10.2.0.0", 16)), None), (Some(("0.0.0.0", 0)), None), true),
            ((Some(("10.2.0.0", 16)), Some((80, 90))), (Some(("10.2.0.0", 16)), Some((90, 99))), true),
            ((Some(("10.2.0.0", 16)), Some((80, 89))), (Some(("10.2.0.0", 16)), Some((90, 99))), false),
            ((None, Some((80, 80))), (Some(("::1", 128)), Some((80, 80))), true),
            ((Some(("::1", 128)), None), (Some(("127.0.0.1", 32)), None), false),
        ] {
            let (a, b) = (edge(a.0, a.1), edge(b.0, b.1));
            assert_eq!(overlap(std::slice::from_ref(&a), std::slice::from_ref(&b)), expected, "{a:?} {b:?}");
            assert_eq!(overlap(&[b], &[a]), expected);
        }
    }

    #[test]
    fn the_same_address_in_another_network_namespace_is_another_target() {
        let at = |namespace| [(namespace, edge(Some(("10.2.0.0", 16)), Some((80, 80))))];
        assert!(targets_overlap(&at(Some(1)), &at(Some(1))));
        assert!(!targets_overlap(&at(Some(1)), &at(Some(2))));
        assert!(!targets_overlap(&at(None), &at(None)));
    }

    #[test]
    fn a_drill_without_faults_overlaps_with_nothing() {
        assert!(!overlap(&[], &[edge(None, None)]));
    }
}
