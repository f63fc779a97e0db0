//! `cargo xtask bench`: measurements, each beside what others need for the same. They are no tests: nothing fails, a table is printed.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::setup::{self, Part};
use crate::{bpf, command, paths, say};

/// What `bench` can be asked for.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// What to measure
    #[arg(value_enum)]
    what: What,
}

/// A measurement.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Faults on one to ten thousand targets: to apply, to remove, and a packet
    Fault,
    /// Counting: the requests a second that nginx and Redis still serve, and the processor's time a request
    Observe,
}

/// The task.
pub(crate) fn run(options: &Options) -> Result<()> {
    setup::ensure(&[Part::Build], None)?;
    bpf::ensure_fresh(None)?;
    let mut cargo = command::cargo();
    cargo.args(["bench", "--package", "stormdrill", "--features", "privileged-tests", "--bench"]).current_dir(paths::workspace());
    match options.what {
        What::Fault => {
            cargo.arg("fault");
            match tcset() {
                Ok(program) => {
                    cargo.env("STORMDRILL_TCSET", program);
                }
                Err(error) => say::step(format!("without tcconfig: {error:#}")),
            }
        }
        What::Observe => {
            setup::ensure(&[Part::Test, Part::Bench], None)?;
            cargo.arg("observe");
        }
    }
    command::run(&mut cargo)
}

/// tcconfig's program, in a Python environment of its own below `target/`.
fn tcset() -> Result<PathBuf> {
    let folder = paths::tools().join("tcconfig");
    let program = folder.join("bin/tcset");
    if !program.is_file() {
        say::step("installing tcconfig, to be measured beside");
        command::run(Command::new(command::require("python3")?).args(["-m", "venv"]).arg(&folder))?;
        command::run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "tcconfig"]))?;
    }
    Ok(program)
}
