//! Statuses and retries in other protocols than HTTP/1, by the real program on real servers. Run as root:
//! `cargo xtask test --only privileged_protocols`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use lab::{Peer, in_namespace, run, wait_until};
use rig::agent::Agent;
use rig::json::{count, phase};
use serde_json::{Value, json};
use tempfile::TempDir;

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

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    fn start(command: &mut Command, dir: TempDir, port: u16, is_up: impl Fn() -> bool) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the server answers", is_up);
        Self { child, dir, port }
    }

    /// Observes both ends of its port while `talk` talks to it.
    fn observed(&self, talk: impl FnOnce()) -> Value {
        observed(self.port, talk)
    }
}

/// The observation of both ends of a port: edges `served` and `asked`.
fn observed(port: u16, talk: impl FnOnce()) -> Value {
    let agent = Agent::new();
    let observation = agent.observe_with(&[format!("served=:{port}")], &[format!("asked=127.0.0.1:{port}")], &["--connections"]);
    talk();
    observation.end()
}

/// Checks what both edges say of all that was asked.
#[track_caller]
fn assert_edges(result: &Value, protocol: &str, requests: u64, status: &Value, retries: &Value) {
    for edge in result["edges"].as_array().unwrap() {
        let all = &edge["phases"]["all"];
        assert_eq!(edge["protocol"], protocol, "{all:#}");
        assert_eq!((count(all, "/requests"), count(all, "/responses")), (requests, requests), "{all:#}");
        assert_eq!((&all["status"], &all["retries"]), (status, retries), "{all:#}");
    }
    let quality = result["data_quality"].as_object().unwrap();
    let missed: Vec<_> = quality.iter().filter(|(key, value)| *key != "sampling" && **value != 0).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn redis_errors_are_named_and_what_failed_is_retried() {
    in_namespace(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(dir.path());
        let server = Server::start(&mut command, dir, port, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let result = server.observed(|| {
            for (command, answer) in [
                ("SET a 1", "+OK"),
                ("LPUSH a x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
                ("CONFIG SET maxmemory 1", "+OK"),
                ("SET b 2", "-OOM command not allowed when used memory > 'maxmemory'."),
                ("SET c 2", "-OOM command not allowed when used memory > 'maxmemory'."),
                ("CONFIG SET maxmemory 0", "+OK"),
                // The one that failed, and one that did not.
                ("SET b 2", "+OK"),
                ("SET a 1", "+OK"),
            ] {
                let words = command.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len()));
                let count = command.split(' ').count();
                stream.write_all(format!("*{count}\r\n{}", words.collect::<String>()).as_bytes()).unwrap();
                let mut got = vec![0; answer.len() + 2];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(String::from_utf8(got).unwrap(), format!("{answer}\r\n"));
            }
        });
        let status = json!({"err:OOM": 2, "err:WRONGTYPE": 1, "ok": 5});
        assert_edges(&result, "redis", 8, &status, &json!({"marker": 0, "id": 0, "matched": 1}));
        // The connection was open before, and still is.
        let connections = result["connections"].as_array().unwrap();
        assert_eq!(connections.len(), 2, "{connections:#?}");
        for connection in connections {
            assert_eq!((count(connection, "/requests"), count(connection, "/retries")), (8, 1), "{connection:#}");
            assert_eq!((&connection["open"], &connection["protocol"]), (&json!(true), &json!("redis")));
            assert!(connection["rtt_ms"].is_number() && connection["tcp_retransmits"].is_number(), "{connection:#}");
        }
    });
}

#[test]
fn subscriptions_in_resp3_are_answered_and_not_made_again() {
    in_namespace(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(dir.path());
        let server = Server::start(&mut command, dir, port, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let result = server.observed(|| {
            // The second asks what the first did, after that has gone.
            for _ in 0..2 {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let mut heard = Vec::new();
                for (command, end) in [
                    ("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*1\r\n$4\r\nPING\r\n", "+PONG\r\n"),
                    ("*3\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n$1\r\nb\r\n", "$1\r\nb\r\n:2\r\n"),
                    ("*3\r\n$7\r\nPUBLISH\r\n$1\r\na\r\n$1\r\nx\r\n", "$1\r\na\r\n$1\r\nx\r\n"),
                    ("*1\r\n$11\r\nUNSUBSCRIBE\r\n", ":0\r\n"),
                ] {
                    stream.write_all(command.as_bytes()).unwrap();
                    while !heard.ends_with(end.as_bytes()) {
                        let mut byte = [0];
                        stream.read_exact(&mut byte).unwrap();
                        heard.extend(byte);
                    }
                }
            }
        });
        assert_edges(&result, "redis", 10, &json!({"ok": 10}), &json!({"marker": 0, "id": 0, "matched": 0}));
    });
}

