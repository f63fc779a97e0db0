//! Access to the rings that hold what came too early.

use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::generated::{bpf_map_delete_elem, bpf_map_lookup_elem, bpf_map_update_elem},
};
use stormdrill_wire::ring::{BLOCK, RING, Ring};

use crate::{
    maps::{EMPTY_RING, RINGS},
    packet::forget,
};

/// Blocks that a stretch of the ring's size touches.
const BLOCKS: u32 = (RING / BLOCK) as u32 + 1;

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

/// Copies what lies from one sequence number to another into the ring, block by block. `load` writes bytes from a sequence number on, 1 to a block of them, to
/// a place; false as soon as it fails.
///
/// # Safety
/// `ring` must not be null, and `load` write no more than it is told.
#[inline(always)]
pub unsafe fn fill(ring: *mut Ring, from: u32, to: u32, load: impl Fn(u32, *mut u8, u32) -> bool) -> bool {
    // SAFETY: the ring has room for a block at any place, and once more where the first block is repeated.
    unsafe {
        let cursor = &raw mut (*ring).cursor;
        core::ptr::write_volatile(cursor, from as u64);
        let mut block = 0;
        while block < BLOCKS {
            block += 1;
            let at = core::ptr::read_volatile(cursor) as u32;
            let left = to.wrapping_sub(at);
            if left == 0 {
                return true;
            }
            let room = BLOCK as u32 - (at & (BLOCK as u32 - 1));
            let len = if left > room { room } else { left };
            core::ptr::write_volatile(cursor, at.wrapping_add(len) as u64);
            let data = (&raw mut (*ring).data).cast::<u8>();
            if !load(at, data.add(forget(at) as usize & (RING - 1)), len) {
                return false;
            }
            if at as usize & (RING - 1) < BLOCK {
                load(at, data.add(RING).add(forget(at) as usize & (BLOCK - 1)), len);
            }
        }
        core::ptr::read_volatile(cursor) as u32 == to
    }
}
