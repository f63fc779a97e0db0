//! The real `stormdrill`, with a state directory of the test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::process::{Ended, Process};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_stormdrill");

/// A place to run the agent in.
pub(crate) struct Agent {
    dir: Arc<TempDir>,
}

/// A drill that is running.
pub(crate) struct Drill {
    process: Process,
    json: PathBuf,
}

/// A drill that has ended.
#[derive(Debug)]
pub(crate) struct Result {
    pub(crate) ended: Ended,
    /// What `--json` named.
    pub(crate) json: Value,
}

/// An observation that is running: it has been attached, and counts.
pub(crate) struct Observation {
    process: Process,
}

impl Agent {
    pub(crate) fn new() -> Self {
        Self { dir: Arc::new(tempfile::tempdir().unwrap()) }
    }

    /// The same place for another one.
    pub(crate) fn share(&self) -> Self {
        Self { dir: Arc::clone(&self.dir) }
    }

    /// A path in the agent's own folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.path("state")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("--state-dir").arg(self.state_dir()).args(arguments);
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Process::start(&mut self.command(arguments)).end()
    }

    /// Writes a playbook and gives its path.
    pub(crate) fn write(&self, playbook: &str) -> PathBuf {
        let path = self.path("playbook.yaml");
        fs::write(&path, playbook).unwrap();
        path
    }

    /// Starts a drill of this playbook.
    pub(crate) fn drill(&self, playbook: &str) -> Drill {
        self.drill_with(playbook, &[])
    }

    /// The same with further arguments.
    pub(crate) fn drill_with(&self, playbook: &str, arguments: &[&str]) -> Drill {
        let json = self.path("result.json");
        let _ = fs::remove_file(&json);
        let mut command = self.command(&["run"]);
        command.arg(self.write(playbook)).arg("--json").arg(&json).args(arguments);
        Drill { process: Process::start(&mut command), json }
    }

    /// Starts to observe edges, each given as on the command line, and returns when it counts.
    pub(crate) fn observe(&self, ingress: &[String], downstream: &[String]) -> Observation {
        self.observe_with(ingress, downstream, &[])
    }

    /// The same with further arguments.
    pub(crate) fn observe_with(&self, ingress: &[String], downstream: &[String], arguments: &[&str]) -> Observation {
        let mut command = self.command(&["observe"]);
        command.args(arguments);
        Self::observing(command, ingress, downstream)
    }

    /// The same with a budget of events a second.
    pub(crate) fn observe_within(&self, events: u32, ingress: &[String], downstream: &[String]) -> Observation {
        let mut command = self.command(&["observe"]);
        command.env("STORMDRILL_EVENTS_PER_SECOND", events.to_string());
        Self::observing(command, ingress, downstream)
    }

    fn observing(mut command: Command, ingress: &[String], downstream: &[String]) -> Observation {
        for edge in ingress {
            command.arg("--ingress").arg(edge);
        }
        for edge in downstream {
            command.arg("--downstream").arg(edge);
        }
        let mut process = Process::start(&mut command);
        process.wait_for("all");
        Observation { process }
    }

    /// Whether no journal is left.
    pub(crate) fn has_no_journal(&self) -> bool {
        journals(&self.state_dir()).is_empty()
    }
}

/// The journals in a state directory.
pub(crate) fn journals(state_dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(state_dir) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|extension| extension == "journal")).collect()
}

impl Drill {
    /// Waits until a phase has begun.
    pub(crate) fn wait_for_phase(&mut self, phase: &str) {
        self.process.wait_for(&format!("{phase}:"));
    }

    /// Waits until a window of a phase is final.
    pub(crate) fn wait_for_window_of(&mut self, phase: &str) {
        self.process.wait_for(&format!("  {phase} "));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Kills the agent, which has no time to do anything about it.
    pub(crate) fn kill(self) {
        self.process.signal(Signal::SIGKILL);
        assert_eq!(self.process.end().code, None);
    }

    /// Waits for the end of a drill that writes its result.
    pub(crate) fn end(self) -> Result {
        let ended = self.process.end();
        let text = fs::read_to_string(&self.json).unwrap_or_else(|error| panic!("no result: {error}; {ended:#?}"));
        Result { json: serde_json::from_str(&text).unwrap(), ended }
    }

    /// Waits for the end of a drill that has no result to write.
    pub(crate) fn end_without_result(self) -> Ended {
        let ended = self.process.end();
        assert!(!self.json.exists(), "a result was written: {ended:#?}");
        ended
    }
}

impl Observation {
    /// Waits until one more window is final.
    pub(crate) fn wait_for_window(&mut self) {
        self.process.wait_for("  all ");
    }

    /// Ends it and gives its JSON.
    pub(crate) fn end(self) -> Value {
        self.process.signal(Signal::SIGINT);
        let ended = self.process.end();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:#?}"))
    }
}
