//! `cargo xtask setup`: finds what the project needs, installs what is missing, and says what it did.
//!
//! Every other task that needs something calls [`ensure`] first, so that a fresh machine needs one command; with nothing missing that takes
//! some tens of milliseconds.

mod apt;
mod linker;
mod needs;

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

pub(crate) use apt::is_root;
pub(crate) use linker::{Linker, installed as installed_linker};
pub(crate) use needs::Part;

use crate::route::{self, Choice, Refusal, Route};
use crate::{command, say, seeds};

/// What `setup` can be asked for.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Only what building needs
    #[arg(long)]
    build: bool,
    /// Only what the tests need, on this host and in the VM
    #[arg(long)]
    test: bool,
    /// The way to a core library for the BPF target; both are tried if none is named
    #[arg(long, value_enum)]
    route: Option<Choice>,
}

/// The task.
pub(crate) fn run(options: &Options) -> Result<()> {
    let parts: &[Part] = match (options.build, options.test) {
        (true, false) => &[Part::Build],
        (false, true) => &[Part::Vm, Part::Test, Part::Seeds],
        _ => &[Part::Build, Part::Vm, Part::Test, Part::Seeds],
    };
    let changed = ensure(parts, options.route)?;
    if parts.contains(&Part::Build) {
        let linker = linker::installed().context("bpf-linker is missing")?;
        say::step(format!("linker: {}", linker.path.display()));
        match route::find(options.route, linker.llvm) {
            Ok(route) => say::step(format!("route to a BPF core: {}", route.describe())),
            Err(refusals) => bail!(explain(&refusals)),
        }
    }
    say::step(if changed { "everything that was missing is installed now" } else { "nothing was missing" });
    Ok(())
}

/// Installs what is missing of some parts. Returns whether anything was.
pub(crate) fn ensure(parts: &[Part], route: Option<Choice>) -> Result<bool> {
    let missing: BTreeSet<&str> =
        needs::NEEDS.iter().filter(|need| parts.contains(&need.part) && !need.is_met()).map(|need| need.package).collect();
    let mut changed = !missing.is_empty();
    apt::install(&missing)?;
    if parts.contains(&Part::Build) {
        let built = linker::installed().is_none();
        let linker = ensure_linker()?;
        changed |= built | ensure_route(route, &linker)?;
    }
    if parts.contains(&Part::Seeds) {
        changed |= seeds::prepare()?;
    }
    if parts.contains(&Part::Test) {
        changed |= ensure_component("fmt", "rustfmt")? | ensure_component("clippy", "clippy")? | ensure_kernel_clippy()?;
    }
    Ok(changed)
}

fn ensure_linker() -> Result<Linker> {
    if let Some(linker) = linker::installed() {
        return Ok(linker);
    }
    if !std::fs::exists(linker::LLVM_CONFIG).unwrap_or(false)
        && let Err(error) = apt::install(&needs::LINKER_PACKAGES.into())
    {
        say::step(format!("no LLVM 22 to build bpf-linker against: {error:#}"));
    }
    linker::install()
}

/// Makes one of the routes usable: by apt where that is possible, else by rustup.
fn ensure_route(forced: Option<Choice>, linker: &Linker) -> Result<bool> {
    let Err(refusals) = route::find(forced, linker.llvm) else {
        return Ok(false);
    };
    for refusal in &refusals {
        say::step(format!("{}: {}", name(refusal.choice), refusal.reason));
    }
    let mut failures = Vec::new();
    for choice in [Choice::Debian, Choice::Nightly] {
        if forced.is_some_and(|forced| forced != choice) {
            continue;
        }
        let installed = match choice {
            Choice::Debian => apt::install(&needs::ROUTE_PACKAGES.into()),
            Choice::Nightly => install_rust_src(),
        };
        match installed {
            Ok(()) => match route::find(Some(choice), linker.llvm) {
                Ok(_) => return Ok(true),
                Err(still) => failures.push(explain(&still)),
            },
            Err(error) => failures.push(format!("{}: {error:#}", name(choice))),
        }
    }
    bail!("no way to a core library for {}: {}", route::TARGET, failures.join("; "))
}

fn install_rust_src() -> Result<()> {
    if command::find("rustup").is_none() {
        bail!("rustup is not installed");
    }
    say::step("adding rust-src to the nightly toolchain by rustup");
    let list = command::capture(Command::new("rustup").args(["toolchain", "list"]))?;
    if !list.lines().any(|line| line.starts_with("nightly")) {
        command::run(Command::new("rustup").args(["toolchain", "install", "nightly", "--profile", "minimal"]))?;
    }
    let toolchain =
        list.lines().filter_map(|line| line.split_whitespace().next()).find(|name| name.starts_with("nightly")).unwrap_or("nightly");
    command::run(Command::new("rustup").args(["component", "add", "rust-src", "--toolchain", toolchain]))
}

/// A component of the stable toolchain, which a minimal rustup lacks.
fn ensure_component(subcommand: &str, component: &str) -> Result<bool> {
    if command::succeeds(command::cargo().args([subcommand, "--version"])) {
        return Ok(false);
    }
    say::step(format!("adding {component} by rustup"));
    command::run(Command::new("rustup").args(["component", "add", component]))
        .with_context(|| format!("`cargo {subcommand}` is missing, and rustup cannot add it"))?;
    Ok(true)
}

/// Clippy for the kernel crate, where Debian's compiler builds that. It is wanted, not needed: `check` says so if it is not there.
fn ensure_kernel_clippy() -> Result<bool> {
    let debian = matches!(installed_linker().map(|linker| route::find(None, linker.llvm)), Some(Ok(Route::Debian(_))));
    let wanted = debian && command::find(crate::check::KERNEL_CLIPPY).is_none();
    if !wanted || !is_root()? || !apt::offers(needs::CLIPPY_PACKAGE) {
        return Ok(false);
    }
    if let Err(error) = apt::install(&[needs::CLIPPY_PACKAGE].into()) {
        say::step(format!("no clippy for the kernel crate: {error:#}"));
        return Ok(false);
    }
    Ok(true)
}

/// All refusals as one line that says what to do.
pub(crate) fn explain(refusals: &[Refusal]) -> String {
    let reasons = refusals.iter().map(|refusal| format!("{}: {}", name(refusal.choice), refusal.reason)).collect::<Vec<_>>().join("; ");
    format!("no toolchain for the kernel objects ({reasons}): run `cargo xtask setup`")
}

fn name(choice: Choice) -> &'static str {
    match choice {
        Choice::Nightly => "route nightly",
        Choice::Debian => "route debian",
    }
}
