//! The constant observation: a thread of its own that counts the configured edges and brings the numbers to the metrics.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stormdrill_core::edge::{EdgeId, Role};
use stormdrill_core::playbook::serve::Observe;
use stormdrill_core::report::json::window::WindowView;
use stormdrill_core::track::TrackConfig;
use stormdrill_core::window::{EdgeCounts, PhaseName, Recognised, Window, grown};
use thiserror::Error;

use crate::host::{self, ScopeError};
use crate::metrics::{EdgeLabel, Metrics, Sampled};
use crate::probe::{Probe, ProbeConfig, ProbeError, Snapshot};
use crate::report::log::chain;
use crate::session::Session;

const POLL: Duration = Duration::from_millis(5);
/// How often the kernel's counters are read for the metrics.
const REFRESH: Duration = Duration::from_secs(1);

/// Why nothing is observed.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each is its source")]
pub enum ObserveError {
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Scope(#[from] ScopeError),
    #[error("start the observing thread")]
    Thread(#[source] std::io::Error),
}

/// The last window that is final, for whoever asks.
#[derive(Debug, Default)]
pub struct Latest(Mutex<Option<WindowView>>);

impl Latest {
    /// The window; `None` before the first one.
    #[must_use]
    pub fn get(&self) -> Option<WindowView> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A running observation. Dropping it does not end it; [`Observing::stop`] does.
#[derive(Debug)]
pub struct Observing {
    stop: Arc<AtomicBool>,
    is_alive: Arc<AtomicBool>,
    is_attached: Arc<AtomicBool>,
    latest: Arc<Latest>,
    thread: JoinHandle<()>,
}

impl Observing {
    /// Attaches the probe and counts from now on.
    ///
    /// # Errors
    /// When the probe cannot be attached.
    pub fn start(observe: &Observe, journal_dir: PathBuf, metrics: Arc<Metrics>) -> Result<Self, ObserveError> {
        let cgroup = host::scope(&observe.scope, &journal_dir)?;
        let probe =
            Probe::attach(&ProbeConfig { cgroup, edges: &observe.edges, events: true, ring_bytes: ProbeConfig::DEFAULT_RING_BYTES })?;
        let session = Session::new(probe, &observe.edges, TrackConfig { marker: observe.marker.clone(), ..TrackConfig::default() });
        let (stop, is_alive, latest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)), Arc::new(Latest::default()));
        let is_attached = Arc::new(AtomicBool::new(true));
        let observer = Observer {
            labels: observe.edges.iter().map(|edge| metrics.label(edge)).collect(),
            before: vec![Seen::default(); observe.edges.len()],
            other: [EdgeCounts::default(); 2],
            lost: 0,
            run_times: BTreeMap::new(),
            observe: observe.clone(),
            session,
            metrics,
            latest: Arc::clone(&latest),
            is_attached: Arc::clone(&is_attached),
        };
        let (ending, alive) = (Arc::clone(&stop), Arc::clone(&is_alive));
        let thread = std::thread::Builder::new()
            .name("observing".to_owned())
            .spawn(move || {
                if let Err(error) = observer.run(&ending) {
                    tracing::error!("the constant observation ended: {}", chain(&error));
                }
                alive.store(false, Ordering::Relaxed);
            })
            .map_err(ObserveError::Thread)?;
        Ok(Self { stop, is_alive, is_attached, latest, thread })
    }

    /// Whether it still counts.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Relaxed)
    }

    /// Whether the kernel says that all its hooks are in place. Somebody can take one off, and a cgroup that is removed takes them along.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.is_attached.load(Ordering::Relaxed)
    }

    /// The last final window.
    #[must_use]
    pub fn latest(&self) -> Option<WindowView> {
        self.latest.get()
    }

    /// Ends it and takes the probe off.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tracing::error!("the observing thread panicked");
        }
    }
}

/// What was read the last time.
#[derive(Debug, Clone, Default)]
struct Seen {
    counts: EdgeCounts,
    status: BTreeMap<u16, u64>,
}

