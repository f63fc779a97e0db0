//! `stormdrill validate PLAYBOOK…`: says what is wrong with playbooks. Needs no privilege and opens no socket.

use std::io::{self, Write};
use std::path::PathBuf;

use stormdrill_core::plan;
use stormdrill_core::playbook::Playbook;

use crate::diagnostic::{self, Style};
use crate::playbook_file::{self, Override};

/// Exit code for a bad playbook or bad usage.
const BAD_PLAYBOOK: u8 = 64;

/// Checks each playbook with the overrides applied; problems go to `err`, as does what is allowed and yet will not tell much, one line for each good
/// playbook to `out`.
///
/// Returns the exit code: 0 if all are good, whatever was warned of; 64 otherwise.
///
/// # Errors
/// When `out` or `err` cannot be written to.
pub fn run(paths: &[PathBuf], overrides: &[Override], style: Style, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let mut code = 0;
    for path in paths {
        match playbook_file::read(path, overrides) {
            Ok(playbook) => {
                for warning in plan::warnings(&playbook) {
                    writeln!(err, "{}: warning: {warning}", path.display())?;
                }
                writeln!(out, "{}: {}", path.display(), summary(&playbook))?;
            }
            Err(error) => {
                err.write_all(diagnostic::render(&error, style).as_bytes())?;
                code = BAD_PLAYBOOK;
            }
        }
    }
    Ok(code)
}

fn summary(playbook: &Playbook) -> String {
    format!(
        "ok: {} edges, {} faults, {} guards, {} expectations",
        playbook.edges.len(),
        playbook.faults.len(),
        playbook.guards.len(),
        playbook.expect.len()
    )
}
