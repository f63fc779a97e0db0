//! Counts at thirty percent loss, both ways; where the kernel has netem, packets overtake each other and come twice as well.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use stormdrill::fault::plane::Plane;
use stormdrill::probe::Probe;
use stormdrill_core::edge::Role;
use stormdrill_core::fault::{Direction, Distribution, FaultKind};

use crate::lab::{Peer, edge, run, spec, while_renewing};
use crate::servers::{Server, ask, assert_counts, assert_exact, attach, beside_others, counts, free_port, mariadb, mysql, postgres};

/// Thirty percent of all packets between two namespaces are lost, both ways, while the work is done.
fn under_loss(port: u16, start: impl FnOnce() -> Server + Send + 'static, work: impl FnOnce(&Server, &mut Probe) + Send) {
    beside_others(|| {
        let peer = Peer::new();
        hasten("v0");
        let server = peer.run(move || {
            hasten("v1");
            start()
        });
        let state = tempfile::tempdir().unwrap();
        let mut probe = attach(port);
        let faults: Vec<_> = disorder()
            .into_iter()
            .map(|kind| (spec(kind, Direction::Both), edge(Role::Downstream, Some("10.9.0.2"), Some(port))))
            .collect();
        let mut prepared = Plane::new(state.path()).prepare_blocking(&faults).unwrap();
        assert_eq!(prepared.len(), 1, "they share their netems");
        let mut fault = prepared.remove(0).apply_blocking().unwrap();
        while_renewing(&mut [&mut fault], || work(&server, &mut probe));
        let counts = counts(&mut probe);
        assert!(counts[0].tcp_retransmits > 20 && counts[1].tcp_retransmits > 20, "{counts:?}");
        for (count, (spec, _)) in fault.counts().unwrap().iter().zip(&faults) {
            assert!(count.hit > 20, "{} hit {} packets", spec.kind.as_str(), count.hit);
        }
        assert!(fault.remove_blocking().error.is_none());
        let health = probe.snapshot().unwrap().health;
        assert_eq!((health.gaps, health.unparsed_connections), (0, 0), "{counts:?}");
    });
}

/// Loss, and what this kernel can do besides.
fn disorder() -> Vec<FaultKind> {
    let loss = FaultKind::Loss { share: 0.3 };
    let netem = ["qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"];
    if !Command::new("tc").args(netem).output().unwrap().status.success() {
        return vec![loss];
    }
    run("tc", &["qdisc", "del", "dev", "lo", "root"]);
    // The jitter lets packets overtake each other.
    let (time, jitter) = (Duration::from_millis(5), Duration::from_millis(4));
    vec![
        loss,
        FaultKind::Delay { time, jitter, distribution: Distribution::Uniform },
        FaultKind::Duplicate { share: 0.1, correlation: 0.0 },
    ]
}

/// Has TCP wait less and try longer: else most of the time is spent on waiting for the first retransmission, the twelfth in a row comes after
/// minutes, and one handshake in a hundred fails.
fn hasten(device: &str) {
    run("ip", &["route", "replace", "10.9.0.0/24", "dev", device, "rto_min", "10ms"]);
    // Kernels before 6.15 have no limit to the time between retransmissions; there the first six of a thin stream come at equal times.
    for (name, value) in [("tcp_rto_max_ms", "1000"), ("tcp_thin_linear_timeouts", "1"), ("tcp_syn_retries", "60"), ("tcp_retries2", "60")]
    {
        let set = std::fs::write(format!("/proc/sys/net/ipv4/{name}"), value);
        assert!(set.is_ok() || name == "tcp_rto_max_ms", "{name}: {set:?}");
    }
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
            for _ in 0..40 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        let mut stream = TcpStream::connect(format!("10.9.0.2:{port}")).unwrap();
                        ask(&mut stream, "*1\r\n$4\r\nPING\r\n", "+PONG\r\n");
                    }
                });
            }
        });
        let made = processed() - first - 1;
        assert_eq!(made, 200);
        assert_exact(probe, made);
        std::thread::scope(|scope| {
            for client in 0..5 {
                let address = format!("10.9.0.2:{port}");
                scope.spawn(move || set_in_pipelines(&address, client));
            }
        });
        let made = processed() - first - 2;
        assert_eq!(made, 200 + 5 * 10 * 20);
        assert_exact(probe, made);
    });
}

#[test]
fn postgres_under_loss_counts_the_same_statements() {
    let port = free_port();
    under_loss(
        port,
        move || postgres(port),
        |server, probe| {
            let script = server.dir.path().join("pipeline.sql");
            let lines = "\\startpipeline\nselect 1;\nselect 2;\nselect repeat('x', 100), generate_series(1, 50);\n\\endpipeline\n";
            std::fs::write(&script, lines).unwrap();
            let port = port.to_string();
            let tcp = ["-h", "10.9.0.2", "-p", &port, "-U", "postgres"];
            for mode in ["extended", "prepared"] {
                let load = ["-n", "-c", "4", "-t", "6", "-M", mode, "-f", script.to_str().unwrap(), "postgres"];
                run("pgbench", &[tcp.as_slice(), &load].concat());
            }
            run("psql", &[tcp.as_slice(), &["-c", "copy (select repeat('x', 100) from generate_series(1, 600)) to stdout"]].concat());
            let made = server.calls_by("10.9.0.1");
            assert!(made > 144, "{made}");
            assert_counts(probe, made, made, 0);
        },
    );
}

#[test]
fn mariadb_under_loss_counts_what_its_clients_count() {
    let port = free_port();
    under_loss(
        port,
        move || mariadb(port),
        |_, probe| {
            let address = format!("10.9.0.2:{port}");
            let long = format!("select length('{}')", "x".repeat(3000));
            let statements = ["select 1", "select nonsense", "select seq, repeat('x', 100) from mysql.seq_1_to_200", &long, "do 1"];
            let answered = std::thread::scope(|scope| {
                let clients: Vec<_> = (0..5).map(|_| scope.spawn(|| (0..4).map(|_| ask_all(&address, &statements)).collect())).collect();
                clients.into_iter().flat_map(|client| -> Vec<[u64; 2]> { client.join().unwrap() }).collect::<Vec<_>>()
            });
            let [ok, errors] = answered.iter().fold([0, 0], |sum, of| [sum[0] + of[0], sum[1] + of[1]]);
            assert_eq!((ok, errors), (80, 20));
            assert_counts(probe, ok + errors, ok, errors);
        },
    );
}

/// Makes each statement once, on a connection of its own: how many were answered without an error, and with one.
fn ask_all(address: &str, statements: &[&str]) -> [u64; 2] {
    let mut client = mysql::Client::connect(address).unwrap();
    let mut answered = [0, 0];
    for statement in statements {
        answered[usize::from(client.query(statement).is_err())] += 1;
    }
    client.quit();
    answered
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