struct Observer {
    session: Session,
    observe: Observe,
    labels: Vec<EdgeLabel>,
    before: Vec<Seen>,
    other: [EdgeCounts; 2],
    lost: u64,
    run_times: BTreeMap<String, Duration>,
    metrics: Arc<Metrics>,
    latest: Arc<Latest>,
    is_attached: Arc<AtomicBool>,
}

impl Observer {
    fn run(mut self, stop: &AtomicBool) -> Result<(), ProbeError> {
        let window_ns = u64::try_from(self.observe.window.as_nanos()).unwrap_or(u64::MAX);
        let refresh_ns = u64::try_from(REFRESH.as_nanos()).unwrap_or(u64::MAX);
        let mut next_window_ns = self.session.open_window(PhaseName::All)?.saturating_add(window_ns);
        let mut next_refresh_ns = 0;
        while !stop.load(Ordering::Relaxed) {
            self.session.poll()?;
            let now_ns = crate::clock::monotonic_ns();
            if now_ns >= next_window_ns {
                next_window_ns = self.session.open_window(PhaseName::All)?.saturating_add(window_ns);
            }
            for window in self.session.finalised() {
                self.window(&window);
            }
            if now_ns >= next_refresh_ns {
                next_refresh_ns = now_ns.saturating_add(refresh_ns);
                self.refresh()?;
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn window(&mut self, window: &Window) {
        for (at, (label, edge)) in self.labels.iter_mut().zip(&window.edges).enumerate() {
            self.metrics.speaks(label, &Recognised::default(), &edge.protocols);
            self.metrics.requests(label, edge, window.sampling_of(at));
        }
        *self.latest.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(WindowView::of(window, &self.observe.edges));
    }

    fn refresh(&mut self) -> Result<(), ProbeError> {
        let snapshot: Snapshot = self.session.snapshot()?;
        for (id, (label, before)) in (0..).map(EdgeId).zip(self.labels.iter_mut().zip(&mut self.before)) {
            let now = Seen { counts: snapshot.total(id), status: snapshot.total_status(id) };
            let added = now.counts.since(&before.counts);
            self.metrics.speaks(label, &added.recognised, &BTreeMap::new());
            self.metrics.count(label, &added);
            let more = now.status.iter().map(|(code, count)| (*code, grown(*count, before.status.get(code).copied().unwrap_or(0))));
            self.metrics.answers(label, &more.collect(), added.ok, added.errors);
            *before = now;
        }
        let others = [(Role::Ingress, snapshot.other_ingress()), (Role::Downstream, snapshot.other_downstream())];
        for ((role, now), before) in others.into_iter().zip(&mut self.other) {
            self.metrics.count(&Metrics::other(role), &now.since(before));
            *before = *now;
        }
        self.metrics.lost(grown(snapshot.health.events_lost, self.lost));
        self.lost = snapshot.health.events_lost;
        self.metrics.sampled(Sampled::Constantly, self.session.share());
        self.metrics.unknown_role(snapshot.health.unknown_role_connections);
        let attached = self.session.attached();
        self.metrics.attached(attached);
        let all = attached.lost().is_none();
        if self.is_attached.swap(all, Ordering::Relaxed) && !all {
            tracing::error!("the kernel has let go of a hook of the constant observation ({attached:?}): a restart attaches it again");
        }
        for (program, now) in self.session.run_times() {
            let before = self.run_times.insert(program.to_owned(), now).unwrap_or_default();
            self.metrics.bpf_run(program, now.saturating_sub(before).as_secs_f64());
        }
        Ok(())
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        for label in self.labels.iter().chain(&[Metrics::other(Role::Ingress), Metrics::other(Role::Downstream)]) {
            self.metrics.unobserved(label);
        }
        self.metrics.attached(crate::probe::Attached { ingress: false, egress: false, sock_ops: false });
    }
}
