//! Logging and errors on stderr.

use std::error::Error;
use std::fmt::Write as _;
use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Installs the log on stderr: `level` and worse, unless `STORMDRILL_LOG` says otherwise.
pub fn install(level: &str) {
    let filter = EnvFilter::try_from_env("STORMDRILL_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    // A second installation, as in tests, changes nothing.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .try_init();
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
