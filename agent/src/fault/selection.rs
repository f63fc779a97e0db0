//! From an edge and a direction to the packets of one hook, in the packet's own terms: source and destination.

use std::net::IpAddr;

use stormdrill_core::edge::{Cidr, EdgeSpec, PortRange, Role};
use stormdrill_core::fault::{Select, Transport};
use stormdrill_core::units::share;
use stormdrill_wire::fault::{
    ADDRESS_EXCLUDED, ADDRESS_INCLUDED, AddressKey, BY_DESTINATION_ADDRESS, BY_DESTINATION_PORT, BY_FLOW, BY_PEER_ADDRESS,
    BY_SOURCE_ADDRESS, BY_SOURCE_PORT, FAMILY_BITS, MANAGEMENT_SELECTED, MEMBERS_RECEIVE, MEMBERS_SEND, PORT_WORDS, PORTLESS_SELECTED,
    UNLISTED_ADDRESS_SELECTED, UNLISTED_PEER_SELECTED, ipv4_key, ipv6_key,
};

use super::filter::Hook;

/// Which end of a packet an edge's address and ports are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// The packets that a classifier selects. All conditions hold together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// IP protocol number; `None` for any.
    pub protocol: Option<u8>,
    /// The end that `ports` and `addresses` speak of.
    pub end: End,
    /// Ports that are selected; empty for all, and for protocols without any.
    pub ports: Vec<PortRange>,
    /// Networks that are selected; empty for all.
    pub addresses: Vec<Cidr>,
    /// Ports that are spared, whatever includes them.
    pub spared_ports: Vec<PortRange>,
    /// Networks that are spared, whatever includes them.
    pub spared_addresses: Vec<Cidr>,
    /// Whether SSH, DHCP and neighbour discovery are selected like the rest.
    pub management: bool,
    /// Networks of the other end that are selected; empty for all.
    pub peers: Vec<Cidr>,
    /// Networks of the other end that are spared, whatever includes them.
    pub spared_peers: Vec<Cidr>,
    /// Only what sockets of a cgroup send or receive.
    pub members: Option<Sight>,
    /// Only a share of the connections.
    pub flows: Option<FlowShare>,
    /// TCP ports of this process, spared at either end with the other management traffic; 0 for none.
    pub own_ports: [u16; 4],
}

/// Where the sockets of a cgroup are seen: a packet that arrives has none yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// The selected packets themselves leave a socket of this host.
    Sent,
    /// Packets of the other direction do, and the connection is remembered.
    Answered,
}

/// A share of the connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowShare {
    /// Of 2^32 values of a connection's hash, so many are selected.
    pub threshold: u64,
    /// Seed of the hash; the same in both directions.
    pub seed: u64,
}

impl Selection {
    /// The packets of an edge that travel past one hook.
    #[must_use]
    pub fn of_edge(edge: &EdgeSpec, hook: Hook) -> Self {
        let end = match (edge.role, hook) {
            // A downstream edge is its peer: packets go to it, and come from it.
            (Role::Downstream, Hook::Egress) | (Role::Ingress, Hook::Ingress) => End::Destination,
            (Role::Downstream, Hook::Ingress) | (Role::Ingress, Hook::Egress) => End::Source,
        };
        Self::new(edge, end, None)
    }

    /// The TCP segments that carry an edge's answers: they come from its port, whichever hook they pass.
    #[must_use]
    pub fn of_answers(edge: &EdgeSpec) -> Self {
        Self::new(edge, End::Source, Some(6))
    }

    fn new(edge: &EdgeSpec, end: End, protocol: Option<u8>) -> Self {
        Self {
            protocol,
            end,
            ports: edge.ports.into_iter().collect(),
            addresses: edge.address.into_iter().collect(),
            spared_ports: Vec::new(),
            spared_addresses: Vec::new(),
            management: false,
            peers: Vec::new(),
            spared_peers: Vec::new(),
            members: None,
            flows: None,
            own_ports: [0; 4],
        }
    }

    /// The same packets, narrowed by what a fault's `select` says.
    #[must_use]
    pub fn narrowed(mut self, select: &Select) -> Self {
        if !select.addresses.is_empty() {
            self.addresses.clone_from(&select.addresses);
        }
        if !select.ports.is_empty() {
            self.ports.clone_from(&select.ports);
        }
        self.protocol = select.protocol.map(Transport::number).or(self.protocol);
        self.spared_ports.clone_from(&select.exclude_ports);
        self.spared_addresses.clone_from(&select.exclude_addresses);
        self.management = select.include_management;
        self.peers.clone_from(&select.peers);
        self.spared_peers.clone_from(&select.exclude_peers);
        self
    }

