//! The drills of the daemon: which run, which ran, and how one is started and ended.
//!
//! Each drill has a thread and a runtime of its own, so that nothing that clients do to the API can hold it up.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::machine::End;
use stormdrill_core::playbook::Playbook;
use stormdrill_core::report::json;
use thiserror::Error;
use tokio::sync::mpsc;

use super::log::EventLog;
use super::overlap::overlap;
use super::progress::Live;
use super::store::{Record, Request, State, Store, StoreError};
use crate::claim::{Claim, ClaimError};
use crate::drill::{self, Carried, DrillError};
use crate::driver::Progress;
use crate::fault::journal;
use crate::metrics::Metrics;
use crate::report::log::chain;
use crate::{clock, host};

/// Of how many ended drills the events are kept.
const LOGS: usize = 16;

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
    fn taken(&self, _targets: &[EdgeSpec]) -> Option<String> {
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

    fn taken(&self, targets: &[EdgeSpec]) -> Option<String> {
        // What keeps it from being told keeps the drill from starting, a little later and with the reason.
        match Claim::check(&self.journal_dir, journal::namespace().ok()?, targets) {
            Err(ClaimError::Taken { id, .. }) => Some(id),
            _ => None,
        }
    }
}

/// Why a drill was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// It would disturb what another one disturbs.
    #[error("drill {id} is running on an overlapping target")]
    Overlap {
        /// The other one.
        id: String,
    },
    /// As many as may run are running.
    #[error("{limit} drills are running already")]
    TooMany {
        /// How many that is.
        limit: usize,
    },
    /// The key was used for another request.
    #[error("the idempotency key was used for another request, which started drill {id}")]
    KeyReused {
        /// The other request's drill.
        id: String,
    },
    /// The daemon is about to end.
    #[error("the daemon is stopping")]
    Stopping,
    /// It could not be recorded, so that it would be forgotten if the daemon died.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No thread for it.
    #[error("start a thread for the drill")]
    Thread(#[source] std::io::Error),
}

/// A drill that is there now.
#[derive(Debug, Clone)]
pub struct Started {
    /// What is known of it.
    pub record: Record,
    /// Whether this request started it; a repeated request finds it there.
    pub is_new: bool,
}

struct Entry {
    record: Record,
    log: Option<Arc<EventLog>>,
    running: Option<Running>,
}

struct Running {
    abort: mpsc::Sender<String>,
    targets: Vec<EdgeSpec>,
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

    /// Starts a drill, or finds the one that the same request started before.
    ///
    /// # Errors
    /// When it may not run, or not now.
    pub fn start(self: &Arc<Self>, playbook: Playbook, request: Option<Request>) -> Result<Started, StartError> {
        let mut inner = self.inner();
        if let Some(request) = &request {
            let before = inner.entries.iter().find(|entry| entry.record.request.as_ref().is_some_and(|r| r.key == request.key));
            match before {
                Some(entry) if entry.record.request.as_ref() == Some(request) => {
                    return Ok(Started { record: entry.record.clone(), is_new: false });
                }
                Some(entry) => return Err(StartError::KeyReused { id: entry.record.id.clone() }),
                None => {}
            }
        }
        if inner.is_stopping {
            return Err(StartError::Stopping);
        }
        let targets: Vec<EdgeSpec> = drill::targets(&playbook).into_iter().map(|(_, edge)| edge).collect();
        let running = || inner.entries.iter().filter_map(|entry| Some((&entry.record, entry.running.as_ref()?)));
        if let Some((record, _)) = running().find(|(_, running)| overlap(&running.targets, &targets)) {
            return Err(StartError::Overlap { id: record.id.clone() });
        }
        if let Some(id) = self.carry.taken(&targets) {
            return Err(StartError::Overlap { id });
        }
        let limit = inner.settings.running;
        if running().count() >= limit {
            return Err(StartError::TooMany { limit });
        }
        let record = Record {
            id: host::drill_id(),
            playbook: playbook.name.clone(),
            state: State::Running,
            started_at: clock::wall_rfc3339(),
            ended_at: None,
            verdict: None,
            reason: None,
            request,
        };
        self.store.keep(&record)?;
        let log = Arc::new(EventLog::new());
        let (abort, reasons) = mpsc::channel(8);
        let live = Arc::new(Live::default());
        let thread = {
            let (drills, record, log, live) = (Arc::clone(self), record.clone(), Arc::clone(&log), Arc::clone(&live));
            let observed = inner.settings.observed.clone();
            move || drills.carry(&playbook, &observed, record, &log, live, reasons)
        };
        if let Err(source) = std::thread::Builder::new().name(format!("drill-{}", &record.id[..8])).spawn(thread) {
            self.store.forget(&record.id);
            return Err(StartError::Thread(source));
        }
        inner.entries.push(Entry { record: record.clone(), log: Some(log), running: Some(Running { abort, targets, live }) });
        self.prune(&mut inner);
        Ok(Started { record, is_new: true })
    }

