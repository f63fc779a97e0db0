//! Other network namespaces: whether the one that a journal names is still there, and how to get into it.
//!
//! The kernel has no list of namespaces and no lookup by number. One can be entered if a process or thread is in it, if it is mounted in
//! some process's file system, or if a process holds it open. Whoever made a fault in it came by one of these ways; where none is left for a
//! process in the same PID namespace, nobody comes there again, and the lease has ended what was there.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns};

/// The inode of the first PID namespace, the same on every boot (`PROC_PID_INIT_INO`).
const FIRST_PID: u64 = 4_026_531_836;

/// What is known of a network namespace.
#[derive(Debug)]
pub(crate) enum Whereabouts {
    /// It can be entered through this file.
    Found(File),
    /// Nothing leads to it any more.
    Gone,
    /// It may be where this process cannot look.
    Unknown,
}

/// Looks for a network namespace by its inode. `seen_from`: inode of the PID namespace of a process that was in it.
pub(crate) fn find(inode: u64, seen_from: u64) -> Whereabouts {
    let mut search = Search { wanted: PathBuf::from(format!("net:[{inode}]")), saw_all: true };
    match search.find() {
        Some(file) => Whereabouts::Found(file),
        None if own_pid().is_ok_and(|own| own == seen_from || (own == FIRST_PID && search.saw_all)) => Whereabouts::Gone,
        None => Whereabouts::Unknown,
    }
}

/// Inode of this process's PID namespace.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn own_pid() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Where the calling thread's network namespace is told.
pub(crate) const OWN_NET: &str = "/proc/thread-self/ns/net";

/// Inode of the calling thread's network namespace.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn own_net() -> io::Result<u64> {
    Ok(fs::metadata(OWN_NET)?.ino())
}

/// Runs a closure on a thread of its own in a network namespace.
///
/// # Errors
/// When the thread cannot be started or may not enter.
pub(crate) fn within<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("other-netns".to_owned()).spawn_scoped(scope, || {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })?;
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

struct Search {
    wanted: PathBuf,
    saw_all: bool,
}

impl Search {
    fn find(&mut self) -> Option<File> {
        let mut mount_namespaces = HashSet::new();
        for process in self.entries(Path::new("/proc")) {
            if !process.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)) {
                continue;
            }
            for thread in self.entries(&process.join("task")) {
                if let Some(file) = self.open_if_wanted(&thread.join("ns/net")) {
                    return Some(file);
                }
            }
            for open in self.entries(&process.join("fd")) {
                if let Some(file) = self.open_if_wanted(&open) {
                    return Some(file);
                }
            }
            if let Some(mounts) = self.link(&process.join("ns/mnt"))
                && mount_namespaces.insert(mounts)
                && let Some(file) = self.mounted(&process)
            {
                return Some(file);
            }
        }
        None
    }

    /// What a directory holds; one whose process has ended holds nothing, and one that may not be read could hold it.
    fn entries(&mut self, directory: &Path) -> Vec<PathBuf> {
        let listed = fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>());
        listed.unwrap_or_else(|error| {
            self.note(&error);
            Vec::new()
        })
    }

    fn note(&mut self, error: &io::Error) {
        self.saw_all &= error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
    }

    fn link(&mut self, path: &Path) -> Option<PathBuf> {
        fs::read_link(path).inspect_err(|error| self.note(error)).ok()
    }

    fn open_if_wanted(&mut self, path: &Path) -> Option<File> {
        if self.link(path)? != self.wanted {
            return None;
        }
        File::open(path).inspect_err(|error| self.note(error)).ok()
    }

    /// Where it is mounted in a process's file system, as `ip netns` and container engines do.
    fn mounted(&mut self, process: &Path) -> Option<File> {
        let table = fs::read_to_string(process.join("mountinfo")).inspect_err(|error| self.note(error)).ok()?;
        let wanted = self.wanted.to_str()?.to_owned();
        for line in table.lines().filter(|line| line.contains(" - nsfs ")) {
            let mut fields = line.split(' ').skip(3);
            if let (Some(root), Some(point)) = (fields.next(), fields.next())
                && root == wanted
            {
                let path = process.join("root").join(point.trim_start_matches('/'));
                return File::open(path).inspect_err(|error| self.note(error)).ok();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::fault::journal;

    #[test]
    fn this_processs_namespace_is_found_and_entered() {
        let own = journal::namespace().unwrap();
        let Whereabouts::Found(file) = find(own, 0) else { panic!("not found") };
        // Without the privilege it cannot be entered; that is an error and no panic.
        if let Ok(inside) = within(&file, journal::namespace) {
            assert_eq!(inside.unwrap(), own);
        }
    }

    #[test]
    fn a_namespace_that_nothing_leads_to_is_never_found() {
        assert!(matches!(find(1, own_pid().unwrap()), Whereabouts::Gone));
        assert!(!matches!(find(1, 0), Whereabouts::Found(_)));
    }
}
