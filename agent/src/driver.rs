//! The one loop of a drill: everything that can happen becomes an event for the machine, and everything that
//! the machine asks for is done here.
//!
//! Whatever ends the drill — its last phase, a guard, a signal, an error of the probe — the faults go through the same
//! removal. If none of this code runs any more, the kernel ends them when the lease runs out.

use std::collections::BTreeMap;
use std::time::Duration;

use stormdrill_core::fault::{FaultCounts, FaultOutcome};
use stormdrill_core::judge::guard::GuardState;
use stormdrill_core::judge::{HeldUp, MOST_HELD_UP_NS};
use stormdrill_core::machine::{Effect, End, Event, Machine};
use stormdrill_core::playbook::Playbook;
use stormdrill_core::result::DataQuality;
use stormdrill_core::window::{Phase, PhaseName, Window};
use stormdrill_wire::fault::LEASE_NS;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::clock;
use crate::fault::plane::RENEW_EVERY;
use crate::probe::ProbeError;
use crate::report::log::chain;
use crate::session::Session;

pub mod faults;

use faults::Faults;

/// How often the ring buffer is emptied.
const POLL: Duration = Duration::from_millis(5);
/// How often a running fault's lease is renewed; the lease lasts three times as long.
const RENEW_NS: u64 = RENEW_EVERY.as_secs() * 1_000_000_000;

/// How often the probe's own hooks are looked at.
const LOOK_NS: u64 = 1_000_000_000;

/// Why a drill could not be carried through. The faults are gone all the same.
#[derive(Debug, Error)]
pub enum DriverError {
    /// The probe failed.
    #[error("observe the drill")]
    Probe(#[from] ProbeError),
}

/// Told what happens, while it happens.
pub trait Progress {
    /// The drill moved to another phase, planned to end at `until_ns`.
    fn phase(&mut self, name: PhaseName, until_ns: Option<u64>);
    /// A window is final.
    fn window(&mut self, window: &Window);
    /// Something that the user should read at once.
    fn note(&mut self, text: &str);
    /// What the kernel counted so far, by the fault's kind; told each time that the leases are renewed, and after the removal.
    fn faults(&mut self, _counts: &BTreeMap<&'static str, FaultCounts>) {}
}

/// What a drill left behind: all that a verdict is made from.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The phases as they were.
    pub phases: Vec<Phase>,
    /// The closed windows, transition windows included.
    pub windows: Vec<Window>,
    /// What the faults did.
    pub faults: Vec<FaultOutcome>,
    /// What was missed.
    pub quality: DataQuality,
    /// When this loop stood still for longer than it may.
    pub held_up: Vec<HeldUp>,
    /// Why not all of it was observed.
    pub blind: Option<String>,
}

/// Runs the drill to its end. `abort` brings reasons to end it early.
///
/// # Errors
/// When the probe fails; the faults have been removed by then.
pub async fn drive(
    playbook: &Playbook,
    session: Session,
    faults: Faults,
    abort: &mut mpsc::Receiver<String>,
    progress: &mut dyn Progress,
) -> Result<Outcome, DriverError> {
    let mut driver = Driver {
        machine: Machine::new(playbook.phases, playbook.window),
        guards: playbook.guards.iter().map(|guard| GuardState::new(guard, &playbook.edges)).collect(),
        session,
        faults,
        progress,
        windows: Vec::new(),
        shown: None,
        renew_at_ns: None,
        ran_ns: clock::monotonic_ns(),
        held_up: Vec::new(),
        look_at_ns: 0,
        blind: None,
    };
    let ended = driver.run(abort).await;
    if ended.is_err() {
        // The probe is lost; the fault must not outlive the drill.
        driver.remove().await;
    }
    let end = ended?;
    // What was done in the last second was not seen by the loop.
    let _ = driver.look();
    let phases = driver.machine.phases().to_vec();
    let Driver { session, faults, mut windows, progress, held_up, blind, .. } = driver;
    let (rest, quality) = session.finish()?;
    rest.iter().for_each(|window| progress.window(window));
    windows.extend(rest);
    Ok(Outcome { end, phases, windows, faults: faults.into_outcomes(), quality, held_up, blind })
}

struct Driver<'a> {
    machine: Machine,
    guards: Vec<GuardState>,
    session: Session,
    faults: Faults,
    progress: &'a mut dyn Progress,
    windows: Vec<Window>,
    shown: Option<PhaseName>,
    renew_at_ns: Option<u64>,
    /// When this loop was last seen to run.
    ran_ns: u64,
    held_up: Vec<HeldUp>,
    /// When the hooks are looked at again.
    look_at_ns: u64,
    blind: Option<String>,
}

