//! The probe: counts and events of every TCP connection on the host, from programs in the kernel.
//!
//! Attaching leaves nothing behind: the programs hang on links that the kernel closes with this process, whatever ends it.
//! Nothing is recognised here; user space sets the edges, reads counters and decodes records.

use std::path::PathBuf;
use std::time::Duration;

use aya::maps::{Array, MapData, PerCpuArray, RingBuf};
use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::event::{Epoch, ProbeEvent};
use stormdrill_core::sampling::Told;
use stormdrill_wire::abi::{EdgeCounters, Settings, health};
use stormdrill_wire::sampling::EVERYTHING;

use crate::clock;

mod error;
mod hooks;
mod load;
mod records;
mod rules;
mod snapshot;
mod sockets;
mod tls;

pub use error::ProbeError;
pub use snapshot::{Health, Snapshot};
pub use sockets::{Connection, connections, details};
pub use tls::TlsError;

/// What to observe.
#[derive(Debug, Clone)]
pub struct ProbeConfig<'a> {
    /// The cgroup2 directory whose sockets are observed; the hierarchy's root is the whole host.
    pub cgroup: PathBuf,
    /// The edges, at most 62. A connection belongs to the first that it matches.
    pub edges: &'a [EdgeSpec],
    /// Whether heads and connection events are sent; without them there are counts only.
    pub events: bool,
    /// Size of the ring buffer in bytes; a power of two, and a multiple of the page size.
    pub ring_bytes: u32,
}

impl ProbeConfig<'_> {
    /// Room for what a busy host sends in some hundred milliseconds.
    pub const DEFAULT_RING_BYTES: u32 = 8 << 20;
}

/// Whether each hook is still in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// Packets that reach sockets.
    pub ingress: bool,
    /// Packets that leave sockets.
    pub egress: bool,
    /// Opening, closing, retransmissions.
    pub sock_ops: bool,
}

impl Attached {
    /// The first that is not; `None` if all are.
    #[must_use]
    pub const fn lost(self) -> Option<&'static str> {
        match self {
            Self { ingress: false, .. } => Some("ingress"),
            Self { egress: false, .. } => Some("egress"),
            Self { sock_ops: false, .. } => Some("sock_ops"),
            _ => None,
        }
    }
}

/// What the kernel puts before each record of a ring.
const RECORD_HEADER: usize = 8;

/// The settings with other identities told. Once some were left out, that has to be looked at for good.
const fn telling(settings: Settings, Told { share, turn }: Told) -> Settings {
    let samples = if share < EVERYTHING { Settings::SAMPLES } else { 0 };
    Settings { share, turn, flags: settings.flags | samples, ..settings }
}

/// An attached probe.
pub struct Probe {
    hooks: hooks::Hooks,
    settings: Array<MapData, Settings>,
    current: Settings,
    counters: PerCpuArray<MapData, EdgeCounters>,
    health: PerCpuArray<MapData, u64>,
    ring: RingBuf<MapData>,
    ring_bytes: f64,
    malformed: u64,
    edges: usize,
    // An array of programs forgets them when its last user-space handle is closed.
    _chains: Vec<aya::maps::ProgramArray<MapData>>,
    tls: Result<tls::Tls, TlsError>,
    // Holds the programs and the remaining maps.
    object: aya::Ebpf,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").field("edges", &self.edges).field("settings", &self.current).finish_non_exhaustive()
    }
}

impl Probe {
    /// Loads the programs, attaches them, and finds out about the connections that are open already.
    ///
    /// # Errors
    /// When the process lacks the privilege, the cgroup cannot be opened, the kernel refuses the programs, or there are
    /// more edges than can be told apart.
    pub fn attach(config: &ProbeConfig<'_>) -> Result<Self, ProbeError> {
        load::attach(config, load::Reads::All)
    }

    /// The same for edges alone: a protocol's programs stay away if no edge can speak it, which saves half of the time that loading takes. What is no
    /// edge's is counted as connections only.
    ///
    /// # Errors
    /// As [`Probe::attach`].
    pub fn attach_to_edges(config: &ProbeConfig<'_>) -> Result<Self, ProbeError> {
        load::attach(config, load::Reads::Edges)
    }

