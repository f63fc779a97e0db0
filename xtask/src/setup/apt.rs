//! Installing Debian packages, from the system's own sources.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

use anyhow::{Result, bail};

use crate::{command, say};

/// Installs packages. Does nothing for an empty list; else the package lists are brought up to date first, since a fresh machine has none.
pub(super) fn install(packages: &BTreeSet<&str>) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.iter().copied().collect::<Vec<_>>().join(" ");
    if command::find("apt-get").is_none() {
        bail!("missing, and this is no Debian: install what your system calls these packages: {list}");
    }
    if !is_root()? {
        bail!("missing: {list}; as root run `apt-get install {list}`, or `cargo xtask setup` again");
    }
    say::step(format!("installing by apt: {list}"));
    update();
    let mut arguments = vec!["install", "--yes", "--quiet=1", "--no-install-recommends"];
    arguments.extend(packages);
    for removed in removals(&command::capture(apt(&arguments).arg("--simulate").stdout(Stdio::piped()))?) {
        say::step(format!("apt removes the package {removed}, which conflicts with these"));
    }
    let _no_services = ServicesStayDown::begin();
    command::run(&mut apt(&arguments))
}

/// Brings the package lists up to date, once in a run.
fn update() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        if let Err(error) = command::run(&mut apt(&["update", "--quiet=2"])) {
            // One unreachable source among several is no reason to give up: the install that follows tells.
            say::step(format!("apt-get update failed, going on: {error:#}"));
        }
    });
}

/// Whether apt knows a package and can install it.
pub(super) fn offers(package: &str) -> bool {
    command::capture(Command::new("apt-cache").args(["policy", package]))
        .is_ok_and(|text| text.lines().any(|line| line.trim().strip_prefix("Candidate: ").is_some_and(|version| version != "(none)")))
}

/// Whether we are root.
pub(crate) fn is_root() -> Result<bool> {
    Ok(command::capture(Command::new("id").arg("-u"))?.trim() == "0")
}

fn apt(arguments: &[&str]) -> Command {
    let mut apt = Command::new("apt-get");
    // Another apt may be at work on a machine that has just started.
    apt.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    // What apt prints is progress, not a result.
    apt.stdout(std::io::stderr());
    apt
}

/// The packages that `apt-get install --simulate` would remove.
fn removals(simulation: &str) -> Vec<&str> {
    simulation.lines().filter_map(|line| line.strip_prefix("Remv ")?.split_whitespace().next()).collect()
}

/// While it lives, Debian's policy file keeps packages from starting their services: the tests start their own nginx, and one more on port 80
/// would be a surprise. A policy that the machine has already stays.
struct ServicesStayDown(Option<PathBuf>);

impl ServicesStayDown {
    fn begin() -> Self {
        let policy = Path::new("/usr/sbin/policy-rc.d");
        if policy.exists() {
            return Self(None);
        }
        let written =
            fs::write(policy, "#!/bin/sh\nexit 101\n").and_then(|()| fs::set_permissions(policy, fs::Permissions::from_mode(0o755)));
        if let Err(error) = written {
            say::step(format!("cannot write {}, packages may start their services: {error}", policy.display()));
        }
        Self(Some(policy.to_path_buf()))
    }
}

impl Drop for ServicesStayDown {
    fn drop(&mut self) {
        if let Some(policy) = &self.0
            && let Err(error) = fs::remove_file(policy)
        {
            say::step(format!("cannot remove {}: {error}", policy.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_apt_would_remove_is_read_from_its_simulation() {
        let text =
            "Reading package lists...\nInst seabios (1.16.2-1 Debian:12.11/stable [all])\nRemv qemu-utils [1:10.0.2]\nConf seabios (1)\n";
        assert_eq!(removals(text), ["qemu-utils"]);
        assert!(removals("Inst seabios (1)\n").is_empty());
    }

    #[test]
    fn nothing_to_install_needs_neither_root_nor_apt() {
        assert!(install(&BTreeSet::new()).is_ok());
    }
}
