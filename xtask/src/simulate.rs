//! `cargo xtask simulate`: every test of the judgement on 10,000 simulated drills of each kind, and the page with how often it was wrong.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{command, paths, say};

const PAGE: &str = "docs/error-rates.md";

const HEAD: &str = "# How often the tests are wrong\n\n\
Written by `cargo xtask simulate`: 10,000 simulated drills of known truth for each row, whole judgements from windows to verdict\n\
(`core/src/simulated`). *On the limit* the truth is exactly what the expectation allows, where every answer but `inconclusive` is wrong. A row\n\
holds as long as chance explains what was found beyond the stated share (exact binomial test at 1 in 10,000; no tolerance is added). Rows with\n\
\"not used\" are the plain rules in whose place the tests stand: they are there to fail. The short form in the tests runs each 100 times\n\
with the same seeds. *What was found* has its exact 95% interval behind it.\n\n";

/// The task.
pub(crate) fn run() -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args([
        "test",
        "--release",
        "--quiet",
        "-p",
        "stormdrill-core",
        "--lib",
        "simulated::",
        "--",
        "--nocapture",
        "--test-threads",
        "2",
    ]);
    cargo.env("STORMDRILL_LONG", "1").current_dir(paths::workspace());
    say::step(command::show(&cargo));
    let output = cargo.output().with_context(|| format!("cannot run {}", command::show(&cargo)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ") && line.matches(" | ").count() >= 4).collect();
    rows.sort_unstable();
    if rows.is_empty() || !output.status.success() {
        bail!("a test is wrong more often than it states:\n{}", String::from_utf8_lossy(&output.stdout));
    }
    let table = format!(
        "| test | truth, and the wrong answer | stated at most | found | 95% interval |\n|---|---|---|---|---|\n{}\n",
        rows.join("\n")
    );
    fs::write(paths::workspace().join(PAGE), format!("{HEAD}{table}")).with_context(|| format!("cannot write {PAGE}"))?;
    say::result(format!("{} rows in {PAGE}: every test keeps to what it states.", rows.len()));
    Ok(())
}
