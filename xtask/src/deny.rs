//! `cargo xtask deny`: licences, duplicates and sources of all dependencies, by cargo-deny.
//!
//! A task of its own, because cargo-deny takes three minutes to build; the checks run it where it is installed. Advisories are left to whoever
//! can reach their database: the machines that run the checks may not.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{command, paths, say};

/// The version that `deny.toml` was written for.
const VERSION: &str = "0.20.2";

/// The task: installs cargo-deny into `target/tools` if there is none, and runs it.
pub(crate) fn run() -> Result<()> {
    let program = match installed() {
        Some(program) => program,
        None => install()?,
    };
    check(&program)
}

/// Runs cargo-deny if it is there, and says so if it is not.
pub(crate) fn run_if_installed() -> Result<()> {
    match installed() {
        Some(program) => check(&program),
        None => {
            say::step("cargo-deny is not installed, dependencies are not looked at (`cargo xtask deny` installs and runs it)");
            Ok(())
        }
    }
}

fn installed() -> Option<PathBuf> {
    command::find(paths::tools().join("bin/cargo-deny")).or_else(|| command::find("cargo-deny"))
}

fn install() -> Result<PathBuf> {
    say::step(format!("building cargo-deny {VERSION} into target/tools (about three minutes)"));
    let build = paths::tools().join("build");
    let mut cargo = command::cargo();
    cargo.args(["install", "--quiet", "--locked", "cargo-deny", "--version", VERSION, "--root"]).arg(paths::tools());
    command::run(cargo.arg("--target-dir").arg(&build))?;
    std::fs::remove_dir_all(build)?;
    Ok(paths::tools().join("bin/cargo-deny"))
}

fn check(program: &PathBuf) -> Result<()> {
    for manifest in ["Cargo.toml", "ebpf/Cargo.toml"] {
        let mut deny = Command::new(program);
        deny.args(["--log-level", "error", "--manifest-path", manifest, "--config"]).arg(paths::workspace().join("deny.toml"));
        command::run(deny.args(["check", "bans", "licenses", "sources"]).current_dir(paths::workspace()))?;
    }
    Ok(())
}
