//! Runs a program, passes its stdout on while it comes, and keeps it: the closing lines must be both seen and counted.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Printing;
use crate::command;

/// What a program printed and how it ended.
pub(super) struct Outcome {
    pub(super) output: String,
    pub(super) succeeded: bool,
    /// How it ended, for a person.
    pub(super) ending: String,
}

/// Runs a command to its end, or until the time is up: then it is killed.
pub(super) fn run(command: &mut Command, limit: Duration, printing: Printing) -> Result<Outcome> {
    let deadline = Instant::now() + limit;
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {}", command::show(command)))?;
    let mut stream = child.stdout.take().context("the child has no stdout")?;
    let (sender, chunks) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0_u8; 8192];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    let mut output = Vec::new();
    let mut stdout = std::io::stdout();
    let timed_out = loop {
        match chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(bytes) => {
                if printing == Printing::AsItComes {
                    stdout.write_all(&bytes).and_then(|()| stdout.flush())?;
                }
                output.extend(bytes);
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if timed_out {
        child.kill()?;
    }
    let status = child.wait()?;
    let ending = if timed_out { format!("was killed after {} s", limit.as_secs()) } else { format!("ended with {status}") };
    Ok(Outcome { output: String::from_utf8_lossy(&output).into_owned(), succeeded: status.success() && !timed_out, ending })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use super::*;

    #[test]
    fn output_and_success_are_kept() {
        let outcome = run(Command::new("sh").args(["-c", "printf a; exit 3"]), Duration::from_secs(60), Printing::AtItsEnd).unwrap();
        assert_eq!((outcome.output.as_str(), outcome.succeeded), ("a", false));
        assert!(outcome.ending.contains('3'), "{}", outcome.ending);
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let outcome = run(Command::new("sleep").arg("600"), Duration::from_millis(50), Printing::AtItsEnd).unwrap();
        assert!(!outcome.succeeded);
        assert!(outcome.ending.contains("killed"), "{}", outcome.ending);
    }
}
