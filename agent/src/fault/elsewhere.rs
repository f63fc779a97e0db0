//! Faults in another network namespace: what opens sockets there does so on a thread that has entered it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stormdrill_core::fault::NetNs;
use thiserror::Error;

use super::members::{self, MembersError};
use super::namespace;

/// Why a namespace cannot be entered.
#[derive(Debug, Error)]
pub enum ElsewhereError {
    /// There is no such container.
    #[error(transparent)]
    Container(#[from] MembersError),
    /// The process or the path does not exist, or may not be read.
    #[error("netns: open {netns}")]
    Open {
        /// What the playbook names.
        netns: NetNs,
        /// Why.
        source: io::Error,
    },
    /// What is there is something else.
    #[error("netns: {} is no network namespace", .0.display())]
    Other(PathBuf),
    /// The privilege is missing.
    #[error("netns: enter the namespace")]
    Enter(#[source] io::Error),
}

/// Where a fault is: here, or in a namespace that is held open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Site(Option<Arc<File>>);

impl Site {
    /// Opens the namespace that the playbook names; `None` is this one.
    pub(crate) fn open(netns: Option<&NetNs>) -> Result<Self, ElsewhereError> {
        let Some(netns) = netns else {
            return Ok(Self::default());
        };
        let path = match netns {
            NetNs::Pid(pid) => format!("/proc/{pid}/ns/net"),
            NetNs::Container(id) => format!("/proc/{}/ns/net", members::process_of(id)?),
            NetNs::Path(path) => path.clone(),
        };
        match open(Path::new(&path)) {
            Ok(Some(file)) => Ok(Self(Some(Arc::new(file)))),
            Ok(None) => Err(ElsewhereError::Other(path.into())),
            Err(source) => Err(ElsewhereError::Open { netns: netns.clone(), source }),
        }
    }

    /// The inode by which it is told from others: all network namespaces are on one file system of the kernel's.
    pub(crate) fn inode(&self) -> Result<u64, ElsewhereError> {
        let there = |file: &Arc<File>| Ok(file.metadata()?.ino());
        self.0.as_ref().map_or_else(namespace::own_net, there).map_err(ElsewhereError::Enter)
    }

    /// Runs a closure there, on a thread that has entered it; here, on this one.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, ElsewhereError> {
        match &self.0 {
            None => Ok(work()),
            Some(file) => namespace::within(file, work).map_err(ElsewhereError::Enter),
        }
    }
}

/// The file, if it is a network namespace's. Nothing else is opened but regular files, which namespaces seem to be: opening a device can
/// do something, and opening a pipe waits for its other end.
fn open(path: &Path) -> io::Result<Option<File>> {
    if !path.metadata()?.is_file() {
        return Ok(None);
    }
    let file = File::open(path)?;
    // SAFETY: the request takes no argument, and the descriptor is open.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), libc::NS_GET_NSTYPE) };
    // Another kind of namespace, or -1.
    Ok((kind == libc::CLONE_NEWNET).then_some(file))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn what_is_no_network_namespace_is_refused_as_such_and_a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        for path in ["/etc/passwd", "/proc/self/ns/mnt", "/proc", "/dev/null", pipe.to_str().unwrap()] {
            let netns = NetNs::Path(path.to_owned());
            let refused = Site::open(Some(&netns)).unwrap_err();
            assert!(matches!(&refused, ElsewhereError::Other(other) if other == Path::new(path)), "{path}: {refused}");
        }
        let own = Site::open(Some(&NetNs::Path("/proc/self/ns/net".to_owned()))).unwrap();
        assert_eq!(own.inode().unwrap(), Site::default().inode().unwrap());
    }
}
