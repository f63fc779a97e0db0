//! What the probe counts against what real servers count themselves, protocol by protocol. Run as root:
//! `cargo xtask test --only privileged_probe_servers`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use lab::{Peer, apply, edge, in_namespace, run, wait_until, while_renewing};
use stormdrill::cgroup;
use stormdrill::probe::{Health, Probe, ProbeConfig};
use stormdrill_core::edge::{EdgeId, EdgeSpec, PortRange, Role};
use stormdrill_core::fault::Backend;
use stormdrill_core::fault::{Direction, FaultKind};
use stormdrill_core::window::EdgeCounts;
use tempfile::TempDir;

const SERVED: EdgeId = EdgeId(0);
const CALLED: EdgeId = EdgeId(1);

/// A server that is killed when the test is over.
struct Server {
    child: Child,
    dir: TempDir,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(command: &mut Command, dir: TempDir, port: u16) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { child, dir, port }
    }

    /// A number of a MariaDB's own, asked for by its Unix socket.
    fn status(&self, name: &str) -> u64 {
        let socket = format!("--socket={}", self.dir.path().join("socket").display());
        let text = run("mariadb", &["--no-defaults", &socket, "-N", "-B", "-e", &format!("show global status like '{name}'")]);
        text.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Calls in a PostgreSQL's log that came from an address. The log is written by a process of its own, which gets all lines by one pipe: when
    /// the last statement is there, by the Unix socket, all before it are.
    fn calls_by(&self, address: &str) -> u64 {
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

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Both ends of a port: ingress first, downstream second.
fn attach(port: u16) -> Probe {
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

fn counts(probe: &mut Probe) -> [EdgeCounts; 2] {
    let snapshot = probe.snapshot().unwrap();
    [snapshot.total(SERVED), snapshot.total(CALLED)]
}

/// Checks requests, and answers with and without error, on both edges; nothing may be missed.
fn assert_counts(probe: &mut Probe, requests: u64, ok: u64, errors: u64) {
    for counts in counts(probe) {
        assert_eq!((counts.requests, counts.ok, counts.errors), (requests, ok, errors), "{counts:?}");
    }
    let health = probe.snapshot().unwrap().health;
    assert_eq!(Health { events_lost: 0, ..health }, Health::default(), "{:?}", counts(probe));
}

/// Checks requests and answers on both edges.
fn assert_exact(probe: &mut Probe, made: u64) {
    let health = probe.snapshot().unwrap().health;
    for counts in counts(probe) {
        assert_eq!((counts.requests, counts.responses, health.gaps), (made, made, 0), "{health:?} {counts:?}");
    }
}

/// Asks a Redis and reads an answer of a known length.
fn ask(stream: &mut TcpStream, command: &str, answer: &str) {
    stream.write_all(command.as_bytes()).unwrap();
    let mut got = vec![0; answer.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8(got).unwrap(), answer);
}

#[test]
fn redis_counts_the_same_commands() {
    in_namespace(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "::1", "--save", "", "--dir"]).arg(dir.path());
        let server = Server::start(&mut command, dir, port);
        let mut before: Vec<TcpStream> = ["127.0.0.1", "::1"].iter().map(|address| TcpStream::connect((*address, port)).unwrap()).collect();
        for stream in &mut before {
            ask(stream, "PING\r\n", "+PONG\r\n");
        }
        let processed = || {
            let text = run("redis-cli", &["-p", &port.to_string(), "info", "stats"]);
            let line = text.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        // Each look is a command itself, and counts from the next one on.
        let first = processed();
        let mut probe = attach(server.port);
        for stream in &mut before {
            ask(stream, "*1\r\n$4\r\nPING\r\n", "+PONG\r\n");
            ask(
                stream,
                "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*1\r\n$4\r\nPING\r\n",
                if stream.peer_addr().unwrap().is_ipv4() { ":1\r\n+PONG\r\n" } else { ":2\r\n+PONG\r\n" },
            );
        }
        let mapped = &mut TcpStream::connect(("::ffff:127.0.0.1", port)).unwrap();
        ask(mapped, "SET a b\r\nLPUSH a x\r\n", "+OK\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n");
        ask(mapped, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", "%7\r\n");
        ask(mapped, "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n", "");
        let port_text = port.to_string();
        run("redis-cli", &["-p", &port_text, "publish", "c", "hello"]);
        for extra in [["-P", "1"], ["-P", "50"], ["-P", "1000"]] {
            run(
                "redis-benchmark",
                &[&["-p", &port_text, "-n", "5000", "-c", "5", "-q", "-d", "40", "-t", "set,get,lpush,lrange_100,mset"], extra.as_slice()]
                    .concat(),
            );
        }
        run("redis-benchmark", &["-p", &port_text, "-n", "200", "-c", "2", "-q", "-d", "300000", "-t", "set,get"]);
        drop(before);
        let found = counts(&mut probe)[0];
        let server_side = processed() - first - 1;
        assert!(server_side > 70_000);
        assert_eq!(found.requests, server_side, "{found:?}");
        // The last look was counted after `found` was read. The subscription is confirmed by a pushed message, which is no reply.
        assert_counts(&mut probe, server_side + 1, server_side - 1, 1);
    });
}

/// A MariaDB that lets everybody in.
fn mariadb(port: u16) -> Server {
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
fn postgres(port: u16) -> Server {
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

#[test]
fn mariadb_counts_the_same_questions() {
    in_namespace(|| {
        let port = free_port();
        let server = mariadb(port);
        let questions = || server.status("Questions");
        // What one look costs itself.
        let cost = {
            let a = questions();
            questions() - a
        };
        let mut probe = attach(port);
        let before = questions();
        let port_text = format!("--port={port}");
        let tcp = ["--no-defaults", "--protocol=tcp", "-h127.0.0.1", &port_text];
        for kind in ["mixed", "read", "write"] {
            let load = format!("--auto-generate-sql-load-type={kind}");
            run(
                "mariadb-slap",
                &[
                    tcp.as_slice(),
                    &["--silent", "--auto-generate-sql", &load, "--number-of-queries=2000", "--concurrency=8", "--detach=50"],
                ]
                .concat(),
            );
        }
        let rows = "create database if not exists d; use d; create table t (a int, b varchar(200)); insert into t select seq, repeat('x', 150) from seq_1_to_5000; select * from t; select * from t;";
        run("mariadb", &[tcp.as_slice(), &["-A", "-e", rows]].concat());
        let failed =
            Command::new("mariadb").args(tcp).args(["-A", "-f", "-e", "select nonsense; select 1; select nonsense"]).output().unwrap();
        let errors = u64::try_from(String::from_utf8_lossy(&failed.stderr).matches("ERROR 1054").count()).unwrap();
        assert!(errors > 0, "{failed:?}");
        // A farewell is a question to the server, and none to us.
        let asked = questions() - before - cost - counts(&mut probe)[0].connections_opened;
        assert!(asked > 6000);
        assert_counts(&mut probe, asked, asked - errors, errors);
    });
}

#[test]
fn postgres_counts_the_same_statements() {
    in_namespace(|| {
        let port = free_port();
        let server = postgres(port);
        let port_text = port.to_string();
        let calls = || server.calls_by("127.0.0.1");
        let tcp = ["-h", "127.0.0.1", "-p", &port_text, "-U", "postgres"];
        run("pgbench", &[tcp.as_slice(), &["-i", "-q", "postgres"]].concat());
        let mut probe = attach(port);
        let script = server.dir.path().join("pipeline.sql");
        std::fs::write(&script, "\\startpipeline\nselect 1;\nselect 2;\nselect generate_series(1, 50);\n\\endpipeline\n").unwrap();
        let before = calls();
        for mode in ["simple", "extended", "prepared"] {
            run("pgbench", &[tcp.as_slice(), &["-n", "-c", "4", "-t", "100", "-M", mode, "postgres"]].concat());
        }
        run(
            "pgbench",
            &[tcp.as_slice(), &["-n", "-c", "4", "-t", "100", "-M", "extended", "-f", script.to_str().unwrap(), "postgres"]].concat(),
        );
        run("psql", &[tcp.as_slice(), &["-c", "copy pgbench_accounts to stdout"]].concat());
        let made = calls() - before;
        assert!(made > 9000, "{made}");
        assert_counts(&mut probe, made, made, 0);
        let failed = Command::new("psql").args(tcp).args(["-c", "select nonsense"]).output().unwrap();
        assert!(!failed.status.success());
        assert_counts(&mut probe, made + 1, made, 1);
    });
}

#[test]
fn http2_streams_are_counted_as_nginx_and_h2load_count_them() {
    in_namespace(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let root = dir.path().display();
        std::fs::write(dir.path().join("large"), vec![b'x'; 300_000]).unwrap();
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log stderr crit; events {{ worker_connections 512; }}
             http {{ access_log off; keepalive_requests 1000000; http2_max_concurrent_streams 200; client_body_temp_path {root};
               proxy_temp_path {root}; fastcgi_temp_path {root}; uwsgi_temp_path {root}; scgi_temp_path {root};
               server {{ listen 127.0.0.1:{port} http2; root {root}; location /small {{ return 200 \"hello\\n\"; }} }} }}"
        );
        let path = dir.path().join("nginx.conf");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&path).args(["-e", "stderr"]);
        let _server = Server::start(&mut command, dir, port);
        let mut probe = attach(port);
        let mut total = 0;
        for (path, requests, clients, streams) in [("small", 20_000, 10, 100), ("small", 500, 1, 1), ("large", 500, 5, 20)] {
            let url = format!("http://127.0.0.1:{port}/{path}");
            let text = run("h2load", &["-n", &requests.to_string(), "-c", &clients.to_string(), "-m", &streams.to_string(), &url]);
            assert!(text.contains(&format!("{requests} succeeded")), "{text}");
            total += requests;
            for counts in counts(&mut probe) {
                assert_eq!(
                    (counts.requests, counts.responses),
                    (total, total),
                    "{path}: {:?} {counts:?}",
                    probe.snapshot().unwrap().health
                );
            }
        }
        let health = probe.snapshot().unwrap().health;
        assert_eq!(Health { events_lost: 0, ..health }, Health::default(), "{:?}", counts(&mut probe));
    });
}

/// Thirty percent of all packets between two namespaces are lost, both ways, while the work is done.
fn under_loss(port: u16, start: impl FnOnce() -> Server + Send + 'static, work: impl FnOnce(&Server, &mut Probe) + Send) {
    in_namespace(|| {
        let peer = Peer::new();
        // Else most of the time is spent on waiting for the first retransmission.
        run("ip", &["route", "replace", "10.9.0.0/24", "dev", "v0", "rto_min", "10ms"]);
        let server = peer.run(move || {
            run("ip", &["route", "replace", "10.9.0.0/24", "dev", "v1", "rto_min", "10ms"]);
            start()
        });
        let state = tempfile::tempdir().unwrap();
        let mut probe = attach(port);
        let wanted = FaultKind::Loss { share: 0.3 };
        let mut fault = apply(state.path(), wanted, Direction::Both, edge(Role::Downstream, Some("10.9.0.2"), Some(port)));
        if fault.backend() != Backend::EbpfDrop {
            // This kernel has netem; the VM tests cover that.
            return;
        }
        while_renewing(&mut [&mut fault], || work(&server, &mut probe));
        let counts = counts(&mut probe);
        assert!(counts[0].tcp_retransmits > 20 && counts[1].tcp_retransmits > 20, "{counts:?}");
        assert!(fault.remove_blocking().error.is_none());
        assert_eq!(probe.snapshot().unwrap().health.gaps, 0);
    });
}

/// Ten times twenty commands of 300 bytes at once, and their answers.
fn set_in_pipelines(address: &str, client: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    let (key, value) = (format!("key-{client}"), "v".repeat(300));
    let command = format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n$300\r\n{value}\r\n", key.len());
    for _ in 0..10 {
        stream.write_all(command.repeat(20).as_bytes()).unwrap();
        let mut answers = [0; 20 * b"+OK\r\n".len()];
        stream.read_exact(&mut answers).unwrap();
        assert_eq!(answers.as_slice(), b"+OK\r\n".repeat(20));
    }
}

#[test]
fn redis_under_loss_counts_the_same_commands() {
    let port = free_port();
    let start = move || {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "10.9.0.2", "127.0.0.1", "--protected-mode", "no", "--save", "", "--dir"])
            .arg(dir.path());
        command.arg("--unixsocket").arg(dir.path().join("socket"));
        Server::start(&mut command, dir, port)
    };
    under_loss(port, start, |server, probe| {
        let socket = server.dir.path().join("socket").display().to_string();
        let processed = || {
            let text = run("redis-cli", &["-s", &socket, "info", "stats"]);
            let line = text.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let first = processed();
        // A connection for each command, whose handshakes often end with data. Every command is answered before its connection ends:
        // redis-benchmark leaves some behind.
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    for _ in 0..3 {
                        let mut stream = TcpStream::connect(format!("10.9.0.2:{port}")).unwrap();
                        ask(&mut stream, "*1\r\n$4\r\nPING\r\n", "+PONG\r\n");
                    }
                });
            }
        });
        let made = processed() - first - 1;
        assert_eq!(made, 60);
        assert_exact(probe, made);
        std::thread::scope(|scope| {
            for client in 0..5 {
                let address = format!("10.9.0.2:{port}");
                scope.spawn(move || set_in_pipelines(&address, client));
            }
        });
        let made = processed() - first - 2;
        assert_eq!(made, 60 + 5 * 10 * 20);
        assert_exact(probe, made);
    });
}

#[test]
fn http_1_under_loss_is_counted_as_h2load_counts_it() {
    web_under_loss("", &["--h1", "-n", "300", "-c", "5"], 300);
}

#[test]
fn http_2_under_loss_is_counted_as_h2load_counts_it() {
    web_under_loss("http2", &["-n", "500", "-c", "5", "-m", "10"], 500);
}

/// A connection attempt can fail altogether at such a loss, and then h2load's own count is no ground truth: once more.
fn web_under_loss(protocol: &str, load: &[&str], requests: u64) {
    assert!((0..3).any(|_| is_counted_under_loss(protocol, load, requests)), "h2load never came through");
}

/// False if h2load did not come through.
fn is_counted_under_loss(protocol: &str, load: &[&str], requests: u64) -> bool {
    let mut came_through = false;
    let port = free_port();
    let protocol = protocol.to_owned();
    let start = move || {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log stderr crit; events {{ worker_connections 512; }}
             http {{ access_log off; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root};
               uwsgi_temp_path {root}; scgi_temp_path {root}; server {{ listen {port}; location / {{ return 200 \"hello\n\"; }} }}
               server {{ listen 127.0.0.1:1; listen 10.9.0.2:{port} {protocol}; location / {{ return 200 \"hello\n\"; }} }} }}"
        );
        let path = dir.path().join("nginx.conf");
        std::fs::write(&path, config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&path).args(["-e", "stderr"]);
        Server::start(&mut command, dir, port)
    };
    under_loss(port, start, |_, probe| {
        let url = format!("http://10.9.0.2:{port}/");
        let text = run("h2load", &[load, &[url.as_str()]].concat());
        came_through = text.contains(&format!("{requests} succeeded"));
        if came_through {
            assert_exact(probe, requests);
        }
    });
    came_through
}
