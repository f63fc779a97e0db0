//! The loaded kernel object of one hook: its rule, its lease, its counters.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::sync::{LazyLock, Mutex, PoisonError};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, CgroupArray, HashMap, MapData, MapError, PerCpuArray, ProgramArray};
use aya::programs::links::{FdLink, LinkError};
use aya::programs::{CgroupAttachMode, CgroupSockAddr, ProgramError, ProgramFd, SchedClassifier};
use aya::{Ebpf, EbpfError, EbpfLoader};
use stormdrill_wire::abi::role;
use stormdrill_wire::conn::Conn;
use stormdrill_wire::fault::exchange::Exchange;
use stormdrill_wire::fault::request::RequestRule;
use stormdrill_wire::fault::{AddressKey, EndKey, FaultRule, FaultStats};
use thiserror::Error;

use super::selection::{Selection, Sight};
use crate::cgroup_link::Hook;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fault.o"));

/// Connections whose requests and answers are read at a time, about 300 bytes each; the least used makes room.
const EXCHANGES: u32 = 16_384;

/// A program of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// Selects for a redirect.
    Select,
    /// Drops a share.
    Drop,
    /// Rewrites a share of HTTP statuses.
    HttpStatus,
    /// Refuses a share of connections; no classifier.
    Refuse,
}

/// Addresses of which each CPU knows what the prefixes say, a power of two that the programs know.
const KNOWN: u32 = 1024;

/// Learns a cgroup's connections from what its sockets send, for a program on the other hook.
const LEARN: &str = "sd_learn";
/// Connections of a cgroup that are remembered.
const MEMBERS: u32 = 65_536;

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Select => "sd_select",
            Self::Drop => "sd_drop",
            Self::HttpStatus => "sd_http_status",
            Self::Refuse => "sd_refuse4",
        }
    }
}

/// What can go wrong with the kernel object.
#[derive(Debug, Error)]
pub enum ObjectError {
    /// The object was left out of this build.
    #[error("this binary was built without the kernel object for faults")]
    Missing,
    /// The object cannot be read, or its maps cannot be made.
    #[error("load the kernel object for faults")]
    Load(#[source] Box<EbpfError>),
    /// The kernel's verifier or its privileges refuse the program. What the verifier says, which may be long, is logged.
    #[error("load the classifier {program}")]
    Refused {
        /// The program.
        program: &'static str,
        /// The errno.
        source: io::Error,
    },
    /// The program is of another type, or not loaded.
    #[error("load the classifier {program}")]
    Program {
        /// The program.
        program: &'static str,
        /// Why.
        source: Box<ProgramError>,
    },
    /// The kernel has no links on cgroups.
    #[error("keep {program} on its cgroup by a link")]
    Link {
        /// The program.
        program: &'static str,
        /// Why.
        source: Box<LinkError>,
    },
    /// The object has no such program or map.
    #[error("the kernel object has no {name}")]
    Incomplete {
        /// What is missing.
        name: &'static str,
    },
    /// A map cannot be read or written.
    #[error("access the map {map}")]
    Map {
        /// The map.
        map: &'static str,
        /// Why.
        source: MapError,
    },
}

/// What loads the object. One for the process: making a loader reads the types of the whole kernel, which takes longer than all else that a fault needs, and
/// is done before the first drill's baseline. They are not used: the programs look at packets and at our own maps, at no structure of the kernel.
static LOADER: LazyLock<Mutex<EbpfLoader<'static>>> = LazyLock::new(|| {
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    Mutex::new(loader)
});

/// The array of the programs that a program goes on with.
struct Chain(#[expect(dead_code, reason = "held, not used")] ProgramArray<MapData>);

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chain")
    }
}

/// The programs of `refuse`, each with the one for kernels before 5.18.
pub(crate) const REFUSE: [[&str; 2]; 2] = [["sd_refuse4", "sd_forbid4"], ["sd_refuse6", "sd_forbid6"]];

/// A loaded object; its program stays in the kernel as long as a filter holds it.
#[derive(Debug)]
pub(crate) struct Object {
    ebpf: Ebpf,
    program: Program,
    /// What keeps `refuse` on its cgroup.
    links: Vec<Hook>,
    /// The kernel empties the array when nobody holds it.
    _chain: Option<Chain>,
}

impl Object {
    /// Loads one program with its selection. The lease is not granted: it selects nothing yet.
    pub(crate) fn load(program: Program, selection: &Selection) -> Result<Self, ObjectError> {
        let mut ebpf = Self::with_selection(selection, if program == Program::HttpStatus { EXCHANGES } else { 1 })?;
        let name = program.name();
        load(&mut ebpf, name)?;
        if selection.members == Some(Sight::Answered) && program != Program::HttpStatus {
            load(&mut ebpf, LEARN)?;
        }
        let chain = if program == Program::HttpStatus { Some(chained(&mut ebpf)?) } else { None };
        Ok(Self { ebpf, program, links: Vec::new(), _chain: chain })
    }

