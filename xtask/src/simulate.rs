//! `cargo xtask simulate`: every test of the judgement on 10,000 simulated drills of each kind, and the page with how often it was wrong.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::{command, paths, say};

const PAGE: &str = "docs/error-rates.md";

const TABLE: &str = "| test | truth, and the wrong answer | stated at most | found | 95% interval |\n|---|---|---|---|---|\n";

const HEAD: &str = "# How often the tests are wrong\n\n\
Written by `cargo xtask simulate`: 10,000 simulated drills of known truth for each row, whole judgements from windows to verdict\n\
(`core/src/simulated`). *On the limit* the truth is exactly what the expectation allows, where every answer but `inconclusive` is wrong. A row\n\
holds as long as chance explains what was found beyond the stated share (exact binomial test at 1 in 10,000; no tolerance is added). Rows with\n\
\"not used\" are the plain rules in whose place the tests stand: they are there to fail. The short form in the tests runs each 100 times\n\
with the same seeds. *What was found* has its exact 95% interval behind it.\n\n";

/// Options of the task.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Only this group (`rates`, `shares`, `times`, `windows`, `guards`, `reports`) or test of one (`rates::amplification`); the page keeps its other rows
    #[arg(long, value_name = "GROUP")]
    only: Option<String>,
}

/// The task. Takes some twenty minutes of both processors of a small machine.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut cargo = Command::new("cargo");
    let filter = options.only.as_ref().map_or_else(|| "simulated::".to_owned(), |group| format!("simulated::{group}"));
    cargo.args(["test", "--release", "--quiet", "-p", "stormdrill-core", "--lib", &filter, "--", "--nocapture", "--test-threads", "2"]);
    cargo.env("STORMDRILL_LONG", "1").current_dir(paths::workspace());
    say::step(command::show(&cargo));
    let output = cargo.output().with_context(|| format!("cannot run {}", command::show(&cargo)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = rows(&text);
    if found.is_empty() || !output.status.success() {
        bail!("a test is wrong more often than it states:\n{text}");
    }
    let page = paths::workspace().join(PAGE);
    let mut all = if options.only.is_some() { rows(&fs::read_to_string(&page).unwrap_or_default()) } else { BTreeMap::new() };
    all.extend(found);
    let lines: Vec<&str> = all.values().map(String::as_str).collect();
    fs::write(&page, format!("{HEAD}{TABLE}{}\n", lines.join("\n"))).with_context(|| format!("cannot write {PAGE}"))?;
    say::result(format!("{} rows in {PAGE}: every test keeps to what it states.", all.len()));
    Ok(())
}

/// The rows of a table, by what they are about.
fn rows(text: &str) -> BTreeMap<String, String> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains('%') && !line.starts_with("| test |"));
    rows.filter_map(|line| {
        let about: Vec<&str> = line.splitn(4, " | ").take(2).collect();
        (about.len() == 2).then(|| (about.join(" | "), line.to_owned()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_again_by_what_they_are_about() {
        let page = format!("{HEAD}{TABLE}| `a <= 1` | on the limit: fail | 5.0% | 4.1% | 4% to 5% |\n| b | c | 1.0% | 0.1% | 0% to 1% |\n");
        let mut all = rows(&page);
        assert_eq!(all.len(), 2);
        all.extend(rows("\ntest x ... ok\n| b | c | 1.0% | 0.2% | 0% to 1% |\n"));
        assert_eq!(all.len(), 2);
        assert!(all["| b | c"].contains("0.2%"));
    }
}
