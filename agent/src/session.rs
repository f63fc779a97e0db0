//! One observation from attach to detach: the probe, and the windows that its counts and events fall into.
//!
//! A window is closed in two steps. First the kernel is told to count under the next epoch; a moment later,
//! when no CPU can still be adding to the old one, its counts are read. So a window's counts are complete
//! when they are read, and each request is in exactly one window.

use std::collections::BTreeMap;
use std::time::Duration;

use stormdrill_core::edge::{EdgeId, EdgeSpec};
use stormdrill_core::event::ProbeEvent;
use stormdrill_core::result::{DataQuality, Missed};
use stormdrill_core::sampling::{Change, DEFAULT_BUDGET, Sampler, Taken};
use stormdrill_core::track::ledger::Ledger;
use stormdrill_core::track::roster::Listed;
use stormdrill_core::track::{TrackConfig, Tracker};
use stormdrill_core::window::{EdgeCounts, KernelWindow, PhaseName, Window};

use crate::clock;
use crate::probe::{Attached, Probe, ProbeError, Snapshot};

/// How long after an epoch ended its counts are read: far longer than any hook runs.
const SETTLE_NS: u64 = 20_000_000;

/// Where another budget than the usual one is found.
const BUDGET: &str = "STORMDRILL_EVENTS_PER_SECOND";

/// A window that the kernel no longer counts under.
#[derive(Debug, Clone, Copy)]
struct Closing {
    epoch: u32,
    /// `None`: what was counted outside of any window.
    phase: Option<PhaseName>,
    start_ns: u64,
    end_ns: u64,
    sampling: f64,
}

/// An observation that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The windows that were not given before.
    pub windows: Vec<Window>,
    /// What was missed.
    pub quality: DataQuality,
    /// The connections that are listed.
    pub connections: Vec<Listed>,
    /// How many are not.
    pub omitted: u64,
}

/// A running observation.
#[derive(Debug)]
pub struct Session {
    probe: Probe,
    tracker: Tracker,
    counts: Ledger<EdgeCounts>,
    status: Ledger<BTreeMap<u16, u64>>,
    edges: usize,
    epoch: u32,
    open: Option<(PhaseName, u64)>,
    closing: Vec<Closing>,
    lost_before: u64,
    sampler: Sampler,
    taken: Taken,
}

impl Session {
    /// Takes over an attached probe. Nothing is counted into a window until one is opened.
    #[must_use]
    pub fn new(probe: Probe, edges: &[EdgeSpec], config: TrackConfig) -> Self {
        let config = TrackConfig { wall_origin_ns: config.wall_origin_ns.or_else(clock::wall_origin_ns), ..config };
        let sampler = Sampler::new(budget(), config.retry_within_ns);
        Self {
            probe,
            tracker: Tracker::new(edges, config),
            counts: Ledger::new(),
            status: Ledger::new(),
            edges: edges.len(),
            epoch: 0,
            open: None,
            closing: Vec::new(),
            lost_before: 0,
            sampler,
            taken: Taken::default(),
        }
    }

    /// Closes the open window, if there is one, and counts under a new one from now on; gives its first instant.
    ///
    /// # Errors
    /// When the kernel's epoch cannot be set or the closing window's counts cannot be read.
    pub fn open_window(&mut self, phase: PhaseName) -> Result<u64, ProbeError> {
        let at_ns = self.advance()?;
        self.open = Some((phase, at_ns));
        Ok(at_ns)
    }

    /// Closes the open window and opens none: what happens from now on belongs to no window.
    ///
    /// # Errors
    /// As [`Self::open_window`].
    pub fn close_window(&mut self) -> Result<u64, ProbeError> {
        let at_ns = self.advance()?;
        self.open = None;
        Ok(at_ns)
    }

    fn advance(&mut self) -> Result<u64, ProbeError> {
        let change = self.sampler.border(clock::monotonic_ns());
        let at_ns = self.probe.set_epoch_and_tell(self.epoch.wrapping_add(1), self.sampler.told())?;
        self.changed(change, at_ns);
        let sampling = self.sampler.mean_share(at_ns);
        // What was counted outside of any window is closed too: its slot will be used again.
        let (phase, start_ns) = self.open.map_or((None, at_ns), |(phase, start_ns)| (Some(phase), start_ns));
        self.closing.push(Closing { epoch: self.epoch, phase, start_ns, end_ns: at_ns, sampling });
        self.epoch = self.epoch.wrapping_add(1);
        Ok(at_ns)
    }

    /// Takes in what the kernel has to tell. Call it every few milliseconds.
    ///
    /// # Errors
    /// When the ring buffer or the counters cannot be read.
    pub fn poll(&mut self) -> Result<(), ProbeError> {
        let (tracker, mut events) = (&mut self.tracker, 0);
        let fill = self.probe.drain(|event: ProbeEvent| {
            events += 1;
            tracker.on_event(event);
        })?;
        self.taken.events += events;
        self.taken.fill = fill;
        let now_ns = clock::monotonic_ns();
        self.sample(now_ns)?;
        while self.closing.first().is_some_and(|c| now_ns.saturating_sub(c.end_ns) >= SETTLE_NS) {
            let closing = self.closing.remove(0);
            self.settle(closing)?;
        }
        Ok(())
    }