#[test]
fn connections_of_another_network_namespace_are_listed_with_what_its_kernel_knows() {
    in_namespace(|| {
        let peer = Peer::new();
        let (dir, port) = (tempfile::tempdir().unwrap(), 6390);
        let server = peer.run(move || {
            let mut command = Command::new("redis-server");
            command
                .args(["--port", &port.to_string(), "--bind", "10.9.0.2", "--protected-mode", "no", "--save", "", "--dir"])
                .arg(dir.path());
            Server::start(&mut command, dir, port, || TcpStream::connect(("10.9.0.2", port)).is_ok())
        });
        let agent = Agent::new();
        let (served, asked) = (format!("served=:{port}"), format!("asked=10.9.0.2:{port}"));
        let observation = agent.observe_with(&[served], &[asked], &["--connections"]);
        let mut stream = TcpStream::connect(("10.9.0.2", server.port)).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut answer = [0; 7];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+PONG\r\n");
        let result = observation.end();
        let connections = result["connections"].as_array().unwrap();
        assert_eq!(connections.len(), 2, "{connections:#?}");
        for connection in connections {
            assert_eq!((&connection["open"], count(connection, "/requests")), (&json!(true), 1), "{connection:#}");
            assert!(connection["rtt_ms"].as_f64().unwrap() > 0.0 && connection["tcp_retransmits"].is_number(), "{connection:#}");
        }
    });
}

#[test]
fn a_deadlock_s_victim_is_retried_and_a_mistake_is_not() {
    in_namespace(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let data = dir.path().join("data").display().to_string();
        let no_questions = ["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"];
        run("mariadb-install-db", &[no_questions.as_slice(), &[&format!("--datadir={data}")]].concat());
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-grant-tables", "--bind-address=127.0.0.1", &format!("--port={port}")]);
        command.args([format!("--datadir={data}"), format!("--socket={}", dir.path().join("socket").display())]);
        let client = |sql: &str| {
            let mut command = Command::new("mariadb");
            command.args(["--no-defaults", "-h127.0.0.1", &format!("-P{port}"), "--force", "--skip-reconnect", "-e", sql]);
            command.output().unwrap()
        };
        let server = Server::start(&mut command, dir, port, || client("select 1").status.success());
        let raise = "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213";
        let result = server.observed(|| {
            // Each on a connection of its own, as clients do after an error.
            for statement in ["SELECT 1", "SELEC", "SELEC", raise, raise, "SELECT 2"] {
                client(statement);
            }
        });
        let status = json!({"err:1064": 2, "err:1213": 2, "ok": 2});
        assert_edges(&result, "mysql", 6, &status, &json!({"marker": 0, "id": 0, "matched": 1}));
        assert_eq!(count(phase(&result, "asked", "all"), "/failures/status"), 2);
    });
}

#[test]
fn a_serialization_failure_is_retried_and_a_mistake_is_not() {
    in_namespace(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let bin = std::fs::read_dir("/usr/lib/postgresql").unwrap().flatten().next().unwrap().path().join("bin");
        let id = |of: &str| run("id", &[of, "postgres"]).trim().parse::<u32>().unwrap();
        let (uid, gid) = (id("-u"), id("-g"));
        std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid)).unwrap();
        let data = dir.path().join("data");
        let made =
            Command::new(bin.join("initdb")).args(["-A", "trust", "-D"]).arg(&data).uid(uid).gid(gid).current_dir("/").output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut command = Command::new(bin.join("postgres"));
        command.arg("-D").arg(&data).args(["-p", &port.to_string(), "-k"]).arg(dir.path()).uid(uid).gid(gid).current_dir("/");
        let client = |sql: &str| {
            let target = format!("host=127.0.0.1 port={port} user=postgres sslmode=disable gssencmode=disable");
            Command::new("psql").args([&target, "-c", sql]).output().unwrap()
        };
        let server = Server::start(&mut command, dir, port, || client("select 1").status.success());
        let raise = "do $$ begin raise exception 'x' using errcode = '40001'; end $$";
        let result = server.observed(|| {
            for statement in ["select 1", "selec", "selec", raise, raise, "select 2"] {
                client(statement);
            }
        });
        let status = json!({"err:40001": 2, "err:42601": 2, "ok": 2});
        assert_edges(&result, "postgres", 6, &status, &json!({"marker": 0, "id": 0, "matched": 1}));
        assert!(server.dir.path().exists());
    });
}

