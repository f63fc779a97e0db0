//! Whose turn it is to read what arrives at a socket.
//!
//! The ingress hook runs before TCP takes the socket's lock, so two CPUs may look at two segments of one connection at the same time,
//! and on their way from hook to hook no lock of the kernel's may be held. So the connection has a mark that says that somebody
//! reads, which is changed under a lock of the kernel's, and whoever comes second waits: a run takes microseconds. (Atomic exchange
//! would do without the lock, but needs Linux 5.12.)
//!
//! Of two segments on two CPUs the later one may come first. It is kept in a ring until its turn comes; one that reaches farther than a ring, as
//! segments of 64 KiB between the sockets of one host do, waits here for the one before it.

use aya_ebpf::{
    bindings::__sk_buff,
    helpers::{
        bpf_ktime_get_ns,
        generated::{bpf_get_smp_processor_id, bpf_spin_lock, bpf_spin_unlock},
    },
};
use stormdrill_wire::{abi::health, conn::Conn, flow::Flow, ring::RING};

use crate::{conns, count, hook::Called, scratch::Scratch};

/// Looks at the mark in a glance, and glances before a segment is given up: together some milliseconds. A run takes microseconds, but
/// a guest's CPU may be halted in one by its host. Two numbers, and two functions that the verifier goes through once each, since it would go
/// through all rounds one by one.
const LOOKS: u32 = 256;
const GLANCES: u32 = 256;

/// What a glance has seen.
mod seen {
    /// Somebody else reads.
    pub const BUSY: u32 = 0;
    /// The turn was taken.
    pub const OURS: u32 = 1;
    /// It will not come.
    pub const NEVER: u32 = 2;
}

/// Takes the turn if it is free.
///
/// # Safety
/// `conn` must point to a value of the storage map.
#[inline(always)]
pub unsafe fn take(conn: *mut Conn) -> bool {
    // SAFETY: the caller's pointer; the mark is changed under the lock only.
    unsafe {
        let me = bpf_get_smp_processor_id() as u32 + 1;
        let lock = &raw mut (*conn).lock;
        bpf_spin_lock(lock.cast());
        let before = core::ptr::read_volatile(&raw const (*conn).reading);
        if before == 0 {
            core::ptr::write_volatile(&raw mut (*conn).reading, me);
        }
        bpf_spin_unlock(lock.cast());
        before == 0
    }
}

/// Ends the turn. Under the lock too, for its barrier.
///
/// # Safety
/// As `take`, whose turn it must be.
#[inline(always)]
pub unsafe fn give_back(conn: *mut Conn) {
    // SAFETY: as above.
    unsafe {
        let lock = &raw mut (*conn).lock;
        bpf_spin_lock(lock.cast());
        core::ptr::write_volatile(&raw mut (*conn).reading, 0);
        bpf_spin_unlock(lock.cast());
    }
}

/// Whether the packet's segment reaches farther than what could be kept until its turn comes.
///
/// # Safety
/// `conn` must point to a value of the storage map, and the packet's segment be noted.
#[inline(always)]
pub unsafe fn is_too_far(conn: *const Conn, scratch: Scratch) -> bool {
    // SAFETY: the caller's. The mark may be another CPU's to write, and is read in one piece.
    unsafe {
        let flow = (&raw const (*conn).flows).cast::<Flow>().add(scratch.side());
        let mark = core::ptr::read_volatile(&raw const (*flow).mark);
        let ahead = scratch.seq().wrapping_sub(mark) as i32;
        ahead > 0 && (*flow).begun != 0 && ahead as u32 + scratch.len() > RING as u32
    }
}

/// Waits for the turn, and takes it; 0 if it does not come, which counts as a gap. What the segment is too far ahead of is waited for, too, and
/// given up in the end.
#[inline(always)]
pub fn wait(skb: *mut __sk_buff, glance: Called) -> u32 {
    let mut glances = 0;
    while glances < GLANCES {
        glances += 1;
        let seen = glance(skb);
        if seen == seen::OURS {
            return 1;
        }
        if seen == seen::NEVER {
            break;
        }
    }
    let Some(conn) = conns::of(skb) else {
        return 0;
    };
    // SAFETY: a non-null value of the storage map.
    unsafe {
        if glances == GLANCES && take(conn) {
            return 1;
        }
        count::lack(&raw const (*conn).book, health::GAPS);
    }
    0
}

/// Waits until another CPU has filled the connection's state in: a socket can be found a moment before `sock_ops` has told of it. 0 if that
/// does not happen, which counts as a gap.
#[inline(always)]
pub fn wait_for_state(skb: *mut __sk_buff, glance: Called) -> u32 {
    let mut glances = 0;
    while glances < GLANCES {
        glances += 1;
        if glance(skb) != 0 {
            return 1;
        }
    }
    count::health(health::GAPS);
    0
}

/// Looks for a moment whether the connection's state is there.
#[inline(always)]
pub fn glance_at_state(skb: *mut __sk_buff) -> u32 {
    let mut looks = 0;
    while looks < LOOKS {
        looks += 1;
        if let Some(conn) = conns::of(skb)
            // SAFETY: a non-null value of the storage map.
            && !unsafe { conns::is_unfinished(conn) }
        {
            return 1;
        }
    }
    0
}

/// Looks for a moment whether the turn is free, and takes it.
#[inline(always)]
pub fn glance(skb: *mut __sk_buff) -> u32 {
    let Some(conn) = conns::of(skb) else {
        return seen::NEVER;
    };
    // SAFETY: a non-null value of the storage map; the helpers read a clock and a number.
    unsafe {
        let me = bpf_get_smp_processor_id() as u32 + 1;
        let mut looks = 0;
        while looks < LOOKS {
            looks += 1;
            let reader = core::ptr::read_volatile(&raw const (*conn).reading);
            if reader == me {
                // This run has interrupted the one that reads.
                return seen::NEVER;
            }
            if reader == 0 && !is_too_far(conn, Scratch::of(skb)) {
                return if take(conn) { seen::OURS } else { seen::BUSY };
            }
            // Only to let time pass.
            bpf_ktime_get_ns();
        }
    }
    seen::BUSY
}
