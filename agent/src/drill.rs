//! One drill from the checked playbook to the judged result: what `stormdrill run` and the daemon share.

use std::io;
use std::path::Path;

use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::fault::FaultSpec;
use stormdrill_core::judge::{self, Evidence, LoadHealth};
use stormdrill_core::machine::End;
use stormdrill_core::playbook::Playbook;
use stormdrill_core::result::DrillResult;
use stormdrill_core::track::TrackConfig;
use thiserror::Error;
use tokio::sync::mpsc;

use crate::claim::{Claim, ClaimError};
use crate::clock;
use crate::driver::faults::Faults;
use crate::driver::{self, DriverError, Outcome, Progress};
use crate::fault::clean::{self, CleanError, CleanProblem, Force};
use crate::fault::elsewhere::Site;
use crate::fault::plane::{FaultError, Plane};
use crate::fault::spared::Spared;
use crate::host;
use crate::load::{self, LoadError};
use crate::priority;
use crate::probe::{Probe, ProbeConfig, ProbeError};
use crate::session::Session;

/// Why a drill could not be carried out.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each is its source, named")]
pub enum DrillError {
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Fault(#[from] FaultError),
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("look for what a killed drill left")]
    Leftovers(#[source] CleanError),
    #[error("a killed drill's fault is still there; `stormdrill clean` has to succeed first")]
    Stuck(#[source] Box<CleanProblem>),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Scope(#[from] host::ScopeError),
}

/// A drill that came to an end, whichever.
#[derive(Debug)]
pub struct Carried {
    /// How it ended.
    pub end: End,
    /// All that can be said of it.
    pub result: DrillResult,
}

/// Carries a drill out on the calling thread, in a runtime of its own. Nothing is changed before all is known to be possible.
///
/// `spared` is whom its faults may not cut off. `abort` brings reasons to end it early; it is made within the runtime, since signal handlers need one.
///
/// # Errors
/// When it could not be started, or the probe failed under way; its faults are gone by then.
pub fn carry_out(
    playbook: &Playbook,
    state_dir: &Path,
    id: &str,
    spared: Spared,
    abort: impl FnOnce() -> io::Result<mpsc::Receiver<String>>,
    progress: &mut dyn Progress,
) -> Result<Carried, DrillError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(DrillError::Runtime)?;
    let started_at = clock::wall_rfc3339();
    let (outcome, load) = runtime.block_on(async {
        // First of all, so that a signal that comes while the probe is loaded ends the drill in good order.
        let mut abort = abort().map_err(DrillError::Runtime)?;
        let prepared = Plane::new(state_dir).sparing(spared).prepare(targets(playbook)).await?;
        leave_no_leftovers(state_dir, &mut |line| progress.note(line))?;
        let cgroup = host::scope(&playbook.scope, state_dir)?;
        let probe = Probe::attach_to_edges(&ProbeConfig {
            cgroup,
            edges: &playbook.edges,
            events: true,
            ring_bytes: ProbeConfig::DEFAULT_RING_BYTES,
        })?;
        // After what says best which privilege is missing, and before anything is measured.
        let claimed = |(spec, edge): (FaultSpec, EdgeSpec)| Ok((Site::open(spec.netns.as_ref())?.inode()?, edge));
        let claimed = targets(playbook).into_iter().map(claimed).collect::<Result<Vec<_>, FaultError>>()?;
        let _claim = Claim::take(state_dir, id, &claimed)?;
        let session = Session::new(probe, &playbook.edges, TrackConfig { marker: playbook.marker.clone(), ..TrackConfig::default() });
        // The storm that a drill is there to see takes the processors, too; its windows are cut and its faults' lease renewed all the same.
        priority::be_on_time(-10);
        let running = playbook.load.as_ref().map(|load| load::start(load, id)).transpose()?;
        let outcome = driver::drive(playbook, session, Faults::new(prepared), &mut abort, progress).await;
        let health = running.and_then(load::Running::stop);
        Ok::<_, DrillError>((outcome?, health))
    })?;
    Ok(judged(playbook, outcome, load, id.to_owned(), started_at))
}

/// Removes what a killed drill left in the kernel, before this one adds to it. What cannot be removed ends this one, too; but not what lies in
/// another network namespace, which may be gone with all that was in it.
///
/// # Errors
/// When something is left.
pub fn leave_no_leftovers(state_dir: &Path, note: &mut dyn FnMut(&str)) -> Result<(), DrillError> {
    let report = clean::clean(state_dir, Force::No).map_err(DrillError::Leftovers)?;
    for removed in &report.removed {
        note(&format!("removed {removed}, left by a drill that was killed"));
    }
    for problem in report.problems {
        match problem {
            CleanProblem::Elsewhere { .. } => note(&format!("left alone: {problem}")),
            problem => return Err(DrillError::Stuck(Box::new(problem))),
        }
    }
    Ok(())
}

/// Each fault with the edge that it is aimed at; the playbook's check saw to it that there is one.
#[must_use]
pub fn targets(playbook: &Playbook) -> Vec<(FaultSpec, EdgeSpec)> {
    let edge = |fault: &FaultSpec| playbook.edges.iter().find(|edge| edge.name == fault.to).cloned();
    playbook.faults.iter().filter_map(|fault| Some((fault.clone(), edge(fault)?))).collect()
}

/// The edges that a drill is aimed at, each with the inode of the network namespace that its fault is in; `None` where that cannot be opened.
#[must_use]
pub fn located(playbook: &Playbook) -> Vec<(Option<u64>, EdgeSpec)> {
    let inode = |spec: &FaultSpec| Site::open(spec.netns.as_ref()).and_then(|site| site.inode()).ok();
    targets(playbook).into_iter().map(|(spec, edge)| (inode(&spec), edge)).collect()
}

fn judged(playbook: &Playbook, outcome: Outcome, load: Option<LoadHealth>, id: String, started_at: String) -> Carried {
    let Outcome { end, phases, windows, faults, quality, held_up, blind } = outcome;
    let blind = blind.as_deref();
    let evidence = Evidence { edges: &playbook.edges, phases: &phases, windows: &windows, faults: &faults, load, held_up: &held_up, blind };
    let judgements = judge::judge(&playbook.expect, &evidence);
    let aborted = match &end {
        End::Complete => None,
        End::Aborted(reason) | End::NotApplied(reason) | End::NotRemoved(reason) => Some(reason.clone()),
    };
    let verdict = Some(judge::drill_verdict(&judgements));
    let result = DrillResult {
        id,
        playbook: playbook.name.clone(),
        description: playbook.description.clone(),
        guards: playbook.guards.iter().map(|guard| guard.text.clone()).collect(),
        host: host::name(),
        kernel: host::kernel(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at,
        verdict,
        aborted,
        judgements,
        phases,
        faults,
        edges: playbook.edges.clone(),
        windows,
        quality,
    };
    Carried { end, result }
}