    /// Loads the programs that refuse connections and attaches them to a cgroup; they go with the object. The lease is not granted.
    pub(crate) fn attach_to_connect(selection: &Selection, cgroup: &File) -> Result<Self, ObjectError> {
        let mut ebpf = Self::with_selection(selection, 1)?;
        let mut links = Vec::new();
        for [tells_why, older] in REFUSE {
            let name = match connect_program(&mut ebpf, tells_why)?.load() {
                Ok(()) => tells_why,
                // Before 5.18 a program cannot say why it refuses.
                Err(_) => {
                    connect_program(&mut ebpf, older)?.load().map_err(|error| refused(older, error))?;
                    older
                }
            };
            let program = connect_program(&mut ebpf, name)?;
            // A link is one of many by itself; the flag for that is refused beside it.
            let id = program.attach(cgroup, CgroupAttachMode::Single).map_err(|error| refused(name, error))?;
            let link = program.take_link(id).map_err(|error| refused(name, error))?;
            links.push(Hook::of(FdLink::try_from(link).map_err(|source| ObjectError::Link { program: name, source: Box::new(source) })?));
        }
        Ok(Self { ebpf, program: Program::Refuse, links, _chain: None })
    }

    /// Whether what keeps `refuse` on its cgroup is still in place.
    pub(crate) fn is_attached(&self) -> bool {
        self.links.iter().all(Hook::is_live)
    }

    /// The object with its maps filled, no program loaded.
    fn with_selection(selection: &Selection, exchanges: u32) -> Result<Ebpf, ObjectError> {
        if OBJECT.is_empty() {
            return Err(ObjectError::Missing);
        }
        let (prefixes, peers, spared) = (selection.prefixes(), selection.peer_prefixes(), selection.spared_keys());
        let mut ebpf = LOADER
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .map_max_entries("ADDRESSES", u32::try_from(prefixes.len()).unwrap_or(u32::MAX).max(1))
            .map_max_entries("PEERS", u32::try_from(peers.len()).unwrap_or(u32::MAX).max(1))
            .map_max_entries("KNOWN_ADDRESSES", if prefixes.is_empty() { 1 } else { KNOWN })
            .map_max_entries("KNOWN_PEERS", if peers.is_empty() { 1 } else { KNOWN })
            .map_max_entries("SPARED", u32::try_from(spared.len()).unwrap_or(u32::MAX).max(1))
            .map_max_entries("EXCHANGES", exchanges)
            .map_max_entries("MEMBERS", if selection.members == Some(Sight::Answered) { MEMBERS } else { 1 })
            .load(OBJECT)
            .map_err(|source| ObjectError::Load(Box::new(source)))?;

        let map = |map| move |source| ObjectError::Map { map, source };
        let mut ports = array::<u64>(&mut ebpf, "PORTS")?;
        for (word, bits) in selection.port_words() {
            ports.set(word, bits, 0).map_err(map("PORTS"))?;
        }
        fill(&mut ebpf, "ADDRESSES", prefixes)?;
        fill(&mut ebpf, "PEERS", peers)?;
        let ends = ebpf.map_mut("SPARED").ok_or(ObjectError::Incomplete { name: "SPARED" })?;
        let mut ends = HashMap::<_, EndKey, u8>::try_from(ends).map_err(map("SPARED"))?;
        spared.iter().try_for_each(|end| ends.insert(end, 1, 0)).map_err(map("SPARED"))?;
        Ok(ebpf)
    }

    /// Sets the rule; before the filter is added.
    pub(crate) fn set_rule(&mut self, rule: &FaultRule) -> Result<(), ObjectError> {
        array::<FaultRule>(&mut self.ebpf, "RULE")?.set(0, rule, 0).map_err(|source| ObjectError::Map { map: "RULE", source })
    }

    /// Sets which requests' answers are selected, and prepares the memory of a new connection; before the filter is added.
    pub(crate) fn set_requests(&mut self, requests: &RequestRule) -> Result<(), ObjectError> {
        let map = |map| move |source| ObjectError::Map { map, source };
        array::<RequestRule>(&mut self.ebpf, "REQUESTS")?.set(0, requests, 0).map_err(map("REQUESTS"))?;
        let Conn { flows, book, .. } = Conn::found(role::INGRESS);
        let blank = Exchange { flows, book, ..Exchange::default() };
        array::<Exchange>(&mut self.ebpf, "BLANK")?.set(0, blank, 0).map_err(map("BLANK"))
    }

    /// Sets the cgroup whose sockets' packets are selected; before the filter is added.
    pub(crate) fn set_cgroup(&mut self, cgroup: &File) -> Result<(), ObjectError> {
        let failed = |source| ObjectError::Map { map: "CGROUP", source };
        let map = self.ebpf.map_mut("CGROUP").ok_or(ObjectError::Incomplete { name: "CGROUP" })?;
        CgroupArray::try_from(map).map_err(failed)?.set(0, cgroup.as_raw_fd(), 0).map_err(failed)
    }

