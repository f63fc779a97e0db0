//! `cargo xtask seeds`: what four articles claim about retries, tried on the real systems that they name.
//!
//! One module a system starts its servers, runs drills against them and returns what it found as data, which is kept as JSON in `docs/seeds/`.
//! `docs/seeds.md` is rendered from that data alone, so that every number in it is one of a run, and a system that is run again changes its own part. All of it
//! happens in a network namespace of its own.

mod claims;
mod drill;
mod nginx;
mod process;
mod render;
mod repeat;
mod result;
mod rig;
mod scene;
mod systems;

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::setup::{self, Part};
use crate::{build, command, paths, say};
use result::Section;
use scene::Scene;

pub(crate) use repeat::{Options as RepeatOptions, run as repeat};

/// What `seeds` can be asked for.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Only these systems
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// A quicker form with fewer requests, for the tests; the page is left as it is
    #[arg(long)]
    short: bool,
    /// Of the shipped playbooks only this one; the page is left as it is
    #[arg(long, value_name = "NAME")]
    playbook: Option<String>,
    /// Only write the page anew, from what the last runs found
    #[arg(long, conflicts_with_all = ["only", "short", "playbook"])]
    render: bool,
    /// Use the binaries in target/debug as they are
    #[arg(long)]
    no_build: bool,
}

/// Set in the process that runs in the namespace.
const INSIDE: &str = "STORMDRILL_SEEDS_INSIDE";

/// The task.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.render {
        render::page()?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = options.only.iter().find(|name| !systems::ALL.iter().any(|system| system.name == **name)) {
        let names = systems::ALL.iter().map(|system| system.name).collect::<Vec<_>>().join(", ");
        bail!("no system is called {unknown}: there are {names}");
    }
    if std::env::var_os(INSIDE).is_some() {
        return inside(options);
    }
    if !setup::is_root()? {
        bail!("the drills need root");
    }
    setup::ensure(&[Part::Seeds], None)?;
    if !options.short && wanted(options, "latency") {
        // In the namespace nothing can be downloaded.
        setup::ensure(&[Part::Vm], None)?;
        systems::prepare()?;
    }
    if !options.no_build {
        build::run(&build::Options::debug())?;
    }
    in_a_namespace()
}

/// The same task again, in a network namespace of its own.
fn in_a_namespace() -> Result<ExitCode> {
    let mut again = Command::new("unshare");
    again.args(["--net", "--"]).arg(std::env::current_exe().context("cannot tell which program this is")?);
    again.args(std::env::args_os().skip(1)).env(INSIDE, "1");
    let status = again.status().with_context(|| format!("cannot run {}", command::show(&again)))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a system is to be run.
fn wanted(options: &Options, name: &str) -> bool {
    match &options.playbook {
        Some(_) => name == "playbooks",
        None => options.only.is_empty() || options.only.iter().any(|only| only == name),
    }
}

/// Installs what comes from PyPI. Returns whether anything was missing.
pub(crate) fn prepare() -> Result<bool> {
    rig::prepare()
}

/// The same in the namespace, whose only interface is loopback.
fn inside(options: &Options) -> Result<ExitCode> {
    command::run(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let kernel = command::capture(Command::new("uname").arg("-r"))?.trim().to_owned();
    let mut wrong = Vec::new();
    let partial = options.short || options.playbook.is_some();
    for system in systems::ALL.iter().filter(|system| wanted(options, system.name)) {
        if options.short && !system.short {
            continue;
        }
        say::step(format!("{}: {}", system.name, system.title));
        let scene = Scene::new(system.name, options.short, options.playbook.clone())?;
        let mut section = match (system.run)(&scene) {
            Ok(section) => section,
            Err(error) => {
                // The others are run all the same.
                say::step(format!("{}: {error:#}", system.name));
                wrong.push(format!("{}: {error:#}", system.name));
                continue;
            }
        };
        if let Some(why) = &section.skipped {
            say::step(format!("{} SKIPPED: {why}", system.name));
            continue;
        }
        (section.name, section.title) = (system.name.to_owned(), system.title.to_owned());
        section.kernel.clone_from(&kernel);
        let problems = section.problems();
        for problem in &problems {
            say::step(format!("{}: {problem}", system.name));
            wrong.push(format!("{}: {problem}", system.name));
        }
        // A run that went wrong does not take the place of one that went well.
        save(&section, partial || !problems.is_empty())?;
    }
    if !partial {
        render::page()?;
    }
    if wrong.is_empty() {
        say::result("Every drill had the verdict it should have, and every count is the system's own.");
        return Ok(ExitCode::SUCCESS);
    }
    bail!("not as it should be: {}", wrong.join("; "))
}

fn save(section: &Section, partial: bool) -> Result<()> {
    let folder = if partial { rig::folder().join("partial") } else { render::results() };
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(section.name.as_str()).with_extension("json");
    let text = serde_json::to_string_pretty(section).context("the results are not JSON")? + "\n";
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    say::step(format!("{} holds what was found", path.strip_prefix(paths::workspace()).unwrap_or(&path).display()));
    Ok(())
}