#[test]
fn an_error_that_comes_byte_by_byte_has_its_name_though_the_server_closes_at_once() {
    in_namespace(|| {
        const CONNECTIONS: u64 = 70;
        let message = |tag: &[u8], body: &[u8]| [tag, &u32::try_from(body.len() + 4).unwrap().to_be_bytes(), body].concat();
        let (startup, query) = (message(b"", &[&[0, 3, 0, 0][..], b"user\0a\0\0"].concat()), message(b"Q", b"select 1\0"));
        let welcome = [message(b"R", &[0; 4]), message(b"Z", b"I")].concat();
        let error = [message(b"E", b"SERROR\0VERROR\0C40001\0Mcould not serialize\0\0"), message(b"Z", b"I")].concat();
        let read = |stream: &mut TcpStream, length: usize| stream.read_exact(&mut vec![0; length]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let result = observed(listener.local_addr().unwrap().port(), || {
            for _ in 0..CONNECTIONS {
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (mut server, _) = listener.accept().unwrap();
                server.set_nodelay(true).unwrap();
                client.write_all(&startup).unwrap();
                read(&mut server, startup.len());
                server.write_all(&welcome).unwrap();
                read(&mut client, welcome.len());
                client.write_all(&query).unwrap();
                read(&mut server, query.len());
                for byte in &error {
                    server.write_all(std::slice::from_ref(byte)).unwrap();
                }
                drop(server);
                client.read_to_end(&mut Vec::new()).unwrap();
            }
        });
        assert_edges(
            &result,
            "postgres",
            CONNECTIONS,
            &json!({"err:40001": CONNECTIONS}),
            &json!({"marker": 0, "id": 0, "matched": CONNECTIONS - 1}),
        );
    });
}

/// What grpcio's client and server once said to each other: records of direction, length and bytes (see core/tests/track/grpc.rs).
const CONVERSATION: &[u8] = include_bytes!("../../core/tests/track/grpc.bin");

/// The records in their order: the server's settings come before the client's preface.
fn records() -> Vec<(u8, &'static [u8])> {
    let mut rest = CONVERSATION;
    let mut records = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(5) {
        let length = usize::try_from(u32::from_le_bytes(header[1..].try_into().unwrap())).unwrap();
        let (bytes, next) = after.split_at(length);
        records.push((header[0], bytes));
        rest = next;
    }
    records
}

/// Says all of one direction, each record when all before it have been heard.
fn say(mut stream: TcpStream, direction: u8) {
    stream.set_nodelay(true).unwrap();
    for (from, bytes) in records() {
        if from == direction {
            stream.write_all(bytes).unwrap();
        } else {
            let mut heard = vec![0; bytes.len()];
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(heard, bytes);
        }
    }
    // The peer has heard all, too.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = stream.read(&mut [0]);
}

#[test]
fn calls_of_grpc_are_told_by_their_trailers_and_its_retries_by_their_marker() {
    in_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let result = observed(port, || {
            let server = std::thread::spawn(move || say(listener.accept().unwrap().0, 1));
            say(TcpStream::connect(("127.0.0.1", port)).unwrap(), 0);
            server.join().unwrap();
        });
        for edge in ["served", "asked"] {
            let all = phase(&result, edge, "all");
            assert_eq!(count(all, "/requests"), 135, "{all:#}");
            assert_eq!(all["status"], json!({"grpc:NOT_FOUND": 2, "grpc:OK": 124, "grpc:UNAVAILABLE": 8}), "{edge}");
            assert_eq!(all["retries"], json!({"marker": 8, "id": 0, "matched": 0}), "{edge}");
            assert_eq!((count(all, "/failures/status"), count(all, "/failures/client_abort")), (8, 1), "{edge}");
        }
        assert!(result["edges"].as_array().unwrap().iter().all(|edge| edge["protocol"] == "grpc"), "{result:#}");
        assert_eq!(result["data_quality"]["headers_partial"], 0);
    });
}

/// Sends a frame of HTTP/2.
fn send(stream: &mut TcpStream, kind: u8, flags: u8, id: u8, payload: &[u8]) {
    let length = u8::try_from(payload.len()).unwrap();
    stream.write_all(&[&[0, 0, length, kind, flags, 0, 0, 0, id], payload].concat()).unwrap();
}

/// Reads frames to the end of a stream.
fn hear_out(stream: &mut TcpStream, id: u8) {
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        stream.read_exact(&mut vec![0; usize::try_from(length).unwrap()]).unwrap();
        if header[3] <= 1 && header[4] & 1 == 1 && header[8] == id {
            return;
        }
    }
}

#[test]
fn http2_of_a_connection_that_was_open_before_is_counted_and_what_its_compression_hides_is_said() {
    in_namespace(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let root = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log stderr crit; events {{ worker_connections 64; }}
             http {{ access_log off; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root}; uwsgi_temp_path {root};
               scgi_temp_path {root}; server {{ listen 127.0.0.1:{port} http2; location / {{ return 200 \"hello\"; }} }} }}"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-c").arg(dir.path().join("nginx.conf")).args(["-e", "stderr"]);
        let server = Server::start(&mut command, dir, port, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        send(&mut stream, 4, 0, 0, &[]);
        // GET / of http, and a host that goes into the table, from which the next requests take it.
        send(&mut stream, 1, 5, 1, b"\x82\x86\x84\x41\x01a");
        hear_out(&mut stream, 1);
        let result = server.observed(|| {
            for id in [3, 5, 7] {
                send(&mut stream, 1, 5, id, b"\x82\x86\x84\xbe");
                hear_out(&mut stream, id);
            }
        });
        for edge in ["served", "asked"] {
            let all = phase(&result, edge, "all");
            assert_eq!((count(all, "/requests"), count(all, "/responses")), (3, 3), "{all:#}");
            assert_eq!((&all["status"], count(all, "/connections_opened")), (&json!({"200": 3}), 0), "{all:#}");
        }
        assert!(result["edges"].as_array().unwrap().iter().all(|edge| edge["protocol"] == "http2"), "{result:#}");
        assert!(count(&result, "/data_quality/headers_partial") >= 6, "the host of three requests, at both ends: {result:#}");
    });
}