    /// The program for a filter on the hook of the other direction.
    pub(crate) fn other_program(&self) -> Result<BorrowedFd<'_>, ObjectError> {
        let name = if self.program == Program::HttpStatus { self.program.name() } else { LEARN };
        Ok(fd(&self.ebpf, name)?.as_fd())
    }

    /// The program, for a filter.
    pub(crate) fn program(&self) -> Result<BorrowedFd<'_>, ObjectError> {
        Ok(fd(&self.ebpf, self.program.name())?.as_fd())
    }

    /// Grants the lease until that moment of the monotonic clock; 0 ends it.
    pub(crate) fn lease_until(&mut self, expiry_ns: u64) -> Result<(), ObjectError> {
        array::<u64>(&mut self.ebpf, "LEASE")?.set(0, expiry_ns, 0).map_err(|source| ObjectError::Map { map: "LEASE", source })
    }

    /// What all CPUs counted.
    pub(crate) fn stats(&self) -> Result<FaultStats, ObjectError> {
        let map = self.ebpf.map("STATS").ok_or(ObjectError::Incomplete { name: "STATS" })?;
        let failed = |source| ObjectError::Map { map: "STATS", source };
        let stats = PerCpuArray::<_, FaultStats>::try_from(map).map_err(failed)?;
        let mut total = FaultStats::default();
        for cpu in stats.get(&0, 0).map_err(failed)?.iter() {
            total.seen += cpu.seen;
            total.selected += cpu.selected;
            total.hit += cpu.hit;
            total.expired += cpu.expired;
            total.unreadable += cpu.unreadable;
        }
        Ok(total)
    }
}

/// What `sd_http_status` goes on with, in the order of the kernel's array.
const CHAIN: [&str; 3] = ["sd_http_read", "sd_http_frames", "sd_http_write"];

/// Loads the programs that the first one goes on with.
fn chained(ebpf: &mut Ebpf) -> Result<Chain, ObjectError> {
    let failed = |source| ObjectError::Map { map: "NEXT", source };
    let map = ebpf.take_map("NEXT").ok_or(ObjectError::Incomplete { name: "NEXT" })?;
    let mut next = ProgramArray::try_from(map).map_err(failed)?;
    for (index, name) in (0..).zip(CHAIN) {
        load(ebpf, name)?;
        next.set(index, fd(ebpf, name)?, 0).map_err(failed)?;
    }
    Ok(Chain(next))
}

fn load(ebpf: &mut Ebpf, name: &'static str) -> Result<(), ObjectError> {
    let classifier: &mut SchedClassifier = ebpf
        .program_mut(name)
        .ok_or(ObjectError::Incomplete { name })?
        .try_into()
        .map_err(|source| ObjectError::Program { program: name, source: Box::new(source) })?;
    classifier.load().map_err(|error| refused(name, error))
}

fn fd<'a>(ebpf: &'a Ebpf, name: &'static str) -> Result<&'a ProgramFd, ObjectError> {
    let program = ebpf.program(name).ok_or(ObjectError::Incomplete { name })?;
    program.fd().map_err(|source| ObjectError::Program { program: name, source: Box::new(source) })
}

fn connect_program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut CgroupSockAddr, ObjectError> {
    let program = ebpf.program_mut(name).ok_or(ObjectError::Incomplete { name })?;
    program.try_into().map_err(|source| ObjectError::Program { program: name, source: Box::new(source) })
}

fn refused(program: &'static str, error: ProgramError) -> ObjectError {
    match error {
        ProgramError::LoadError { io_error, verifier_log } => {
            tracing::debug!(program, %verifier_log, "refused by the verifier");
            ObjectError::Refused { program, source: io_error }
        }
        other => ObjectError::Program { program, source: Box::new(other) },
    }
}

fn fill(ebpf: &mut Ebpf, name: &'static str, prefixes: Vec<(u32, AddressKey, u8)>) -> Result<(), ObjectError> {
    let failed = |source| ObjectError::Map { map: name, source };
    let trie = ebpf.map_mut(name).ok_or(ObjectError::Incomplete { name })?;
    let mut trie = LpmTrie::<_, AddressKey, u8>::try_from(trie).map_err(failed)?;
    for (length, key, value) in prefixes {
        trie.insert(&Key::new(length, key), value, 0).map_err(failed)?;
    }
    Ok(())
}

fn array<'a, V: aya::Pod>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<Array<&'a mut MapData, V>, ObjectError> {
    let map = ebpf.map_mut(name).ok_or(ObjectError::Incomplete { name })?;
    Array::try_from(map).map_err(|source| ObjectError::Map { map: name, source })
}
