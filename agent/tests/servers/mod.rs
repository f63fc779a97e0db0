//! Real servers, and what the probe counts on their port.

#![allow(dead_code, reason = "each test target uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod mysql;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use stormdrill::cgroup;
use stormdrill::probe::{Health, Probe, ProbeConfig};
use stormdrill_core::edge::{EdgeId, EdgeSpec, PortRange, Role};
use stormdrill_core::window::EdgeCounts;
use tempfile::TempDir;

use crate::lab::{in_namespace, run, wait_until};

pub(crate) const SERVED: EdgeId = EdgeId(0);
pub(crate) const CALLED: EdgeId = EdgeId(1);

/// Tests that drive servers as fast as they go run one at a time; those under loss mostly wait, and do so side by side.
static BUSY: RwLock<()> = RwLock::new(());

/// Runs a test in a namespace while no other one runs.
pub(crate) fn alone(test: impl FnOnce() + Send) {
    let _busy = BUSY.write().unwrap_or_else(PoisonError::into_inner);
    in_namespace(test);
}

/// Runs a test in a namespace beside others of its kind.
pub(crate) fn beside_others(test: impl FnOnce() + Send) {
    let _idle = BUSY.read().unwrap_or_else(PoisonError::into_inner);
    in_namespace(test);
}

/// A server that is killed when the test is over, with its workers: those of an nginx outlive a master that is killed.
pub(crate) struct Server {
    child: Child,
    pub(crate) dir: TempDir,
    pub(crate) port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = Pid::from_raw(self.child.id().try_into().unwrap());
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Server {
    pub(crate) fn start(command: &mut Command, dir: TempDir, port: u16) -> Self {
        let child = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { child, dir, port }
    }

    /// A number of a MariaDB's own, asked for by its Unix socket.
    pub(crate) fn status(&self, name: &str) -> u64 {
        let socket = format!("--socket={}", self.dir.path().join("socket").display());
        let text = run("mariadb", &["--no-defaults", &socket, "-N", "-B", "-e", &format!("show global status like '{name}'")]);
        text.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Calls in a PostgreSQL's log that came from an address. The log is written by a process of its own, which gets all lines by one pipe: when
    /// the last statement is there, by the Unix socket, all before it are.
    pub(crate) fn calls_by(&self, address: &str) -> u64 {
        let (log, socket, port) = (self.dir.path().join("log"), self.dir.path().display().to_string(), self.port.to_string());
        let read = || std::fs::read_to_string(&log).unwrap();
        let last = format!("select 'after {} bytes'", read().len());
        run("psql", &["-h", &socket, "-p", &port, "-U", "postgres", "-c", &last]);
        wait_until("PostgreSQL's log is written", || read().contains(&last));
        let text = read();
        let theirs = text.lines().filter(|line| line.starts_with(address));
        u64::try_from(theirs.filter(|line| line.contains("LOG:  statement: ") || line.contains("LOG:  execute ")).count()).unwrap()
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Both ends of a port: ingress first, downstream second.
pub(crate) fn attach(port: u16) -> Probe {
    let edge = |role: Role| EdgeSpec {
        name: role.as_str().to_owned(),
        role,
        address: None,
        ports: Some(PortRange { first: port, last: port }),
        protocol: None,
    };
    let edges = [edge(Role::Ingress), edge(Role::Downstream)];
    let cgroup = cgroup::find_or_mount(Path::new("/run/stormdrill-test")).unwrap();
    Probe::attach(&ProbeConfig { cgroup, edges: &edges, events: true, ring_bytes: 1 << 24 }).unwrap()
}

pub(crate) fn counts(probe: &mut Probe) -> [EdgeCounts; 2] {
    let snapshot = probe.snapshot().unwrap();
    [snapshot.total(SERVED), snapshot.total(CALLED)]
}

/// Checks requests, and answers with and without error, on both edges; nothing may be missed.
pub(crate) fn assert_counts(probe: &mut Probe, requests: u64, ok: u64, errors: u64) {
    let health = probe.snapshot().unwrap().health;
    for counts in counts(probe) {
        assert_eq!((counts.requests, counts.ok, counts.errors), (requests, ok, errors), "{health:?} {counts:?}");
    }
    assert_eq!(Health { events_lost: 0, ..health }, Health::default(), "{:?}", counts(probe));
}

/// Checks requests and answers on both edges.
pub(crate) fn assert_exact(probe: &mut Probe, made: u64) {
    let health = probe.snapshot().unwrap().health;
    for counts in counts(probe) {
        assert_eq!((counts.requests, counts.responses, health.gaps), (made, made, 0), "{health:?} {counts:?}");
    }
}

/// Asks a Redis and reads an answer of a known length.
pub(crate) fn ask(stream: &mut TcpStream, command: &str, answer: &str) {
    stream.write_all(command.as_bytes()).unwrap();
    let mut got = vec![0; answer.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), answer);
}

/// A MariaDB that lets everybody in.
pub(crate) fn mariadb(port: u16) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let data = format!("--datadir={}", dir.path().join("data").display());
    let user = "--user=root";
    run("mariadb-install-db", &["--no-defaults", user, "--auth-root-authentication-method=normal", "--skip-test-db", &data]);
    let mut command = Command::new("mariadbd");
    command.args([
        "--no-defaults",
        user,
        "--skip-grant-tables",
        "--skip-name-resolve",
        "--bind-address=0.0.0.0",
        &format!("--port={port}"),
        &data,
    ]);
    command.arg(format!("--socket={}", dir.path().join("socket").display()));
    Server::start(&mut command, dir, port)
}

/// A PostgreSQL that lets everybody in, and writes a line for each Query and each Execute.
pub(crate) fn postgres(port: u16) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let bin = std::fs::read_dir("/usr/lib/postgresql").unwrap().flatten().next().unwrap().path().join("bin");
    let (uid, gid): (u32, u32) =
        (run("id", &["-u", "postgres"]).trim().parse().unwrap(), run("id", &["-g", "postgres"]).trim().parse().unwrap());
    std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid)).unwrap();
    let data = dir.path().join("data");
    let made = Command::new(bin.join("initdb")).args(["-A", "trust", "-D"]).arg(&data).uid(uid).gid(gid).current_dir("/").output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut hosts = std::fs::OpenOptions::new().append(true).open(data.join("pg_hba.conf")).unwrap();
    hosts.write_all(b"host all all 10.9.0.0/24 trust\n").unwrap();
    let mut command = Command::new(bin.join("postgres"));
    command.arg("-D").arg(&data).args(["-p", &port.to_string(), "-k"]).arg(dir.path()).uid(uid).gid(gid).current_dir("/");
    command.args(["-c", "log_statement=all", "-c", "logging_collector=on", "-c", "log_filename=log", "-c", "log_directory=../"]);
    command.args(["-c", "log_line_prefix=%r ", "-c", "listen_addresses=*"]);
    let server = Server::start(&mut command, dir, port);
    let socket = server.dir.path().display().to_string();
    wait_until("PostgreSQL is up", || {
        let arguments = ["-h", &socket, "-p", &port.to_string(), "-U", "postgres", "-c", ""];
        Command::new("psql").args(arguments).output().unwrap().status.success()
    });
    server
}
