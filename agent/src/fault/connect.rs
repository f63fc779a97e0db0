//! Connections that are refused by a program on the cgroup's `connect()`, for as long as its lease is renewed.
//!
//! Its links live with their descriptors: whatever ends the agent takes them out, so that there is nothing to write down or to clean up.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::fault::Select;
use stormdrill_wire::fault::{FaultRule, FaultStats};
use thiserror::Error;

use super::filter::Hook;
use super::lease::locked;
use super::object::{Object, ObjectError, REFUSE};
use super::selection::Selection;
use super::spared::Spared;
use crate::cgroup::{self, CgroupError};
use crate::cgroup_link;

/// What can go wrong with refusing connections.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// There is no cgroup to attach to.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// It cannot be opened.
    #[error("open the cgroup {}", path.display())]
    Open {
        /// The cgroup.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Which connections are refused, and how many of them. Nothing is changed yet.
#[derive(Debug, Clone)]
pub(crate) struct ConnectPlan {
    selection: Selection,
    threshold: u64,
    /// Whose connections; `None` for those of every process.
    cgroup: Option<PathBuf>,
}

/// Programs that are attached. Dropping it detaches them.
#[derive(Debug)]
pub(crate) struct Connect {
    object: Option<Arc<Mutex<Object>>>,
    last: FaultStats,
}

impl ConnectPlan {
    pub(crate) fn new(edge: &EdgeSpec, select: &Select, spared: &Spared, threshold: u64, cgroup: Option<PathBuf>) -> Self {
        // A connection is to an edge as a packet that leaves for it.
        Self { selection: Selection::of_edge(edge, Hook::Egress).narrowed(select).sparing(spared), threshold, cgroup }
    }

    pub(crate) fn describe(&self) -> String {
        let cgroup = self.cgroup.as_ref().map_or_else(|| "the root cgroup".to_owned(), |path| path.display().to_string());
        format!("connections {}, refused by an eBPF program on {cgroup}", self.selection.describe())
    }
}

impl Connect {
    /// Attaches to the plan's cgroup, or to the root of the hierarchy. The lease is not granted.
    pub(crate) fn attach(plan: &ConnectPlan, state_dir: &Path) -> Result<Self, super::plane::FaultError> {
        let path = match &plan.cgroup {
            Some(path) => path.clone(),
            None => cgroup::find_or_mount(state_dir).map_err(ConnectError::from)?,
        };
        let cgroup = File::open(&path).map_err(|source| ConnectError::Open { path, source })?;
        let mut object = Object::attach_to_connect(&plan.selection, &cgroup)?;
        let Selection { own_ports, .. } = plan.selection;
        object.set_rule(&FaultRule { threshold: plan.threshold, flags: plan.selection.flags(), own_ports, ..FaultRule::default() })?;
        Ok(Self { object: Some(Arc::new(Mutex::new(object))), last: FaultStats::default() })
    }

    /// What its lease is granted by; `None` when it is gone.
    pub(crate) const fn shared(&self) -> Option<&Arc<Mutex<Object>>> {
        self.object.as_ref()
    }

    /// What was counted, also after the removal.
    pub(crate) fn stats(&mut self) -> Result<FaultStats, ObjectError> {
        if let Some(object) = &self.object {
            self.last = locked(object).stats()?;
        }
        Ok(self.last)
    }

    /// Whether the programs are still where they were put; somebody may have detached them.
    pub(crate) fn is_in_place(&self) -> bool {
        self.object.as_ref().is_none_or(|object| locked(object).is_attached())
    }

    /// Detaches the programs. Doing it twice is success.
    pub(crate) fn remove(&mut self) {
        self.object = None;
    }
}

/// Processes whose `refuse` is on a cgroup now.
///
/// # Errors
/// When the kernel's programs cannot be listed.
pub(crate) fn owners() -> io::Result<Vec<u32>> {
    Ok(cgroup_link::held(REFUSE.as_flattened())?.into_iter().map(|held| held.pid).collect())
}

/// Takes every `refuse` off its cgroup, whichever process it is of; gives how many links that were.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn detach_all() -> io::Result<usize> {
    let held = cgroup_link::held(REFUSE.as_flattened())?;
    held.iter().try_for_each(|held| cgroup_link::detach(held.link))?;
    Ok(held.len())
}
