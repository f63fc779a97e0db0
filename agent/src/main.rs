//! The `stormdrill` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(stormdrill::cli::main().code())
}
