//! The real daemon, and what it takes to ask it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::agent::Agent;
use super::process::{Ended, Process};

/// A daemon that is ready.
pub(crate) struct Daemon {
    process: Process,
    /// Address and port.
    pub(crate) address: String,
}

fn write(agent: &Agent, config: &str) -> PathBuf {
    let path = agent.path("serve.yaml");
    let state = agent.path("kept");
    // A test asks again and again until something holds, faster than any client should.
    let limits = if config.contains("limits:") { "" } else { "limits: {requests: 100000}\n" };
    fs::write(&path, format!("listen: 127.0.0.1:0\nstate_dir: {}\n{limits}{config}", state.display())).unwrap();
    path
}

impl Daemon {
    /// Starts it with these lines of configuration, besides its address and its state directory.
    pub(crate) fn start(agent: &Agent, config: &str) -> Self {
        let path = write(agent, config);
        Self::of(&mut agent.command(&["serve", "--config", path.to_str().unwrap()]))
    }

    /// Starts it by this command.
    fn of(command: &mut Command) -> Self {
        let mut process = Process::start(command);
        let line = process.wait_for("serving on http");
        let address = line.rsplit('/').next().unwrap().to_owned();
        process.wait_for("ready");
        Self { process, address }
    }

    /// Starts it on what it takes for a host of another name.
    pub(crate) fn start_on_host(agent: &Agent, host: &str, config: &str) -> Self {
        let path = write(agent, config);
        let mut command = Command::new("unshare");
        command.args(["--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", host]);
        let agent = agent.command(&["serve", "--config", path.to_str().unwrap()]);
        Self::of(command.arg(agent.get_program()).args(agent.get_args()))
    }

    /// Starts it as systemd would, which listens on `socket`.
    pub(crate) fn start_under(agent: &Agent, socket: &Path) -> Self {
        let path = write(agent, "");
        Self::of(
            agent.command(&["serve", "--config", path.to_str().unwrap()]).env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", "60000000"),
        )
    }

    fn connect(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}",
            self.address
        )
        .unwrap();
        stream
    }

    /// Asks, and gives status and text.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut answer = String::new();
        self.connect(method, path, headers, body).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    /// Asks, and gives status and JSON.
    pub(crate) fn ask(&self, method: &str, path: &str) -> (u16, Value) {
        let (status, body) = self.send(method, path, "", "");
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// Asks for a drill of a playbook.
    pub(crate) fn start_drill(&self, playbook: &str) -> (u16, Value) {
        let (status, body) = self.send("POST", "/v1/drills", "Content-Type: application/yaml\r\n", playbook);
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// Starts one that has to start, and gives its id.
    pub(crate) fn drill(&self, playbook: &str) -> String {
        let (status, drill) = self.start_drill(playbook);
        assert_eq!(status, 201, "{drill:#}");
        drill["id"].as_str().unwrap().to_owned()
    }

    /// The events of a drill, as they come, each its kind and its data.
    pub(crate) fn events(&self, id: &str) -> impl Iterator<Item = (String, Value)> + use<> {
        let lines = BufReader::new(self.connect("GET", &format!("/v1/drills/{id}/events"), "", "")).lines();
        let mut kind = String::new();
        lines.map_while(Result::ok).filter_map(move |line| {
            if let Some(event) = line.strip_prefix("event: ") {
                event.clone_into(&mut kind);
            }
            let data = line.strip_prefix("data: ")?;
            Some((kind.clone(), serde_json::from_str(data).unwrap()))
        })
    }

    /// Waits until a drill is in a phase.
    pub(crate) fn wait_for_phase(&self, id: &str, phase: &str) {
        let found = self.events(id).find(|(kind, data)| kind == "phase" && data["phase"] == phase);
        assert!(found.is_some(), "{:#}", self.ask("GET", &format!("/v1/drills/{id}")).1);
    }

    /// Waits until a drill has ended, and gives it.
    pub(crate) fn ended(&self, id: &str) -> Value {
        let end = self.events(id).last();
        assert_eq!(end.map(|(kind, _)| kind).as_deref(), Some("end"));
        self.ask("GET", &format!("/v1/drills/{id}")).1
    }

    /// The value of a series, as it stands in the metrics with its labels; `None` if it is not there.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let (status, text) = self.send("GET", "/metrics", "", "");
        assert_eq!(status, 200);
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    /// Gives it other lines of configuration, and waits for a line on stderr that begins so.
    pub(crate) fn reload(&mut self, agent: &Agent, config: &str, expected: &str) -> String {
        write(agent, config);
        self.process.signal(Signal::SIGHUP);
        self.process.wait_for(expected)
    }

    /// Its memory, in KiB.
    pub(crate) fn memory(&self) -> u64 {
        self.memory_as("VmRSS:")
    }

    /// The most that it ever was, in KiB.
    pub(crate) fn most_memory(&self) -> u64 {
        self.memory_as("VmHWM:")
    }

    fn memory_as(&self, key: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Ends it in good order.
    pub(crate) fn stop(self) -> Ended {
        self.process.signal(Signal::SIGTERM);
        self.process.end()
    }

    /// Kills it, which leaves it no time to do anything.
    pub(crate) fn kill(self) {
        self.process.signal(Signal::SIGKILL);
        assert_eq!(self.process.end().code, None);
    }
}
