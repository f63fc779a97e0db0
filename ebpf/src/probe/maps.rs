//! The maps of the probe.

use aya_ebpf::{
    btf_maps::SkStorage,
    macros::{btf_map, map},
    maps::{Array, HashMap, PerCpuArray, ProgramArray, RingBuf},
};
use stormdrill_wire::{
    abi::{EDGE_SLOTS, EPOCH_SLOTS, EdgeCounters, Rules, Settings, health},
    conn::Conn,
    ring::Ring,
};

use crate::{early::Early, packet::Chunk};

/// One element; user space writes the epoch, the programs read it once a run.
#[map]
pub static SETTINGS: Array<Settings> = Array::with_max_entries(1, 0);

/// One element: how sockets are matched to edges.
#[map]
pub static RULES: Array<Rules> = Array::with_max_entries(1, 0);

/// By `slot * EDGE_SLOTS + edge`.
#[map]
pub static COUNTERS: PerCpuArray<EdgeCounters> = PerCpuArray::with_max_entries(EPOCH_SLOTS * EDGE_SLOTS, 0);

/// By the constants of `abi::health`.
#[map]
pub static HEALTH: PerCpuArray<u64> = PerCpuArray::with_max_entries(health::COUNT, 0);

/// The bytes that are being read on each CPU.
#[map]
pub static CHUNKS: PerCpuArray<Chunk> = PerCpuArray::with_max_entries(1, 0);

/// What came with the end of a handshake, between the hook, which sees it with the listener, and the call that tells of
/// the new socket: both happen on one CPU, one right after the other. By CPU, and not a per-CPU array, whose elements have 32 KiB
/// at most; user space sets the size.
#[map]
pub static EARLY: Array<Early> = Array::with_max_entries(1, 0);

/// State of each connection. Freed with its socket, so it needs no clean-up and never runs full.
#[btf_map]
pub static CONNS: SkStorage<Conn> = SkStorage::new();

/// Segments that came before others that are still missing, by twice the socket's cookie, plus the side.
#[map]
pub static RINGS: HashMap<u64, Ring> = HashMap::with_max_entries(128, 0);

/// One element, never written: a ring with nothing in it.
#[map]
pub static EMPTY_RING: Array<Ring> = Array::with_max_entries(1, 0);

/// Roles of connections that were open before the start, by socket cookie. Not preallocated: most hosts have few.
#[map]
pub static FOUND: HashMap<u64, u32> = HashMap::with_max_entries(1 << 20, 1);

/// Heads and connection events for user space. The size is a setting.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(8 << 20, 0);

/// The programs of the ingress hook, by `hook::program`.
#[map]
pub static INGRESS_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(10, 0);

/// The same for the egress hook. Two arrays, since one may hold programs of one attach type only.
#[map]
pub static EGRESS_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(10, 0);