impl Driver<'_> {
    /// Notes that the loop runs, and for how long it did not.
    fn beat(&mut self) {
        let now_ns = clock::monotonic_ns();
        if now_ns.saturating_sub(self.ran_ns) > MOST_HELD_UP_NS {
            self.held_up.push(HeldUp { start_ns: self.ran_ns, end_ns: now_ns });
        }
        self.ran_ns = now_ns;
    }

    async fn run(&mut self, abort: &mut mpsc::Receiver<String>) -> Result<End, DriverError> {
        self.handle(Event::Begin { now_ns: clock::monotonic_ns() }).await?;
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut abort_open = true;
        loop {
            self.beat();
            if let Some(end) = self.machine.end() {
                return Ok(end.clone());
            }
            let deadline = self.machine.deadline().map(clock::until);
            tokio::select! {
                biased;
                reason = abort.recv(), if abort_open => match reason {
                    Some(reason) => {
                        self.end_early(reason, clock::monotonic_ns()).await?;
                    }
                    None => abort_open = false,
                },
                () = tokio::time::sleep(deadline.unwrap_or(POLL)), if deadline.is_some() => {
                    self.handle(Event::Tick { now_ns: clock::monotonic_ns() }).await?;
                }
                _ = poll.tick() => self.poll().await?,
            }
        }
    }

    async fn poll(&mut self) -> Result<(), DriverError> {
        let now_ns = clock::monotonic_ns();
        if self.renew_at_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            if let Some(reason) = self.lapse(now_ns) {
                self.end_early(reason, now_ns).await?;
            }
            self.progress.faults(&self.faults.counts());
        }
        if let Some(reason) = self.missing().await {
            self.end_early(reason, now_ns).await?;
        }
        if now_ns >= self.look_at_ns {
            self.look_at_ns = now_ns + LOOK_NS;
            // Guards see nothing any more, either.
            if let Some(reason) = self.look() {
                self.end_early(reason, now_ns).await?;
            }
        }
        self.session.poll()?;
        for window in self.session.finalised() {
            let tripped = self.guards.iter_mut().find_map(|guard| guard.observe(&window));
            self.progress.window(&window);
            self.windows.push(window);
            self.end_if_tripped(tripped).await?;
        }
        // An attempt that hangs on another edge must not hold a guard up.
        let session = &self.session;
        let tripped = self.guards.iter_mut().find_map(|guard| guard.look_ahead(|from, needed| session.ahead(from, needed)));
        self.end_if_tripped(tripped).await?;
        if self.session.settled() {
            self.handle(Event::Drained).await?;
        }
        Ok(())
    }

    /// Ends the drill if a guard has a reason.
    async fn end_if_tripped(&mut self, reason: Option<String>) -> Result<(), DriverError> {
        let Some(reason) = reason else { return Ok(()) };
        self.progress.note(&reason);
        self.handle(Event::Abort { reason, now_ns: clock::monotonic_ns() }).await
    }

    /// Takes the faults away and ends the drill, for a reason that whoever watches is told.
    async fn end_early(&mut self, reason: String, now_ns: u64) -> Result<(), DriverError> {
        self.progress.note(&format!("ending early: {reason}"));
        self.handle(Event::Abort { reason, now_ns }).await
    }

    /// Looks whether all hooks are in place, and says so once if not.
    fn look(&mut self) -> Option<String> {
        let lost = self.session.attached().lost().filter(|_| self.blind.is_none())?;
        let reason = format!("somebody has taken the probe's hook {lost} out of the kernel, so that what came later was not counted");
        self.blind = Some(reason.clone());
        Some(reason)
    }

    /// Renews the leases, and says why the fault phase is not one any more if the faults had a gap: then nothing can be judged by it.
    fn lapse(&mut self, now_ns: u64) -> Option<String> {
        let renewed_ns = self.renew_at_ns.replace(now_ns + RENEW_NS)?.saturating_sub(RENEW_NS);
        let held_up_ns = now_ns.saturating_sub(renewed_ns);
        if held_up_ns > LEASE_NS {
            return Some(format!("stormdrill was held up for {} s, and the kernel ended the fault meanwhile", held_up_ns / 1_000_000_000));
        }
        if let Err(error) = self.faults.renew() {
            return Some(format!("the fault's lease could not be renewed: {}", chain(&error)));
        }
        self.faults.begin_look();
        None
    }

    /// Says why the fault phase is not one any more if the kernel does not have all of the faults.
    async fn missing(&mut self) -> Option<String> {
        match self.faults.missing().await {
            Ok(None) => None,
            Ok(Some(fault)) => Some(format!("somebody has taken the fault {fault} out of the kernel")),
            Err(error) => Some(format!("it cannot be told whether the fault is still there: {}", chain(&error))),
        }
    }

    /// Feeds the machine and does what it asks for, which may feed it again.
    async fn handle(&mut self, event: Event) -> Result<(), DriverError> {
        let mut events = std::collections::VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.machine.on(event) {
                match effect {
                    Effect::OpenWindow(phase) => {
                        self.session.open_window(phase)?;
                        if self.shown.replace(phase) != Some(phase) {
                            self.progress.phase(phase, self.machine.current().map(|(_, until_ns)| until_ns));
                        }
                    }
                    Effect::CloseWindow => {
                        self.session.close_window()?;
                    }
                    Effect::ApplyFaults => events.push_back(self.apply().await),
                    Effect::RemoveFaults => events.push_back(self.remove().await),
                    Effect::Finish => {}
                }
            }
        }
        Ok(())
    }

    async fn apply(&mut self) -> Event {
        self.beat();
        let applied = self.faults.apply().await;
        // It takes as long as it takes, between two phases.
        self.ran_ns = clock::monotonic_ns();
        match applied {
            Ok(at_ns) => {
                self.renew_at_ns = Some(clock::monotonic_ns() + RENEW_NS);
                Event::Applied { at_ns }
            }
            Err(error) => Event::ApplyFailed { reason: chain(&error), now_ns: clock::monotonic_ns() },
        }
    }

    async fn remove(&mut self) -> Event {
        self.renew_at_ns = None;
        self.beat();
        let removed = self.faults.remove().await;
        self.ran_ns = clock::monotonic_ns();
        self.progress.faults(&self.faults.counts());
        match removed {
            Ok(at_ns) => Event::Removed { at_ns },
            Err(error) => Event::RemoveFailed { reason: chain(&error), now_ns: clock::monotonic_ns() },
        }
    }
}
