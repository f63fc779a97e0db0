//! Counters: per CPU, and added to atomically.
//!
//! Per CPU is not enough alone: the egress hook runs in process context and may be interrupted, between its load and its
//! store, by a softirq that runs a hook on the same CPU and counts in the same place.

use core::arch::asm;

use stormdrill_wire::{
    abi::{EDGE_SLOTS, EPOCH_SLOTS, EdgeCounters, FIRST_STATUS, MAX_NAMED_EDGES, STATUS_CODES, Settings},
    conn::Book,
};

use crate::maps::{COUNTERS, HEALTH, SETTINGS};

/// Adds to a counter in a map value: the one atomic instruction that 5.10 has. Written as such, because the BPF target
/// offers no atomic read-modify-write through `core`.
#[inline(always)]
pub fn add(counter: *mut u64, by: u64) {
    // SAFETY: callers pass pointers into map values, which live as long as the program runs.
    unsafe { asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) counter, in(reg) by, options(nostack)) }
}

/// Counts one occurrence of something that the probe could not do.
#[inline(always)]
pub fn health(index: u32) {
    if let Some(counter) = HEALTH.get_ptr_mut(index) {
        add(counter, 1);
    }
}

/// The same of a connection, if it belongs to a named edge: what other programs' connections lack says nothing about a drill.
///
/// # Safety
/// `book` must point into socket storage.
#[inline(always)]
pub unsafe fn lack(book: *const Book, index: u32) {
    // SAFETY: the caller's pointer.
    if (unsafe { (*book).edge } as usize) < MAX_NAMED_EDGES {
        health(index);
    }
}

/// The settings, read once a run so that a count and its event carry the same epoch.
#[inline(always)]
pub fn settings() -> Option<(u32, u32)> {
    let settings = SETTINGS.get_ptr(0)?;
    // SAFETY: the map's element; user space may write it meanwhile, hence volatile.
    unsafe { Some((core::ptr::read_volatile(&raw const (*settings).epoch), core::ptr::read_volatile(&raw const (*settings).flags))) }
}

/// The turn and the share of the identities that are told.
#[inline(always)]
pub fn sampling() -> Option<(u32, u32)> {
    let settings = SETTINGS.get_ptr(0)?;
    // SAFETY: as above.
    unsafe { Some((core::ptr::read_volatile(&raw const (*settings).turn), core::ptr::read_volatile(&raw const (*settings).share))) }
}

/// The counters of an edge in an epoch.
#[inline(always)]
pub fn of_edge(epoch: u32, edge: u8) -> Option<*mut EdgeCounters> {
    COUNTERS.get_ptr_mut((epoch & (EPOCH_SLOTS - 1)) * EDGE_SLOTS + (edge as u32 & (EDGE_SLOTS - 1)))
}

/// Counts a final response.
#[inline(always)]
pub fn response(counters: *mut EdgeCounters, status: u16) {
    // SAFETY: `counters` comes from `of_edge`; the index is checked.
    unsafe {
        add(&raw mut (*counters).responses, 1);
        let index = status.wrapping_sub(FIRST_STATUS) as usize;
        if index < STATUS_CODES {
            add((&raw mut (*counters).status).cast::<u64>().add(index), 1);
        }
    }
}

/// Whether events are wanted.
#[inline(always)]
pub fn wants_events(flags: u32) -> bool {
    flags & Settings::EVENTS != 0
}
