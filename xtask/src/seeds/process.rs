//! A server of a drill, or a client: a process that is ended when it is dropped, and whose output can be waited for.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::command;

/// For a server that does not come up, or a client that does not end.
const LIMIT: Duration = Duration::from_secs(300);

/// A running process.
pub(crate) struct Process {
    name: String,
    child: Child,
    stdout: Option<JoinHandle<String>>,
}

impl Process {
    /// Starts one. What it says on stderr is kept in the file `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let name = command::show(command);
        let errors = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().with_context(|| format!("cannot run {name}"))?;
        let mut output = child.stdout.take().context("a process has no stdout")?;
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            // What a server prints before it is killed need not be text.
            let _ = output.read_to_string(&mut text);
            text
        });
        Ok(Self { name, child, stdout: Some(stdout) })
    }

    /// Waits until something accepts connections at a port of loopback.
    pub(crate) fn wait_for_port(&mut self, port: u16) -> Result<()> {
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = self.child.try_wait().context("cannot ask for a process")? {
                bail!("{} ended with {status} before it listened", self.name);
            }
            if begin.elapsed() > LIMIT {
                bail!("{} does not listen", self.name);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        command::run(Command::new("sh").args(["-c", &format!("kill -{signal} {}", self.pid())]))
    }

    /// Waits for its own end and gives what it printed.
    pub(crate) fn wait(mut self) -> Result<String> {
        let begin = Instant::now();
        while self.child.try_wait().context("cannot wait for a process")?.is_none() {
            if begin.elapsed() > LIMIT {
                bail!("{} does not end", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let stdout = self.stdout.take().context("a process was waited for twice")?;
        stdout.join().map_err(|_| anyhow::anyhow!("the output of {} was lost", self.name))
    }

    /// Asks it to end, and gives what it printed.
    pub(crate) fn stop(self) -> Result<String> {
        self.signal("TERM")?;
        self.wait()
    }

    /// The same for a part of the lab, which prints its counts.
    pub(crate) fn counts(self) -> Result<Value> {
        let name = self.name.clone();
        parse(&self.stop()?, &name)
    }

    /// Waits for the end of a client of the lab, which prints its counts.
    pub(crate) fn report(self) -> Result<Value> {
        let name = self.name.clone();
        parse(&self.wait()?, &name)
    }
}

fn parse(text: &str, name: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("{name} printed no counts, but {text:?}"))
}

impl Drop for Process {
    fn drop(&mut self) {
        // After its end there is nothing to kill, and nobody to tell of an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of a process's stderr, as they come, until it ends.
pub(crate) fn follow(command: &mut Command, mut each: impl FnMut(&str) -> Result<()>) -> Result<Option<i32>> {
    let name = command::show(command);
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().with_context(|| format!("cannot run {name}"))?;
    let errors = BufReader::new(child.stderr.take().context("a process has no stderr")?);
    let mut outcome = Ok(());
    for line in errors.lines() {
        let line = line.with_context(|| format!("cannot read what {name} says"))?;
        outcome = outcome.and_then(|()| each(&line));
        if outcome.is_err() {
            // The rest is read to its end, so that the drill can clean up; it is asked to stop.
            let _ = command::run(Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]));
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for {name}"))?;
    outcome.map(|()| status.code())
}

/// Where a binary of the workspace is.
pub(crate) fn binary(name: &str) -> PathBuf {
    crate::paths::target().join("debug").join(name)
}
