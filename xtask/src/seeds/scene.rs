//! Where one system's drills take place: a folder for its files, ports that nobody else has, and the lab's parts.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::process::{Process, binary};
use super::rig;

/// The place of one system.
pub(crate) struct Scene {
    pub(crate) folder: PathBuf,
    /// Fewer requests and shorter phases.
    pub(crate) short: bool,
    /// The only playbook that is wanted, if not all are.
    pub(crate) playbook: Option<String>,
    next_port: Cell<u16>,
    logs: Cell<u32>,
}

/// A part of the lab that listens.
pub(crate) struct Service {
    pub(crate) process: Process,
    pub(crate) port: u16,
}

impl Scene {
    pub(crate) fn new(system: &str, short: bool, playbook: Option<String>) -> Result<Self> {
        let folder = rig::folder().join(system);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // Another run may go on in a namespace of its own; edges are told apart by their ports, so those differ.
        let slot = u16::try_from(std::process::id() % 200).unwrap_or_default();
        Ok(Self { folder, short, playbook, next_port: Cell::new(11_000 + slot * 100), logs: Cell::new(0) })
    }

    /// A port that was not given before.
    pub(crate) fn port(&self) -> u16 {
        self.ports(1)
    }

    /// The first of so many ports in a row.
    pub(crate) fn ports(&self, count: u16) -> u16 {
        self.next_port.replace(self.next_port.get() + count)
    }

    /// `long` or, in the short form, `short`.
    pub(crate) fn choose<T>(&self, long: T, short: T) -> T {
        if self.short { short } else { long }
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// A file for what a process says on stderr.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.logs.set(self.logs.get() + 1);
        self.folder.join(format!("{name}-{}.log", self.logs.get()))
    }

    /// Starts a program.
    pub(crate) fn start(&self, name: &str, command: &mut Command) -> Result<Process> {
        Process::start(command, &self.log(name))
    }

    /// A chain of the lab on new ports; the port is that of its first layer.
    pub(crate) fn chain(&self, layers: u16, downstream: u16, arguments: &[&str]) -> Result<Service> {
        let port = self.ports(layers);
        let mut command = Command::new(binary("stormdrill-lab"));
        command.args(["chain", "--layers", &layers.to_string(), "--ports", &port.to_string()]);
        command.args(["--downstream", &address(downstream)]).args(arguments);
        self.service("chain", port, &mut command)
    }

    /// A store of the lab.
    pub(crate) fn store(&self, arguments: &[&str]) -> Result<Service> {
        let port = self.port();
        let mut command = Command::new(binary("stormdrill-lab"));
        command.args(["store", "--listen", &address(port)]).args(arguments);
        self.service("store", port, &mut command)
    }

    fn service(&self, name: &str, port: u16, command: &mut Command) -> Result<Service> {
        let mut process = self.start(name, command)?;
        process.wait_for_port(port)?;
        Ok(Service { process, port })
    }

    /// Starts a load against a port.
    pub(crate) fn load(&self, port: u16, arguments: &[&str]) -> Result<Process> {
        let mut command = Command::new(binary("stormdrill-lab"));
        command.args(["load", "--url", &format!("http://{}/orders", address(port))]).args(arguments);
        self.start("load", &mut command)
    }

    /// So many requests, one after another, to their end.
    pub(crate) fn requests(&self, port: u16, count: u32, arguments: &[&str]) -> Result<Value> {
        let mut all = vec!["--rate", "0/s", "--timeout", "30s"];
        let count = count.to_string();
        all.extend(["--count", &count]);
        all.extend(arguments);
        self.load(port, &all)?.report()
    }
}

impl Service {
    /// Ends it, and gives what it counted.
    pub(crate) fn counts(self) -> Result<Value> {
        self.process.counts()
    }
}

/// A port of loopback as text.
pub(crate) fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// A path from the project's root, for the page.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(crate::paths::workspace()).unwrap_or(path).display().to_string()
}
