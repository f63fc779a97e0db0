//! Finding the cgroup2 hierarchy that the probe attaches to.
//!
//! Where it is depends on the host: `/sys/fs/cgroup` on a pure v2 host, `/sys/fs/cgroup/unified` on a hybrid one, and
//! nowhere on a v1 host; then it is mounted under the state directory, which gives the same root. Attached to the root,
//! the hooks see the sockets of every process in either case.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount, umount};
use thiserror::Error;

/// Why there is no cgroup2 to attach to.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// The mount table cannot be read.
    #[error("read /proc/self/mountinfo")]
    MountInfo(#[source] io::Error),
    /// The kernel has none.
    #[error("find a cgroup2 hierarchy: the kernel has none (CONFIG_CGROUPS, CONFIG_CGROUP_BPF)")]
    Unsupported,
    /// There is none mounted, and mounting one failed.
    #[error("mount cgroup2 on {path}: none is mounted on this host")]
    Mount {
        /// Where it was tried.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: Errno,
    },
    /// The place to mount it could not be made.
    #[error("make {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the file system said.
        #[source]
        source: io::Error,
    },
}

/// The state directory in which this process has mounted the hierarchy.
static MOUNTED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Takes off what this process has mounted, at its end: nobody may come to this mount namespace again.
pub(crate) fn give_back() {
    if let Some(state_dir) = MOUNTED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        take_off(&state_dir);
    }
}

/// The root of the cgroup2 hierarchy; mounts it under `state_dir` if it is mounted nowhere.
///
/// # Errors
/// When the host has no cgroup2, or it is not mounted and cannot be.
pub fn find_or_mount(state_dir: &Path) -> Result<PathBuf, CgroupError> {
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(CgroupError::MountInfo)?;
    if let Some(path) = find(&table) {
        return Ok(path);
    }
    if !fs::read_to_string("/proc/filesystems")
        .is_ok_and(|list| list.lines().any(|line| line.trim_start_matches("nodev").trim() == "cgroup2"))
    {
        return Err(CgroupError::Unsupported);
    }
    let path = own_mount(state_dir);
    fs::create_dir_all(&path).map_err(|source| CgroupError::Directory { path: path.clone(), source })?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match mount(Some("stormdrill"), &path, Some("cgroup2"), flags, None::<&str>) {
        Ok(()) => {
            *MOUNTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(state_dir.to_owned());
            Ok(path)
        }
        Err(source) => {
            // Empty, unless somebody else keeps something there.
            let _ = fs::remove_dir(&path);
            Err(CgroupError::Mount { path, source })
        }
    }
}

/// The same for as long as a piece of work takes: a hierarchy that was mounted for it is taken off again, with its directory.
///
/// # Errors
/// As [`find_or_mount`].
pub(crate) fn with_mounted<T>(state_dir: &Path, work: impl FnOnce(&Path) -> T) -> Result<T, CgroupError> {
    let was_mounted = mounted().is_some();
    let root = find_or_mount(state_dir)?;
    let result = work(&root);
    if !was_mounted && root == own_mount(state_dir) {
        take_off(state_dir);
    }
    Ok(result)
}

/// Takes off the hierarchy that [`find_or_mount`] mounted, if it did, and says whether. One that is used stays: as harmless as it is useful.
pub(crate) fn take_off(state_dir: &Path) -> bool {
    let path = own_mount(state_dir);
    let was_mounted = path.join("cgroup.controllers").exists();
    let is_off = was_mounted && umount(&path).is_ok();
    if is_off || !was_mounted {
        // Empty, unless somebody else keeps something there.
        let _ = fs::remove_dir(&path);
    }
    is_off
}

fn own_mount(state_dir: &Path) -> PathBuf {
    state_dir.join("cgroup2")
}

/// The root of the cgroup2 hierarchy, if it is mounted somewhere. Mounts nothing.
#[must_use]
pub fn mounted() -> Option<PathBuf> {
    find(&fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// The mount point of a cgroup2 whose root is mounted, from the text of `mountinfo`. A mount of a part of the hierarchy
/// (as in a container) serves only if there is no other.
fn find(table: &str) -> Option<PathBuf> {
    let mut part = None;
    for line in table.lines() {
        let Some((mounted, source)) = line.split_once(" - ") else { continue };
        if source.split(' ').next() != Some("cgroup2") {
            continue;
        }
        let mut fields = mounted.split(' ').skip(3);
        let (Some(root), Some(point)) = (fields.next(), fields.next()) else { continue };
        let path = PathBuf::from(unescape(point));
        if root == "/" {
            return Some(path);
        }
        part.get_or_insert(path);
    }
    part
}

/// `mountinfo` writes space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "25 21 0:22 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
                      30 25 0:27 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n";

    #[test]
    fn a_v2_host_has_it_at_the_usual_place() {
        let table = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(find(table), Some(PathBuf::from("/sys/fs/cgroup")));
    }

    #[test]
    fn a_hybrid_host_has_it_beside_the_v1_controllers() {
        let table = format!("{V1}31 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        assert_eq!(find(&table), Some(PathBuf::from("/sys/fs/cgroup/unified")));
    }

    #[test]
    fn a_v1_host_has_none() {
        assert_eq!(find(V1), None);
    }

    #[test]
    fn a_mount_of_the_root_is_preferred_to_one_of_a_part() {
        let table = "30 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n31 23 0:26 / /host/cg\\040roup rw master:1 - cgroup2 cgroup2 rw\n";
        assert_eq!(find(table), Some(PathBuf::from("/host/cg roup")));
    }
}
