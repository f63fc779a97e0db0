//! bpf-linker: turns the compiler's bitcode into a kernel object. Built from source into `target/tools`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{command, paths, say};

/// A linker that runs.
#[derive(Clone, Debug)]
pub(crate) struct Linker {
    pub(crate) path: PathBuf,
    /// The major version of the LLVM that it was built with. `None`: it loads the one of the rustup toolchain that calls it.
    pub(crate) llvm: Option<u32>,
}

/// The version that links against Debian's LLVM, and the LLVM that its feature names.
const WITH_SYSTEM_LLVM: (&str, u32) = ("0.13.0", 22);
/// The last version that finds its LLVM in rustup's toolchain: slower to fail and tied to rustup, but it needs no llvm-dev package.
const WITH_RUSTUP_LLVM: &str = "0.10.3";

/// Where Debian's package llvm-22-dev puts what the build needs.
pub(super) const LLVM_CONFIG: &str = "/usr/lib/llvm-22/bin/llvm-config";
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";

/// The linker that `setup` built before, if it still runs.
pub(crate) fn installed() -> Option<Linker> {
    let path = paths::tools().join("bin/bpf-linker");
    let version = command::capture(Command::new(&path).arg("--version")).ok()?;
    let llvm = version.contains(WITH_SYSTEM_LLVM.0).then_some(WITH_SYSTEM_LLVM.1);
    Some(Linker { path, llvm })
}

/// Builds the linker: against Debian's LLVM when that is installed, else the version that uses rustup's.
pub(super) fn install() -> Result<Linker> {
    let with_system_llvm = fs::exists(LLVM_CONFIG).unwrap_or(false);
    let version = if with_system_llvm { WITH_SYSTEM_LLVM.0 } else { WITH_RUSTUP_LLVM };
    say::step(format!("building bpf-linker {version} into target/tools (about a minute)"));
    let build = paths::tools().join("build");
    let mut cargo = command::cargo();
    cargo.args(["install", "--quiet", "--locked", "--force", "bpf-linker", "--version", version, "--root"]).arg(paths::tools());
    cargo.arg("--target-dir").arg(&build);
    if with_system_llvm {
        cargo
            .args(["--no-default-features", "--features", "llvm-22"])
            .env("LLVM_PREFIX", LLVM_PREFIX)
            .env("LLVM_SYS_221_PREFIX", LLVM_PREFIX);
    }
    command::run(&mut cargo)?;
    // The binary is all that is wanted; what it was built from is 300 MB.
    fs::remove_dir_all(&build).with_context(|| format!("cannot remove {}", build.display()))?;
    installed().context("bpf-linker was built but does not run")
}
