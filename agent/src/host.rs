//! Facts about this host that a result names, and the cgroup that a playbook's scope means.

use std::io;
use std::path::{Path, PathBuf};

use nix::sys::utsname::uname;
use stormdrill_core::plan::host::{Feature, HostFacts};
use stormdrill_core::playbook::Scope;
use thiserror::Error;

use crate::cgroup::{self, CgroupError};
use crate::fault::{own_ports, spared};

/// Why a scope cannot be observed.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ScopeError {
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
pub(crate) fn name() -> String {
    uname().map(|u| u.nodename().to_string_lossy().into_owned()).unwrap_or_default()
}

/// The kernel's release.
pub(crate) fn kernel() -> String {
    uname().map(|u| u.release().to_string_lossy().into_owned()).unwrap_or_default()
}

/// An identifier for a run: unlikely to come twice, short enough to type.
pub(crate) fn drill_id() -> String {
    let mut bytes = [0u8; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut f| io::Read::read_exact(&mut f, &mut bytes));
    if read.is_err() {
        bytes = crate::clock::monotonic_ns().to_le_bytes();
    }
    format!("{:016x}", u64::from_le_bytes(bytes))
}

/// The cgroup directory whose sockets a scope means.
pub(crate) fn scope(scope: &Scope, state_dir: &Path) -> Result<PathBuf, ScopeError> {
    scope_below(&cgroup::find_or_mount(state_dir)?, scope)
}

/// The same below a root that is known.
pub(crate) fn scope_below(root: &Path, scope: &Scope) -> Result<PathBuf, ScopeError> {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let path = match scope {
        Scope::Host => return Ok(root.to_owned()),
        Scope::Cgroup(path) => below(path),
        Scope::Pid(pid) => below(&unified_of(*pid)?),
    };
    if path.is_dir() { Ok(path) } else { Err(ScopeError::NoCgroup { path }) }
}

fn unified_of(pid: u32) -> Result<String, ScopeError> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(|source| ScopeError::NoProcess { pid, source })?;
    text.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned).ok_or(ScopeError::NoUnified { pid })
}

/// A function that is in the kernel's symbol table when the feature is built in or loaded.
const fn symbol(feature: Feature) -> Option<&'static str> {
    match feature {
        Feature::SchIngress => Some(" clsact_init"),
        Feature::ClsBpf => Some(" cls_bpf_classify"),
        Feature::ActMirred => Some(" tcf_mirred_act"),
        Feature::Ifb => Some(" ifb_xmit"),
        Feature::SchNetem => Some(" netem_enqueue"),
        Feature::SchTbf => Some(" tbf_enqueue"),
        Feature::CgroupBpf => Some(" __cgroup_bpf_run_filter_sock_addr"),
        Feature::Cgroup2 | Feature::SkStorage => None,
    }
}

/// Whether a module's file is there: the list of them may be older than what was removed since.
fn has_module(list: &str, directory: &Path, name: &str) -> bool {
    let file = format!("/{name}.ko");
    // A line begins with the module's own file, which may be compressed; those that it needs follow.
    let mut files = list.lines().filter_map(|line| line.split(':').next()).filter(|path| path.contains(&file));
    files.any(|path| directory.join(path).exists())
}

/// What `plan` can say of this host without a privilege and without a socket: what the running kernel holds, and which
/// modules are installed for it. A symbol table that cannot be read leaves the question open.
pub(crate) fn facts() -> HostFacts {
    let release = kernel();
    let modules = std::fs::read_to_string(format!("/lib/modules/{release}/modules.dep")).unwrap_or_default();
    let mut facts = HostFacts::default();
    if let Ok(list) = std::fs::read_to_string("/proc/filesystems") {
        facts = facts.with(Feature::Cgroup2, list.lines().any(|line| line.trim_start_matches("nodev").trim() == "cgroup2"));
    }
    if let Ok(symbols) = std::fs::read_to_string("/proc/kallsyms") {
        for feature in Feature::MODULES {
            let built_in = symbol(feature).is_some_and(|symbol| symbols.contains(symbol));
            let installed = has_module(&modules, Path::new("/lib/modules").join(&release).as_path(), feature.as_str());
            facts = facts.with(feature, built_in || installed);
        }
        facts = facts.with(Feature::CgroupBpf, symbol(Feature::CgroupBpf).is_some_and(|symbol| symbols.contains(symbol)));
    }
    facts.kernel = Some(release);
    facts.spared_ports = own_ports::of_ssh();
    facts.spared_ends = spared::ssh_clients();
    facts
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_module_is_there_if_its_file_is_and_not_if_only_the_list_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let sched = dir.path().join("kernel/net/sched");
        std::fs::create_dir_all(&sched).unwrap();
        std::fs::write(sched.join("sch_tbf.ko.xz"), "").unwrap();
        let list = "kernel/net/sched/sch_netem.ko.xz:\nkernel/net/sched/sch_tbf.ko.xz:\nkernel/x.ko.xz: kernel/net/sched/sch_tbf2.ko.xz\n";
        assert!(has_module(list, dir.path(), "sch_tbf"));
        assert!(!has_module(list, dir.path(), "sch_netem"));
        assert!(!has_module(list, dir.path(), "sch_ingress"));
    }
}
