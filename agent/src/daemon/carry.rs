//! Who carries drills out: the host's own kernel, or somebody who pretends to.

use std::path::PathBuf;

use stormdrill_core::playbook::Playbook;
use tokio::sync::mpsc;

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
}
