//! The daemon: drills on request, edges that are counted all the time, and what both have to tell. No HTTP in here.

use std::path::PathBuf;
use std::sync::Arc;

use stormdrill_core::playbook::serve::Config;
use thiserror::Error;

use crate::drill::{self, DrillError};
use crate::metrics::Metrics;

pub mod log;

pub mod store;

pub mod overlap;

pub mod progress;

pub mod drills;

pub mod observing;

use drills::{Bounds, Carry, Drills, Host};
use observing::{ObserveError, Observing};
use store::{Store, StoreError};

/// Why the daemon cannot work.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each is its source")]
pub enum DaemonError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Observe(#[from] ObserveError),
    #[error(transparent)]
    Drill(#[from] DrillError),
    #[error("make the metrics")]
    Metrics(#[from] prometheus::Error),
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    /// What it was told.
    pub config: Config,
    /// Its drills.
    pub drills: Arc<Drills>,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    /// The constant observation, if one is configured.
    pub observing: Option<Observing>,
}

impl Daemon {
    /// Starts: removes what a daemon that died left in the kernel, takes over its drills, and observes. `journal_dir` is where faults are
    /// written down, as `stormdrill clean` knows it.
    ///
    /// # Errors
    /// When something of this fails; a leftover that cannot be removed is such a failure.
    pub fn start(config: Config, journal_dir: PathBuf) -> Result<Self, DaemonError> {
        drill::leave_no_leftovers(&journal_dir, &mut |line| tracing::warn!("{line}"))?;
        let carry = Box::new(Host { journal_dir: journal_dir.clone() });
        let mut daemon = Self::without_probe(config, carry)?;
        if let Some(observe) = &daemon.config.observe {
            daemon.observing = Some(Observing::start(observe, journal_dir, Arc::clone(&daemon.metrics))?);
        }
        Ok(daemon)
    }

    /// The same with somebody else to carry drills out, and no constant observation: nothing of it needs a privilege.
    ///
    /// # Errors
    /// When the state directory cannot be used.
    pub fn without_probe(config: Config, carry: Box<dyn Carry>) -> Result<Self, DaemonError> {
        let metrics = Arc::new(Metrics::new()?);
        let observed = config.observe.as_ref().map(|observe| observe.edges.clone()).unwrap_or_default();
        let bounds = Bounds { running: config.limits.drills, kept: config.retention };
        let drills = Drills::open(Store::open(&config.state_dir)?, carry, Arc::clone(&metrics), observed, bounds)?;
        Ok(Self { config, drills: Arc::new(drills), metrics, observing: None })
    }

    /// Whether everything that it should do works; the reason if not.
    ///
    /// # Errors
    /// What does not work.
    pub fn ready(&self) -> Result<(), &'static str> {
        match &self.observing {
            Some(observing) if !observing.is_alive() => Err("the constant observation has ended"),
            _ => Ok(()),
        }
    }
}
