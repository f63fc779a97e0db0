//! `stormdrill report RESULT.json` and `stormdrill compare A.json B.json`: what a past drill left, shown again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use stormdrill_core::report::json::{self, ReadError, Run};
use stormdrill_core::report::{compare, html, junit, markdown};
use thiserror::Error;

use super::output;
use crate::diagnostic::Style;
use crate::exit::Exit;
use crate::report::table::{Width, table};
use crate::report::{log, terminal};

/// How a result is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Tables and charts for a terminal.
    Text,
    /// The result itself.
    Json,
    /// JUnit XML, for a CI system's test results.
    Junit,
    /// A comment on a pull request.
    Markdown,
    /// One page that needs nothing beside itself.
    Html,
}

impl Format {
    /// Every format, with its file in a folder of reports.
    pub(super) const FILES: [(Self, &'static str); 5] = [
        (Self::Json, "result.json"),
        (Self::Text, "report.txt"),
        (Self::Junit, "junit.xml"),
        (Self::Markdown, "report.md"),
        (Self::Html, "report.html"),
    ];

    /// The result in this format.
    pub(super) fn render(self, run: &Run) -> String {
        self.render_in(run, Style::Plain, Width::USUAL)
    }

    /// The same for a reader who may see colours, and so many columns; only the text knows of either.
    pub(super) fn render_in(self, run: &Run, style: Style, width: Width) -> String {
        match self {
            Self::Text => terminal::render(run, style, width),
            Self::Json => json::write_run(run),
            Self::Junit => junit::render(run),
            Self::Markdown => markdown::render(run),
            Self::Html => html::render(run),
        }
    }
}

#[derive(Debug, Error)]
enum ReportError {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no result of `stormdrill run --json`", path.display())]
    Shape { path: PathBuf, source: ReadError },
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl ReportError {
    /// What cannot be read is the caller's mistake, what cannot be written the host's.
    const fn exit(&self) -> Exit {
        match self {
            Self::Read { .. } | Self::Shape { .. } => Exit::Usage,
            Self::Write { .. } => Exit::Environment,
        }
    }
}

pub(super) fn report(result: &Path, format: Format, output: Option<&Path>) -> Exit {
    finish(read(result).and_then(|run| {
        let path = output.unwrap_or(Path::new("-"));
        let (style, width) = if output.is_some() { (Style::Plain, Width::USUAL) } else { (Style::of_stdout(), Width::of_stdout()) };
        output::write(path, &format.render_in(&run, style, width)).map_err(|source| ReportError::Write { path: path.to_owned(), source })
    }))
}

/// Exits 0 whatever got worse: that is for a playbook's expectations to judge.
pub(super) fn compare(before: &Path, after: &Path) -> Exit {
    finish(read(before).and_then(|before| {
        let after = read(after)?;
        let rows = compare::rows(&before.printable(), &after.printable());
        let table = table(&compare::HEADS, rows.iter().map(compare::Row::cells), Width::of_stdout());
        output::stdout(&format!("{}\n", terminal::paint_changes(&table, Style::of_stdout())));
        Ok(())
    }))
}

fn read(path: &Path) -> Result<Run, ReportError> {
    let text = fs::read_to_string(path).map_err(|source| ReportError::Read { path: path.to_owned(), source })?;
    json::read_run(&text).map_err(|source| ReportError::Shape { path: path.to_owned(), source })
}

fn finish(result: Result<(), ReportError>) -> Exit {
    match result {
        Ok(()) => Exit::Pass,
        Err(error) => {
            log::complain(&log::chain(&error));
            error.exit()
        }
    }
}
