//! Whether a packet is the fault's: protocol, ports and address, all of them; and never what keeps the host reachable.

use aya_ebpf::programs::TcContext;
use stormdrill_wire::fault::{
    ADDRESS_INCLUDED, AddressKey, BY_DESTINATION_ADDRESS, BY_DESTINATION_PORT, BY_FLOW, BY_PEER_ADDRESS, BY_SOURCE_ADDRESS, BY_SOURCE_PORT,
    FaultRule, FaultStats, MANAGEMENT_SELECTED, MEMBERS_RECEIVE, MEMBERS_SEND, PORT_WORDS, PORTLESS_SELECTED, SPARED_ENDS,
    UNLISTED_ADDRESS_SELECTED, UNLISTED_PEER_SELECTED, mix,
};

use crate::maps;
use crate::packet::{self, ICMPV6, Packet, TCP, UDP, Unread};

/// A packet that matches the rule, whether or not the lease still holds.
pub struct Selected {
    pub packet: Packet,
    pub rule: &'static FaultRule,
    stats: *mut FaultStats,
}

impl Selected {
    /// Whether the lease holds; if not, that is counted.
    #[inline(always)]
    pub fn lease_holds(&self) -> bool {
        let holds = maps::is_leased();
        if !holds {
            // SAFETY: the pointer is this CPU's entry of a per-CPU map, valid for the run of the program.
            unsafe { (*self.stats).expired += 1 };
        }
        holds
    }

    #[inline(always)]
    pub fn count_selected(&self) {
        // SAFETY: as above.
        unsafe { (*self.stats).selected += 1 };
    }

    #[inline(always)]
    pub fn count_hit(&self) {
        // SAFETY: as above.
        unsafe { (*self.stats).hit += 1 };
    }
}

/// Whether the fault's own ifb sent the packet on: it puts its index where the index of the receiving device is.
#[inline(always)]
pub fn comes_from_ifb(ctx: &TcContext) -> bool {
    // SAFETY: the context is valid for the run of the program.
    let from = unsafe { (*ctx.skb.skb).ingress_ifindex };
    maps::rule().is_some_and(|rule| rule.ifb != 0 && rule.ifb == from)
}

/// Which of a packet's ends the rule's source is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The packet's own source.
    Along,
    /// The packet's destination: it travels the other way on the same connection.
    Back,
}

/// Reads the packet and matches it with the rule.
#[inline(always)]
pub fn selected(ctx: &TcContext) -> Option<Selected> {
    let read = read(ctx)?;
    if matches(ctx, &read.packet, read.rule, Way::Along) { Some(read) } else { None }
}

/// Reads the packet; it is not matched yet.
#[inline(always)]
pub fn read(ctx: &TcContext) -> Option<Selected> {
    let stats = maps::stats()?;
    let rule = maps::rule()?;
    // SAFETY: the pointer is this CPU's entry of a per-CPU map, valid for the run of the program.
    unsafe { (*stats).seen += 1 };
    match packet::read(ctx, rule.link_header) {
        Ok(packet) => Some(Selected { packet, rule, stats }),
        Err(Unread::NotIp) => None,
        Err(Unread::Short) => {
            // SAFETY: as above.
            unsafe { (*stats).unreadable += 1 };
            None
        }
    }
}

