//! The daemon: drills on request, edges that are counted all the time, and what both have to tell. No HTTP in here.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use stormdrill_core::playbook::serve::Config;
use stormdrill_core::report::json::window::WindowView;
use thiserror::Error;

use crate::client;
use crate::drill::{self, DrillError};
use crate::metrics::Metrics;

pub mod log;

pub mod store;

pub mod overlap;

pub mod progress;

pub mod carry;

pub mod drills;

pub mod observing;

pub mod cluster;

mod begin;

use carry::{Carry, Host};
use drills::{Busy, Drills, Settings};
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

/// Why a new configuration was not taken over. The old one is still in force.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// A key that is fixed at the start.
    #[error("`{key}` changes with a restart only")]
    Fixed {
        /// The key.
        key: &'static str,
    },
    /// A drill is in the way.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// The new edges cannot be observed.
    #[error("observe the new edges; the old ones are counted on")]
    Observe(#[source] ObserveError),
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    config: RwLock<Arc<Config>>,
    /// Its drills.
    pub drills: Arc<Drills>,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    observing: Mutex<Option<Observing>>,
    _alone: Option<File>,
}

fn settings(config: &Config) -> Settings {
    Settings {
        running: config.limits.drills,
        kept: config.retention,
        observed: config.observe.as_ref().map(|observe| observe.edges.clone()).unwrap_or_default(),
        servers: config.etcd.iter().flat_map(|etcd| &etcd.endpoints).filter_map(|url| client::authority(url)).collect(),
    }
}

impl Daemon {
    /// Starts: removes what a daemon that died left in the kernel, takes over its drills, and observes. `journal_dir` is where faults are
    /// written down, as `stormdrill clean` knows it.
    ///
    /// # Errors
    /// When something of this fails, or another daemon has the state directory; a leftover that cannot be removed is such a failure.
    pub fn start(config: Config, journal_dir: PathBuf) -> Result<Self, DaemonError> {
        let alone = Store::open(&config.state_dir)?.alone()?;
        drill::leave_no_leftovers(&journal_dir, &mut |line| tracing::warn!("{line}"))?;
        let carry = Box::new(Host { journal_dir: journal_dir.clone() });
        let daemon = Self { _alone: Some(alone), ..Self::without_probe(config, carry)? };
        if let Some(observe) = &daemon.config().observe {
            *daemon.observing() = Some(Observing::start(observe, journal_dir, Arc::clone(&daemon.metrics))?);
        }
        Ok(daemon)
    }

    /// The same with somebody else to carry drills out, and no constant observation: nothing of it needs a privilege.
    ///
    /// # Errors
    /// When the state directory cannot be used.
    pub fn without_probe(config: Config, carry: Box<dyn Carry>) -> Result<Self, DaemonError> {
        let metrics = Arc::new(Metrics::new()?);
        let drills = Drills::open(Store::open(&config.state_dir)?, carry, Arc::clone(&metrics), settings(&config))?;
        Ok(Self { config: RwLock::new(Arc::new(config)), drills: Arc::new(drills), metrics, observing: Mutex::default(), _alone: None })
    }

    /// What it was told, the last time.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn observing(&self) -> MutexGuard<'_, Option<Observing>> {
        self.observing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last final window of the constant observation.
    #[must_use]
    pub fn latest(&self) -> Option<WindowView> {
        self.observing().as_ref().and_then(Observing::latest)
    }

    /// Takes over a new configuration as far as nothing has to be bound anew for it. Drills go on.
    ///
    /// # Errors
    /// When it cannot be taken over; then the old one stays.
    pub fn reload(&self, new: Config, journal_dir: PathBuf) -> Result<(), ReloadError> {
        let old = self.config();
        // An address that was bound for clients with a token must not stay open without one.
        for (key, is_same) in [
            ("listen", old.listen == new.listen),
            ("socket", old.socket == new.socket),
            ("state_dir", old.state_dir == new.state_dir),
            ("limits.connections", old.limits.connections == new.limits.connections),
        ] {
            if !is_same {
                return Err(ReloadError::Fixed { key });
            }
        }
        self.drills.reconfigure(settings(&new))?;
        if old.observe != new.observe {
            let mut observing = self.observing();
            let start = |config: &Config| {
                let start = |observe| Observing::start(observe, journal_dir.clone(), Arc::clone(&self.metrics));
                config.observe.as_ref().map(start).transpose()
            };
            // One after the other: both at a time would count twice.
            if let Some(before) = observing.take() {
                before.stop();
            }
            match start(&new) {
                Ok(now) => *observing = now,
                Err(error) => {
                    *observing = start(&old).unwrap_or_default();
                    drop(observing);
                    // A drill that has begun since counts as the new configuration had it; the edges are the ones that failed.
                    let _ = self.drills.reconfigure(settings(&old));
                    return Err(ReloadError::Observe(error));
                }
            }
        }
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        Ok(())
    }

    /// Ends the constant observation.
    pub fn stop_observing(&self) {
        if let Some(observing) = self.observing().take() {
            observing.stop();
        }
    }

    /// Whether everything that it should do works; the reason if not.
    ///
    /// # Errors
    /// What does not work.
    pub fn ready(&self) -> Result<(), &'static str> {
        if self.config().observe.is_none() {
            return Ok(());
        }
        match self.observing().as_ref() {
            Some(observing) if observing.is_alive() && observing.is_attached() => Ok(()),
            Some(observing) if observing.is_alive() => Err("a hook of the constant observation is no longer in place"),
            _ => Err("the constant observation has ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn drills_spare_the_etcd_that_the_daemon_needs() {
        let config =
            stormdrill_core::playbook::serve::parse("etcd: {endpoints: [\"http://10.0.0.9:2379\", \"https://etcd-2\"]}\n").unwrap();
        assert_eq!(settings(&config).servers, ["10.0.0.9:2379", "etcd-2:443"]);
        let spared = crate::fault::spared::Spared::default().with_servers(&["127.0.0.1:2379".to_owned(), "nobody.invalid:1".to_owned()]);
        assert_eq!(spared.ends, ["127.0.0.1:2379".parse().unwrap()]);
    }
}
