//! Problems of a playbook as people read them: the line, a mark under the place, and the line as it should be.
//!
//! Only this module knows miette; what the problems are is decided in the core.

use std::error::Error;
use std::fmt;
use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::ColorChoice;
use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents,
};
use stormdrill_core::harmless;
use stormdrill_core::playbook::problem::{Problem, Source};

use crate::playbook_file::{ReadError, Rejected};

pub mod finding;

/// Longer lines are not shown: nobody could find the place in them.
const MAX_LINE: usize = 400;

/// How diagnostics look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// For files and pipes.
    Plain,
    /// For a terminal.
    Colours,
}

impl Style {
    /// Colours if standard error is a terminal and `NO_COLOR` is not set.
    #[must_use]
    pub fn of_stderr() -> Self {
        Self::of(&std::io::stderr())
    }

    /// The same for standard output.
    #[must_use]
    pub fn of_stdout() -> Self {
        Self::of(&std::io::stdout())
    }

    fn of(stream: &impl IsTerminal) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let coloured = match CHOICE.get().copied().unwrap_or_default() {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => !no_color && stream.is_terminal(),
        };
        if coloured { Self::Colours } else { Self::Plain }
    }

    /// The text in a colour or weight, by the parameters of ANSI's sequence for it; or as it is.
    #[must_use]
    pub fn paint(self, text: &str, parameters: &str) -> String {
        match self {
            Self::Colours if !text.is_empty() => format!("\x1b[{parameters}m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

/// What `--color` asks for; the process's own, as its streams are.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// Takes what `--color` asks for. Only the first call counts.
pub fn choose_colours(choice: ColorChoice) {
    let _ = CHOICE.set(choice);
}

/// Renders why a playbook was not accepted; ends in a newline.
#[must_use]
pub fn render(error: &ReadError, style: Style) -> String {
    match error {
        ReadError::Rejected { rejected } => problems(rejected, style),
        ReadError::Unreadable { source, .. } => format!("error: {error}: {source}\n"),
        ReadError::NotUtf8 { .. } => format!("error: {error}\n"),
    }
}

/// What draws them, in one look for all.
fn handler(style: Style) -> GraphicalReportHandler {
    let theme = match style {
        Style::Plain => GraphicalTheme::unicode_nocolor(),
        Style::Colours => GraphicalTheme::unicode(),
    };
    GraphicalReportHandler::new_themed(theme).with_context_lines(1).with_wrap_lines(false).with_links(false).with_width(120)
}

/// Problems that are shown; whoever has more will not read them, and each takes time for the whole text.
const MOST_SHOWN: usize = 100;

fn problems(rejected: &Rejected, style: Style) -> String {
    let handler = handler(style);
    let mut out = String::new();
    for problem in rejected.problems.iter().take(MOST_SHOWN) {
        let shown = Shown::new(problem, rejected);
        // Writing to a string cannot fail; the headline is the least that has to be said.
        if handler.render_report(&mut out, &shown).is_err() {
            out.push_str(&shown.message);
            out.push('\n');
        }
        out.push('\n');
    }
    let count = rejected.problems.len();
    if count > MOST_SHOWN {
        out.push_str(&format!("{} more are not shown\n", count - MOST_SHOWN));
    }
    out + &format!("{}: {count} {}\n", rejected.path.display(), if count == 1 { "problem" } else { "problems" })
}

/// A text that shows the lines of a place whole, and no others: neighbours would bury the place among many problems.
#[derive(Debug)]
struct Lines {
    name: String,
    text: String,
}

impl SourceCode for Lines {
    fn read_span<'a>(&'a self, span: &SourceSpan, before: usize, _after: usize) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let (mut start, mut end) = (span.offset(), span.offset() + span.len());
        let (Some(front), Some(rest)) = (self.text.get(..start), self.text.get(end..)) else {
            return Err(MietteError::OutOfBounds);
        };
        let line = front.matches('\n').count();
        let line_start = front.rfind('\n').map_or(0, |at| at + 1);
        let mut column = front[line_start..].chars().count();
        // With no context wanted, miette asks for the place itself, to name it in the header.
        if before > 0 {
            start = line_start;
            end += rest.find(['\n', '\r']).unwrap_or(rest.len());
            column = 0;
        }
        let data = &self.text.as_bytes()[start..end];
        let lines = self.text[start..end].matches('\n').count() + 1;
        let span = SourceSpan::new(start.into(), end - start);
        let contents = MietteSpanContents::new_named(self.name.clone(), data, span, line, column, lines);
        Ok(Box::new(contents))
    }
}

/// A problem with the text that it is in.
#[derive(Debug)]
struct Shown<'a> {
    problem: &'a Problem,
    message: String,
    source: Option<Lines>,
    label: LabeledSpan,
}

impl<'a> Shown<'a> {
    fn new(problem: &'a Problem, rejected: &Rejected) -> Self {
        let (name, text) = match problem.place.source {
            Source::File => (rejected.path.display().to_string(), rejected.text.clone()),
            Source::Set(index) => {
                let set = rejected.overrides.get(index).map(|set| format!("{}={}", set.path, set.value));
                ("--set".to_owned(), set.unwrap_or_default())
            }
        };
        let (start, end) = (problem.place.start.min(text.len()), problem.place.end.min(text.len()));
        let text = harmless(&text);
        let label = LabeledSpan::new(Some(problem.label.clone()), start, end - start);
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        if line.len() > MAX_LINE || text.is_empty() {
            let (number, column) = problem.place.line_and_column(&text);
            let message = format!("{name}:{number}:{column}: {}", harmless(&problem.message));
            return Self { problem, message, source: None, label };
        }
        Self { problem, message: harmless(&problem.message), source: Some(Lines { name, text }), label }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.problem.code.as_str()))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.problem.help.as_ref().map(|help| Box::new(harmless(help)) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.source.as_ref()?;
        Some(Box::new(std::iter::once(self.label.clone())))
    }
}
