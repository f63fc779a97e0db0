//! Who gets at the real daemon, and what it withstands: TLS, sockets from systemd, clients that are too fast, too slow or too many.
//! Run as root: `cargo xtask test --only privileged_access`. Needs Debian's packages curl, openssl and systemd.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::{in_namespace, wait_until};
use nix::sys::signal::Signal;
use rig::agent::{Agent, PROGRAM};
use rig::daemon::Daemon;
use rig::json::{count, text};
use rig::playbook::Playbook;
use rig::process::Process;
use rig::services::{Load, Service};

/// A certificate of 127.0.0.1 that signs itself, and its key.
fn certificate(agent: &Agent, name: &str) -> (PathBuf, PathBuf) {
    let (cert, key) = (agent.path(&format!("{name}.pem")), agent.path(&format!("{name}.key")));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE", "-out"])
        .arg(&cert)
        .arg("-keyout")
        .arg(&key)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (cert, key)
}

/// The status that curl gets, 0 if it gets none.
fn curl(arguments: &[&str]) -> u16 {
    let output = Command::new("curl").args(["-s", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}"]).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().parse().unwrap()
}

#[test]
fn with_a_certificate_clients_speak_tls_and_a_new_one_holds_after_a_reload() {
    in_namespace(|| {
        let agent = Agent::new();
        let (first, first_key) = certificate(&agent, "first");
        let (second, second_key) = certificate(&agent, "second");
        let token = agent.path("token");
        fs::write(&token, "a-token-of-the-test\n").unwrap();
        let config = |cert: &Path, key: &Path| {
            format!("tls: {{cert: {}, key: {}}}\ntoken_file: {}\n", cert.display(), key.display(), token.display())
        };
        let mut daemon = Daemon::start(&agent, &config(&first, &first_key));
        let url = format!("https://{}", daemon.address);
        let drills = format!("{url}/v1/drills");
        let ask = |ca: &Path, more: &[&str]| {
            let mut arguments = vec!["--cacert", ca.to_str().unwrap(), "-H", "Authorization: Bearer a-token-of-the-test"];
            arguments.extend(more);
            arguments.push(&drills);
            curl(&arguments)
        };
        assert_eq!(ask(&first, &[]), 200);
        assert_eq!(ask(&first, &["-H", &format!("Origin: {url}")]), 200);
        assert_eq!(ask(&first, &["-H", &format!("Origin: http://{}", daemon.address)]), 403, "another origin by its scheme");
        assert_eq!(ask(&first, &["--tls-max", "1.2"]), 0);
        assert_eq!(ask(&second, &[]), 0);
        let status =
            |ca: &Path| agent.run(&["status", "--url", &url, "--token-file", token.to_str().unwrap(), "--ca", ca.to_str().unwrap()]);
        assert_eq!(status(&first).stdout, "no drill has run yet\n");
        let refused = status(&second);
        assert_eq!(refused.code, Some(2), "{refused:#?}");
        assert_eq!(curl(&[&drills.replace("https", "http")]), 0, "plain HTTP gets nothing");

        let refused = daemon.reload(&agent, &config(&first, &second_key), "ERROR");
        assert!(refused.contains("tls"), "{refused}");
        assert_eq!(ask(&first, &[]), 200, "the old one stays");
        daemon.reload(&agent, &config(&second, &second_key), "reloaded");
        assert_eq!((ask(&first, &[]), ask(&second, &[])), (0, 200));
        daemon.stop();
        let wrong = agent.path("serve.yaml");
        fs::write(&wrong, config(&token, &token)).unwrap();
        let ended = agent.run(&["serve", "--config", wrong.to_str().unwrap()]);
        assert_eq!(ended.code, Some(64), "{ended:#?}");
    });
}

#[test]
fn sockets_that_systemd_bound_are_served_and_left_to_it() {
    in_namespace(|| {
        let agent = Agent::new();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let socket = agent.path("by-systemd.sock");
        let config = agent.path("serve.yaml");
        fs::write(&config, format!("listen: 127.0.0.1:1\nstate_dir: {}\n", agent.path("kept").display())).unwrap();
        let mut command = Command::new("systemd-socket-activate");
        command.args(["-l", &address, "-l", socket.to_str().unwrap(), PROGRAM, "--state-dir"]);
        command.arg(agent.state_dir()).args(["serve", "--config"]).arg(&config);
        let mut process = Process::start(&mut command);
        wait_until("systemd listens", || TcpStream::connect(&address).is_ok());
        process.wait_for(&format!("serving on http://{address}"));
        process.wait_for("serving on unix:");
        process.wait_for("ready");
        assert_eq!(curl(&[&format!("http://{address}/readyz")]), 200);
        let status = agent.run(&["status", "--socket", socket.to_str().unwrap()]);
        assert_eq!(status.stdout, "no drill has run yet\n", "{status:#?}");
        process.signal(Signal::SIGTERM);
        let ended = process.end();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert!(socket.exists(), "it is systemd's");

        let open = Process::start(
            Command::new("systemd-socket-activate")
                .args(["-l", "0.0.0.0:9999", PROGRAM, "--state-dir"])
                .arg(agent.state_dir())
                .args(["serve", "--config"])
                .arg(&config),
        );
        wait_until("systemd listens", || TcpStream::connect("127.0.0.1:9999").is_ok());
        let ended = open.end();
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.stderr.contains("without a `token_file`"), "{ended:#?}");
    });
}

