//! Access to the rings that hold what came too early.

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::generated::{bpf_map_delete_elem, bpf_map_lookup_elem, bpf_map_update_elem},
};
use stormdrill_wire::ring::{RING, Ring};

use crate::maps::{EMPTY_RING, RINGS};

/// The ring of a side, null if it has none.
#[inline(always)]
pub fn get(key: u64) -> *mut Ring {
    // SAFETY: the key lies on the stack. By helper, since a reference to a ring must not exist: two CPUs may use it.
    unsafe { bpf_map_lookup_elem((&raw const RINGS).cast_mut().cast(), (&raw const key).cast()).cast() }
}

/// An empty ring for a side; null if all are in use.
#[inline(always)]
pub fn create(key: u64) -> *mut Ring {
    let Some(empty) = EMPTY_RING.get_ptr(0) else {
        return core::ptr::null_mut();
    };
    if put(key, empty) { get(key) } else { core::ptr::null_mut() }
}

/// Makes a ring with another one's contents.
#[inline(always)]
pub fn put(key: u64, contents: *const Ring) -> bool {
    // SAFETY: both lie in maps or on the stack.
    unsafe { bpf_map_update_elem((&raw const RINGS).cast_mut().cast(), (&raw const key).cast(), contents.cast(), BPF_ANY as u64) == 0 }
}

/// Frees the ring of a side.
#[inline(always)]
pub fn free(key: u64) {
    // SAFETY: as above.
    unsafe { bpf_map_delete_elem((&raw const RINGS).cast_mut().cast(), (&raw const key).cast()) };
}

/// The place of a sequence number, from which a block can be read.
///
/// # Safety
/// `ring` must not be null.
#[inline(always)]
pub unsafe fn place(ring: *mut Ring, at: u32) -> *mut u8 {
    // SAFETY: the caller's pointer; the index is masked.
    unsafe { (&raw mut (*ring).data).cast::<u8>().add(at as usize & (RING - 1)) }
}

/// Copies `N` bytes, a multiple of eight, from the ring.
///
/// # Safety
/// `ring` must not be null, `to` have room for `N` bytes, and `N` be no more than a block.
#[inline(always)]
pub unsafe fn copy<const N: usize>(ring: *mut Ring, at: u32, to: *mut u8) {
    // SAFETY: the caller's. Unaligned words, as an instruction of its own: the compiler would assemble them from bytes.
    unsafe {
        let from = place(ring, at);
        let mut i = 0;
        while i < N {
            let word: u64;
            core::arch::asm!("{0} = *(u64 *)({1} + 0)", out(reg) word, in(reg) from.add(i), options(readonly, nostack, preserves_flags));
            to.add(i).cast::<u64>().write_unaligned(word);
            i += 8;
        }
    }
}
