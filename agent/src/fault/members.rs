//! The cgroup of a fault's `cgroup`, `container` or `pid`: the kernel tells a packet's socket by the cgroup2 hierarchy, and by nothing else.
//!
//! A container's cgroup is found by its id in the name that its runtime gives it. On a host with the older hierarchies its id is in their
//! paths only, and the cgroup2 group is that of one of its processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stormdrill_core::fault::Members;
use thiserror::Error;

use crate::cgroup::{self, CgroupError};

/// Why the sockets cannot be told.
#[derive(Debug, Error)]
pub enum MembersError {
    /// There is no cgroup2 hierarchy.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The playbook names a cgroup that does not exist.
    #[error("select: there is no cgroup `{}`; `systemd-cgls` lists them", path.display())]
    NoCgroup {
        /// Where it would be.
        path: PathBuf,
    },
    /// The playbook names a process that does not exist.
    #[error("select: process {pid} cannot be read")]
    NoProcess {
        /// The process.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// The process shares the root of the cgroup2 hierarchy with everything.
    #[error("select: {whose} is in no cgroup2 group of its own, only in v1 hierarchies, by which the kernel cannot tell its packets")]
    Root {
        /// `process 17`, `container abc…`.
        whose: String,
    },
    /// No cgroup bears the container's id.
    #[error("{key}: no cgroup of a running container has the id {id}; `docker ps`, `podman ps` or `crictl ps` list them")]
    NoContainer {
        /// The playbook's key that names it: `select` or `netns`.
        key: &'static str,
        /// The id.
        id: String,
    },
    /// More than one container's id begins so.
    #[error("select: more than one container's id begins with {id}; write more of it")]
    Ambiguous {
        /// The id.
        id: String,
    },
}

/// The directory of the cgroup in the cgroup2 hierarchy.
///
/// # Errors
/// When there is none, or it would be the root, which every process is in.
pub fn directory(members: &Members, state_dir: &Path) -> Result<PathBuf, MembersError> {
    directory_below(&cgroup::find_or_mount(state_dir)?, members)
}

/// The same below a root that is known.
///
/// # Errors
/// As [`directory`].
pub(crate) fn directory_below(root: &Path, members: &Members) -> Result<PathBuf, MembersError> {
    let path = match members {
        Members::Cgroup(path) => root.join(path),
        Members::Pid(pid) => {
            let table =
                fs::read_to_string(format!("/proc/{pid}/cgroup")).map_err(|source| MembersError::NoProcess { pid: *pid, source })?;
            root.join(unified(&table).ok_or_else(|| MembersError::Root { whose: format!("process {pid}") })?)
        }
        Members::Container(id) => container(root, id)?,
    };
    if path.is_dir() { Ok(path) } else { Err(MembersError::NoCgroup { path }) }
}

/// The cgroup2 path of a process, relative to the root; `None` for the root itself.
fn unified(table: &str) -> Option<&str> {
    let path = table.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/');
    (!path.is_empty() && !path.starts_with("..")).then_some(path)
}

fn container(root: &Path, id: &str) -> Result<PathBuf, MembersError> {
    let mut found = Vec::new();
    // As deep as runtimes nest them: kubepods.slice, its class, its pod, the container, and what its init makes below.
    below(root, id, 6, &mut found);
    match found.as_slice() {
        [] => {}
        [path] => return Ok(path.clone()),
        _ => return Err(MembersError::Ambiguous { id: id.to_owned() }),
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut tables = processes.filter_map(|entry| fs::read_to_string(entry.path().join("cgroup")).ok());
    match tables.find(|table| names_container(table, id)) {
        None => Err(MembersError::NoContainer { key: "select", id: id.to_owned() }),
        Some(table) => match unified(&table) {
            Some(path) => Ok(root.join(path)),
            None => Err(MembersError::Root { whose: format!("container {id}") }),
        },
    }
}

/// A process of a container.
///
/// # Errors
/// When no running process is in a cgroup that bears the id.
pub(crate) fn process_of(id: &str) -> Result<u32, MembersError> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_in = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|table| names_container(&table, id));
    pids.find(is_in).ok_or_else(|| MembersError::NoContainer { key: "netns", id: id.to_owned() })
}

