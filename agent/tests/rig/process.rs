//! A process whose lines on stderr can be waited for, and whose output is kept.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// For a line or an end that never comes. An emulated processor takes a minute to verify the probe.
const LIMIT: Duration = Duration::from_secs(300);

/// A running process. It is killed when this is dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    stderr: Vec<String>,
    stdout: Option<JoinHandle<String>>,
}

/// How a process ended, and all that it printed.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        let name = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error} (`cargo xtask test` builds what the tests start)"));
        let (sender, lines) = mpsc::channel();
        let errors = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                // The end of the test is no reason to let the process stop at a full pipe.
                let _ = sender.send(line);
            }
        });
        let mut output = child.stdout.take().unwrap();
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            text
        });
        Self { name, child, lines, stderr: Vec::new(), stdout: Some(stdout) }
    }

    /// Waits for a line on stderr that begins so, and gives it.
    pub(crate) fn wait_for(&mut self, prefix: &str) -> String {
        let begin = Instant::now();
        loop {
            match self.lines.recv_timeout(LIMIT.saturating_sub(begin.elapsed())) {
                Ok(line) => {
                    self.stderr.push(line.clone());
                    if line.starts_with(prefix) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("{} did not print {prefix:?} in time, but {:#?}", self.name, self.stderr),
                Err(RecvTimeoutError::Disconnected) => panic!("{} ended before it printed {prefix:?}: {:#?}", self.name, self.stderr),
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        signal::kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let begin = Instant::now();
        // Its stderr closes with it.
        loop {
            match self.lines.recv_timeout(LIMIT.saturating_sub(begin.elapsed())) {
                Ok(line) => self.stderr.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("{} does not end; it printed {:#?}", self.name, self.stderr),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = self.child.wait().unwrap();
        let stdout = self.stdout.take().unwrap().join().unwrap();
        Ended { code: status.code(), stdout, stderr: self.stderr.join("\n") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After `end` it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
