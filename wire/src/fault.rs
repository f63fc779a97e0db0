//! What crosses the kernel boundary for faults, and the two decisions that kernel and host share.
//!
//! A rule speaks of *source* and *destination*, never of local and peer: the programs cannot tell which hook they sit on, so the agent
//! turns an edge and a direction into a rule of the packet's own terms before it loads the object. Addresses carry their family in the
//! trie key, so that `::/0` cannot match IPv4. Ports are a bitmap: one look-up, however many ports and ranges are listed.

pub mod exchange;
pub mod http2;
pub mod request;

/// Longest time for which the kernel honours a fault without a renewal, nanoseconds.
pub const LEASE_NS: u64 = 3_000_000_000;

/// Bits of an address prefix that hold the family, before the address itself.
pub const FAMILY_BITS: u32 = 32;

/// Words of 64 ports each in one side's bitmap; the source side comes first, the destination side after it.
pub const PORT_WORDS: u32 = 1024;

/// Only packets whose source port is in the bitmap.
pub const BY_SOURCE_PORT: u32 = 1;
/// Only packets whose destination port is in the bitmap.
pub const BY_DESTINATION_PORT: u32 = 1 << 1;
/// The address that is looked up is the source.
pub const BY_SOURCE_ADDRESS: u32 = 1 << 2;
/// The address that is looked up is the destination.
pub const BY_DESTINATION_ADDRESS: u32 = 1 << 3;
/// An address that no prefix covers is selected: there are exclusions only.
pub const UNLISTED_ADDRESS_SELECTED: u32 = 1 << 4;
/// SSH, DHCP, neighbour discovery and multicast listener messages are selected like the rest.
pub const MANAGEMENT_SELECTED: u32 = 1 << 5;
/// A packet without ports is selected although the rule asks for ports: it has exclusions only.
pub const PORTLESS_SELECTED: u32 = 1 << 6;

/// The other end's address is looked up as well.
pub const BY_PEER_ADDRESS: u32 = 1 << 7;
/// The other end's address is selected although no prefix covers it: there are exclusions only.
pub const UNLISTED_PEER_SELECTED: u32 = 1 << 8;
/// Only packets that a socket of the cgroup sends.
pub const MEMBERS_SEND: u32 = 1 << 9;
/// Only packets of connections on which a socket of the cgroup has sent something: those that arrive have no socket yet.
pub const MEMBERS_RECEIVE: u32 = 1 << 10;
/// A share of the connections is selected.
pub const BY_FLOW: u32 = 1 << 11;

/// Some ends of TCP connections are spared with the other management traffic: who could end the fault, and whom the agent needs.
pub const SPARED_ENDS: u32 = 1 << 12;

/// Value of an address prefix: packets that it covers are left alone.
pub const ADDRESS_EXCLUDED: u8 = 0;
/// Value of an address prefix: packets that it covers are selected.
pub const ADDRESS_INCLUDED: u8 = 1;

/// Which packets are selected, and what is done with them. One a loaded object.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRule {
    /// Hit when a 32-bit draw is below it: 0 never, 2^32 always.
    pub threshold: u64,
    /// Seed of the draw that is made from a response's identity.
    pub seed: u64,
    /// The `BY_…` and `…_SELECTED` bits.
    pub flags: u32,
    /// IP protocol number; 0 for any.
    pub protocol: u32,
    /// Bytes before the IP header: 14 on Ethernet and loopback, 0 on devices without a link header.
    pub link_header: u32,
    /// Index of the ifb that selected packets are sent through; 0 for none.
    pub ifb: u32,
    /// Status digits in ASCII, the fourth byte unused.
    pub status: [u8; 4],
    /// The byte that is written over the status of an HTTP/2 response; 0 leaves those alone.
    pub http2_status: u32,
    /// With [`BY_FLOW`], a connection is selected when a 32-bit hash of it is below this.
    pub flow_threshold: u64,
    /// Seed of that hash.
    pub flow_seed: u64,
    /// TCP ports that are spared at either end like SSH's; 0 for none.
    pub own_ports: [u16; 4],
}

/// What a program counted on one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultStats {
    /// Packets that ran through the program.
    pub seen: u64,
    /// Packets (`sd_http_status`: responses, each once) that were selected while the lease ran.
    pub selected: u64,
    /// Of those, the ones that were dropped or rewritten.
    pub hit: u64,
    /// Packets that matched after the lease had run out.
    pub expired: u64,
    /// IP packets whose headers could not be read; they are never selected.
    pub unreadable: u64,
}

