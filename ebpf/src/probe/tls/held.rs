//! Plaintext that cannot be read yet is held back in a ring.

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::generated::{bpf_map_update_elem, bpf_probe_read_user},
};
use stormdrill_wire::ring::{BLOCK, Ranges, Ring};

use super::{Call, Key, TLS_HELD};
use crate::{maps::EMPTY_RING, packet::within, rings};

#[inline(always)]
fn place(key: &Key, direction: u64) -> Key {
    Key { ssl: key.ssl | direction, tgid: key.tgid }
}

/// The ring of a direction.
#[inline(always)]
pub fn get(key: &Key, direction: u64) -> Option<*mut Ring> {
    TLS_HELD.get_ptr_mut(place(key, direction))
}

/// Frees it.
#[inline(always)]
pub fn free(key: &Key, direction: u64) {
    let _ = TLS_HELD.remove(place(key, direction));
}

/// Keeps what the call's buffer holds of positions `from` to `to`, after what is held from `first` on. False if there is no room.
///
/// # Safety
/// The pointer is into the map of calls.
#[inline(always)]
pub unsafe fn keep(call: *const Call, direction: u32, first: u32, from: u32, to: u32) -> bool {
    if !Ranges::reaches(first, to) {
        return false;
    }
    // SAFETY: the caller's; what is given to the helper lies in maps or on the stack.
    unsafe {
        let key = place(&(*call).key, direction as u64);
        if TLS_HELD.get_ptr(key).is_none() {
            let Some(empty) = EMPTY_RING.get_ptr(0) else {
                return false;
            };
            // The oldest one makes room.
            bpf_map_update_elem((&raw const TLS_HELD).cast_mut().cast(), (&raw const key).cast(), empty.cast(), BPF_ANY as u64);
        }
        let Some(ring) = TLS_HELD.get_ptr_mut(key) else {
            return false;
        };
        // The address that position 0 would have.
        let origin = (*call).buf.wrapping_sub((*call).seq as u64);
        rings::fill(ring, from, to, |at, place, len| {
            bpf_probe_read_user(place.cast(), within::<BLOCK>(len), origin.wrapping_add(at as u64) as *const _) == 0
        })
    }
}