    /// The same packets, of a share of the connections.
    #[must_use]
    pub fn of_flows(mut self, threshold: Option<u64>, seed: u64) -> Self {
        self.flows = threshold.map(|threshold| FlowShare { threshold, seed });
        self
    }

    /// The same packets, but for those of this process's own listeners.
    #[must_use]
    pub fn sparing(mut self, ports: &[u16]) -> Self {
        for (own, port) in self.own_ports.iter_mut().zip(ports) {
            *own = *port;
        }
        self
    }

    /// The same packets, of the sockets of a cgroup.
    #[must_use]
    pub const fn of_members(mut self, sight: Option<Sight>) -> Self {
        self.members = sight;
        self
    }

    /// The rule's bits.
    pub(crate) fn flags(&self) -> u32 {
        let (port, address) = match self.end {
            End::Source => (BY_SOURCE_PORT, BY_SOURCE_ADDRESS),
            End::Destination => (BY_DESTINATION_PORT, BY_DESTINATION_ADDRESS),
        };
        let mut flags = 0;
        // Without ports of its own, a selection that spares some has all others in the bitmap; so has the trie with addresses.
        if !self.ports.is_empty() || !self.spared_ports.is_empty() {
            flags |= port;
        }
        if self.ports.is_empty() && !self.spared_ports.is_empty() {
            flags |= PORTLESS_SELECTED;
        }
        if !self.addresses.is_empty() || !self.spared_addresses.is_empty() {
            flags |= address;
        }
        if self.addresses.is_empty() && !self.spared_addresses.is_empty() {
            flags |= UNLISTED_ADDRESS_SELECTED;
        }
        if self.management {
            flags |= MANAGEMENT_SELECTED;
        }
        if !self.peers.is_empty() || !self.spared_peers.is_empty() {
            flags |= BY_PEER_ADDRESS;
        }
        if self.peers.is_empty() && !self.spared_peers.is_empty() {
            flags |= UNLISTED_PEER_SELECTED;
        }
        flags |= match self.members {
            Some(Sight::Sent) => MEMBERS_SEND,
            Some(Sight::Answered) => MEMBERS_RECEIVE,
            None => 0,
        };
        if self.flows.is_some() {
            flags |= BY_FLOW;
        }
        flags
    }

    /// The words of the port bitmap that are not zero.
    pub(crate) fn port_words(&self) -> Vec<(u32, u64)> {
        let first_word = match self.end {
            End::Source => 0,
            End::Destination => PORT_WORDS,
        };
        let all = if self.ports.is_empty() && !self.spared_ports.is_empty() { u64::MAX } else { 0 };
        let mut words = vec![all; PORT_WORDS as usize];
        for port in self.ports.iter().flat_map(|range| range.first..=range.last) {
            if let Some(word) = words.get_mut(usize::from(port >> 6)) {
                *word |= 1 << (port & 63);
            }
        }
        // What is spared comes last, so that it wins.
        for port in self.spared_ports.iter().flat_map(|range| range.first..=range.last) {
            if let Some(word) = words.get_mut(usize::from(port >> 6)) {
                *word &= !(1 << (port & 63));
            }
        }
        (first_word..).zip(words).filter(|(_, word)| *word != 0).collect()
    }

    /// The entries of the prefix trie: length in bits, key, what it says.
    pub(crate) fn prefixes(&self) -> Vec<(u32, AddressKey, u8)> {
        entries(&self.addresses, &self.spared_addresses)
    }

    /// The same of the other end.
    pub(crate) fn peer_prefixes(&self) -> Vec<(u32, AddressKey, u8)> {
        entries(&self.peers, &self.spared_peers)
    }

    /// In words, for `plan`.
    #[must_use]
    pub fn describe(&self) -> String {
        let protocol = match self.protocol {
            Some(6) => "TCP segments".to_owned(),
            Some(17) => "UDP packets".to_owned(),
            Some(number) => format!("packets of IP protocol {number}"),
            None if self.ports.is_empty() => "IP packets".to_owned(),
            None => "TCP and UDP packets".to_owned(),
        };
        let preposition = match self.end {
            End::Source => "from",
            End::Destination => "to",
        };
        let mut text = protocol;
        if !self.addresses.is_empty() {
            let networks: Vec<String> = self.addresses.iter().map(describe_network).collect();
            text = format!("{text} {preposition} {}", networks.join(", "));
        }
        if !self.ports.is_empty() {
            let ports: Vec<String> = self
                .ports
                .iter()
                .map(|range| if range.first == range.last { range.first.to_string() } else { format!("{}-{}", range.first, range.last) })
                .collect();
            text = format!("{text} {preposition} port {}", ports.join(", "));
        }
        if !self.peers.is_empty() {
            let peers: Vec<String> = self.peers.iter().map(describe_network).collect();
            text = format!("{text} with peers in {}", peers.join(", "));
        }
        if self.members.is_some() {
            text.push_str(" of the cgroup's sockets");
        }
        if let Some(flows) = self.flows {
            text = format!("{text} on {} of the connections", share::print_units(flows.threshold));
        }
        let networks = self.spared_addresses.iter().chain(&self.spared_peers).map(describe_network);
        let ports = self.spared_ports.iter().map(|range| format!("port {range}"));
        let spared: Vec<String> = networks.chain(ports).collect();
        if !spared.is_empty() {
            text = format!("{text}, but not {}", spared.join(", "));
        }
        text
    }
}

