//! Reads a packet's addresses, protocol and ports.
//!
//! Headers are copied to the stack by `bpf_skb_load_bytes`, which also reaches what is not linear, and read there in whole words. Direct access
//! was tried: its byte-wise moves made the program five times as long, and 5.10's verifier refused it.

use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::bpf_skb_load_bytes;
use aya_ebpf::programs::TcContext;
use stormdrill_wire::fault::{AddressKey, FAMILY_IPV4, FAMILY_IPV6};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMPV6: u8 = 58;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const SERVICE_VLAN: u16 = 0x88a8;

/// What a rule can speak of. No field is an `Option`: a payload that is not set would be a read of unset stack, which older verifiers refuse.
pub struct Packet {
    pub source: AddressKey,
    pub destination: AddressKey,
    pub protocol: u8,
    /// False where the protocol has no ports, and in fragments after the first.
    pub has_ports: bool,
    pub source_port: u16,
    pub destination_port: u16,
    /// First byte of an ICMPv6 message; 0 for other protocols.
    pub icmp_type: u8,
    /// Where the transport header begins.
    pub transport: u32,
    /// Where the packet ends: a short frame is padded beyond it.
    pub end: u32,
}

pub enum Unread {
    /// ARP or another protocol that is none of ours.
    NotIp,
    /// The packet ends within its headers.
    Short,
}

/// Reads a packet whose IP header begins after `link_header` bytes.
#[inline(always)]
pub fn read(ctx: &TcContext, link_header: u32) -> Result<Packet, Unread> {
    let mut at = link_header;
    // SAFETY: the context is valid for the run of the program.
    let mut ethertype = u16::from_be(unsafe { (*ctx.skb.skb).protocol } as u16);
    // Tags that the device did not take out of the packet: the type of what follows is the last two of each four bytes.
    for _ in 0..2 {
        if ethertype != VLAN && ethertype != SERVICE_VLAN {
            break;
        }
        ethertype = u16::from_be(load(ctx, at + 2).ok_or(Unread::Short)?);
        at += 4;
    }
    match ethertype {
        IPV4 => ipv4(ctx, at),
        IPV6 => ipv6(ctx, at),
        _ => Err(Unread::NotIp),
    }
}

#[inline(always)]
fn ipv4(ctx: &TcContext, at: u32) -> Result<Packet, Unread> {
    let header: [u32; 5] = load(ctx, at).ok_or(Unread::Short)?;
    let first = header[0].to_ne_bytes()[0];
    // The low thirteen bits of the second word's lower half: the offset of a fragment.
    let is_first_fragment = u32::from_be(header[1]) & 0x1fff == 0;
    let packet = Packet {
        source: [FAMILY_IPV4, header[3], 0, 0, 0],
        destination: [FAMILY_IPV4, header[4], 0, 0, 0],
        protocol: header[2].to_ne_bytes()[1],
        has_ports: false,
        source_port: 0,
        destination_port: 0,
        icmp_type: 0,
        transport: at + u32::from(first & 0x0f) * 4,
        end: end(ctx, at, u32::from_be(header[0]) & 0xffff),
    };
    transport(ctx, packet, is_first_fragment)
}

#[inline(always)]
fn ipv6(ctx: &TcContext, at: u32) -> Result<Packet, Unread> {
    let header: [u32; 10] = load(ctx, at).ok_or(Unread::Short)?;
    let mut packet = Packet {
        source: [FAMILY_IPV6, header[2], header[3], header[4], header[5]],
        destination: [FAMILY_IPV6, header[6], header[7], header[8], header[9]],
        protocol: header[1].to_ne_bytes()[2],
        has_ports: false,
        source_port: 0,
        destination_port: 0,
        icmp_type: 0,
        transport: at + 40,
        end: end(ctx, at + 40, u32::from_be(header[1]) >> 16),
    };
    let mut is_first_fragment = true;
    // Extension headers, as many as real traffic carries.
    for _ in 0..4 {
        match packet.protocol {
            // Hop-by-hop, routing, destination options: a length in units of eight bytes beyond the first.
            0 | 43 | 60 => {
                let [next, length]: [u8; 2] = load(ctx, packet.transport).ok_or(Unread::Short)?;
                packet.protocol = next;
                packet.transport += 8 + u32::from(length) * 8;
            }
            44 if is_first_fragment => {
                let [next, _, high, low]: [u8; 4] = load(ctx, packet.transport).ok_or(Unread::Short)?;
                is_first_fragment = u16::from_be_bytes([high, low]) & 0xfff8 == 0;
                packet.protocol = next;
                packet.transport += 8;
            }
            _ => break,
        }
    }
    transport(ctx, packet, is_first_fragment)
}

/// Where what begins at `from` ends. A length of 0 stands for more than 64 KiB, as segmentation offload makes them.
#[inline(always)]
fn end(ctx: &TcContext, from: u32, length: u32) -> u32 {
    if length == 0 { ctx.len() } else { from + length }
}

#[inline(always)]
fn transport(ctx: &TcContext, mut packet: Packet, is_first_fragment: bool) -> Result<Packet, Unread> {
    if !is_first_fragment {
        return Ok(packet);
    }
    match packet.protocol {
        TCP | UDP => {
            let [source, destination]: [u16; 2] = load(ctx, packet.transport).ok_or(Unread::Short)?;
            packet.has_ports = true;
            packet.source_port = u16::from_be(source);
            packet.destination_port = u16::from_be(destination);
        }
        ICMPV6 => {
            let [icmp_type, _code]: [u8; 2] = load(ctx, packet.transport).ok_or(Unread::Short)?;
            packet.icmp_type = icmp_type;
        }
        _ => {}
    }
    Ok(packet)
}

/// A type whose every bit pattern is a value.
///
/// # Safety
/// It has no padding and no invalid bit pattern.
pub unsafe trait Plain: Copy {}
// SAFETY: integers.
unsafe impl Plain for u16 {}
// SAFETY: integers.
unsafe impl<const N: usize> Plain for [u8; N] {}
// SAFETY: integers.
unsafe impl Plain for [u16; 2] {}
// SAFETY: integers.
unsafe impl<const N: usize> Plain for [u32; N] {}

/// A value anywhere in the packet, linear or not; `None` if the packet is shorter.
#[inline(always)]
pub fn load<T: Plain>(ctx: &TcContext, offset: u32) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the helper writes the whole of the value, or fails.
    let result = unsafe { bpf_skb_load_bytes(ctx.as_ptr().cast(), offset, value.as_mut_ptr().cast(), size_of::<T>() as u32) };
    // SAFETY: it succeeded, and every bit pattern is a value.
    if result == 0 { Some(unsafe { value.assume_init() }) } else { None }
}
