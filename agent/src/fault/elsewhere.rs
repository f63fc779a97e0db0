//! Faults in another network namespace: what opens sockets there does so on a thread that has entered it.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
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
    /// It is no network namespace, or the privilege is missing.
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
        let file = File::open(path).map_err(|source| ElsewhereError::Open { netns: netns.clone(), source })?;
        Ok(Self(Some(Arc::new(file))))
    }

    /// The inode by which it is told from others.
    pub(crate) fn inode(&self) -> Result<u64, ElsewhereError> {
        let there = |file: &Arc<File>| Ok(file.metadata()?.ino());
        self.0.as_ref().map_or_else(namespace::own_net, there).map_err(ElsewhereError::Enter)
    }

    /// Runs a closure there.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, ElsewhereError> {
        match &self.0 {
            None => Ok(work()),
            Some(file) => namespace::within(file, work).map_err(ElsewhereError::Enter),
        }
    }
}
