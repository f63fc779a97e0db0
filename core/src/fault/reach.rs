//! Which packets a fault can meet at all, as sets: whether there are any, and whether two faults have some in common.
//!
//! What only the host knows stays open: a host name is anything within its edge, and whose sockets a container or a process has is anybody's
//! guess, until the fault is prepared.

use std::net::IpAddr;

use super::{FaultSpec, Members, Select, Transport};
use crate::edge::{Cidr, EdgeSpec, PortRange};

/// Ports that a fault spares unless it includes management traffic, whatever the host: SSH's of TCP, DHCP's of UDP.
const SPARED_TCP: [u16; 1] = [22];
const SPARED_UDP: [u16; 4] = [67, 68, 546, 547];

/// Whole numbers, as inclusive ranges in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Set(Vec<(u128, u128)>);

impl Set {
    fn of(ranges: impl IntoIterator<Item = (u128, u128)>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    fn without(&self, spared: &Self) -> Self {
        let mut left = Vec::new();
        for &(first, last) in &self.0 {
            let mut from = Some(first);
            for &(start, end) in spared.from(first).take_while(|(start, _)| *start <= last) {
                let Some(begin) = from else { break };
                if start > begin {
                    left.push((begin, start - 1));
                }
                from = if end >= last { None } else { Some(end + 1) };
            }
            left.extend(from.map(|begin| (begin, last)));
        }
        Self(left)
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().any(|(first, last)| other.from(*first).next().is_some_and(|(start, _)| start <= last))
    }

    /// The ranges that do not end before a number.
    fn from(&self, first: u128) -> std::slice::Iter<'_, (u128, u128)> {
        // They are in order and apart, so that their ends are in order, too.
        self.0.get(self.0.partition_point(|(_, end)| *end < first)..).unwrap_or_default().iter()
    }

    const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Addresses of both families.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Addresses {
    four: Set,
    six: Set,
}

impl Addresses {
    fn of(networks: &[Cidr]) -> Self {
        let (mut four, mut six) = (Vec::new(), Vec::new());
        for network in networks {
            match network.address {
                IpAddr::V4(address) => four.push(span(u128::from(address.to_bits()), 32, network.prefix)),
                // An IPv4-mapped network is the IPv4 network.
                IpAddr::V6(address) => match address.to_ipv4_mapped() {
                    Some(mapped) if network.prefix >= 96 => four.push(span(u128::from(mapped.to_bits()), 32, network.prefix - 96)),
                    _ => six.push(span(address.to_bits(), 128, network.prefix)),
                },
            }
        }
        Self { four: Set::of(four), six: Set::of(six) }
    }

    fn all() -> Self {
        Self { four: Set(vec![(0, u32::MAX.into())]), six: Set(vec![(0, u128::MAX)]) }
    }

    /// The listed networks, or all addresses where none is, without the spared ones.
    fn selected(listed: &[Cidr], spared: &[Cidr]) -> Self {
        let (all, spared) = (if listed.is_empty() { Self::all() } else { Self::of(listed) }, Self::of(spared));
        Self { four: all.four.without(&spared.four), six: all.six.without(&spared.six) }
    }

    const fn is_empty(&self) -> bool {
        self.four.is_empty() && self.six.is_empty()
    }
}

/// First and last address of a network.
fn span(address: u128, bits: u8, prefix: u8) -> (u128, u128) {
    let free = bits.saturating_sub(prefix);
    let hosts = if free >= 128 { u128::MAX } else { (1 << free) - 1 };
    (address & !hosts, address | hosts)
}

/// A kind of packet, as far as a selection tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Of(Transport),
    Other,
}

const KINDS: [Kind; 5] =
    [Kind::Of(Transport::Tcp), Kind::Of(Transport::Udp), Kind::Of(Transport::Icmp), Kind::Of(Transport::Icmpv6), Kind::Other];

/// What a fault can meet.
#[derive(Debug, Clone)]
struct Reach<'s> {
    near: Addresses,
    far: Addresses,
    ports: Set,
    /// Whether ports are asked for or spared, or neither.
    has_ports: bool,
    /// Whether packets without ports are selected too.
    portless: bool,
    only: Option<Transport>,
    select: &'s Select,
}

