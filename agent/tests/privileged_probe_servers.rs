//! What the probe counts against what real servers count themselves, protocol by protocol. Run as root:
//! `cargo xtask test --only privileged_probe_servers`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
#[path = "servers/loss.rs"]
mod loss;
mod servers;
#[path = "servers/tls.rs"]
mod tls;

use std::net::TcpStream;
use std::process::Command;

use lab::run;
use servers::{Server, alone, ask, assert_counts, assert_exact, attach, counts, free_port, mariadb, postgres};
use stormdrill::probe::Health;

#[test]
fn redis_counts_the_same_commands() {
    alone(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "::1", "--save", "", "--dir"]).arg(dir.path());
        let server = Server::start(&mut command, dir, port);
        // It listens on one address a moment before the other.
        lab::wait_until("Redis listens on both", || {
            ["127.0.0.1", "::1"].iter().all(|address| TcpStream::connect((*address, port)).is_ok())
        });
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
            // The first one of the second connection as text, which that one goes on with.
            ask(stream, if stream.peer_addr().unwrap().is_ipv4() { "*1\r\n$4\r\nPING\r\n" } else { "PING\r\n" }, "+PONG\r\n");
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
        // The last look was counted after `found` was read. The subscription is answered by the pushed message that confirms it.
        assert_counts(&mut probe, server_side + 1, server_side, 1);
    });
}

#[test]
fn mariadb_counts_the_same_questions() {
    alone(|| {
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
    alone(|| {
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
    alone(|| {
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

/// An nghttpx that speaks HTTP/2 and HTTP/1 on one port, and asks nginx, which writes a line for each request, with HTTP/1.
#[test]
fn an_upgrade_from_http1_goes_on_as_http2_and_its_request_is_answered_once() {
    alone(|| {
        let (dir, port, behind) = (tempfile::tempdir().unwrap(), free_port(), free_port());
        let root = dir.path().display().to_string();
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log stderr crit; events {{ worker_connections 64; }}
             http {{ access_log {root}/log; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root}; uwsgi_temp_path {root};
               scgi_temp_path {root}; server {{ listen 127.0.0.1:{behind}; location / {{ return 200 \"hello\\n\"; }} }} }}"
        );
        std::fs::write(dir.path().join("nginx.conf"), config).unwrap();
        let mut nginx = Command::new("nginx");
        nginx.arg("-c").arg(dir.path().join("nginx.conf")).args(["-e", "stderr"]);
        let nginx = Server::start(&mut nginx, dir, behind);
        let mut proxy = Command::new("nghttpx");
        proxy.args([&format!("--frontend=127.0.0.1,{port};no-tls"), &format!("--backend=127.0.0.1,{behind}"), "--conf=/dev/null"]);
        let _proxy = Server::start(proxy.args(["--single-thread", "--workers=1"]), tempfile::tempdir().unwrap(), port);
        let mut probe = attach(port);
        let url = |path: &str| format!("http://127.0.0.1:{port}/{path}");
        // One connection each, with an upgrade at its beginning, and up to five requests.
        for count in 1..=5 {
            let urls: Vec<String> = (0..count).map(|i| url(&i.to_string())).collect();
            run("nghttp", &[&["-u", "-n", "--no-dep"], urls.iter().map(String::as_str).collect::<Vec<_>>().as_slice()].concat());
        }
        for _ in 0..5 {
            run("curl", &["-s", "-S", "--http2", "-o", "/dev/null", "-o", "/dev/null", &url("a"), &url("b")]);
        }
        // Granted nothing, and without asking.
        run("curl", &["-s", "-S", "--http1.1", "-o", "/dev/null", &url("plain")]);
        run("curl", &["-s", "-S", "--http2-prior-knowledge", "-o", "/dev/null", &url("known")]);
        let made = u64::try_from(std::fs::read_to_string(nginx.dir.path().join("log")).unwrap().lines().count()).unwrap();
        assert_eq!(made, 15 + 10 + 2, "nginx's own count");
        assert_exact(&mut probe, made);
        let upgraded = counts(&mut probe)[0];
        assert_eq!(upgraded.connections_opened, 5 + 5 + 2);
    });
}