/// An address in the form that the prefix trie is keyed by: the family, then the address, each word in network order.
pub type AddressKey = [u32; 5];

/// Length of a whole key in bits.
pub const KEY_BITS: u32 = 160;
/// First word of an IPv4 address's key.
pub const FAMILY_IPV4: u32 = 4_u32.to_be();
/// First word of an IPv6 address's key.
pub const FAMILY_IPV6: u32 = 6_u32.to_be();

/// The key of an IPv4 address, from its bytes.
#[must_use]
pub const fn ipv4_key(address: [u8; 4]) -> AddressKey {
    [FAMILY_IPV4, u32::from_ne_bytes(address), 0, 0, 0]
}

/// An end of a TCP connection: the address's key, and the port in host order.
pub type EndKey = [u32; 6];

/// The key of an end.
#[must_use]
#[inline(always)]
pub const fn end_key(address: &AddressKey, port: u16) -> EndKey {
    [address[0], address[1], address[2], address[3], address[4], port as u32]
}

/// The key of an IPv6 address, from its bytes.
#[must_use]
pub const fn ipv6_key(a: [u8; 16]) -> AddressKey {
    [
        FAMILY_IPV6,
        u32::from_ne_bytes([a[0], a[1], a[2], a[3]]),
        u32::from_ne_bytes([a[4], a[5], a[6], a[7]]),
        u32::from_ne_bytes([a[8], a[9], a[10], a[11]]),
        u32::from_ne_bytes([a[12], a[13], a[14], a[15]]),
    ]
}

/// Bytes of a status line before its code.
pub const STATUS_AT: u32 = 9;

/// Whether a response with this code can be given another.
///
/// A 1xx is no final response. A 204 or 304 has no body and no length: under another code its client would wait for a body.
#[must_use]
#[inline(always)]
pub const fn is_rewritable(status: u16) -> bool {
    status >= 200 && status <= 599 && status != 204 && status != 304
}

/// One step of a 64-bit mix (the finaliser of SplitMix64 over a running value).
#[must_use]
#[inline(always)]
pub const fn mix(state: u64, value: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A 32-bit draw for a response, from the seed, its connection and the sequence number of its first byte.
///
/// The same for a retransmission, which therefore gets the same answer.
#[must_use]
#[inline(always)]
pub const fn draw(seed: u64, flow: u64, sequence: u32) -> u32 {
    (mix(mix(seed, flow), sequence as u64) >> 32) as u32
}

const _: () = {
    assert!(size_of::<FaultRule>() == 64);
    assert!(core::mem::offset_of!(FaultRule, flags) == 16);
    assert!(core::mem::offset_of!(FaultRule, status) == 32);
    assert!(size_of::<FaultStats>() == 40);
};

#[cfg(feature = "user")]
mod user {
    use super::exchange::Exchange;
    use super::request::RequestRule;
    use super::{FaultRule, FaultStats};

    // SAFETY: `repr(C)`, integers only, no padding (asserted above), so every bit pattern is a value.
    unsafe impl aya::Pod for FaultRule {}
    // SAFETY: as above.
    unsafe impl aya::Pod for FaultStats {}
    // SAFETY: as above.
    unsafe impl aya::Pod for RequestRule {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Exchange {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_final_responses_that_keep_their_framing_are_rewritten() {
        let codes = [100, 101, 199, 200, 204, 206, 304, 404, 599, 600];
        assert_eq!(codes.map(is_rewritable), [false, false, false, true, false, true, false, true, true, false]);
    }

    #[test]
    fn a_draw_is_repeatable_and_even() {
        // Three tenths of 2^32.
        let threshold = 1_288_490_188;
        let mut hits = 0_u32;
        for n in 0..100_000_u32 {
            let sequence = n.wrapping_mul(231);
            let first = draw(7, 0x1234_5678, sequence);
            assert_eq!(first, draw(7, 0x1234_5678, sequence));
            hits += u32::from(first < threshold);
        }
        // 30,000 and five standard deviations of 145.
        assert!((29_275..30_725).contains(&hits), "{hits}");
    }

    #[test]
    fn families_have_keys_of_their_own() {
        let mapped = ipv6_key([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1]);
        assert_ne!(ipv4_key([10, 0, 0, 1])[0], mapped[0]);
    }
}
