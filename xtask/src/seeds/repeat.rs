//! `cargo xtask playbooks --times 5`: every shipped playbook, again and again, and a table of its verdicts. One that does not come out as
//! documented every time is no playbook to ship.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use super::result::Drill;
use super::scene::Scene;
use super::systems::{cascade, playbooks};
use super::{INSIDE, in_a_namespace};
use crate::setup::{self, Part};
use crate::{build, command, say};

/// Options of the task.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How often
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Only these playbooks, by the names of their files
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Use the binaries in target/debug as they are
    #[arg(long)]
    no_build: bool,
}

/// What became of one drill each time.
struct Line {
    what: String,
    expected: String,
    verdicts: Vec<String>,
}

/// The task. `latency` needs netem, and is drilled by `cargo xtask seeds --only latency` in a kernel of its own.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if std::env::var_os(INSIDE).is_some() {
        return inside(options);
    }
    if !setup::is_root()? {
        bail!("the drills need root");
    }
    setup::ensure(&[Part::Seeds], None)?;
    if !options.no_build {
        build::run(&build::Options::debug())?;
    }
    in_a_namespace()
}

fn inside(options: &Options) -> Result<ExitCode> {
    command::run(std::process::Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let mut lines: Vec<Line> = Vec::new();
    let start = Instant::now();
    for time in 1..=options.times {
        say::step(format!("the {time}. time of {}, after {} s", options.times, start.elapsed().as_secs()));
        let scene = Scene::new("playbooks", false, None)?;
        playbooks::each(&scene, &options.only, |ended, what| note(&mut lines, ended, what));
        if options.only.is_empty() || options.only.iter().any(|name| name == "redis-cascade") {
            let scene = Scene::new("cascade", false, None)?;
            match cascade::of_the_playbook(&scene) {
                Ok(drills) => drills.into_iter().for_each(|drill| {
                    let what = drill.what.clone();
                    note(&mut lines, Ok(drill), &what);
                }),
                Err(error) => note(&mut lines, Err(error), "redis-cascade"),
            }
        }
    }
    if lines.is_empty() {
        bail!("no playbook is called {}", options.only.join(", "));
    }
    say::result(table(&lines));
    let wrong = lines.iter().filter(|line| !line.is_right()).count();
    if wrong > 0 {
        bail!("{wrong} of {} drills did not end as they should, every time", lines.len());
    }
    say::result(format!("All {} drills ended as they should, {} of {} times.", lines.len(), options.times, options.times));
    Ok(ExitCode::SUCCESS)
}

impl Line {
    fn is_right(&self) -> bool {
        self.verdicts.iter().all(|verdict| *verdict == self.expected)
    }
}

/// Adds how a drill ended. One that did not end at all has its error in the place of a verdict.
fn note(lines: &mut Vec<Line>, ended: Result<Drill>, what: &str) {
    let (expected, verdict) = match &ended {
        Ok(drill) => (drill.expected.clone(), drill.verdict.clone()),
        Err(error) => (String::new(), format!("{error:#}")),
    };
    let said = if verdict == expected { verdict.clone() } else { format!("{verdict}, and not {expected}") };
    say::step(format!("{what}: {said}"));
    if let Ok(drill) = &ended
        && verdict != expected
    {
        for line in &drill.lines {
            say::step(format!("    {} {}: {} {}", line.verdict, line.text, line.observed, line.reason));
        }
    }
    match lines.iter_mut().find(|line| line.what == what) {
        Some(line) => line.verdicts.push(verdict),
        None => lines.push(Line { what: what.to_owned(), expected, verdicts: vec![verdict] }),
    }
}

fn table(lines: &[Line]) -> String {
    let width = lines.iter().map(|line| line.what.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        let right = line.verdicts.iter().filter(|verdict| **verdict == line.expected).count();
        let others: Vec<&str> = line.verdicts.iter().filter(|verdict| **verdict != line.expected).map(String::as_str).collect();
        let others = if others.is_empty() { String::new() } else { format!("  NOT: {}", others.join(", ")) };
        text.push_str(&format!("{:width$}  {:<12}  {right} of {}{others}\n", line.what, line.expected, line.verdicts.len()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_verdict_of_many_is_seen() {
        let line = |verdicts: &[&str]| Line {
            what: "loss: guarded".to_owned(),
            expected: "pass".to_owned(),
            verdicts: verdicts.iter().map(|verdict| (*verdict).to_owned()).collect(),
        };
        assert!(line(&["pass", "pass"]).is_right());
        let flaky = line(&["pass", "inconclusive", "pass"]);
        assert!(!flaky.is_right());
        assert_eq!(table(&[flaky]), "loss: guarded  pass          2 of 3  NOT: inconclusive\n");
    }
}
