//! Servers that do not let a client in, by the real program on real servers: no request, no response, and a status all the same. Run as root:
//! `cargo xtask test --only privileged_logins`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
#[path = "servers/mysql.rs"]
mod mysql;
mod rig;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use lab::{in_namespace, run, wait_until};
use rig::agent::Agent;
use rig::json::count;
use serde_json::{Value, json};

/// A server that is killed when the test is over.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn start(command: &mut Command, is_up: impl Fn() -> bool) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the server answers", is_up);
        Self(child)
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Observes both ends of a port while `talk` talks to it, which gives how many requests it made, all without error, and the errors of logins.
fn check(protocol: &str, port: u16, talk: impl FnOnce() -> (u64, BTreeMap<String, u64>)) {
    let observation = Agent::new().observe(&[format!("served=:{port}")], &[format!("asked=127.0.0.1:{port}")]);
    let (requests, errors) = talk();
    let result = observation.end();
    let refused: u64 = errors.values().sum();
    assert!(refused > 0 && requests > 0, "{requests} {errors:?}");
    let mut status: BTreeMap<String, u64> = errors.into_iter().map(|(name, count)| (format!("err:{name}"), count)).collect();
    status.insert("ok".to_owned(), requests);
    for edge in result["edges"].as_array().unwrap() {
        let all = &edge["phases"]["all"];
        assert_eq!(edge["protocol"], protocol, "{result:#}");
        assert_eq!((count(all, "/requests"), count(all, "/responses")), (requests, requests), "{all:#}");
        assert_eq!(all["status"], json!(status), "{all:#}");
        assert_eq!(all["connect_failures"], json!({"refused": 0, "timed_out": 0, "turned_away": refused, "other": 0}), "{all:#}");
        let failures: Vec<(&String, &Value)> = all["failures"].as_object().unwrap().iter().filter(|(_, count)| **count != 0).collect();
        assert!(failures.is_empty(), "{failures:?}");
    }
    let quality = result["data_quality"].as_object().unwrap();
    let missed: Vec<_> = quality.iter().filter(|(key, value)| *key != "sampling" && **value != 0).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn mariadb_with_too_many_connections_and_its_unknown_users_are_told() {
    in_namespace(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let data = format!("--datadir={}", dir.path().join("data").display());
        let normal = "--auth-root-authentication-method=normal";
        run("mariadb-install-db", &["--no-defaults", "--user=root", normal, "--skip-test-db", &data]);
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-name-resolve", "--bind-address=127.0.0.1", "--max-connections=10", &data]);
        command.args([format!("--port={port}"), format!("--socket={}", dir.path().join("socket").display())]);
        let address = format!("127.0.0.1:{port}");
        let _server = Server::start(&mut command, || TcpStream::connect(&address).is_ok() && mysql::Client::connect(&address).is_ok());
        check("mysql", port, || {
            let mut errors = BTreeMap::new();
            for _ in 0..3 {
                let code = mysql::Client::connect_as(&address, "nobody").err().unwrap();
                *errors.entry(code.to_string()).or_default() += 1;
            }
            assert_eq!(errors, BTreeMap::from([("1045".to_owned(), 3)]));
            let mut open = Vec::new();
            while errors.get("1040").is_none_or(|count| *count < 5) {
                match mysql::Client::connect(&address) {
                    Ok(mut client) => {
                        client.query("select 1").unwrap();
                        open.push(client);
                    }
                    Err(code) => *errors.entry(code.to_string()).or_default() += 1,
                }
            }
            let requests = u64::try_from(open.len()).unwrap();
            open.into_iter().for_each(mysql::Client::quit);
            (requests, errors)
        });
    });
}

/// Logs in to a PostgreSQL that asks for no password; else the error's SQLSTATE.
fn log_in(address: &str, user: &str) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(address).unwrap();
    let startup = [&[0, 3, 0, 0][..], format!("user\0{user}\0database\0postgres\0\0").as_bytes()].concat();
    let length = u32::try_from(startup.len() + 4).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], &startup].concat()).unwrap();
    loop {
        match message(&mut stream) {
            (b'Z', _) => return Ok(stream),
            (b'E', error) => {
                let field = error.split(|byte| *byte == 0).find(|field| field.first() == Some(&b'C')).unwrap();
                return Err(String::from_utf8(field[1..].to_vec()).unwrap());
            }
            _ => {}
        }
    }
}

/// A message of PostgreSQL's server.
fn message(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut header = [0; 5];
    stream.read_exact(&mut header).unwrap();
    let [tag, length @ ..] = header;
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
    stream.read_exact(&mut body).unwrap();
    (tag, body)
}

#[test]
fn postgres_with_too_many_connections_wrong_passwords_and_unknown_users_is_told() {
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
        let hosts = "local all all trust\nhost all locked 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
        std::fs::write(data.join("pg_hba.conf"), hosts).unwrap();
        let mut command = Command::new(bin.join("postgres"));
        command.arg("-D").arg(&data).args(["-p", &port.to_string(), "-k"]).arg(dir.path()).uid(uid).gid(gid).current_dir("/");
        command.args(["-c", "max_connections=4", "-c", "superuser_reserved_connections=0", "-c", "listen_addresses=127.0.0.1"]);
        let address = format!("127.0.0.1:{port}");
        let target = ["-h", "127.0.0.1", "-p", &port.to_string(), "-d", "postgres"].map(str::to_owned);
        let client = |user: &str| Command::new("psql").args(&target).args(["-U", user, "-c", ""]).env("PGPASSWORD", "x").output().unwrap();
        let _server = Server::start(&mut command, || client("postgres").status.success());
        check("postgres", port, || {
            let mut errors = BTreeMap::new();
            // A challenge lies between the startup and the error.
            for _ in 0..2 {
                assert!(!client("locked").status.success());
                *errors.entry("28P01".to_owned()).or_default() += 1;
            }
            *errors.entry(log_in(&address, "nobody").err().unwrap()).or_default() += 1;
            assert_eq!(errors["28000"], 1);
            let mut open = Vec::new();
            while errors.get("53300").is_none_or(|count| *count < 5) {
                match log_in(&address, "postgres") {
                    Ok(mut stream) => {
                        stream.write_all(b"Q\0\0\0\x0dselect 1\0").unwrap();
                        while message(&mut stream).0 != b'Z' {}
                        open.push(stream);
                    }
                    Err(code) => *errors.entry(code).or_default() += 1,
                }
            }
            (u64::try_from(open.len()).unwrap(), errors)
        });
    });
}

#[test]
fn redis_with_too_many_clients_is_told() {
    in_namespace(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new("redis-server");
        let options = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--maxclients", "4", "--dir"];
        command.args(options).arg(dir.path());
        let _server = Server::start(&mut command, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        check("redis", port, || {
            let (mut open, mut refused) = (Vec::new(), 0);
            while refused < 5 {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                // Who is not let in hears of it unasked, and who is hears nothing.
                stream.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
                let mut answer = [0; 64];
                if let Ok(length) = stream.read(&mut answer) {
                    assert!(answer[..length].starts_with(b"-ERR max number of clients"), "{answer:?}");
                    refused += 1;
                } else {
                    stream.set_read_timeout(None).unwrap();
                    stream.write_all(b"*1\r\n$4\r\nPING\r\n").unwrap();
                    stream.read_exact(&mut answer[..7]).unwrap();
                    open.push(stream);
                }
            }
            (u64::try_from(open.len()).unwrap(), BTreeMap::from([("ERR".to_owned(), refused)]))
        });
    });
}
