//! The lab's parts, each a process with a port of its own choice that prints its counts when it ends.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::process::Process;

/// One part of the lab.
pub(crate) struct Service {
    process: Process,
    /// Where it is called.
    pub(crate) address: String,
}

/// The lab's program: where `cargo xtask test` says, else beside the agent's.
pub(crate) fn program() -> PathBuf {
    let folder = std::env::var_os("STORMDRILL_BIN_DIR").map(PathBuf::from);
    let beside = Path::new(super::agent::PROGRAM).parent().unwrap();
    let program = folder.as_deref().unwrap_or(beside).join("stormdrill-lab");
    assert!(program.is_file(), "{} is missing: `cargo xtask test` builds it, as does `cargo build -p stormdrill-lab`", program.display());
    program
}

impl Service {
    /// A store; the arguments are those of `stormdrill-lab store`.
    pub(crate) fn store(arguments: &[&str]) -> Self {
        Self::start("store", "store", arguments)
    }

    /// `layers` layers of `stormdrill-lab chain`, at least one, before an address.
    pub(crate) fn chain(layers: u16, downstream: &str, arguments: &[&str]) -> Self {
        let layers = layers.to_string();
        let mut all = vec!["--layers", &layers, "--downstream", downstream];
        all.extend(arguments);
        Self::start("chain", "layer1", &all)
    }

    fn start(part: &str, name: &str, arguments: &[&str]) -> Self {
        let mut process = Process::start(Command::new(program()).arg(part).args(arguments));
        let ready = format!("ready {name} ");
        let address = process.wait_for(&ready)[ready.len()..].to_owned();
        Self { process, address }
    }

    pub(crate) fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }

    /// Ends it, and gives what it counted.
    pub(crate) fn stop(self) -> Value {
        self.process.signal(Signal::SIGTERM);
        counts(self.process)
    }
}

/// A load that is running.
pub(crate) struct Load {
    process: Process,
}

impl Load {
    /// Requests to an address; the arguments are those of `stormdrill-lab load`.
    pub(crate) fn start(address: &str, arguments: &[&str]) -> Self {
        let url = format!("http://{address}/orders");
        let mut command = Command::new(program());
        command.args(["load", "--url", &url]).args(arguments);
        Self { process: Process::start(&mut command) }
    }

    /// So many requests, one after another.
    pub(crate) fn requests(address: &str, count: u32) -> Value {
        let load = Self::start(address, &["--rate", "0/s", "--count", &count.to_string(), "--timeout", "60s"]);
        counts(load.process)
    }

    /// Ends it, and gives what it counted.
    pub(crate) fn stop(self) -> Value {
        self.process.signal(Signal::SIGTERM);
        counts(self.process)
    }
}

fn counts(process: Process) -> Value {
    let ended = process.end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:#?}"))
}
