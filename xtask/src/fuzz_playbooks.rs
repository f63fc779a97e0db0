//! `cargo xtask fuzz-playbooks`: hostile playbooks and lines for so long, in a release build. The generator and what must hold are in
//! `core/tests/fuzz_playbooks`.

use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::{command, paths, say};

/// How long one input may hang before all is called off: each has a limit of its own, which is looked at when it is done. Cargo may have to
/// wait for another one first.
const HUNG: Duration = Duration::from_secs(600);

/// Options of the task.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How long to go on, in minutes
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Makes the same inputs again; otherwise they are others every time
    #[arg(long)]
    seed: Option<u64>,
}

/// The task.
pub(crate) fn run(options: &Options) -> Result<()> {
    let cargo = |last: &[&str]| {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--release", "--quiet", "-p", "stormdrill-core", "--test", "fuzz_playbooks"]).args(last);
        cargo.current_dir(paths::workspace());
        cargo
    };
    command::run(&mut cargo(&["--no-run"]))?;
    let by_chance = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let seed = options.seed.unwrap_or_else(by_chance);
    say::step(format!("playbooks for {} minutes, seed {seed}", options.minutes));
    let mut test = cargo(&["--", "--nocapture"]);
    test.env("STORMDRILL_FUZZ_SECONDS", (60 * options.minutes).to_string()).env("STORMDRILL_FUZZ_SEED", seed.to_string());
    let mut child = test.spawn().with_context(|| format!("cannot run {}", command::show(&test)))?;
    let until = Instant::now() + Duration::from_secs(60 * options.minutes) + HUNG;
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() > until {
            child.kill()?;
            bail!("an input took more than {} s: seed {seed}", HUNG.as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    if !ended.success() {
        bail!("something was found: see above, and target/fuzz-playbooks");
    }
    say::result("No panic, no unbounded time, and every error has a place.");
    Ok(())
}
