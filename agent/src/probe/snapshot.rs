//! The kernel's counters at an instant, summed over the CPUs.

use std::collections::BTreeMap;

use aya::maps::{MapData, PerCpuArray, PerCpuValues};
use stormdrill_core::edge::EdgeId;
use stormdrill_core::event::Epoch;
use stormdrill_core::window::{EdgeCounts, Recognised};
use stormdrill_wire::abi::{EDGE_SLOTS, EPOCH_SLOTS, EdgeCounters, FIRST_STATUS, OTHER_DOWNSTREAM, OTHER_INGRESS, health};

use super::{ProbeError, records};
use crate::clock;

/// Counters by epoch slot and edge. They grow for as long as the probe is attached; a slot is used again every fourth epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Monotonic clock, nanoseconds, after the last counter was read.
    pub at_ns: u64,
    /// What the probe missed.
    pub health: Health,
    slots: Vec<Vec<EdgeCounts>>,
    status: Vec<Vec<BTreeMap<u16, u64>>>,
    other: [EdgeCounts; 2],
}

/// What the probe missed, since it was attached. All zero means that nothing was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    /// Events that the ring buffer had no room for.
    pub events_lost: u64,
    /// Connections of named edges whose bytes are not read: TLS and unknown protocols.
    pub unparsed_connections: u64,
    /// Connections that were open before, may belong to a named edge, and whose role could not be found out.
    pub unknown_role_connections: u64,
    /// Segments with more messages than can be read at once; the rest of each was skipped.
    pub segments_over_budget: u64,
    /// Missing stretches of named edges' streams that could not be remembered until they came.
    pub gaps: u64,
    /// Heads that were counted though a part of each had passed out of order, unread.
    pub assumed_heads: u64,
    /// Sockets for which the kernel had no memory.
    pub storage_failed: u64,
    /// Packets whose headers could not be read.
    pub headers_unreadable: u64,
    /// Records that could not be decoded.
    pub records_malformed: u64,
}

impl Snapshot {
    /// The edges' counts in the slot of `epoch`, by edge.
    #[must_use]
    pub fn slot(&self, epoch: Epoch) -> &[EdgeCounts] {
        self.slots.get(slot_of(epoch)).map_or(&[], Vec::as_slice)
    }

    /// Responses of an edge by status code, in the slot of `epoch`.
    #[must_use]
    pub fn status(&self, epoch: Epoch, edge: EdgeId) -> Option<&BTreeMap<u16, u64>> {
        self.status.get(slot_of(epoch))?.get(usize::from(edge.0))
    }

    /// An edge's counts over all slots.
    #[must_use]
    pub fn total(&self, edge: EdgeId) -> EdgeCounts {
        let mut total = EdgeCounts::default();
        for counts in self.slots.iter().filter_map(|slot| slot.get(usize::from(edge.0))) {
            merge(&mut total, counts);
        }
        total
    }

    /// An edge's responses by status code over all slots.
    #[must_use]
    pub fn total_status(&self, edge: EdgeId) -> BTreeMap<u16, u64> {
        let mut total = BTreeMap::new();
        for codes in self.status.iter().filter_map(|slot| slot.get(usize::from(edge.0))) {
            for (&code, &count) in codes {
                *total.entry(code).or_insert(0) += count;
            }
        }
        total
    }

    /// Accepted connections that belong to no named edge, over all slots.
    #[must_use]
    pub const fn other_ingress(&self) -> &EdgeCounts {
        &self.other[0]
    }

    /// Opened connections that belong to no named edge, over all slots.
    #[must_use]
    pub const fn other_downstream(&self) -> &EdgeCounts {
        &self.other[1]
    }
}

fn slot_of(epoch: Epoch) -> usize {
    usize::try_from(epoch % EPOCH_SLOTS).unwrap_or(0)
}

pub(super) fn read(
    counters: &PerCpuArray<MapData, EdgeCounters>,
    health: &PerCpuArray<MapData, u64>,
    edges: usize,
    records_malformed: u64,
) -> Result<Snapshot, ProbeError> {
    let mut slots = Vec::new();
    let mut status = Vec::new();
    let mut other = [EdgeCounts::default(); 2];
    for slot in 0..EPOCH_SLOTS {
        let mut edge_counts = Vec::with_capacity(edges);
        let mut edge_status = Vec::with_capacity(edges);
        for edge in (0..EDGE_SLOTS).take(edges) {
            let values = edge_values(counters, slot, edge)?;
            edge_counts.push(sum(&values));
            edge_status.push(sum_status(&values));
        }
        for (total, edge) in other.iter_mut().zip([OTHER_INGRESS, OTHER_DOWNSTREAM]) {
            merge(total, &sum(&edge_values(counters, slot, u32::from(edge))?));
        }
        slots.push(edge_counts);
        status.push(edge_status);
    }
    let one = |index| health_of(health, index);
    let health = Health {
        events_lost: one(health::EVENTS_LOST)?,
        unparsed_connections: one(health::UNPARSED_CONNECTIONS)?,
        unknown_role_connections: one(health::UNKNOWN_ROLE)?,
        segments_over_budget: one(health::SEGMENTS_OVER_BUDGET)?,
        gaps: one(health::GAPS)?,
        assumed_heads: one(health::ASSUMED_HEADS)?,
        storage_failed: one(health::STORAGE_FAILED)?,
        headers_unreadable: one(health::HEADERS_UNREADABLE)?,
        records_malformed,
    };
    Ok(Snapshot { at_ns: clock::monotonic_ns(), health, slots, status, other })
}

/// One of the health counters.
pub(super) fn health_of(health: &PerCpuArray<MapData, u64>, index: u32) -> Result<u64, ProbeError> {
    let values = health.get(&index, 0).map_err(|source| ProbeError::Map { map: "HEALTH", source })?;
    Ok(values.iter().sum())
}

fn edge_values(counters: &PerCpuArray<MapData, EdgeCounters>, slot: u32, edge: u32) -> Result<PerCpuValues<EdgeCounters>, ProbeError> {
    counters.get(&(slot * EDGE_SLOTS + edge), 0).map_err(|source| ProbeError::Map { map: "COUNTERS", source })
}

fn sum(values: &PerCpuValues<EdgeCounters>) -> EdgeCounts {
    let mut total = EdgeCounts::default();
    for value in values.iter() {
        let mut recognised = Recognised::default();
        for (code, count) in (0..).zip(value.protocols) {
            if let Some(protocol) = records::recognised(code) {
                recognised.add(protocol, count);
            }
        }
        merge(
            &mut total,
            &EdgeCounts {
                requests: value.requests,
                responses: value.responses,
                connections_opened: value.connections_opened,
                connections_closed: value.connections_closed,
                tcp_retransmits: value.retransmits,
                connect_failures: value.connect_failures,
                request_bytes: value.request_bytes,
                response_bytes: value.response_bytes,
                ok: value.ok,
                errors: value.errors,
                recognised,
            },
        );
    }
    total
}

fn merge(total: &mut EdgeCounts, more: &EdgeCounts) {
    *total = total.plus(more);
}

fn sum_status(values: &PerCpuValues<EdgeCounters>) -> BTreeMap<u16, u64> {
    let mut codes = BTreeMap::new();
    for value in values.iter() {
        for (code, &count) in (FIRST_STATUS..).zip(&value.status) {
            if count > 0 {
                *codes.entry(code).or_insert(0) += count;
            }
        }
    }
    codes
}
