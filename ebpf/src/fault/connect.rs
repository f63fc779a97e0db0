//! Refuses a share of the connections that this host opens.
//!
//! Kernels before 5.18 cannot be told an error: there the caller sees EPERM. A program that calls the newer helper does not load
//! on them, so that there are two of each.

use core::arch::asm;

use aya_ebpf::bindings::bpf_sock_addr;
use aya_ebpf::helpers::{bpf_get_prandom_u32, bpf_ktime_get_ns, bpf_set_retval};
use stormdrill_wire::fault::{
    ADDRESS_INCLUDED, AddressKey, BY_DESTINATION_ADDRESS, BY_DESTINATION_PORT, FAMILY_IPV4, FAMILY_IPV6, FaultRule, MANAGEMENT_SELECTED,
    PORT_WORDS, SPARED_ENDS, UNLISTED_ADDRESS_SELECTED,
};

use crate::{maps, select};

const ALLOW: i32 = 1;
const REFUSE: i32 = 0;
const TCP: u32 = 6;
const ECONNREFUSED: i32 = 111;
const SSH: u16 = 22;

/// The middle of an IPv4-mapped address, `::ffff:0:0`.
const MAPPED: u32 = 0xffff_u32.to_be();

#[inline(always)]
pub fn v4(address: *mut bpf_sock_addr) -> AddressKey {
    // SAFETY: the context is valid for the run of the program.
    [FAMILY_IPV4, unsafe { (*address).user_ip4 }, 0, 0, 0]
}

#[inline(always)]
pub fn v6(address: *mut bpf_sock_addr) -> AddressKey {
    // SAFETY: as above. Each word is read by itself: the verifier allows no other reads of this context.
    let words = unsafe {
        [
            core::ptr::read_volatile(&raw const (*address).user_ip6[0]),
            core::ptr::read_volatile(&raw const (*address).user_ip6[1]),
            core::ptr::read_volatile(&raw const (*address).user_ip6[2]),
            core::ptr::read_volatile(&raw const (*address).user_ip6[3]),
        ]
    };
    if words[0] == 0 && words[1] == 0 && words[2] == MAPPED {
        [FAMILY_IPV4, words[3], 0, 0, 0]
    } else {
        [FAMILY_IPV6, words[0], words[1], words[2], words[3]]
    }
}

/// What becomes of a `connect()` to that address. `says_why` is for kernels that can be told the error.
#[inline(always)]
pub fn judge(address: *mut bpf_sock_addr, key: &AddressKey, says_why: bool) -> i32 {
    let (Some(rule), Some(stats)) = (maps::rule(), maps::stats()) else {
        return ALLOW;
    };
    // SAFETY: the context is valid for the run of the program.
    let (protocol, port) = unsafe { ((*address).protocol, core::ptr::read_volatile(&raw const (*address).user_port)) };
    // SAFETY: the pointer is this CPU's entry of a per-CPU map, valid for the run of the program; here and below.
    add(unsafe { &raw mut (*stats).seen });
    // The port is in network order, in the first two bytes of the word.
    let port = u16::from_be(port as u16);
    if protocol != TCP || !is_listed(rule.flags, key, port) || is_management(rule, key, port) {
        return ALLOW;
    }
    // SAFETY: a helper without arguments.
    if unsafe { bpf_ktime_get_ns() } >= maps::lease_until() {
        // SAFETY: as above.
        add(unsafe { &raw mut (*stats).expired });
        return ALLOW;
    }
    // SAFETY: as above.
    add(unsafe { &raw mut (*stats).selected });
    // SAFETY: a helper without arguments.
    if u64::from(unsafe { bpf_get_prandom_u32() }) >= rule.threshold {
        return ALLOW;
    }
    // SAFETY: as above.
    add(unsafe { &raw mut (*stats).hit });
    if says_why {
        // SAFETY: allowed in this program type from 5.18 on.
        unsafe { bpf_set_retval(-ECONNREFUSED) };
    }
    REFUSE
}

/// Counts atomically: these programs run in process context, where another caller of `connect()` may take the CPU in between.
///
/// The one atomic instruction that 5.10 has, written as such, because the BPF target offers none through `core`.
#[inline(always)]
fn add(counter: *mut u64) {
    // SAFETY: callers pass pointers into map values, which live as long as the program runs.
    unsafe { asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) counter, in(reg) 1_u64, options(nostack)) }
}

/// What a host is reached by, and what the agent itself needs.
#[inline(always)]
fn is_management(rule: &FaultRule, key: &AddressKey, port: u16) -> bool {
    rule.flags & MANAGEMENT_SELECTED == 0
        && (port == SSH || select::is_own(port, rule) || (rule.flags & SPARED_ENDS != 0 && maps::is_spared(key, port)))
}

#[inline(always)]
fn is_listed(flags: u32, key: &AddressKey, port: u16) -> bool {
    if flags & BY_DESTINATION_PORT != 0 && !maps::port_listed(port, PORT_WORDS) {
        return false;
    }
    if flags & BY_DESTINATION_ADDRESS != 0 {
        return match maps::address(key) {
            Some(value) => value == ADDRESS_INCLUDED,
            None => flags & UNLISTED_ADDRESS_SELECTED != 0,
        };
    }
    true
}