/// Whether the packet is one of the rule's.
#[inline(always)]
pub fn matches(ctx: &TcContext, packet: &Packet, rule: &FaultRule, way: Way) -> bool {
    let flags = rule.flags;
    if rule.protocol != 0 && rule.protocol != u32::from(packet.protocol) {
        return false;
    }
    let (source_port, destination_port) = match way {
        Way::Along => (packet.source_port, packet.destination_port),
        Way::Back => (packet.destination_port, packet.source_port),
    };
    if flags & (BY_SOURCE_PORT | BY_DESTINATION_PORT) != 0 {
        if !packet.has_ports {
            if flags & PORTLESS_SELECTED == 0 {
                return false;
            }
        } else if (flags & BY_SOURCE_PORT != 0 && !maps::port_listed(source_port, 0))
            || (flags & BY_DESTINATION_PORT != 0 && !maps::port_listed(destination_port, PORT_WORDS))
        {
            return false;
        }
    }
    if flags & MANAGEMENT_SELECTED == 0 && is_management(packet, rule) {
        return false;
    }
    // The end that the ports and the address are of, in this packet.
    let is_source = (flags & (BY_SOURCE_PORT | BY_SOURCE_ADDRESS) != 0) == (way == Way::Along);
    let (near, far) = if is_source { (&packet.source, &packet.destination) } else { (&packet.destination, &packet.source) };
    if flags & (BY_SOURCE_ADDRESS | BY_DESTINATION_ADDRESS) != 0
        && !maps::known_address(near).map_or(flags & UNLISTED_ADDRESS_SELECTED != 0, |value| value == ADDRESS_INCLUDED)
    {
        return false;
    }
    if flags & BY_PEER_ADDRESS != 0 && !maps::known_peer(far).map_or(flags & UNLISTED_PEER_SELECTED != 0, |value| value == ADDRESS_INCLUDED)
    {
        return false;
    }
    // Last of what costs a look-up: few packets get here.
    if flags & (SPARED_ENDS | MANAGEMENT_SELECTED) == SPARED_ENDS
        && packet.protocol == TCP
        && (maps::is_spared(&packet.source, packet.source_port) || maps::is_spared(&packet.destination, packet.destination_port))
    {
        return false;
    }
    if flags & (BY_FLOW | MEMBERS_SEND | MEMBERS_RECEIVE) == 0 {
        return true;
    }
    let flow = flow(packet, is_source);
    if flags & BY_FLOW != 0 && mix(rule.flow_seed, flow) >> 32 >= rule.flow_threshold {
        return false;
    }
    if flags & MEMBERS_SEND != 0 && way == Way::Along {
        return maps::is_sent_by_member(ctx);
    }
    if flags & MEMBERS_RECEIVE != 0 {
        if way == Way::Along {
            return maps::is_member(flow);
        }
        let is_member = maps::is_sent_by_member(ctx);
        if is_member {
            maps::remember_member(flow);
        }
        return is_member;
    }
    true
}

/// One number for the connection, the same from both directions: the end that the rule speaks of comes first.
#[inline(always)]
pub fn flow(packet: &Packet, is_source: bool) -> u64 {
    let (near, far, near_port, far_port) = if is_source {
        (&packet.source, &packet.destination, packet.source_port, packet.destination_port)
    } else {
        (&packet.destination, &packet.source, packet.destination_port, packet.source_port)
    };
    let ports = u64::from(packet.protocol) << 32 | u64::from(near_port) << 16 | u64::from(far_port);
    mix(address(address(0, near), far), ports)
}

#[inline(always)]
fn address(state: u64, key: &AddressKey) -> u64 {
    let [_, a, b, c, d] = *key;
    mix(mix(state, u64::from(a) << 32 | u64::from(b)), u64::from(c) << 32 | u64::from(d))
}

/// What keeps a host reachable: SSH, the agent's own API, DHCP, and IPv6's neighbour discovery and multicast listener messages. ARP is no IP at all.
#[inline(always)]
fn is_management(packet: &Packet, rule: &FaultRule) -> bool {
    let (source, destination) = (packet.source_port, packet.destination_port);
    match packet.protocol {
        TCP => source == 22 || destination == 22 || is_own(source, rule) || is_own(destination, rule),
        UDP => is_dhcp(source) || is_dhcp(destination),
        ICMPV6 => packet.icmp_type == 143 || (130..=137).contains(&packet.icmp_type),
        _ => false,
    }
}

/// Whether the agent itself listens on the port. Port 0 is nobody's.
#[inline(always)]
pub fn is_own(port: u16, rule: &FaultRule) -> bool {
    let [a, b, c, d] = rule.own_ports;
    port != 0 && (port == a || port == b || port == c || port == d)
}

#[inline(always)]
fn is_dhcp(port: u16) -> bool {
    port == 67 || port == 68 || port == 546 || port == 547
}