    /// Has fewer identities told if the events are too many, or others where no window ends.
    fn sample(&mut self, now_ns: u64) -> Result<(), ProbeError> {
        if self.sampler.is_due(now_ns) {
            self.taken.left_out = self.probe.left_out()?;
        }
        let change = self.sampler.taken(self.taken, now_ns);
        if change.is_some() {
            let at_ns = self.probe.tell(self.sampler.told())?;
            self.changed(change, at_ns);
        }
        Ok(())
    }

    /// Of those that are told from now on, nothing is known.
    fn changed(&mut self, change: Option<Change>, at_ns: u64) {
        if change == Some(Change::Others) {
            self.tracker.warm_up(at_ns);
        }
    }

    /// The share of the identities that is told now.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.sampler.share()
    }

    fn settle(&mut self, closing: Closing) -> Result<(), ProbeError> {
        let snapshot = self.probe.snapshot()?;
        let lost = snapshot.health.events_lost;
        if lost > self.lost_before {
            self.tracker.on_loss();
        }
        let counts = self.counts.close(closing.epoch, snapshot.slot(closing.epoch));
        let status = self.status.close(closing.epoch, &status_of(&snapshot, closing.epoch));
        if let Some(phase) = closing.phase {
            self.tracker.close_window(KernelWindow {
                epoch: closing.epoch,
                phase,
                start_ns: closing.start_ns,
                end_ns: closing.end_ns,
                counts,
                status,
                events_lost: lost.saturating_sub(self.lost_before),
                sampling: closing.sampling,
            });
        }
        self.lost_before = lost;
        Ok(())
    }

    /// Windows that nothing can be added to any more, in order of time, each given once.
    pub fn finalised(&mut self) -> Vec<Window> {
        self.tracker.finalised(clock::monotonic_ns())
    }

    /// Windows that are not final yet, but complete on the edges that are needed: see [`Tracker::ahead`].
    #[must_use]
    pub fn ahead(&self, from: u32, needed: &[bool]) -> Vec<Window> {
        self.tracker.ahead(from, needed)
    }

    /// Every closed window is final: there is nothing left to wait for.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.open.is_none() && self.closing.is_empty() && self.tracker.is_idle()
    }

    /// Ends the observation: settles what is closing and finalises every window, whatever is still pending.
    ///
    /// # Errors
    /// When the kernel's counts cannot be read a last time.
    pub fn finish(self) -> Result<(Vec<Window>, DataQuality), ProbeError> {
        let finished = self.finish_with_connections()?;
        Ok((finished.windows, finished.quality))
    }

    /// The same with the connections one by one, if the configuration lists them.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_with_connections(mut self) -> Result<Finished, ProbeError> {
        let tracker = &mut self.tracker;
        self.probe.drain(|event: ProbeEvent| tracker.on_event(event))?;
        for closing in std::mem::take(&mut self.closing) {
            self.settle(closing)?;
        }
        let windows = self.tracker.flush(clock::monotonic_ns());
        let quality = self.quality()?;
        let (connections, omitted) = self.tracker.connections();
        Ok(Finished { windows, quality, connections, omitted })
    }

    /// What was missed so far.
    ///
    /// # Errors
    /// When the kernel's health counters cannot be read.
    pub fn quality(&mut self) -> Result<DataQuality, ProbeError> {
        let health = self.probe.snapshot()?.health;
        // Of what is always told, such as HTTP/2, nothing is left out whatever the share.
        let sampling = if self.probe.left_out()? > 0 { self.sampler.least_share() } else { 1.0 };
        let stats = self.tracker.stats();
        let mismatches = stats.mismatches;
        Ok(DataQuality {
            events_lost: health.events_lost,
            sampling,
            unknown_role_connections: health.unknown_role_connections,
            unparsed_connections: health.unparsed_connections,
            missed: Missed {
                gaps: health.gaps,
                segments_over_budget: health.segments_over_budget,
                assumed_heads: health.assumed_heads,
                headers_partial: mismatches.headers_partial,
                headers_unreadable: health.headers_unreadable,
                storage_failed: health.storage_failed,
                records_malformed: health.records_malformed,
                unpaired: mismatches.unpaired_responses + mismatches.unseen_outcomes,
                forgotten: mismatches.evicted_connections + mismatches.evicted_attempts + stats.evicted_ids + stats.evicted_failures,
            },
        })
    }

    /// The kernel's counters as they stand.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn snapshot(&mut self) -> Result<Snapshot, ProbeError> {
        self.probe.snapshot()
    }

    /// The state of the hooks.
    #[must_use]
    pub fn attached(&self) -> Attached {
        self.probe.attached()
    }

    /// How long each kernel program ran so far; see [`Probe::run_times`].
    #[must_use]
    pub fn run_times(&self) -> Vec<(&str, Duration)> {
        self.probe.run_times()
    }

    /// How many edges are observed.
    #[must_use]
    pub const fn edges(&self) -> usize {
        self.edges
    }
}

/// Events a second that are taken in: see docs/retries.md.
fn budget() -> u64 {
    let given = std::env::var(BUDGET).ok();
    given.and_then(|text| text.parse().ok()).filter(|budget| *budget > 0).unwrap_or(DEFAULT_BUDGET)
}

/// Responses by code of each edge, in the slot of an epoch.
fn status_of(snapshot: &Snapshot, epoch: u32) -> Vec<BTreeMap<u16, u64>> {
    (0..=u8::MAX).map_while(|edge| snapshot.status(epoch, EdgeId(edge)).cloned()).collect()
}
