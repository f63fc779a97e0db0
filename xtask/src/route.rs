//! The two routes to a Rust `core` for the BPF target.
//!
//! No toolchain ships one ready: either a rustup nightly builds it from its own source (`rust-src`), or Debian's `rustc-web` brings it prebuilt.
//! Both are looked at in this order and the first that works is taken, so that a developer with a nightly needs no Debian, and a Debian machine
//! needs nothing from rustup but stable.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::command;

/// A route that the user insists on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// A rustup nightly with rust-src, which builds `core` itself
    Nightly,
    /// Debian's rustc-web, which has `core` prebuilt
    Debian,
}

/// A route that was found to work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The rustup name of a nightly toolchain that has rust-src.
    Nightly(String),
    /// The path of a rustc whose sysroot has `core` for the BPF target.
    Debian(PathBuf),
}

/// Why a route cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) choice: Choice,
    pub(crate) reason: String,
}

/// The target that kernel objects are built for: BPF in the byte order of the machine.
pub(crate) const TARGET: &str = if cfg!(target_endian = "little") { "bpfel-unknown-none" } else { "bpfeb-unknown-none" };

/// Finds a route. `linker_llvm` is the major version of the LLVM that the linker reads, if it has one of its own: a compiler whose LLVM is
/// newer writes bitcode that it cannot read.
pub(crate) fn find(forced: Option<Choice>, linker_llvm: Option<u32>) -> Result<Route, Vec<Refusal>> {
    let mut refusals = Vec::new();
    for choice in [Choice::Nightly, Choice::Debian] {
        if forced.is_some_and(|forced| forced != choice) {
            continue;
        }
        let found = match choice {
            Choice::Nightly => find_nightly(linker_llvm),
            Choice::Debian => find_debian(linker_llvm),
        };
        match found {
            Ok(route) => return Ok(route),
            Err(reason) => refusals.push(Refusal { choice, reason }),
        }
    }
    Err(refusals)
}

impl Route {
    /// How the route is named to a person.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Nightly(toolchain) => format!("{toolchain} (core built from rust-src)"),
            Self::Debian(rustc) => format!("{} (core prebuilt by Debian)", rustc.display()),
        }
    }

    /// The command that runs a cargo subcommand on the kernel crate, in its folder: `build`, or `check` for clippy.
    pub(crate) fn cargo(&self, subcommand: &str, linker: &Path, target_dir: &Path) -> Command {
        let mut cargo = match self {
            Self::Nightly(toolchain) => {
                let mut cargo = Command::new("rustup");
                cargo.args(["run", toolchain, "cargo"]);
                // Set by the cargo that runs this task; it would name the stable one again.
                cargo.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
                cargo
            }
            Self::Debian(rustc) => {
                let mut cargo = command::cargo();
                // aya-ebpf needs one unstable feature, and this compiler is a stable one.
                cargo.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
                cargo
            }
        };
        cargo.args([subcommand, "--release", "--locked", "--target", TARGET, "--target-dir"]).arg(target_dir);
        if matches!(self, Self::Nightly(_)) {
            cargo.args(["-Z", "build-std=core"]);
        }
        for variable in ["CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"] {
            cargo.env_remove(variable);
        }
        cargo.env("CARGO_ENCODED_RUSTFLAGS", rustflags(linker).join("\u{1f}"));
        cargo
    }
}

/// The compiler's flags. `--btf` needs full debug information; without it the kernel gets neither map types nor function names.
fn rustflags(linker: &Path) -> Vec<String> {
    vec![
        format!("--cfg=bpf_target_arch=\"{ARCH}\""),
        "-Cdebuginfo=2".to_owned(),
        "-Cpanic=abort".to_owned(),
        format!("-Clinker={}", linker.display()),
        "-Clink-arg=--btf".to_owned(),
    ]
}

fn find_nightly(linker_llvm: Option<u32>) -> Result<Route, String> {
    if command::find("rustup").is_none() {
        return Err("rustup is not installed".to_owned());
    }
    let list = command::capture(Command::new("rustup").args(["toolchain", "list"])).map_err(|error| format!("{error:#}"))?;
    let Some(toolchain) = nightly_in(&list) else {
        return Err("no nightly toolchain is installed".to_owned());
    };
    let rustc = || {
        let mut rustc = Command::new("rustup");
        rustc.args(["run", &toolchain, "rustc"]).env_remove("RUSTUP_TOOLCHAIN");
        rustc
    };
    let sysroot = command::capture(rustc().args(["--print", "sysroot"])).map_err(|error| format!("{error:#}"))?;
    if !Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file() {
        return Err(format!("{toolchain} has no rust-src (`rustup component add rust-src --toolchain {toolchain}` installs it)"));
    }
    check_llvm(&command::capture(rustc().arg("-vV")).map_err(|error| format!("{error:#}"))?, linker_llvm)?;
    Ok(Route::Nightly(toolchain))
}

