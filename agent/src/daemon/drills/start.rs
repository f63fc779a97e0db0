//! How a drill begins, and the thread that it lives on.

use std::sync::Arc;

use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::machine::End;
use stormdrill_core::playbook::Playbook;
use stormdrill_core::report::json;
use thiserror::Error;
use tokio::sync::mpsc;

use super::{Drills, Entry, Running, end_event};
use crate::clock;
use crate::daemon::cluster::ClaimError;
use crate::daemon::log::EventLog;
use crate::daemon::overlap::{Target, targets_overlap};
use crate::daemon::progress::{Live, Reporter};
use crate::daemon::store::{Record, Request, State, StoreError};
use crate::drill::{self, Carried};
use crate::report::log::chain;

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
    /// Other hosts have a say.
    #[error(transparent)]
    Claim(#[from] ClaimError),
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

impl Drills {
    /// The drill that the same request started before.
    ///
    /// # Errors
    /// When another request had its key.
    pub fn repeated(&self, request: Option<&Request>) -> Result<Option<Started>, StartError> {
        before(&self.inner().entries, request)
    }

    /// Starts a drill of this id, or finds the one that the same request started before.
    ///
    /// # Errors
    /// When it may not run, or not now.
    pub fn start(self: &Arc<Self>, id: String, playbook: Playbook, request: Option<Request>) -> Result<Started, StartError> {
        let mut inner = self.inner();
        if let Some(before) = before(&inner.entries, request.as_ref())? {
            return Ok(before);
        }
        if inner.is_stopping {
            return Err(StartError::Stopping);
        }
        let targets: Vec<Target> = drill::located(&playbook);
        let running = || inner.entries.iter().filter_map(|entry| Some((&entry.record, entry.running.as_ref()?)));
        if let Some((record, _)) = running().find(|(_, running)| targets_overlap(&running.targets, &targets)) {
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
            id,
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
        let live = Arc::new(Live::new(&playbook.edges));
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
        let mut progress = Reporter::new(&record.id, playbook, observed, Arc::clone(log), live, Arc::clone(&self.metrics));
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
        let end = end_event(&record);
        let mut inner = self.inner();
        if let Some(entry) = inner.entries.iter_mut().find(|entry| entry.record.id == record.id) {
            entry.record = record;
            entry.running = None;
        }
        self.prune(&mut inner);
        drop(inner);
        // Last: whoever hears of the end finds it in the books.
        log.push("end", end);
        log.close();
    }
}

fn before(entries: &[Entry], request: Option<&Request>) -> Result<Option<Started>, StartError> {
    let Some(request) = request else { return Ok(None) };
    let mut entries = entries.iter().map(|entry| &entry.record);
    match entries.find(|record| record.request.as_ref().is_some_and(|other| other.key == request.key)) {
        Some(record) if record.request.as_ref() == Some(request) => Ok(Some(Started { record: record.clone(), is_new: false })),
        Some(record) => Err(StartError::KeyReused { id: record.id.clone() }),
        None => Ok(None),
    }
}