    /// The drill's thread, from begin to end.
    fn carry(
        &self,
        playbook: &Playbook,
        observed: &[EdgeSpec],
        mut record: Record,
        log: &Arc<EventLog>,
        live: Arc<Live>,
        abort: mpsc::Receiver<String>,
    ) {
        tracing::info!(drill = record.id, playbook = record.playbook, "drill started");
        let mut progress = super::progress::Reporter::new(&record.id, playbook, observed, Arc::clone(log), live, Arc::clone(&self.metrics));
        // A panic must not leave a drill that runs for ever in the books; its faults end with the lease.
        let carried =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.carry.carry_out(playbook, &record.id, abort, &mut progress)));
        let lost_before = progress.events_lost();
        drop(progress);
        let (state, verdict, reason) = match carried {
            Ok(Ok(Carried { end, result })) => {
                self.metrics.lost(result.quality.events_lost.saturating_sub(lost_before));
                let kept = self.store.keep_result(&record.id, &json::run(&result));
                let unkept = kept.err().map(|error| chain(&error));
                match end {
                    End::Complete => (State::Finished, result.verdict.map(|verdict| verdict.as_str()), unkept),
                    End::Aborted(reason) => (State::Aborted, None, Some(reason)),
                    End::NotApplied(reason) | End::NotRemoved(reason) => (State::Failed, None, Some(reason)),
                }
            }
            Ok(Err(error)) => (State::Failed, None, Some(chain(&error))),
            Err(_) => {
                (State::Failed, None, Some("the drill's thread panicked; the kernel ends its faults within three seconds".to_owned()))
            }
        };
        record.state = state;
        record.ended_at = Some(clock::wall_rfc3339());
        record.verdict = verdict.map(str::to_owned);
        record.reason = reason;
        if let Err(error) = self.store.keep(&record) {
            tracing::error!(drill = record.id, "{}", chain(&error));
        }
        let outcome = verdict.unwrap_or(if state == State::Aborted { "aborted" } else { "failed" });
        self.metrics.phase(&record.id, None);
        self.metrics.verdict(&record.id, outcome);
        tracing::info!(drill = record.id, outcome, reason = record.reason, "drill ended");
        log.push("end", end_event(&record));
        let mut inner = self.inner();
        if let Some(entry) = inner.entries.iter_mut().find(|entry| entry.record.id == record.id) {
            entry.record = record;
            entry.running = None;
        }
        self.prune(&mut inner);
        drop(inner);
        // Last: whoever waits for the end finds it in the books.
        log.close();
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

    /// Ends a drill early and waits until its faults are gone; one that has ended is left as it is. `None` if there is none of that id.
    pub async fn abort(&self, id: &str, reason: &str) -> Option<Record> {
        let log = self.log(id)?;
        let sender = self.inner().entries.iter().find(|entry| entry.record.id == id)?.running.as_ref().map(|r| r.abort.clone());
        if let Some(sender) = sender {
            // A full channel means that it has reasons enough.
            let _ = sender.try_send(reason.to_owned());
        }
        log.ended().await;
        self.get(id).map(|(record, _)| record)
    }

    /// Starts no more drills, ends those that run, and waits for them.
    pub async fn stop(&self) {
        let running: Vec<String> = {
            let mut inner = self.inner();
            inner.is_stopping = true;
            inner.entries.iter().filter(|entry| entry.running.is_some()).map(|entry| entry.record.id.clone()).collect()
        };
        for id in &running {
            let sender =
                self.inner().entries.iter().find(|entry| entry.record.id == *id).and_then(|e| Some(e.running.as_ref()?.abort.clone()));
            if let Some(sender) = sender {
                let _ = sender.try_send("the daemon is stopping".to_owned());
            }
        }
        for id in &running {
            self.abort(id, "the daemon is stopping").await;
        }
    }
}

fn end_event(record: &Record) -> String {
    serde_json::json!({ "state": record.state, "verdict": record.verdict, "reason": record.reason }).to_string()
}
