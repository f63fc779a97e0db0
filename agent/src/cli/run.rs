//! `stormdrill run`: one drill from the playbook to the exit code.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stormdrill_core::fault::FaultSpec;
use stormdrill_core::judge::{self, Evidence, LoadHealth, Verdict};
use stormdrill_core::machine::End;
use stormdrill_core::playbook::Playbook;
use stormdrill_core::report::json;
use stormdrill_core::result::DrillResult;
use stormdrill_core::track::TrackConfig;
use thiserror::Error;

use super::{host, output};
use crate::clock;
use crate::diagnostic::{self, Style};
use crate::driver::faults::Faults;
use crate::driver::{self, DriverError, Outcome};
use crate::exit::Exit;
use crate::fault::clean::{self, CleanError, CleanProblem, Force};
use crate::fault::plane::{FaultError, Plane};
use crate::load::{self, LoadError};
use crate::playbook_file;
use crate::probe::{Probe, ProbeConfig, ProbeError};
use crate::report::{log, progress, terminal};
use crate::session::Session;
use crate::signals;

/// Why a drill could not be run.
#[derive(Debug, Error)]
enum RunError {
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Fault(#[from] FaultError),
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
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

pub(super) fn run(args: &super::Run, state_dir: &Path) -> Exit {
    let playbook = match playbook_file::read(&args.playbook, &args.set) {
        Ok(playbook) => playbook,
        Err(error) => {
            output::stderr(&diagnostic::render(&error, Style::of_stderr()));
            return Exit::Usage;
        }
    };
    match drill(&playbook, args, state_dir) {
        Ok(exit) => exit,
        Err(error) => {
            log::complain(&log::chain(&error));
            Exit::Environment
        }
    }
}

fn drill(playbook: &Playbook, args: &super::Run, state_dir: &Path) -> Result<Exit, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::Runtime)?;
    let started_at = clock::wall_rfc3339();
    let id = host::drill_id();
    let (outcome, load) = runtime.block_on(carry_out(playbook, state_dir, &id))?;
    let exit_of_end = match &outcome.end {
        End::Complete => None,
        End::Aborted(_) => Some(Exit::Aborted),
        End::NotApplied(_) | End::NotRemoved(_) => Some(Exit::Environment),
    };
    let result = judged(playbook, outcome, load, id, started_at);
    let verdict = result.verdict.unwrap_or(Verdict::Inconclusive);
    deliver(&result, args)?;
    if let (Some(Exit::Environment), Some(reason)) = (exit_of_end, &result.aborted) {
        log::complain(reason);
    }
    Ok(exit_of_end.unwrap_or_else(|| Exit::from(verdict)))
}

/// Everything between the checked playbook and the last window. Nothing is changed before all is known to be possible.
async fn carry_out(playbook: &Playbook, state_dir: &Path, id: &str) -> Result<(Outcome, Option<LoadHealth>), RunError> {
    let prepared = Plane::new(state_dir).prepare(targets(playbook)).await?;
    leave_no_leftovers(state_dir)?;
    let cgroup = host::scope(&playbook.scope, state_dir)?;
    let probe = Probe::attach(&ProbeConfig { cgroup, edges: &playbook.edges, events: true, ring_bytes: ProbeConfig::DEFAULT_RING_BYTES })?;
    let session = Session::new(probe, &playbook.edges, TrackConfig::default());
    let mut abort = signals::reasons().map_err(RunError::Runtime)?;
    let mut progress = progress::Stderr::new(&playbook.edges);
    let running = playbook.load.as_ref().map(|load| load::start(load, id)).transpose()?;
    let outcome = driver::drive(playbook, session, Faults::new(prepared), &mut abort, &mut progress).await;
    let health = running.and_then(load::Running::stop);
    Ok((outcome?, health))
}

/// Removes what a killed drill left in the kernel, before this one adds to it. What cannot be removed ends this one, too; but not what lies in
/// another network namespace, which may be gone with all that was in it.
fn leave_no_leftovers(state_dir: &Path) -> Result<(), RunError> {
    let report = clean::clean(state_dir, Force::No).map_err(RunError::Leftovers)?;
    for removed in &report.removed {
        output::stderr(&format!("removed {removed}, left by a drill that was killed\n"));
    }
    for problem in report.problems {
        match problem {
            CleanProblem::Elsewhere { .. } => output::stderr(&format!("left alone: {problem}\n")),
            problem => return Err(RunError::Stuck(Box::new(problem))),
        }
    }
    Ok(())
}

/// Each fault with the edge that it is aimed at; the playbook's check saw to it that there is one.
fn targets(playbook: &Playbook) -> Vec<(FaultSpec, stormdrill_core::edge::EdgeSpec)> {
    let edge = |fault: &FaultSpec| playbook.edges.iter().find(|edge| edge.name == fault.to).cloned();
    playbook.faults.iter().filter_map(|fault| Some((fault.clone(), edge(fault)?))).collect()
}

fn judged(playbook: &Playbook, outcome: Outcome, load: Option<LoadHealth>, id: String, started_at: String) -> DrillResult {
    let Outcome { end, phases, windows, faults, quality } = outcome;
    let evidence = Evidence { edges: &playbook.edges, phases: &phases, windows: &windows, faults: &faults, load };
    let judgements = judge::judge(&playbook.expect, &evidence);
    let aborted = match end {
        End::Complete => None,
        End::Aborted(reason) | End::NotApplied(reason) | End::NotRemoved(reason) => Some(reason),
    };
    let verdict = Some(judge::drill_verdict(&judgements));
    DrillResult {
        id,
        playbook: playbook.name.clone(),
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
    }
}

fn deliver(result: &DrillResult, args: &super::Run) -> Result<(), RunError> {
    let text = terminal::render(&json::Run::of(result));
    let json = json::run(result);
    if args.json.as_deref() != Some(Path::new("-")) {
        output::stdout(&text);
    }
    if let Some(path) = &args.json {
        write(path, &json)?;
    }
    if let Some(folder) = &args.report {
        fs::create_dir_all(folder).map_err(|source| RunError::Write { path: folder.clone(), source })?;
        write(&folder.join("result.json"), &json)?;
        write(&folder.join("report.txt"), &text)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), RunError> {
    output::write(path, text).map_err(|source| RunError::Write { path: path.to_owned(), source })
}
