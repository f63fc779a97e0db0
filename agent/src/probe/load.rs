//! Loading and attaching.
//!
//! The order matters. Open sockets are listed before the hooks are attached, so that those connections are known from the
//! first packet, and listed again afterwards, for the ones that were opened in between.

use std::fs::File;

use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, ProgramArray, RingBuf};
use aya::programs::cgroup_skb::CgroupSkbLink;
use aya::programs::links::{FdLink, LinkError};
use aya::programs::sock_ops::SockOpsLink;
use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, Program, ProgramError, SockOps};
use aya::{Ebpf, EbpfError, EbpfLoader};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use stormdrill_core::edge::{EdgeSpec, Protocol};
use stormdrill_wire::abi::{Rules, Settings};
use stormdrill_wire::sampling::EVERYTHING;

use super::hooks::{Hook, Hooks};
use super::tls::{Tls, TlsError};
use super::{Probe, ProbeConfig, ProbeError, rules, sockets};
use crate::memory;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe.o"));

/// The programs of each direction, by their place in its array, as they call each other (`hook::program` of the kernel crate).
const CHAINS: [(&str, &[&str]); 2] = [
    (
        "INGRESS_PROGRAMS",
        &[
            "probe_ingress",
            "passive_ingress",
            "http2_ingress",
            "redis_ingress",
            "mysql_ingress",
            "postgres_ingress",
            "detect_ingress",
            "order_ingress",
            "adopt_ingress",
            "early_ingress",
        ],
    ),
    (
        "EGRESS_PROGRAMS",
        &[
            "probe_egress",
            "passive_egress",
            "http2_egress",
            "redis_egress",
            "mysql_egress",
            "postgres_egress",
            "detect_egress",
            "order_egress",
            "adopt_egress",
        ],
    ),
];

/// Whose messages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    /// Those of all connections.
    All,
    /// Those of edges.
    Edges,
}

impl Reads {
    /// Whether a program is ever reached: all but the protocols' own are.
    fn needs(self, name: &str, edges: &[EdgeSpec]) -> bool {
        let speak = |protocols: &[Protocol]| edges.iter().any(|edge| edge.protocol.is_none_or(|protocol| protocols.contains(&protocol)));
        self == Self::All
            || match name.split('_').next() {
                // An HTTP/1 connection may go on with it.
                Some("http2") => speak(&[Protocol::Http, Protocol::Http2, Protocol::Grpc]),
                Some("redis") => speak(&[Protocol::Redis]),
                Some("mysql") => speak(&[Protocol::Mysql]),
                Some("postgres") => speak(&[Protocol::Postgres]),
                _ => true,
            }
    }
}

pub(super) fn attach(config: &ProbeConfig<'_>, reads: Reads) -> Result<Probe, ProbeError> {
    let rules = rules::of_edges(config.edges)?;
    raise_memlock();
    let cgroup = File::open(&config.cgroup).map_err(|source| ProbeError::Cgroup { cgroup: config.cgroup.clone(), source })?;
    let mut loader = EbpfLoader::new();
    loader.map_max_entries("EVENTS", config.ring_bytes).map_max_entries("EARLY", cpus());
    let may_be_tls = config.edges.is_empty() || config.edges.iter().any(|edge| edge.protocol.is_none());
    if !may_be_tls {
        // Their memory is taken when they are made.
        for map in ["TLS_CALLS", "TLS_SESSIONS", "TLS_HELD", "TLS_READ"] {
            loader.map_max_entries(map, 1);
        }
    }
    let mut object = loader.load(OBJECT).map_err(refused)?;

    let count = u32::try_from(config.edges.len()).unwrap_or(u32::MAX);
    let events = if config.events { Settings::EVENTS } else { 0 };
    let current = Settings { epoch: 0, flags: events, rules: count, share: EVERYTHING, turn: 0 };
    let mut settings: Array<MapData, Settings> = take(&mut object, "SETTINGS")?;
    settings.set(0, current, 0).map_err(map("SETTINGS"))?;
    let mut rule_map: Array<MapData, Rules> = take(&mut object, "RULES")?;
    rule_map.set(0, rules, 0).map_err(map("RULES"))?;
    let mut found: HashMap<MapData, u64, u32> = take(&mut object, "FOUND")?;

    let tls = if may_be_tls { read_tls(&mut object) } else { Err(TlsError::NotNeeded) };
    let events = if tls.is_ok() { events | Settings::READS_TLS } else { events };
    let mut chains = Vec::new();
    for (array, names) in CHAINS {
        let mut chain: ProgramArray<MapData> = take(&mut object, array)?;
        for (index, &name) in (0..).zip(names).filter(|(_, name)| reads.needs(name, config.edges)) {
            let name = if name == "passive_egress" && tls.is_ok() { "tls_egress" } else { name };
            let hook = skb_program(&mut object, name)?;
            if name != "tls_egress" {
                hook.load().map_err(program(name))?;
            }
            chain.set(index, hook.fd().map_err(program(name))?, 0).map_err(map(array))?;
        }
        chains.push(chain);
    }
    let life = sock_ops(&mut object)?;
    life.load().map_err(program("probe_life"))?;

    sockets::list(&mut found, &rules, count)?;
    let attach_error = |program| {
        let cgroup = config.cgroup.clone();
        move |source: ProgramError| ProbeError::Attach { program, cgroup, source: Box::new(source) }
    };
    let no_link = |program| move |source: LinkError| ProbeError::NoLink { program, source: Box::new(source) };
    let id = life.attach(&cgroup, CgroupAttachMode::Single).map_err(attach_error("probe_life"))?;
    let link: SockOpsLink = life.take_link(id).map_err(attach_error("probe_life"))?;
    let sock_ops = FdLink::try_from(link).map_err(no_link("probe_life"))?;
    let mut skb_link = |name: &'static str, kind| -> Result<FdLink, ProbeError> {
        let hook = skb_program(&mut object, name)?;
        let id = hook.attach(&cgroup, kind, CgroupAttachMode::Single).map_err(attach_error(name))?;
        let link: CgroupSkbLink = hook.take_link(id).map_err(attach_error(name))?;
        FdLink::try_from(link).map_err(no_link(name))
    };
    let ingress = skb_link("probe_ingress", CgroupSkbAttachType::Ingress)?;
    let egress = skb_link("probe_egress", CgroupSkbAttachType::Egress)?;
    sockets::list(&mut found, &rules, count)?;

    let mut probe = Probe {
        hooks: Hooks { ingress: Hook::of(ingress), egress: Hook::of(egress), sock_ops: Hook::of(sock_ops) },
        settings,
        current,
        counters: take::<PerCpuArray<_, _>>(&mut object, "COUNTERS")?,
        health: take::<PerCpuArray<_, _>>(&mut object, "HEALTH")?,
        ring: take::<RingBuf<_>>(&mut object, "EVENTS")?,
        ring_bytes: f64::from(config.ring_bytes.max(1)),
        malformed: 0,
        edges: config.edges.len(),
        _chains: chains,
        tls,
        object,
    };
    probe.write_settings(Settings { flags: events | Settings::LISTED, ..current })?;
    memory::give_back();
    Ok(probe)
}

