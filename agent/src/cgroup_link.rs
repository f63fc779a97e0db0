//! A link that keeps a program on a cgroup, and whether it still does.
//!
//! Somebody can detach a link by force or put another program in its place, and a cgroup that is removed takes its links along. The kernel's
//! description of a descriptor tells: aya does not pass that part on.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use aya::programs::links::FdLink;
use nix::errno::Errno;

/// One link; it is closed with this.
#[derive(Debug)]
pub(crate) struct Hook {
    /// Where it is described, found once: a daemon has thousands of descriptors. `None` without /proc.
    description: Option<PathBuf>,
    attached: Option<Described>,
    _link: FdLink,
}

/// What tells a link apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Described {
    link: u64,
    program: u64,
    /// 0 if it holds none any more.
    cgroup: u64,
}

impl Hook {
    /// The hook of a link that was attached just now.
    pub(crate) fn of(link: FdLink) -> Self {
        let id = link.info().map(|info| u64::from(info.id())).ok();
        let descriptors = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
        let found = descriptors.map(|entry| entry.path()).find_map(|path| {
            let described = describe(&path).filter(|described| Some(described.link) == id)?;
            Some((path, described))
        });
        let (description, attached) = found.unzip();
        Self { description, attached, _link: link }
    }

    /// Whether it is where it was put, with its program.
    pub(crate) fn is_live(&self) -> bool {
        let now = self.description.as_deref().and_then(describe);
        now.is_some_and(|now| now.cgroup != 0) && now == self.attached
    }
}

fn describe(descriptor: &Path) -> Option<Described> {
    parse(&std::fs::read_to_string(descriptor).ok()?)
}

fn parse(text: &str) -> Option<Described> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok());
    Some(Described { link: value("link_id")?, program: value("prog_id")?, cgroup: value("cgroup_id")? })
}

/// A link of a program, and the process that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) link: u32,
    pub(crate) pid: u32,
}

/// Links on cgroups of programs that have one of these names, whichever process of this PID namespace holds them.
///
/// # Errors
/// When the kernel's programs cannot be listed.
pub(crate) fn held(names: &[&str]) -> io::Result<Vec<Held>> {
    let mut programs = BTreeSet::new();
    for program in aya::programs::loaded_programs() {
        let program = program.map_err(io::Error::other)?;
        if program.name_as_str().is_some_and(|name| names.contains(&name)) {
            programs.insert(u64::from(program.id()));
        }
    }
    let mut found = BTreeSet::new();
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    let numbers = |entry: std::fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
    for pid in std::fs::read_dir("/proc")?.flatten().filter_map(numbers) {
        // A process that has ended meanwhile holds nothing.
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        let links = descriptors.filter_map(|entry| describe(&entry.path())).filter(|it| programs.contains(&it.program) && it.cgroup != 0);
        found.extend(links.filter_map(|it| Some(Held { link: u32::try_from(it.link).ok()?, pid })));
    }
    Ok(found.into_iter().collect())
}

/// Takes a link off its cgroup, whoever holds it; success if it is gone.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn detach(link: u32) -> io::Result<()> {
    const BPF_LINK_GET_FD_BY_ID: libc::c_long = 30;
    const BPF_LINK_DETACH: libc::c_long = 34;
    let descriptor = match bpf(BPF_LINK_GET_FD_BY_ID, link) {
        Ok(descriptor) => descriptor,
        Err(Errno::ENOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let number = i32::try_from(descriptor).map_err(io::Error::other)?;
    // SAFETY: the kernel has opened it for us just now.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    bpf(BPF_LINK_DETACH, descriptor.as_raw_fd().cast_unsigned())?;
    Ok(())
}

/// bpf(2) with an attribute whose first member is 32 bits wide, and all others 0.
fn bpf(command: libc::c_long, first: u32) -> nix::Result<libc::c_long> {
    let mut attribute = [0_u32; 32];
    attribute[0] = first;
    // SAFETY: the attribute is as long as is said, and outlives the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), size_of_val(&attribute)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_told_by_its_id_its_program_and_its_cgroup() {
        let text = "pos:\t0\nflags:\t02000000\nmnt_id:\t15\nino:\t1057\nlink_type:\tcgroup\nlink_id:\t7\nprog_tag:\t0a\nprog_id:\t39\ncgroup_id:\t1\nattach_type:\t0\n";
        assert_eq!(parse(text), Some(Described { link: 7, program: 39, cgroup: 1 }));
        assert_eq!(parse("pos:\t0\n"), None);
    }
}
