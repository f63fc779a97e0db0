//! Reads a packet's addresses, protocol and ports where they lie, with direct access to the linear part.
//!
//! The headers of what this host sends are linear. What a device delivers may not be, so a read that runs out of the linear part
//! pulls the headers in once and starts again.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::programs::TcContext;
use stormdrill_wire::fault::{AddressKey, ipv4_key, ipv6_key};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;

/// The longest run of headers that is pulled in: link, IPv6, some extension headers, ports.
const PULLED: u32 = 256;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

/// What a rule can speak of.
pub struct Packet {
    pub source: AddressKey,
    pub destination: AddressKey,
    pub protocol: u8,
    /// `None` where the protocol has no ports, and in fragments after the first.
    pub ports: Option<(u16, u16)>,
    /// First byte of an ICMP message; 0 for other protocols.
    pub icmp_type: u8,
    /// Where the transport header begins.
    pub transport: u32,
}

pub enum Unread {
    /// ARP or another protocol that is none of ours.
    NotIp,
    /// The linear part ends within the headers.
    Short,
}

/// Reads a packet whose IP header begins after `link_header` bytes.
#[inline(always)]
pub fn read(ctx: &TcContext, link_header: u32) -> Result<Packet, Unread> {
    match parse(ctx, link_header) {
        Err(Unread::Short) => {
            let wanted = if ctx.len() < PULLED { ctx.len() } else { PULLED };
            if ctx.pull_data(wanted).is_err() {
                return Err(Unread::Short);
            }
            parse(ctx, link_header)
        }
        read => read,
    }
}

// A call of its own: it is needed twice, and inlining it doubled the work of the verifier.
#[inline(always)]
fn parse(ctx: &TcContext, link_header: u32) -> Result<Packet, Unread> {
    // The masks tell the verifier what the agent guarantees: no sum is negative, none is large.
    let mut at = (link_header & 31) as usize;
    let mut ethertype = 0;
    if link_header >= 2 {
        let mut type_at = (link_header.wrapping_sub(2) & 31) as usize;
        ethertype = u16::from_be(load(ctx, type_at)?);
        // Tags that the device did not take out of the packet.
        for _ in 0..2 {
            if ethertype != VLAN && ethertype != SERVICE_VLAN {
                break;
            }
            type_at += 4;
            at += 4;
            ethertype = u16::from_be(load(ctx, type_at)?);
        }
    } else {
        let [first, _]: [u8; 2] = load(ctx, at)?;
        match first >> 4 {
            4 => ethertype = IPV4,
            6 => ethertype = IPV6,
            _ => {}
        }
    }
    match ethertype {
        IPV4 => ipv4(ctx, at),
        IPV6 => ipv6(ctx, at),
        _ => Err(Unread::NotIp),
    }
}

#[inline(always)]
fn ipv4(ctx: &TcContext, at: usize) -> Result<Packet, Unread> {
    let header: [u8; 20] = load(ctx, at)?;
    let first_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    let transport = at + usize::from(header[0] & 0x0f) * 4;
    let source = ipv4_key([header[12], header[13], header[14], header[15]]);
    let destination = ipv4_key([header[16], header[17], header[18], header[19]]);
    finish(ctx, source, destination, header[9], transport, first_fragment)
}

#[inline(always)]
fn ipv6(ctx: &TcContext, at: usize) -> Result<Packet, Unread> {
    let [mut protocol, _hop_limit]: [u8; 2] = load(ctx, at + 6)?;
    let source = ipv6_key(load(ctx, at + 8)?);
    let destination = ipv6_key(load(ctx, at + 24)?);
    let mut transport = at + 40;
    let mut first_fragment = true;
    // Extension headers, as many as real traffic carries.
    for _ in 0..4 {
        match protocol {
            // Hop-by-hop, routing, destination options: a length in units of eight bytes beyond the first.
            0 | 43 | 60 => {
                let [next, length]: [u8; 2] = load(ctx, transport)?;
                protocol = next;
                transport += 8 + usize::from(length) * 8;
            }
            44 => {
                let [next, _, high, low]: [u8; 4] = load(ctx, transport)?;
                first_fragment = u16::from_be_bytes([high, low]) & 0xfff8 == 0;
                protocol = next;
                transport += 8;
                if !first_fragment {
                    break;
                }
            }
            _ => break,
        }
    }
    finish(ctx, source, destination, protocol, transport, first_fragment)
}

#[inline(always)]
fn finish(
    ctx: &TcContext,
    source: AddressKey,
    destination: AddressKey,
    protocol: u8,
    transport: usize,
    first_fragment: bool,
) -> Result<Packet, Unread> {
    let mut packet = Packet { source, destination, protocol, ports: None, icmp_type: 0, transport: transport as u32 };
    if first_fragment {
        match protocol {
            TCP | UDP => {
                let [a, b, c, d]: [u8; 4] = load(ctx, transport)?;
                packet.ports = Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
            }
            ICMPV6 => {
                let [icmp_type, _code]: [u8; 2] = load(ctx, transport)?;
                packet.icmp_type = icmp_type;
            }
            _ => {}
        }
    }
    Ok(packet)
}

/// A value of at least two bytes at an offset into the linear part of the packet.
///
/// The pointer is hidden from LLVM, which would add base and offset up a second time for the read; the verifier knows the bounds of the
/// first sum only. And not of one byte: LLVM turns `start + 1 > end` into `start >= end`, from which the verifier learns nothing.
#[inline(always)]
fn load<T: Copy>(ctx: &TcContext, offset: usize) -> Result<T, Unread> {
    const { assert!(size_of::<T>() >= 2) };
    let start = core::hint::black_box(ctx.data() + offset);
    if start + size_of::<T>() > ctx.data_end() {
        return Err(Unread::Short);
    }
    // SAFETY: the whole value lies before `data_end`, as just checked; alignment is not assumed.
    Ok(unsafe { (start as *const T).read_unaligned() })
}

/// Bytes anywhere in the packet, linear or not; `None` if it is shorter.
#[inline(always)]
pub fn bytes<const N: usize>(ctx: &TcContext, offset: u32) -> Option<[u8; N]> {
    let mut buffer = [0_u8; N];
    // SAFETY: the buffer has N bytes, and the helper writes no more.
    let result = unsafe { aya_ebpf::helpers::bpf_skb_load_bytes(ctx.as_ptr().cast(), offset, buffer.as_mut_ptr().cast(), N as u32) };
    if result == 0 { Some(buffer) } else { None }
}
