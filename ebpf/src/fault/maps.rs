//! The maps of one fault. Every fault loads an object of its own, so a map belongs to one rule.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::{Key, LpmTrie};
use aya_ebpf::maps::{Array, CgroupArray, HashMap, LruHashMap, PerCpuArray, ProgramArray};
use aya_ebpf::programs::TcContext;
use stormdrill_wire::fault::exchange::Exchange;
use stormdrill_wire::fault::request::RequestRule;
use stormdrill_wire::fault::{AddressKey, EndKey, FaultRule, FaultStats, KEY_BITS, PORT_WORDS, end_key, mix};

use crate::chain::Place;
use crate::segment::Chunk;

/// Addresses of which it is known what the trie says, a power of two.
const CACHE: u32 = 1024;

/// Make an entry, do not replace one.
const BPF_NOEXIST: u64 = 1;

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

/// Prefixes of the other end's address.
#[map]
static PEERS: LpmTrie<AddressKey, u8> = LpmTrie::with_max_entries(1, 0);

/// Ends of connections that are spared; the agent sizes it.
#[map]
static SPARED: HashMap<EndKey, u8> = HashMap::with_max_entries(1, 0);

/// What the tries said of the addresses that were met last: looking one up takes the longer, the more prefixes there are. They never change
/// once the filter is in place. A place holds one address; the agent sizes it to [`CACHE`], or to nothing where there are no prefixes.
#[map]
static KNOWN_ADDRESSES: PerCpuArray<Known> = PerCpuArray::with_max_entries(CACHE, 0);

/// The same of the other end.
#[map]
static KNOWN_PEERS: PerCpuArray<Known> = PerCpuArray::with_max_entries(CACHE, 0);

/// The cgroup whose sockets' packets are selected, with its descendants.
#[map]
static CGROUP: CgroupArray = CgroupArray::with_max_entries(1, 0);

/// Connections on which a socket of the cgroup has sent something; the agent sizes it.
#[map]
static MEMBERS: LruHashMap<u64, u8> = LruHashMap::with_max_entries(1, 0);

/// The requests whose answers are selected.
#[map]
static REQUESTS: Array<RequestRule> = Array::with_max_entries(1, 0);

/// Connections whose messages are read; the agent sizes it.
#[map]
static EXCHANGES: LruHashMap<u64, Exchange> = LruHashMap::with_max_entries(1, 0);

/// A connection of which nothing is known; too large for the stack.
#[map]
static BLANK: Array<Exchange> = Array::with_max_entries(1, 0);

/// The bytes that are being read on each CPU.
#[map]
static CHUNKS: PerCpuArray<Chunk> = PerCpuArray::with_max_entries(1, 0);

/// Where the segment is that the programs hand on to each other.
#[map]
static PLACES: PerCpuArray<Place> = PerCpuArray::with_max_entries(1, 0);

/// What `sd_http_status` goes on with: reading HTTP/1, reading HTTP/2, writing.
#[map]
pub static NEXT: ProgramArray = ProgramArray::with_max_entries(3, 0);

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
    look_up(&ADDRESSES, address)
}

/// The same, by way of what is known already; for programs that no other run on this CPU can come in between.
#[inline(always)]
pub fn known_address(address: &AddressKey) -> Option<u8> {
    known(&KNOWN_ADDRESSES, &ADDRESSES, address)
}

/// The same of the other end.
#[inline(always)]
pub fn known_peer(address: &AddressKey) -> Option<u8> {
    known(&KNOWN_PEERS, &PEERS, address)
}

/// Whether the end is one of those that are spared.
#[inline(always)]
pub fn is_spared(address: &AddressKey, port: u16) -> bool {
    SPARED.get_ptr(end_key(address, port)).is_some()
}

/// An address and what a trie says of it: 0 if the place is empty, 1 for nothing, 2 and more for a value.
#[repr(C)]
struct Known {
    address: AddressKey,
    says: u32,
}

#[inline(always)]
fn known(cache: &PerCpuArray<Known>, trie: &LpmTrie<AddressKey, u8>, address: &AddressKey) -> Option<u8> {
    let [family, a, b, c, d] = *address;
    let place = mix(u64::from(a) << 32 | u64::from(b), u64::from(c) << 32 | u64::from(d)) as u32 & (CACHE - 1);
    let Some(known) = cache.get_ptr_mut(place) else {
        return look_up(trie, address);
    };
    // SAFETY: this CPU's entry; the programs that use it run with softirqs off.
    unsafe {
        let [known_family, e, f, g, h] = (*known).address;
        if (*known).says == 0 || family != known_family || a != e || b != f || c != g || d != h {
            (*known).address = *address;
            (*known).says = look_up(trie, address).map_or(1, |value| u32::from(value) + 2);
        }
        let says = (*known).says;
        if says < 2 { None } else { Some((says - 2) as u8) }
    }
}

/// Whether the socket that sends the packet is in the cgroup. What no socket sends is not.
#[inline(always)]
pub fn is_sent_by_member(ctx: &TcContext) -> bool {
    ctx.skb_under_cgroup(&CGROUP, 0).unwrap_or(false)
}

/// Remembers a connection of the cgroup.
#[inline(always)]
pub fn remember_member(flow: u64) {
    if MEMBERS.get_ptr(flow).is_none() {
        let _ = MEMBERS.insert(flow, 1, 0);
    }
}

/// Whether the connection is one of the cgroup's.
#[inline(always)]
pub fn is_member(flow: u64) -> bool {
    MEMBERS.get_ptr(flow).is_some()
}

#[inline(always)]
fn look_up(trie: &LpmTrie<AddressKey, u8>, address: &AddressKey) -> Option<u8> {
    let key = AlignedKey { prefix_length: KEY_BITS, address: *address };
    // SAFETY: the same fields in the same order without padding, and the alignment asked for is less.
    let key: &Key<AddressKey> = unsafe { &*(&raw const key).cast() };
    trie.get(key).copied()
}

/// The requests whose answers are selected.
#[inline(always)]
pub fn requests() -> Option<&'static RequestRule> {
    REQUESTS.get(0)
}

/// What is known of a connection, which is made if there is nothing.
#[inline(always)]
pub fn exchange(flow: u64) -> Option<*mut Exchange> {
    if let Some(known) = EXCHANGES.get_ptr_mut(flow) {
        return Some(known);
    }
    let blank = BLANK.get(0)?;
    // The other direction may have been faster: its entry stays.
    let _ = EXCHANGES.insert(flow, blank, BPF_NOEXIST);
    EXCHANGES.get_ptr_mut(flow)
}

/// Forgets a connection: another begins under its addresses and ports.
#[inline(always)]
pub fn forget(flow: u64) {
    let _ = EXCHANGES.remove(flow);
}

/// This CPU's place.
#[inline(always)]
pub fn place() -> Option<*mut Place> {
    PLACES.get_ptr_mut(0)
}

/// Whether the lease holds.
#[inline(always)]
pub fn is_leased() -> bool {
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    now < lease_until()
}

/// This CPU's memory for a piece of a segment.
#[inline(always)]
pub fn chunk() -> Option<*mut Chunk> {
    CHUNKS.get_ptr_mut(0)
}

/// This CPU's counters; nothing else writes them while the program runs.
#[inline(always)]
pub fn stats() -> Option<*mut FaultStats> {
    STATS.get_ptr_mut(0)
}
