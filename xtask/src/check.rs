//! `cargo xtask check`: everything that finds mistakes without running the tests. `cargo xtask test` begins with it.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::route::Route;
use crate::{bpf, command, deny, paths, say, tidy};

/// Clippy of Debian's compiler. On PATH the first one may be rustup's, which cannot read the other compiler's libraries.
pub(crate) const KERNEL_CLIPPY: &str = "/usr/bin/clippy-driver";

type Check = fn() -> Result<()>;

/// The task: runs all checks, even after one has failed, and fails if any did.
pub(crate) fn run() -> Result<()> {
    bpf::ensure_fresh(None)?;
    let checks: [(&str, Check); 7] = [
        ("tidy", tidy::run),
        ("format", format),
        ("format of the kernel crate", kernel_format),
        ("clippy", clippy),
        ("clippy of the kernel crate", kernel_clippy),
        ("documentation", documentation),
        ("dependencies", deny::run_if_installed),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        let begin = Instant::now();
        match check() {
            Ok(()) => say::step(format!("check {name}: fine ({:.1} s)", begin.elapsed().as_secs_f64())),
            Err(error) => {
                say::step(format!("check {name}: {error:#}"));
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("these checks failed: {}", failed.join(", "));
    }
    Ok(())
}

fn in_workspace(arguments: &[&str]) -> Command {
    let mut cargo = command::cargo();
    cargo.args(arguments).current_dir(paths::workspace()).env_remove("STORMDRILL_SKIP_BPF");
    cargo
}

fn format() -> Result<()> {
    command::run(&mut in_workspace(&["fmt", "--all", "--check"]))
}

fn kernel_format() -> Result<()> {
    command::run(&mut in_workspace(&["fmt", "--manifest-path", "ebpf/Cargo.toml", "--check"]))
}

fn clippy() -> Result<()> {
    // All features, or the tests that need root or the VM would never be looked at.
    command::run(&mut in_workspace(&[
        "clippy",
        "--quiet",
        "--locked",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "--deny",
        "warnings",
    ]))
}

fn documentation() -> Result<()> {
    command::run(in_workspace(&["doc", "--quiet", "--locked", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
}

fn kernel_clippy() -> Result<()> {
    let (route, linker) = bpf::toolchain(None)?;
    let mut cargo = match &route {
        Route::Nightly(_) => {
            let mut cargo = route.cargo("clippy", &linker.path, &bpf::target_dir());
            cargo.args(["--", "--deny", "warnings"]);
            cargo
        }
        Route::Debian(_) if !Path::new(KERNEL_CLIPPY).exists() => {
            say::step("Debian's compiler has no clippy here (the package rust-web-clippy brings it): the kernel crate is not looked at");
            return Ok(());
        }
        Route::Debian(_) => {
            // What cargo-clippy does itself, with the driver of the compiler in use.
            let mut cargo = route.cargo("check", &linker.path, &bpf::target_dir());
            cargo.env("RUSTC_WORKSPACE_WRAPPER", KERNEL_CLIPPY).env("CLIPPY_ARGS", "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
            cargo
        }
    };
    command::run(cargo.arg("--quiet").current_dir(paths::workspace().join("ebpf")))
}