    /// Counts under `epoch` from now on. Returns an instant of the monotonic clock: what happens later is counted under the
    /// new epoch, or on another CPU that was in the middle of a packet, at most that packet's time later.
    ///
    /// # Errors
    /// When the kernel refuses the write.
    pub fn set_epoch(&mut self, epoch: Epoch) -> Result<u64, ProbeError> {
        self.write_settings(Settings { epoch, ..self.current })?;
        Ok(clock::monotonic_ns())
    }

    /// The same, and sends events of these identities from now on.
    ///
    /// # Errors
    /// When the kernel refuses the write.
    pub fn set_epoch_and_tell(&mut self, epoch: Epoch, told: Told) -> Result<u64, ProbeError> {
        self.write_settings(Settings { epoch, ..telling(self.current, told) })?;
        Ok(clock::monotonic_ns())
    }

    /// Sends events of these identities from now on; returns an instant like [`Self::set_epoch`]. Answers belong to their requests.
    ///
    /// # Errors
    /// When the kernel refuses the write.
    pub fn tell(&mut self, told: Told) -> Result<u64, ProbeError> {
        self.write_settings(telling(self.current, told))?;
        Ok(clock::monotonic_ns())
    }

    /// Requests so far of which no event was sent, since their identity is left out.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn left_out(&self) -> Result<u64, ProbeError> {
        snapshot::health_of(&self.health, health::LEFT_OUT)
    }

    /// Reads all counters. They only grow while the probe is attached.
    ///
    /// # Errors
    /// When a map cannot be read.
    pub fn snapshot(&mut self) -> Result<Snapshot, ProbeError> {
        snapshot::read(&self.counters, &self.health, self.edges, self.malformed)
    }

    /// Hands over every event that is waiting, in the order in which the kernel sent them, and returns at once: how full the ring was, 0 to 1.
    ///
    /// # Errors
    /// None at present; reserved for a ring that cannot be read.
    pub fn drain(&mut self, mut on_event: impl FnMut(ProbeEvent)) -> Result<f64, ProbeError> {
        let mut bytes = 0;
        if let Ok(tls) = &mut self.tls {
            tls.follow(&mut self.object);
        }
        while let Some(record) = self.ring.next() {
            bytes += record.len() + RECORD_HEADER;
            match records::decode(&record) {
                Some(event) => on_event(event),
                None => self.malformed += 1,
            }
        }
        Ok(bytes as f64 / self.ring_bytes)
    }

    /// The state of the hooks, asked of the kernel.
    #[must_use]
    pub fn attached(&self) -> Attached {
        self.hooks.state()
    }

    /// How many TLS libraries are probed, and how many the kernel refused.
    ///
    /// # Errors
    /// Why no plaintext of TLS connections is read.
    pub fn tls_libraries(&self) -> Result<(usize, u64), &TlsError> {
        self.tls.as_ref().map(tls::Tls::libraries)
    }

    /// How long each of the programs ran so far, by name. The kernel measures it only while sysctl kernel.bpf_stats_enabled is 1.
    #[must_use]
    pub fn run_times(&self) -> Vec<(&str, Duration)> {
        self.object.programs().filter_map(|(name, program)| Some((name, program.info().ok()?.run_time()))).collect()
    }

    /// How many instructions the kernel's verifier went through for each program, by name; 0 before kernel 5.16. It refuses
    /// a program at one million.
    #[must_use]
    pub fn verified(&self) -> Vec<(&str, u32)> {
        let programs = self.object.programs();
        programs.filter_map(|(name, program)| Some((name, program.info().ok()?.verified_instruction_count().unwrap_or(0)))).collect()
    }

    /// Takes the hooks off. Dropping the probe does the same.
    pub fn detach(self) {
        drop(self);
    }

    fn write_settings(&mut self, settings: Settings) -> Result<(), ProbeError> {
        self.settings.set(0, settings, 0).map_err(|source| ProbeError::Map { map: "SETTINGS", source })?;
        self.current = settings;
        Ok(())
    }
}
