//! The maps of one fault. Every fault loads an object of its own, so a map belongs to one rule.

use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::{Key, LpmTrie};
use aya_ebpf::maps::{Array, LruHashMap, PerCpuArray};
use stormdrill_wire::fault::{AddressKey, FaultRule, FaultStats, KEY_BITS, PORT_WORDS};

/// When the lease runs out, on the clock of `bpf_ktime_get_ns`; 0 before the first renewal.
#[map]
static LEASE: Array<u64> = Array::with_max_entries(1, 0);

#[map]
static RULE: Array<FaultRule> = Array::with_max_entries(1, 0);

/// Bitmaps of source ports, then of destination ports.
#[map]
static PORTS: Array<u64> = Array::with_max_entries(2 * PORT_WORDS, 0);

/// Prefixes that are included or excluded; the agent sizes it.
#[map]
static ADDRESSES: LpmTrie<AddressKey, u8> = LpmTrie::with_max_entries(1, 0);

/// The response that a connection saw last, by its first sequence number: a retransmission of it is not counted again.
#[map]
static RESPONSES: LruHashMap<u64, u32> = LruHashMap::with_max_entries(1, 0);

#[map]
static STATS: PerCpuArray<FaultStats> = PerCpuArray::with_max_entries(1, 0);

#[inline(always)]
pub fn lease_until() -> u64 {
    LEASE.get(0).copied().unwrap_or(0)
}

#[inline(always)]
pub fn rule() -> Option<&'static FaultRule> {
    RULE.get(0)
}

/// Whether the bitmap of the side holds the port.
#[inline(always)]
pub fn port_listed(port: u16, first_word: u32) -> bool {
    match PORTS.get(first_word + u32::from(port >> 6)) {
        Some(word) => word >> (port & 63) & 1 == 1,
        None => false,
    }
}

/// A key as the trie wants it, but aligned, so that it is written in words: aya's own is packed.
#[repr(C)]
struct AlignedKey {
    prefix_length: u32,
    address: AddressKey,
}

/// What the longest prefix that covers the address says.
#[inline(always)]
pub fn address(address: &AddressKey) -> Option<u8> {
    let key = AlignedKey { prefix_length: KEY_BITS, address: *address };
    // SAFETY: the same fields in the same order without padding, and the alignment asked for is less.
    let key: &Key<AddressKey> = unsafe { &*(&raw const key).cast() };
    ADDRESSES.get(key).copied()
}

/// Whether this is another response than the one that the connection saw last, and remembers it.
#[inline(always)]
pub fn is_new_response(flow: u64, sequence: u32) -> bool {
    if let Some(last) = RESPONSES.get_ptr(flow) {
        // SAFETY: an entry of the map stays readable for the run of the program, even if it is evicted meanwhile.
        if unsafe { *last } == sequence {
            return false;
        }
    }
    // A full table evicts, it does not refuse; should it fail all the same, a retransmission may count twice.
    let _ = RESPONSES.insert(flow, sequence, 0);
    true
}

/// This CPU's counters; nothing else writes them while the program runs.
#[inline(always)]
pub fn stats() -> Option<*mut FaultStats> {
    STATS.get_ptr_mut(0)
}
