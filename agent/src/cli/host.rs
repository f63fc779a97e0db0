//! Facts about this host that a result names, and the cgroup that a playbook's scope means.

use std::io;
use std::path::{Path, PathBuf};

use nix::sys::utsname::uname;
use stormdrill_core::playbook::Scope;
use thiserror::Error;

use crate::cgroup::{self, CgroupError};

/// Why a scope cannot be observed.
#[derive(Debug, Error)]
pub(super) enum ScopeError {
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("observe.scope: there is no cgroup `{}`; `systemd-cgls` lists them", path.display())]
    NoCgroup { path: PathBuf },
    #[error("observe.scope: process {pid} cannot be read")]
    NoProcess { pid: u32, source: io::Error },
    #[error("observe.scope: process {pid} is in no cgroup2 group")]
    NoUnified { pid: u32 },
}

/// The host's name.
pub(super) fn name() -> String {
    uname().map(|u| u.nodename().to_string_lossy().into_owned()).unwrap_or_default()
}

/// The kernel's release.
pub(super) fn kernel() -> String {
    uname().map(|u| u.release().to_string_lossy().into_owned()).unwrap_or_default()
}

/// An identifier for a run: unlikely to come twice, short enough to type.
pub(super) fn drill_id() -> String {
    let mut bytes = [0u8; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut f| io::Read::read_exact(&mut f, &mut bytes));
    if read.is_err() {
        bytes = crate::clock::monotonic_ns().to_le_bytes();
    }
    format!("{:016x}", u64::from_le_bytes(bytes))
}

/// The cgroup directory whose sockets a scope means.
pub(super) fn scope(scope: &Scope, state_dir: &Path) -> Result<PathBuf, ScopeError> {
    let root = cgroup::root(state_dir)?;
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let path = match scope {
        Scope::Host => return Ok(root),
        Scope::Cgroup(path) => below(path),
        Scope::Pid(pid) => below(&unified_of(*pid)?),
    };
    if path.is_dir() { Ok(path) } else { Err(ScopeError::NoCgroup { path }) }
}

fn unified_of(pid: u32) -> Result<String, ScopeError> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
        .map_err(|source| ScopeError::NoProcess { pid, source })?;
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned).ok_or(ScopeError::NoUnified { pid })
}