/// Attaches to TLS libraries if the kernel lets them be read.
fn read_tls(object: &mut Ebpf) -> Result<Tls, TlsError> {
    // Loaded here, since its refusal is no failure of the probe.
    skb_program(object, "tls_egress")?.load().map_err(program("tls_egress"))?;
    Tls::attach(object)
}

pub(super) fn take<M: TryFrom<Map, Error = aya::maps::MapError>>(object: &mut Ebpf, name: &'static str) -> Result<M, ProbeError> {
    let found = object.take_map(name).ok_or(ProbeError::Missing { name })?;
    M::try_from(found).map_err(map(name))
}

/// CPUs that this machine may ever have.
fn cpus() -> u32 {
    aya::util::nr_cpus().ok().and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}

pub(super) fn map(map: &'static str) -> impl Fn(aya::maps::MapError) -> ProbeError {
    move |source| ProbeError::Map { map, source }
}

pub(super) fn program(program: &'static str) -> impl Fn(ProgramError) -> ProbeError {
    move |source| ProbeError::Program { program, source: Box::new(source) }
}

fn skb_program<'a>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut CgroupSkb, ProbeError> {
    let found: &mut Program = object.program_mut(name).ok_or(ProbeError::Missing { name })?;
    found.try_into().map_err(program(name))
}

fn sock_ops(object: &mut Ebpf) -> Result<&mut SockOps, ProbeError> {
    let found = object.program_mut("probe_life").ok_or(ProbeError::Missing { name: "probe_life" })?;
    found.try_into().map_err(program("probe_life"))
}

/// Lack of privilege is the user's to mend, and is told apart from what the kernel cannot do.
fn refused(error: EbpfError) -> ProbeError {
    if nix::unistd::geteuid().is_root() { ProbeError::Load(Box::new(error)) } else { ProbeError::NotPermitted(Box::new(error)) }
}

/// Kernels before 5.11 charge maps to RLIMIT_MEMLOCK, whose default is far below what the maps need. Where raising it is
/// refused, creating the maps fails and says so.
fn raise_memlock() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) {
        let unlimited = libc::RLIM_INFINITY;
        if setrlimit(Resource::RLIMIT_MEMLOCK, unlimited, unlimited).is_err() {
            let _ = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard);
        }
    }
}

#[cfg(test)]
mod tests {
    use stormdrill_core::edge::Role;

    use super::*;

    #[test]
    fn protocols_that_no_edge_can_speak_are_not_loaded_for_edges() {
        let edge = |protocol| EdgeSpec { name: "e".to_owned(), role: Role::Ingress, address: None, ports: None, protocol };
        let loaded = |reads: Reads, edges: &[EdgeSpec]| -> Vec<&str> {
            let names = CHAINS[1].1.iter().copied();
            names.filter(|name| reads.needs(name, edges) && !matches!(*name, "probe_egress" | "passive_egress")).collect()
        };
        let own = ["detect_egress", "order_egress", "adopt_egress"];
        assert_eq!(loaded(Reads::Edges, &[edge(Some(Protocol::Http))]), [["http2_egress"].as_slice(), &own].concat());
        assert_eq!(
            loaded(Reads::Edges, &[edge(Some(Protocol::Redis)), edge(Some(Protocol::Tls))]),
            [["redis_egress"].as_slice(), &own].concat()
        );
        assert_eq!(loaded(Reads::Edges, &[edge(Some(Protocol::Http)), edge(None)]).len(), 7);
        assert_eq!(loaded(Reads::All, &[edge(Some(Protocol::Http))]).len(), 7);
    }
}
