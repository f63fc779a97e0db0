//! `cargo xtask build`: the kernel objects, then the two binaries that a user runs.

use anyhow::Result;
use clap::Args;

use crate::route::Choice;
use crate::setup::{self, Part};
use crate::{bpf, command, paths, say};

/// What `build` can be asked for.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Unoptimised binaries, in target/debug (the kernel objects are always optimised: the kernel refuses others)
    #[arg(long)]
    debug: bool,
    /// The way to a core library for the BPF target; both are tried if none is named
    #[arg(long, value_enum)]
    route: Option<Choice>,
}

impl Options {
    /// The binaries as tests run them.
    pub(crate) const fn debug() -> Self {
        Self { debug: true, route: None }
    }

    /// The binaries as users get them.
    pub(crate) const fn release() -> Self {
        Self { debug: false, route: None }
    }
}

/// The task.
pub(crate) fn run(options: &Options) -> Result<()> {
    setup::ensure(&[Part::Build], options.route)?;
    bpf::ensure_fresh(options.route)?;
    let mut cargo = command::cargo();
    cargo.args(["build", "--package", "stormdrill", "--package", "stormdrill-lab", "--bins"]).current_dir(paths::workspace());
    cargo.env_remove("STORMDRILL_SKIP_BPF");
    let profile = if options.debug { "debug" } else { "release" };
    if !options.debug {
        cargo.arg("--release");
    }
    command::run(&mut cargo)?;
    for binary in ["stormdrill", "stormdrill-lab"] {
        say::step(format!("built {}", paths::target().join(profile).join(binary).display()));
    }
    Ok(())
}
