//! `cargo xtask dist`: an archive that a host without a compiler can use: the binaries, the unit, playbooks, dashboards and documents.
//!
//! The same commit and compiler give the same bytes: names are sorted, owners and times are fixed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{build, command, paths, say};

/// What goes along beside the binaries, from the project's root.
const ALONG: [&str; 8] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md", "dashboards", "deploy", "docs", "playbooks"];
const BINARIES: [&str; 2] = ["stormdrill", "stormdrill-lab"];

/// The task.
pub(crate) fn run() -> Result<()> {
    build::run(&build::Options::release())?;
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("stormdrill-{version}-{}-linux", std::env::consts::ARCH);
    let folder = paths::target().join("dist");
    let staged = folder.join(&name);
    let _ = fs::remove_dir_all(&staged);
    stage(&staged)?;
    let archive = pack(&folder, &name)?;
    let sum = command::capture(Command::new("sha256sum").arg(archive.file_name().unwrap_or_default()).current_dir(&folder))?;
    let sums = archive.with_extension("gz.sha256");
    fs::write(&sums, &sum).with_context(|| format!("cannot write {}", sums.display()))?;
    fs::remove_dir_all(&staged).with_context(|| format!("cannot remove {}", staged.display()))?;
    say::result(format!("{}\n{}", archive.display(), sum.trim()));
    Ok(())
}

/// Brings together what is packed. Symbols stay, so that a panic says where it was; what only a debugger reads goes.
fn stage(staged: &Path) -> Result<()> {
    let bin = staged.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot make {}", bin.display()))?;
    for binary in BINARIES {
        let built = paths::target().join("release").join(binary);
        command::run(Command::new("objcopy").arg("--strip-debug").arg(built).arg(bin.join(binary)))?;
    }
    for path in ALONG {
        command::run(Command::new("cp").args(["-r", "--parents", path]).arg(staged).current_dir(paths::workspace()))?;
    }
    Ok(())
}

fn pack(folder: &Path, name: &str) -> Result<PathBuf> {
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--use-compress-program=gzip -n", "-cf"]);
    command::run(tar.arg(&archive).arg("-C").arg(folder).arg(name))?;
    Ok(archive)
}
