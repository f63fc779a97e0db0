//! Who carries drills out: the host's own kernel, or somebody who pretends to.

use std::path::PathBuf;

use stormdrill_core::playbook::Playbook;
use tokio::sync::mpsc;

use crate::claim::{Claim, ClaimError};
use crate::daemon::overlap::Target;
use crate::drill::{self, Carried, DrillError};
use crate::driver::Progress;

/// Carries drills out; a fake one in tests.
pub trait Carry: Send + Sync {
    /// Carries a drill out on this thread until it ends or `abort` brings a reason.
    ///
    /// # Errors
    /// When it cannot be carried out.
    fn carry_out(
        &self,
        playbook: &Playbook,
        id: &str,
        abort: mpsc::Receiver<String>,
        progress: &mut dyn Progress,
    ) -> Result<Carried, DrillError>;

    /// The drill of another process that disturbs one of these targets, if there is one.
    fn taken(&self, _targets: &[Target]) -> Option<String> {
        None
    }
}

/// Carries drills out for real.
#[derive(Debug)]
pub struct Host {
    /// Where the journal of faults is kept.
    pub journal_dir: PathBuf,
}

impl Carry for Host {
    fn carry_out(
        &self,
        playbook: &Playbook,
        id: &str,
        abort: mpsc::Receiver<String>,
        progress: &mut dyn Progress,
    ) -> Result<Carried, DrillError> {
        drill::carry_out(playbook, &self.journal_dir, id, || Ok(abort), progress)
    }

    fn taken(&self, targets: &[Target]) -> Option<String> {
        // What keeps it from being told keeps the drill from starting, a little later and with the reason.
        let targets: Vec<_> = targets.iter().filter_map(|(namespace, edge)| Some(((*namespace)?, edge.clone()))).collect();
        match Claim::check(&self.journal_dir, &targets) {
            Err(ClaimError::Taken { id, .. }) => Some(id),
            _ => None,
        }
    }
}