fn entries(included: &[Cidr], spared: &[Cidr]) -> Vec<(u32, AddressKey, u8)> {
    let entry = |network: &Cidr, value| {
        let (key, prefix) = key(network);
        (FAMILY_BITS + prefix, key, value)
    };
    // The trie tells by the longest prefix. One that lies within a spared network must not undo it, and is left out.
    let is_spared = |network: &Cidr| spared.iter().any(|spared| spared.covers(network));
    let included = included.iter().filter(|network| !is_spared(network)).map(|network| entry(network, ADDRESS_INCLUDED));
    included.chain(spared.iter().map(|network| entry(network, ADDRESS_EXCLUDED))).collect()
}

fn describe_network(network: &Cidr) -> String {
    let whole = if network.address.is_ipv4() { 32 } else { 128 };
    if network.prefix == whole { network.address.to_string() } else { format!("{}/{}", network.address, network.prefix) }
}

/// A network's key and its prefix within the address. An IPv4-mapped IPv6 network is the IPv4 network.
fn key(network: &Cidr) -> (AddressKey, u32) {
    let prefix = u32::from(network.prefix);
    match network.address {
        IpAddr::V4(address) => (ipv4_key(address.octets()), prefix),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) if prefix >= 96 => (ipv4_key(mapped.octets()), prefix - 96),
            _ => (ipv6_key(address.octets()), prefix),
        },
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn edge(role: Role, address: Option<(&str, u8)>, ports: Option<(u16, u16)>) -> EdgeSpec {
        EdgeSpec {
            name: "e".to_owned(),
            role,
            address: address.map(|(address, prefix)| Cidr { address: address.parse().unwrap(), prefix }),
            ports: ports.map(|(first, last)| PortRange { first, last }),
            protocol: None,
        }
    }

    #[test]
    fn a_downstream_edge_is_its_peer_and_an_ingress_edge_its_own_port() {
        let downstream = edge(Role::Downstream, None, Some((3306, 3306)));
        let ingress = edge(Role::Ingress, None, Some((8080, 8080)));
        assert_eq!(Selection::of_edge(&downstream, Hook::Egress).end, End::Destination);
        assert_eq!(Selection::of_edge(&downstream, Hook::Ingress).end, End::Source);
        assert_eq!(Selection::of_edge(&ingress, Hook::Egress).end, End::Source);
        assert_eq!(Selection::of_edge(&ingress, Hook::Ingress).end, End::Destination);
        assert_eq!(Selection::of_answers(&downstream).end, End::Source);
        assert_eq!(Selection::of_answers(&ingress).end, End::Source);
    }

    #[test]
    fn the_last_port_and_whole_ranges_are_in_the_bitmap() {
        let selection = Selection::of_edge(&edge(Role::Downstream, None, Some((65_472, 65_535))), Hook::Egress);
        assert_eq!(selection.port_words(), [(PORT_WORDS + 1023, u64::MAX)]);
        let all = Selection::of_edge(&edge(Role::Downstream, None, Some((0, 65_535))), Hook::Ingress);
        assert_eq!(all.port_words().len(), 1024);
        let one = Selection::of_edge(&edge(Role::Downstream, None, Some((80, 80))), Hook::Ingress);
        assert_eq!(one.port_words(), [(1, 1 << 16)]);
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        let mapped = Selection::of_edge(&edge(Role::Downstream, Some(("::ffff:10.0.0.0", 104)), None), Hook::Egress);
        let plain = Selection::of_edge(&edge(Role::Downstream, Some(("10.0.0.0", 8)), None), Hook::Egress);
        assert_eq!(mapped.prefixes(), plain.prefixes());
    }

    #[test]
    fn a_selection_reads_in_words() {
        let selection = Selection::of_edge(&edge(Role::Downstream, Some(("10.2.0.0", 16)), Some((6379, 6380))), Hook::Egress);
        assert_eq!(selection.describe(), "TCP and UDP packets to 10.2.0.0/16 to port 6379-6380");
        let answers = Selection::of_answers(&edge(Role::Downstream, Some(("::1", 128)), Some((80, 80))));
        assert_eq!(answers.describe(), "TCP segments from ::1 from port 80");
    }
}
