//! Logging and errors on stderr.

use std::error::Error;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal as _, Stderr, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

use tracing::{Level, Metadata};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Installs the log on stderr: `level` and worse, unless `STORMDRILL_LOG` says otherwise. Where stderr is the journal, lines carry its priorities.
pub fn install(level: &str) {
    let filter = EnvFilter::try_from_env("STORMDRILL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let is_journal = is_journal();
    // A second installation, as in tests, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_level(!is_journal)
        .with_writer(Lines { is_journal })
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .try_init();
}

/// Whether stderr is the stream that systemd says goes to the journal: a shell's child may have inherited the variable and write elsewhere.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = std::io::stderr().as_fd().try_clone_to_owned().and_then(|file| File::from(file).metadata());
    stderr.is_ok_and(|found| stream == format!("{}:{}", found.dev(), found.ino()))
}

/// Where lines of the log go.
struct Lines {
    is_journal: bool,
}

/// A line, which begins with its priority if it is for the journal (sd-daemon(3)).
struct Prefixed<W> {
    prefix: &'static str,
    out: W,
}

impl Lines {
    fn prefix(&self, level: Level) -> &'static str {
        match level {
            _ if !self.is_journal => "",
            Level::ERROR => "<3>",
            Level::WARN => "<4>",
            Level::INFO => "<6>",
            _ => "<7>",
        }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Prefixed<Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        Prefixed { prefix: "", out: std::io::stderr() }
    }

    fn make_writer_for(&'a self, of: &Metadata<'_>) -> Self::Writer {
        Prefixed { prefix: self.prefix(*of.level()), out: std::io::stderr() }
    }
}

impl<W: Write> Write for Prefixed<W> {
    /// The subscriber hands over a whole line. It goes out at once, so that another thread's does not come between.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.out.write_all(&[self.prefix.as_bytes(), line].concat())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

/// An error with all that it says of its causes, on one line.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

/// Prints an error the way every command does.
#[expect(clippy::print_stderr, reason = "errors are for stderr")]
pub fn complain(what: &str) {
    eprintln!("error: {what}");
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn a_line_for_the_journal_begins_with_its_priority() {
        for (is_journal, level, expected) in [
            (true, Level::ERROR, "<3>gone\n"),
            (true, Level::WARN, "<4>gone\n"),
            (true, Level::INFO, "<6>gone\n"),
            (true, Level::DEBUG, "<7>gone\n"),
            (false, Level::ERROR, "gone\n"),
        ] {
            let mut written = Vec::new();
            Prefixed { prefix: Lines { is_journal }.prefix(level), out: &mut written }.write_all(b"gone\n").unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), expected);
        }
    }
}