#[test]
fn who_asks_too_fast_is_told_to_wait_and_others_are_not() {
    in_namespace(|| {
        let agent = Agent::new();
        let daemon = Daemon::start(&agent, "limits: {requests: 5}\n");
        let answers: Vec<_> = (0..40).map(|_| daemon.send("GET", "/healthz", "", "").0).collect();
        assert!(answers[..10].iter().all(|status| *status == 200), "{answers:?}");
        assert!(answers.contains(&429), "{answers:?}");
        let (status, problem) = loop {
            let answer = daemon.ask("GET", "/v1/drills");
            if answer.0 == 429 {
                break answer;
            }
        };
        assert_eq!((status, text(&problem, "/type")), (429, "urn:stormdrill:problem:too-fast"));
        let url = format!("http://{}/healthz", daemon.address);
        assert_eq!(curl(&["--interface", "127.0.0.9", &url]), 200, "another client");
        for _ in 0..30 {
            assert_eq!(agent.run(&["status"]).code, Some(0), "the socket is not limited");
        }
        wait_until("it may ask again", || curl(&[&url]) == 200);
        daemon.stop();
    });
}

#[test]
fn a_thousand_connections_slow_clients_and_streams_that_break_do_not_disturb_a_drill() {
    in_namespace(|| {
        let store = Service::store(&[]);
        let chain = Service::chain(1, &store.address, &["--tries", "1", "--timeout", "10s"]);
        let _load = Load::start(&chain.address, &["--rate", "50/s", "--duration", "600s", "--timeout", "2s"]);
        let agent = Agent::new();
        let daemon = Daemon::start(&agent, "limits: {connections: 500, requests: 100000}\n");
        let id = daemon.drill(&Playbook::new(&chain, &store).phases(2, 10, 2).text());
        daemon.wait_for_phase(&id, "fault");
        let before = daemon.memory();
        let connect = || {
            let stream = TcpStream::connect(&daemon.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream
        };
        // Streams that are opened and dropped, some before they were answered, some after a few events.
        std::thread::scope(|scope| {
            for client in 0..8_u32 {
                let (id, connect) = (&id, &connect);
                scope.spawn(move || {
                    for turn in 0..100 {
                        let mut stream = connect();
                        write!(stream, "GET /v1/drills/{id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
                        let mut some = [0; 512];
                        for _ in 0..(client + turn) % 3 {
                            let _ = stream.read(&mut some);
                        }
                    }
                });
            }
        });
        // Half a head, half a body, nothing at all, and a report that nobody reads: more than there are places.
        let mut idle: Vec<TcpStream> = Vec::new();
        for number in 0..1_000 {
            let mut stream = connect();
            let _ = match number % 3 {
                0 => write!(stream, "GET /v1/dri"),
                1 => write!(
                    stream,
                    "POST /v1/drills HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/yaml\r\nContent-Length: 999\r\n\r\nversion"
                ),
                _ => Ok(()),
            };
            idle.push(stream);
        }
        // A slow body is refused by name, and none of them keeps its place.
        let mut answer = String::new();
        idle[1].read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("slow-body"), "{answer}");
        wait_until("others are answered while the slow ones are still there", || {
            curl(&["-m", "5", &format!("http://{}/healthz", daemon.address)]) == 200
        });
        drop(idle);
        let drill = daemon.ended(&id);
        assert_eq!(text(&drill, "/state"), "finished", "{drill:#}");
        assert_eq!(count(&drill, "/result/data_quality/events_lost"), 0);
        let after = daemon.memory();
        assert!(after < before + 64 * 1024, "{before} KiB became {after} KiB");
        assert_eq!(daemon.stop().code, Some(0));
    });
}