impl<'s> Reach<'s> {
    fn of(spec: &'s FaultSpec, edge: &EdgeSpec) -> Self {
        let select = &spec.select;
        // What a name stands for is not known here: anything within the edge.
        let listed = if select.addresses.is_empty() || !select.hosts.is_empty() { edge.address.as_slice() } else { &select.addresses };
        let ports = if select.ports.is_empty() { edge.ports.as_slice() } else { &select.ports };
        let all = if ports.is_empty() { Set(vec![(0, u16::MAX.into())]) } else { numbers(ports) };
        Self {
            near: Addresses::selected(listed, &select.exclude_addresses),
            far: Addresses::selected(&select.peers, &select.exclude_peers),
            ports: all.without(&numbers(&select.exclude_ports)),
            has_ports: !ports.is_empty() || !select.exclude_ports.is_empty(),
            portless: ports.is_empty(),
            only: if spec.kind.is_of_packets() { select.protocol } else { Some(Transport::Tcp) },
            select,
        }
    }

    /// The ports of a kind of packet; `None` where it has none.
    fn ports_of(&self, kind: Kind) -> Option<Set> {
        let spared: &[u16] = match kind {
            Kind::Of(Transport::Tcp) => &SPARED_TCP,
            Kind::Of(Transport::Udp) => &SPARED_UDP,
            Kind::Of(Transport::Icmp | Transport::Icmpv6) | Kind::Other => return None,
        };
        let spared = if self.select.include_management { &[] } else { spared };
        Some(self.ports.without(&Set::of(spared.iter().map(|port| (u128::from(*port), u128::from(*port))))))
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        KINDS.into_iter().filter(|kind| self.only.is_none_or(|only| *kind == Kind::Of(only)))
    }

    fn families(&self, kind: Kind) -> [bool; 2] {
        let four = !self.near.four.is_empty() && !self.far.four.is_empty() && kind != Kind::Of(Transport::Icmpv6);
        let six = !self.near.six.is_empty() && !self.far.six.is_empty() && kind != Kind::Of(Transport::Icmp);
        [four, six]
    }
}

fn numbers(ports: &[PortRange]) -> Set {
    Set::of(ports.iter().map(|range| (u128::from(range.first), u128::from(range.last))))
}

/// Why a selection has no packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nothing {
    /// All its addresses are spared.
    Addresses,
    /// All its ports are spared.
    Ports,
    /// All callers are spared.
    Peers,
    /// Its ends are of different families.
    Families,
    /// The protocol is of the other family than the addresses.
    Protocol,
    /// Its ports are SSH's or DHCP's, which are spared unless management traffic is included.
    Management,
}

/// Why a fault can meet no packet; `None` if it can.
#[must_use]
pub fn nothing(spec: &FaultSpec, edge: &EdgeSpec) -> Option<Nothing> {
    let reach = Reach::of(spec, edge);
    if reach.near.is_empty() {
        return Some(Nothing::Addresses);
    }
    if reach.far.is_empty() {
        return Some(Nothing::Peers);
    }
    if reach.ports.is_empty() && (!reach.portless || reach.only.is_some_and(Transport::has_ports)) {
        return Some(Nothing::Ports);
    }
    let is_in_a_family = |kind: &Kind| reach.families(*kind).contains(&true);
    if !KINDS.iter().any(|kind| *kind == Kind::Other && is_in_a_family(kind)) {
        return Some(Nothing::Families);
    }
    if !reach.kinds().any(|kind| is_in_a_family(&kind)) {
        return Some(Nothing::Protocol);
    }
    let has_port = |kind: Kind| reach.ports_of(kind).is_none_or(|ports| !ports.is_empty());
    // Without a protocol, a TCP port means the edge's requests: that UDP has the same number is not what anybody means.
    let meant = reach.only.unwrap_or(Transport::Tcp);
    (meant.has_ports() && reach.has_ports && !has_port(Kind::Of(meant))).then_some(Nothing::Management)
}

