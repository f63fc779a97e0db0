//! `cargo xtask tidy`: the rules of this repository that no other tool checks. Also run as a test.
//!
//! Exceptions stand in `xtask/tidy.allow`, one a line: the rule, the file, and why. An exception that nothing needs any more is a problem too.

mod rules;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{command, paths, say};

/// The file of exceptions.
const EXCEPTIONS: &str = "xtask/tidy.allow";

/// A rule's name, as it stands in the file of exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Each Rust file begins by saying what it is for.
    Header,
    /// No Rust file has more than 500 lines besides its tests.
    Length,
    /// No blanks at the end of a line, no tabs, a line feed at the end of a file.
    Whitespace,
    /// No name of a place that a clone does not have.
    Name,
    /// No test that is left out of a run.
    Ignore,
    /// No test that passes for whatever panic.
    Panic,
    /// No test that waits for a time in place of a condition.
    Sleep,
}

impl Rule {
    const ALL: [Self; 7] = [Self::Header, Self::Length, Self::Whitespace, Self::Name, Self::Ignore, Self::Panic, Self::Sleep];

    fn name(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::Length => "length",
            Self::Whitespace => "whitespace",
            Self::Name => "name",
            Self::Ignore => "ignore",
            Self::Panic => "panic",
            Self::Sleep => "sleep",
        }
    }
}

/// One thing that is not tidy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) rule: Option<Rule>,
    /// Below the workspace's root.
    pub(crate) file: String,
    /// Counted from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.file)?;
        if self.line > 0 {
            write!(out, ":{}", self.line)?;
        }
        write!(out, ": {}", self.text)?;
        match self.rule {
            Some(rule) => write!(out, " [{}]", rule.name()),
            None => Ok(()),
        }
    }
}

/// The task.
pub(crate) fn run() -> Result<()> {
    let problems = check(&paths::workspace())?;
    for problem in &problems {
        say::step(problem.to_string());
    }
    if !problems.is_empty() {
        bail!("{} things are not tidy (an exception goes into {EXCEPTIONS}, with its reason)", problems.len());
    }
    Ok(())
}

/// Checks every file that git tracks, or would track.
pub(crate) fn check(workspace: &Path) -> Result<Vec<Problem>> {
    let list =
        command::capture(Command::new("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(workspace))
            .context("tidy needs a git work tree")?;
    let mut problems = Vec::new();
    for file in list.split('\0').filter(|file| !file.is_empty()).collect::<BTreeSet<_>>() {
        // A file that was removed and not yet committed is still on git's list; one that is not text is none of ours.
        if let Ok(text) = fs::read_to_string(workspace.join(file)) {
            problems.extend(rules::check_file(file, &text));
        }
    }
    let exceptions = fs::read_to_string(workspace.join(EXCEPTIONS)).unwrap_or_default();
    Ok(except(problems, &exceptions))
}

/// Takes away what is excepted, and adds what is wrong with the exceptions.
fn except(mut problems: Vec<Problem>, exceptions: &str) -> Vec<Problem> {
    let mut wrong = Vec::new();
    for (index, line) in exceptions.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let mut complain = |text: &str| {
            wrong.push(Problem { rule: None, file: EXCEPTIONS.to_owned(), line: index + 1, text: text.to_owned() });
        };
        let mut words = line.splitn(3, ' ');
        let (Some(name), Some(file), Some(_reason)) = (words.next(), words.next(), words.next()) else {
            complain("an exception is: the rule, the file, the reason");
            continue;
        };
        let Some(rule) = Rule::ALL.into_iter().find(|rule| rule.name() == name) else {
            complain("there is no such rule");
            continue;
        };
        let before = problems.len();
        problems.retain(|problem| problem.rule != Some(rule) || problem.file != file);
        if problems.len() == before {
            complain("nothing needs this exception any more");
        }
    }
    problems.extend(wrong);
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let problems = check(&paths::workspace()).map_err(|error| format!("{error:#}"));
        let lines = problems.map(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(lines, Ok(Vec::new()));
    }

    fn problem(rule: Rule, file: &str) -> Problem {
        Problem { rule: Some(rule), file: file.to_owned(), line: 3, text: "wrong".to_owned() }
    }

    #[test]
    fn an_exception_takes_away_one_rule_for_one_file() {
        let problems = vec![problem(Rule::Sleep, "a.rs"), problem(Rule::Sleep, "b.rs"), problem(Rule::Panic, "a.rs")];
        let left = except(problems, "# comment\n\nsleep a.rs it polls\n");
        assert_eq!(left, [problem(Rule::Sleep, "b.rs"), problem(Rule::Panic, "a.rs")]);
    }

    #[test]
    fn exceptions_need_a_reason_a_rule_and_a_use() {
        let texts = except(Vec::new(), "sleep a.rs\nsnooze a.rs why\nsleep a.rs why\n").iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            texts,
            [
                "xtask/tidy.allow:1: an exception is: the rule, the file, the reason",
                "xtask/tidy.allow:2: there is no such rule",
                "xtask/tidy.allow:3: nothing needs this exception any more"
            ]
        );
    }

    #[test]
    fn a_problem_names_its_place_and_rule() {
        assert_eq!(problem(Rule::Length, "a.rs").to_string(), "a.rs:3: wrong [length]");
    }
}
