//! The drills of the daemon: which run, which ran, and how one is started and ended.
//!
//! Each drill has a thread and a runtime of its own, so that nothing that clients do to the API can hold it up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stormdrill_core::edge::EdgeSpec;
use thiserror::Error;
use tokio::sync::mpsc;

use super::carry::Carry;
use super::log::EventLog;
use super::progress::Live;
use super::store::{Record, State, Store, StoreError};
use crate::clock;
use crate::daemon::overlap::Target;
use crate::metrics::Metrics;

mod end;

pub mod start;

/// Of how many ended drills the events are kept.
const LOGS: usize = 16;

struct Entry {
    record: Record,
    log: Option<Arc<EventLog>>,
    running: Option<Running>,
}

struct Running {
    abort: mpsc::Sender<String>,
    targets: Vec<Target>,
    live: Arc<Live>,
}

#[derive(Default)]
struct Inner {
    /// Oldest first.
    entries: Vec<Entry>,
    is_stopping: bool,
    settings: Settings,
}

/// All drills.
pub struct Drills {
    inner: Mutex<Inner>,
    store: Store,
    carry: Box<dyn Carry>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Drills {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drills").field("store", &self.store).finish_non_exhaustive()
    }
}

/// What can be changed while the daemon runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// How many drills may run at a time.
    pub running: usize,
    /// How many are remembered.
    pub kept: usize,
    /// Edges that are counted all the time, which drills must not count again.
    pub observed: Vec<EdgeSpec>,
}

/// The observed edges cannot change under a drill: it would count some twice, or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("`observe` cannot change while a drill runs: reload again when it has ended")]
pub struct Busy;

impl Drills {
    /// Takes over what the store has. A drill that was running when the daemon died was aborted by that: the kernel ended its faults when
    /// the lease ran out.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub fn open(store: Store, carry: Box<dyn Carry>, metrics: Arc<Metrics>, settings: Settings) -> Result<Self, StoreError> {
        let mut entries = Vec::new();
        for mut record in store.records()? {
            if record.state == State::Running {
                record.state = State::Aborted;
                record.ended_at = Some(clock::wall_rfc3339());
                record.reason = Some("the daemon ended during the drill; the kernel ended its faults".to_owned());
                store.keep(&record)?;
            }
            entries.push(Entry { record, log: None, running: None });
        }
        let drills = Self { inner: Mutex::new(Inner { entries, is_stopping: false, settings }), store, carry, metrics };
        drills.prune(&mut drills.inner());
        Ok(drills)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what can be changed. Drills that run go on, though they may be more than there may be.
    ///
    /// # Errors
    /// When the observed edges change and a drill runs; then nothing has changed.
    pub fn reconfigure(&self, settings: Settings) -> Result<(), Busy> {
        let mut inner = self.inner();
        if inner.settings.observed != settings.observed && inner.entries.iter().any(|entry| entry.running.is_some()) {
            return Err(Busy);
        }
        inner.settings = settings;
        self.prune(&mut inner);
        Ok(())
    }

    /// Forgets the oldest ended drills beyond what is kept, and events of all but the last.
    fn prune(&self, inner: &mut Inner) {
        while inner.entries.len() > inner.settings.kept {
            let Some(oldest) = inner.entries.iter().position(|entry| entry.running.is_none()) else { break };
            self.store.forget(&inner.entries.remove(oldest).record.id);
        }
        let old = inner.entries.len().saturating_sub(LOGS);
        for entry in inner.entries.iter_mut().take(old).filter(|entry| entry.running.is_none()) {
            entry.log = None;
        }
    }

    /// All drills, newest first.
    #[must_use]
    pub fn list(&self) -> Vec<Record> {
        self.inner().entries.iter().rev().map(|entry| entry.record.clone()).collect()
    }

    /// One drill and, while it runs, its phase.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<(Record, Option<Arc<Live>>)> {
        let inner = self.inner();
        let entry = inner.entries.iter().find(|entry| entry.record.id == id)?;
        Some((entry.record.clone(), entry.running.as_ref().map(|running| Arc::clone(&running.live))))
    }

    /// The result of an ended drill.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn result(&self, id: &str) -> Result<Option<String>, StoreError> {
        self.store.result(id)
    }

    /// The events of a drill. Of one that ended long ago, the end is left.
    #[must_use]
    pub fn log(&self, id: &str) -> Option<Arc<EventLog>> {
        let inner = self.inner();
        let entry = inner.entries.iter().find(|entry| entry.record.id == id)?;
        Some(entry.log.clone().unwrap_or_else(|| {
            let log = EventLog::new();
            log.push("end", end_event(&entry.record));
            log.close();
            Arc::new(log)
        }))
    }
}

fn end_event(record: &Record) -> String {
    serde_json::json!({ "state": record.state, "verdict": record.verdict, "reason": record.reason }).to_string()
}
