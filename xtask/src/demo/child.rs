//! A service of the lab in a process of its own, ended when it is dropped.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command;

/// A running service.
pub(super) struct Child {
    process: std::process::Child,
    address: String,
}

impl Child {
    /// Starts a service and waits for its line `ready NAME ADDRESS`.
    pub(super) fn start(what: &mut Command, name: &str) -> Result<Self> {
        let process = spawn(what, Stdio::piped())?;
        let mut child = Self { process, address: String::new() };
        let mut errors = BufReader::new(child.process.stderr.take().context("the service has no stderr")?);
        let mut line = String::new();
        while errors.read_line(&mut line).context("cannot read the service's stderr")? > 0 {
            let mut words = line.split_whitespace();
            if words.next() == Some("ready") && words.next() == Some(name) {
                child.address = words.next().unwrap_or_default().to_owned();
                // Whatever it says later must find a reader, or the service would stop at a full pipe.
                std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
                return Ok(child);
            }
            line.clear();
        }
        bail!("{} ended before it was ready", command::show(what))
    }

    /// Starts something that is ready at once.
    pub(super) fn start_quiet(what: &mut Command) -> Result<Self> {
        Ok(Self { process: spawn(what, Stdio::null())?, address: String::new() })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The port of [`Self::address`].
    pub(super) fn port(&self) -> Result<&str> {
        self.address.rsplit(':').next().filter(|port| !port.is_empty()).context("the service named no port")
    }

    /// Ends it.
    pub(super) fn stop(mut self) -> Result<()> {
        self.end().context("cannot end a service of the demo")
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // After `stop` there is nothing left to end, and an error here has nobody to go to.
        let _ = self.end();
    }
}

fn spawn(what: &mut Command, errors: Stdio) -> Result<std::process::Child> {
    what.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().with_context(|| format!("cannot run {}", command::show(what)))
}
