//! `stormdrill run`: one drill from the playbook to the exit code.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stormdrill_core::judge::Verdict;
use stormdrill_core::machine::End;
use stormdrill_core::plan;
use stormdrill_core::playbook::Playbook;
use stormdrill_core::report::json;
use thiserror::Error;

use super::report::Format;
use super::{host, output};
use crate::diagnostic::{self, Style};
use crate::drill::{self, Carried, DrillError};
use crate::exit::Exit;
use crate::fault::spared::Spared;
use crate::playbook_file;
use crate::report::table::Width;
use crate::report::{log, progress};
use crate::signals;

mod remote;

/// Why a drill has no result.
#[derive(Debug, Error)]
enum RunError {
    #[error(transparent)]
    Drill(#[from] DrillError),
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
    if let Some(path) = &args.json
        && let Err(error) = output::check(path)
    {
        log::complain(&format!("cannot write {}: {error}", path.display()));
        return Exit::Environment;
    }
    for warning in plan::warnings(&playbook) {
        output::stderr(&format!("warning: {warning}\n"));
    }
    if let Some(url) = &args.remote {
        return remote::run(&playbook, args, Some(url.as_str()).filter(|url| !url.is_empty()), state_dir);
    }
    match drill(&playbook, args, state_dir) {
        Ok(exit) => exit,
        Err(error) => {
            log::complain(&log::chain(&error));
            Exit::Environment
        }
    }
}

fn drill(playbook: &Playbook, args: &super::Run, state_dir: &Path) -> Result<Exit, RunError> {
    let Carried { end, result } = {
        let mut progress = progress::Stderr::new(&playbook.edges);
        drill::carry_out(playbook, state_dir, &host::drill_id(), Spared::of_this_process(), signals::reasons, &mut progress)?
    };
    let verdict = result.verdict.unwrap_or(Verdict::Inconclusive);
    deliver(&json::Run::of(&result), args)?;
    Ok(match end {
        End::Complete => Exit::from(verdict),
        End::Aborted(_) => Exit::Aborted,
        End::NotApplied(reason) | End::NotRemoved(reason) => {
            log::complain(&reason);
            Exit::Environment
        }
    })
}

fn deliver(run: &json::Run, args: &super::Run) -> Result<(), RunError> {
    if args.json.as_deref() != Some(Path::new("-")) {
        output::stdout(&Format::Text.render_in(run, Style::of_stdout(), Width::of_stdout()));
    }
    if let Some(path) = &args.json {
        write(path, &Format::Json.render(run))?;
    }
    if let Some(folder) = &args.report {
        fs::create_dir_all(folder).map_err(|source| RunError::Write { path: folder.clone(), source })?;
        for (format, name) in Format::FILES {
            write(&folder.join(name), &format.render(run))?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), RunError> {
    output::write(path, text).map_err(|source| RunError::Write { path: path.to_owned(), source })
}