/// The topmost directories that bear the id.
fn below(directory: &Path, id: &str, depth: u8, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_str().is_some_and(|name| is_container(name, id)) {
            found.push(entry.path());
        } else if depth > 0 {
            below(&entry.path(), id, depth - 1, found);
        }
    }
}

/// Whether a line of `/proc/PID/cgroup` has the container in its path, of whatever hierarchy.
fn names_container(table: &str, id: &str) -> bool {
    let paths = table.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.flat_map(|path| path.split('/')).any(|name| is_container(name, id))
}

/// Whether a cgroup's name is that of the container: `ID`, `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID`, `libpod-ID.scope`.
///
/// A container's monitor has the id in its name too (`libpod-conmon-ID.scope`), and is no part of it.
fn is_container(name: &str, id: &str) -> bool {
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let (prefix, own) = name.rsplit_once('-').unwrap_or(("", name));
    // containerd under a systemd driver that was given `slice:prefix:name`.
    let own = own.rsplit_once(':').map_or(own, |(_, own)| own);
    let is_id = own.len() == 64 && own.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id && own.starts_with(id) && !prefix.ends_with("conmon")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const ID: &str = "4f0b9f7be4f0a7d3cf4d7e3b5f5d0a4e6f1a2b3c4d5e6f708192a3b4c5d6e7f8";

    #[test]
    fn every_runtimes_names_are_known_and_their_monitors_are_not_taken_for_them() {
        for (name, expected) in [
            (ID.to_owned(), true),
            (format!("docker-{ID}.scope"), true),
            (format!("cri-containerd-{ID}.scope"), true),
            (format!("kubepods-burstable-pod7.slice:cri-containerd:{ID}"), true),
            (format!("nerdctl-{ID}.scope"), true),
            (format!("libpod-{ID}.scope"), true),
            (format!("libpod-{ID}"), true),
            (format!("crio-{ID}.scope"), true),
            (format!("libpod-conmon-{ID}.scope"), false),
            (format!("crio-conmon-{ID}.scope"), false),
            (ID[..63].to_owned(), false),
            ("docker.service".to_owned(), false),
        ] {
            assert_eq!(is_container(&name, &ID[..12]), expected, "{name}");
            assert!(!is_container(&name, "000000000000"), "{name}");
        }
    }

    #[test]
    fn a_container_is_found_in_the_paths_of_both_versions() {
        for path in [
            format!("0::/system.slice/docker-{ID}.scope"),
            format!("12:memory:/docker/{ID}"),
            format!("4:cpu,cpuacct:/kubepods/burstable/podc0ffee/{ID}"),
            format!("1:name=systemd:/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"),
            format!("0::/machine.slice/libpod-{ID}.scope/container"),
        ] {
            assert!(names_container(&format!("13:pids:/\n{path}\n"), &ID[..12]), "{path}");
        }
        assert!(!names_container("0::/user.slice\n", &ID[..12]));
    }

    #[test]
    fn a_containers_directory_is_found_wherever_it_hangs() {
        let root = tempfile::tempdir().unwrap();
        let deep =
            root.path().join(format!("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-{ID}.scope"));
        fs::create_dir_all(deep.join("init")).unwrap();
        fs::create_dir_all(root.path().join(format!("machine.slice/libpod-conmon-{ID}.scope"))).unwrap();
        assert_eq!(container(root.path(), &ID[..12]).unwrap(), deep);
        assert!(matches!(container(root.path(), "ffffffffffff"), Err(MembersError::NoContainer { .. })));
        fs::create_dir_all(root.path().join(format!("docker/{}1", &ID[..63]))).unwrap();
        assert!(matches!(container(root.path(), &ID[..12]), Err(MembersError::Ambiguous { .. })));
    }

    #[test]
    fn the_root_is_nobodys_own_cgroup() {
        assert_eq!(unified("12:pids:/x\n0::/\n"), None);
        assert_eq!(unified("0::/../other\n"), None);
        assert_eq!(unified("0::/system.slice/a.service\n"), Some("system.slice/a.service"));
    }
}