fn find_debian(linker_llvm: Option<u32>) -> Result<Route, String> {
    // By its full path: on PATH the first rustc is rustup's.
    let rustc = PathBuf::from("/usr/bin/rustc");
    if !rustc.is_file() {
        return Err("the package rustc-web is not installed".to_owned());
    }
    let sysroot = command::capture(Command::new(&rustc).args(["--print", "sysroot"])).map_err(|error| format!("{error:#}"))?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET).join("lib");
    let has_core = library
        .read_dir()
        .is_ok_and(|mut files| files.any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("libcore-"))));
    if !has_core {
        return Err(format!("{} has no core for {TARGET} (the package libstd-rust-web-dev-bpf brings it)", rustc.display()));
    }
    check_llvm(&command::capture(Command::new(&rustc).arg("-vV")).map_err(|error| format!("{error:#}"))?, linker_llvm)?;
    Ok(Route::Debian(rustc))
}

/// The first nightly in what `rustup toolchain list` prints.
fn nightly_in(list: &str) -> Option<String> {
    list.lines().filter_map(|line| line.split_whitespace().next()).find(|name| name.starts_with("nightly")).map(str::to_owned)
}

/// The major version of LLVM in what `rustc -vV` prints.
fn llvm_in(version: &str) -> Option<u32> {
    version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()?.parse().ok()
}

fn check_llvm(version: &str, linker_llvm: Option<u32>) -> Result<(), String> {
    match (llvm_in(version), linker_llvm) {
        (Some(compiler), Some(linker)) if compiler > linker => {
            Err(format!("its LLVM is {compiler}, and bpf-linker reads bitcode of LLVM {linker} at most"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(command: &Command) -> Vec<String> {
        command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect()
    }

    fn variable(command: &Command, name: &str) -> Option<String> {
        command.get_envs().find(|(key, _)| *key == name)?.1.map(|value| value.to_string_lossy().into_owned())
    }

    #[test]
    fn the_nightly_route_builds_core_itself() {
        let command = Route::Nightly("nightly-x".to_owned()).cargo("build", Path::new("/t/bpf-linker"), Path::new("/t/ebpf"));
        assert_eq!(command.get_program(), "rustup");
        assert_eq!(
            arguments(&command),
            [
                "run",
                "nightly-x",
                "cargo",
                "build",
                "--release",
                "--locked",
                "--target",
                TARGET,
                "--target-dir",
                "/t/ebpf",
                "-Z",
                "build-std=core"
            ]
        );
        assert_eq!(variable(&command, "RUSTC_BOOTSTRAP"), None);
        assert!(command.get_envs().any(|(key, value)| key == "RUSTUP_TOOLCHAIN" && value.is_none()));
    }

    #[test]
    fn the_debian_route_uses_its_own_compiler_and_prebuilt_core() {
        let command = Route::Debian(PathBuf::from("/usr/bin/rustc")).cargo("build", Path::new("/t/bpf-linker"), Path::new("/t/ebpf"));
        assert!(!arguments(&command).iter().any(|argument| argument.contains("build-std")));
        assert_eq!(variable(&command, "RUSTC").as_deref(), Some("/usr/bin/rustc"));
        assert_eq!(variable(&command, "RUSTC_BOOTSTRAP").as_deref(), Some("1"));
        let flags = variable(&command, "CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
        assert!(flags.split('\u{1f}').any(|flag| flag == "-Clinker=/t/bpf-linker"), "{flags}");
        assert!(flags.split('\u{1f}').any(|flag| flag == "-Clink-arg=--btf"), "{flags}");
    }

    #[test]
    fn a_nightly_is_found_in_rustups_list() {
        assert_eq!(nightly_in("stable-x (active, default)\nnightly-2026-05-19-x\n").as_deref(), Some("nightly-2026-05-19-x"));
        assert_eq!(nightly_in("stable-x (active, default)\n"), None);
        assert_eq!(nightly_in("no installed toolchains\n"), None);
    }

    #[test]
    fn a_compiler_newer_than_the_linker_is_refused() {
        let version = "rustc 1.97.0-nightly\nhost: x\nLLVM version: 23.1.4\n";
        assert_eq!(llvm_in(version), Some(23));
        assert!(check_llvm(version, Some(22)).is_err_and(|reason| reason.contains("LLVM is 23")));
        assert_eq!(check_llvm(version, Some(23)), Ok(()));
        assert_eq!(check_llvm(version, None), Ok(()));
    }

    #[test]
    fn a_forced_route_is_the_only_one_that_is_tried() {
        // A linker of LLVM 1 makes every installed compiler too new, so both routes refuse whatever the machine has.
        let refusals = find(None, Some(1)).err().unwrap_or_default();
        assert_eq!(refusals.iter().map(|refusal| refusal.choice).collect::<Vec<_>>(), [Choice::Nightly, Choice::Debian]);
        let refusals = find(Some(Choice::Nightly), Some(1)).err().unwrap_or_default();
        assert_eq!(refusals.iter().map(|refusal| refusal.choice).collect::<Vec<_>>(), [Choice::Nightly]);
    }
}
