//! The loaded kernel object of one hook: its rule, its lease, its counters.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{Array, MapError, PerCpuArray};
use aya::programs::{CgroupAttachMode, CgroupSockAddr, ProgramError, SchedClassifier};
use aya::{Ebpf, EbpfError, EbpfLoader};
use stormdrill_wire::fault::{AddressKey, FaultRule, FaultStats};
use thiserror::Error;

use super::selection::Selection;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/fault.o"));

/// Connections whose last response is remembered, so that its retransmission is not counted again.
const RESPONSES: u32 = 16_384;

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

/// A loaded object; its program stays in the kernel as long as a filter holds it.
#[derive(Debug)]
pub(crate) struct Object {
    ebpf: Ebpf,
    program: Program,
}

impl Object {
    /// Loads one program with its selection. The lease is not granted: it selects nothing yet.
    pub(crate) fn load(program: Program, selection: &Selection) -> Result<Self, ObjectError> {
        let mut ebpf = Self::with_selection(selection, if program == Program::HttpStatus { RESPONSES } else { 1 })?;
        let name = program.name();
        let classifier: &mut SchedClassifier = ebpf
            .program_mut(name)
            .ok_or(ObjectError::Incomplete { name })?
            .try_into()
            .map_err(|source| ObjectError::Program { program: name, source: Box::new(source) })?;
        classifier.load().map_err(|error| refused(name, error))?;
        Ok(Self { ebpf, program })
    }

    /// Loads the programs that refuse connections and attaches them to a cgroup; they go with the object. The lease is not granted.
    pub(crate) fn attach_to_connect(selection: &Selection, cgroup: &File) -> Result<Self, ObjectError> {
        let mut ebpf = Self::with_selection(selection, 1)?;
        for [tells_why, older] in [["sd_refuse4", "sd_forbid4"], ["sd_refuse6", "sd_forbid6"]] {
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
            program.attach(cgroup, CgroupAttachMode::Single).map_err(|error| refused(name, error))?;
        }
        Ok(Self { ebpf, program: Program::Refuse })
    }

    /// The object with its maps filled, no program loaded.
    fn with_selection(selection: &Selection, responses: u32) -> Result<Ebpf, ObjectError> {
        if OBJECT.is_empty() {
            return Err(ObjectError::Missing);
        }
        let prefixes = selection.prefixes();
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("ADDRESSES", u32::try_from(prefixes.len()).unwrap_or(u32::MAX).max(1))
            .map_max_entries("RESPONSES", responses)
            .load(OBJECT)
            .map_err(|source| ObjectError::Load(Box::new(source)))?;

        let map = |map| move |source| ObjectError::Map { map, source };
        let mut ports = array::<u64>(&mut ebpf, "PORTS")?;
        for (word, bits) in selection.port_words() {
            ports.set(word, bits, 0).map_err(map("PORTS"))?;
        }
        let trie = ebpf.map_mut("ADDRESSES").ok_or(ObjectError::Incomplete { name: "ADDRESSES" })?;
        let mut trie = LpmTrie::<_, AddressKey, u8>::try_from(trie).map_err(map("ADDRESSES"))?;
        for (length, key, value) in prefixes {
            trie.insert(&Key::new(length, key), value, 0).map_err(map("ADDRESSES"))?;
        }
        Ok(ebpf)
    }

    /// Sets the rule; before the filter is added.
    pub(crate) fn set_rule(&mut self, rule: &FaultRule) -> Result<(), ObjectError> {
        array::<FaultRule>(&mut self.ebpf, "RULE")?.set(0, rule, 0).map_err(|source| ObjectError::Map { map: "RULE", source })
    }

    /// The program, for a filter.
    pub(crate) fn program(&self) -> Result<BorrowedFd<'_>, ObjectError> {
        let name = self.program.name();
        let program = self.ebpf.program(name).ok_or(ObjectError::Incomplete { name })?;
        let fd = program.fd().map_err(|source| ObjectError::Program { program: name, source: Box::new(source) })?;
        Ok(fd.as_fd())
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

fn array<'a, V: aya::Pod>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<Array<&'a mut aya::maps::MapData, V>, ObjectError> {
    let map = ebpf.map_mut(name).ok_or(ObjectError::Incomplete { name })?;
    Array::try_from(map).map_err(|source| ObjectError::Map { map: name, source })
}
