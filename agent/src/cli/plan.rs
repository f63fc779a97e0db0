//! `stormdrill plan PLAYBOOK`: says what a run would do. Needs no privilege and sends nothing, but to resolve names of a playbook that has some; it
//! asks the kernel for its routes.

use std::io::{self, Write};
use std::path::Path;

use stormdrill_core::plan::host::HostFacts;
use stormdrill_core::plan::{plan, text};
use stormdrill_core::playbook::Playbook;

use crate::diagnostic::{self, Style};
use crate::fault::host;
use crate::fault::preview::Findings;
use crate::playbook_file::{self, Override};

/// Exit code for a bad playbook or bad usage.
const BAD_PLAYBOOK: u8 = 64;

/// Exit code where the host lacks what the playbook names.
const ENVIRONMENT: u8 = 2;

/// Plans a playbook for a host of which `facts` are known; the plan goes to `out`, problems to `err`. `look` says what of the playbook a run
/// would refuse here.
///
/// Returns the exit code: 0, 64 for a bad playbook, 2 for one that names what this host does not have, as `run` does. What the *kernel* lacks
/// is part of the plan, not an error: a plan is often made elsewhere than where it is run.
///
/// # Errors
/// When `out` or `err` cannot be written to.
pub fn run(
    path: &Path,
    overrides: &[Override],
    facts: &HostFacts,
    look: &dyn Fn(&Playbook) -> Findings,
    style: Style,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    match playbook_file::read(path, overrides) {
        Ok(playbook) => {
            let Findings { refused, unknown, devices } = look(&playbook);
            let facts = devices.into_iter().fold(with_names(facts, &playbook), |facts, (fault, of_it)| facts.with_devices(fault, of_it));
            out.write_all(text(&plan(&playbook, &facts), &facts).as_bytes())?;
            if !unknown.is_empty() {
                writeln!(out, "\nnot known before the start")?;
                unknown.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
            }
            refused.iter().try_for_each(|line| writeln!(err, "error: this host cannot run it: {line}"))?;
            Ok(if refused.is_empty() { 0 } else { ENVIRONMENT })
        }
        Err(error) => {
            err.write_all(diagnostic::render(&error, style).as_bytes())?;
            Ok(BAD_PLAYBOOK)
        }
    }
}

/// The facts, with what the host names of the playbook stand for.
fn with_names(facts: &HostFacts, playbook: &Playbook) -> HostFacts {
    let names = playbook.faults.iter().flat_map(|fault| fault.select.names());
    names.fold(facts.clone(), |facts, name| facts.with_name(name, host::addresses(name).unwrap_or_default()))
}