/// Whether a packet can be in both selections, each with the edge that it narrows.
///
/// Edges of different roles speak of different ends of a connection: one can be both, but no drill means it.
#[must_use]
pub fn meet(a: (&FaultSpec, &EdgeSpec), b: (&FaultSpec, &EdgeSpec)) -> bool {
    !are_apart(a.0.select.members.as_ref(), b.0.select.members.as_ref()) && meet_whoever_sends(a, b)
}

/// The same without a look at whose sockets they are.
#[must_use]
pub fn meet_whoever_sends(a: (&FaultSpec, &EdgeSpec), b: (&FaultSpec, &EdgeSpec)) -> bool {
    if a.1.role != b.1.role {
        return false;
    }
    let (a, b) = (Reach::of(a.0, a.1), Reach::of(b.0, b.1));
    let families =
        [a.near.four.meets(&b.near.four) && a.far.four.meets(&b.far.four), a.near.six.meets(&b.near.six) && a.far.six.meets(&b.far.six)];
    let in_both = |kind: &Kind| b.kinds().any(|other| other == *kind);
    a.kinds().filter(in_both).any(|kind| {
        let family = families.into_iter().zip(a.families(kind)).zip(b.families(kind)).any(|((both, a), b)| both && a && b);
        let ports = match (a.ports_of(kind), b.ports_of(kind)) {
            (Some(a), Some(b)) => a.meets(&b),
            _ => a.portless && b.portless,
        };
        family && ports
    })
}

/// Whether two groups of processes have no socket in common, as far as can be told by their names. Of a process, and of a container beside a
/// cgroup, only the host knows which cgroup it is in: those are thought to be apart here, and compared when they are found.
#[must_use]
pub fn are_apart(a: Option<&Members>, b: Option<&Members>) -> bool {
    match (a, b) {
        (None, _) | (_, None) => false,
        (Some(Members::Cgroup(a)), Some(Members::Cgroup(b))) => !lies_in(a, b) && !lies_in(b, a),
        // Either may be written with less of the id.
        (Some(Members::Container(a)), Some(Members::Container(b))) => !a.starts_with(b.as_str()) && !b.starts_with(a.as_str()),
        (Some(a), Some(b)) => a != b,
    }
}

fn lies_in(inner: &str, outer: &str) -> bool {
    let [inner, outer] = [inner, outer].map(|path| path.trim_matches('/'));
    outer.is_empty() || inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spared_is_taken_out_of_ranges_wherever_it_lies() {
        let set = |ranges: &[(u128, u128)]| Set::of(ranges.iter().copied());
        let all = set(&[(0, 9), (20, 29)]);
        assert_eq!(all.without(&set(&[(3, 4), (8, 21), (29, 40)])), set(&[(0, 2), (5, 7), (22, 28)]));
        assert!(all.without(&set(&[(0, 15), (16, u128::MAX)])).is_empty());
        assert_eq!(set(&[(5, 6), (0, 4), (2, 3)]), set(&[(0, 6)]));
        assert!(set(&[(0, u128::MAX)]).without(&set(&[(0, u128::MAX)])).is_empty());
        assert_eq!(all.without(&Set::default()), all);
    }

    #[test]
    fn groups_of_processes_are_apart_unless_one_lies_in_the_other_or_only_the_host_can_tell() {
        let cgroup = |path: &str| Some(Members::Cgroup(path.to_owned()));
        let container = |id: &str| Some(Members::Container(id.to_owned()));
        for (a, b, expected) in [
            (cgroup("a.slice/x"), cgroup("a.slice/y"), true),
            (cgroup("a.slice"), cgroup("a.slice/y"), false),
            (cgroup("a.slice"), cgroup("a.slice-2"), true),
            (cgroup("a"), None, false),
            (container("0123456789ab"), container("0123456789abcdef"), false),
            (container("0123456789ab"), container("0123456789ac"), true),
            (Some(Members::Pid(1)), Some(Members::Pid(2)), true),
            (Some(Members::Pid(1)), Some(Members::Pid(1)), false),
        ] {
            assert_eq!(are_apart(a.as_ref(), b.as_ref()), expected, "{a:?} {b:?}");
            assert_eq!(are_apart(b.as_ref(), a.as_ref()), expected, "{b:?} {a:?}");
        }
    }
}
