//! Reading the plaintext of TLS connections: probes on OpenSSL's calls, in every library and executable that has them.
//!
//! Whatever stands in the way (a kernel without uprobes or type information, a missing capability, no library) leaves the connections counted as TLS.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};

use aya::Ebpf;
use aya::maps::{Array, MapData, ProgramArray};
use aya::programs::uprobe::{UProbe, UProbeLinkId, UProbeScope};
use aya::programs::{Program, ProgramError};
use thiserror::Error;

use super::ProbeError;

mod layout;
mod library;
mod scan;

use library::{Function, Library};
use scan::{Change, FileId, Scan};

/// The programs that call each other, by their place (`tls::read::program` of the kernel crate).
const CHAIN: [&str; 7] = ["tls_next", "tls_http1", "tls_http2", "tls_redis", "tls_mysql", "tls_postgres", "tls_detect"];

/// Why the plaintext of TLS connections is not read.
#[derive(Debug, Error)]
pub enum TlsError {
    /// Of every edge it is said what it speaks.
    #[error("every edge names its protocol")]
    NotNeeded,
    /// The kernel does not say how its structures are laid out.
    #[error("read the kernel's type information")]
    Layout(#[source] io::Error),
    /// It does, but not where a socket's owner is.
    #[error("find the owner in the kernel's socket")]
    NoOwner,
    /// The kernel refused a part.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Processes cannot be looked at.
    #[error("look for TLS libraries")]
    Scan(#[source] io::Error),
}

/// The probes on libraries.
pub(super) struct Tls {
    changes: Receiver<Change>,
    links: HashMap<FileId, Vec<(&'static str, UProbeLinkId)>>,
    /// Libraries that the kernel refused to probe.
    refused: u64,
    _scan: Scan,
    // An array of programs forgets them when its last user-space handle is closed.
    _chain: ProgramArray<MapData>,
}

impl Tls {
    /// Loads the programs and attaches them to the libraries that there are; more are looked for from now on.
    pub(super) fn attach(object: &mut Ebpf) -> Result<Self, TlsError> {
        let owner = layout::socket_owner()?;
        let mut owned: Array<MapData, u32> = super::load::take(object, "TLS_SOCK_OWNED")?;
        owned.set(0, owner, 0).map_err(super::load::map("TLS_SOCK_OWNED"))?;
        let mut chain: ProgramArray<MapData> = super::load::take(object, "TLS_PROGRAMS")?;
        for (index, name) in (0..).zip(CHAIN) {
            let program = uprobe(object, name)?;
            program.load().map_err(super::load::program(name))?;
            chain.set(index, program.fd().map_err(super::load::program(name))?, 0).map_err(super::load::map("TLS_PROGRAMS"))?;
        }
        for name in Function::PROGRAMS {
            uprobe(object, name)?.load().map_err(super::load::program(name))?;
        }
        let (scan, found, changes) = Scan::start().map_err(TlsError::Scan)?;
        let mut tls = Self { changes, links: HashMap::new(), refused: 0, _scan: scan, _chain: chain };
        for library in found {
            tls.probe(object, &library);
        }
        Ok(tls)
    }

    /// Attaches to what was found meanwhile, and detaches from what nobody uses any more.
    pub(super) fn follow(&mut self, object: &mut Ebpf) {
        loop {
            match self.changes.try_recv() {
                Ok(Change::Found(library)) => self.probe(object, &library),
                Ok(Change::Gone(file)) => self.leave(object, file),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Libraries that are probed, and those that the kernel refused.
    pub(super) fn libraries(&self) -> (usize, u64) {
        (self.links.len(), self.refused)
    }

    fn probe(&mut self, object: &mut Ebpf, library: &Library) {
        let path = library.path();
        let mut links = Vec::new();
        for &(function, offset) in &library.functions {
            for name in function.programs() {
                let attached = uprobe(object, name)
                    .map_err(|_| ())
                    .and_then(|program| program.attach(offset, &path, UProbeScope::AllProcesses).map_err(|_| ()));
                let Ok(link) = attached else {
                    self.refused += 1;
                    detach(object, links);
                    return;
                };
                links.push((name, link));
            }
        }
        self.links.insert(library.file, links);
    }

    fn leave(&mut self, object: &mut Ebpf, file: FileId) {
        detach(object, self.links.remove(&file).unwrap_or_default());
    }
}

fn detach(object: &mut Ebpf, links: Vec<(&'static str, UProbeLinkId)>) {
    for (name, link) in links {
        if let Ok(program) = uprobe(object, name) {
            // It is gone in any case.
            let _: Result<(), ProgramError> = program.detach(link);
        }
    }
}

fn uprobe<'a>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut UProbe, ProbeError> {
    let found: &mut Program = object.program_mut(name).ok_or(ProbeError::Missing { name })?;
    found.try_into().map_err(super::load::program(name))
}
