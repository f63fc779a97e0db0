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
use std::sync::Barrier;
use std::time::Duration;

use lab::{in_namespace, wait_until};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
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

        // An address that others can reach needs a token, at the start and as long as it is open.
        let open = || {
            let mut command = Command::new("systemd-socket-activate");
            command.args(["-l", "0.0.0.0:9999", PROGRAM, "--state-dir"]).arg(agent.state_dir());
            let process = Process::start(command.args(["serve", "--config"]).arg(&config));
            wait_until("systemd listens", || TcpStream::connect("127.0.0.1:9999").is_ok());
            process
        };
        let ended = open().end();
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.stderr.contains("without a `token_file`"), "{ended:#?}");

        let without = fs::read_to_string(&config).unwrap();
        let token = agent.path("token");
        fs::write(&token, "0123456789abcdef").unwrap();
        fs::write(&config, format!("{without}token_file: {}\n", token.display())).unwrap();
        let mut process = open();
        process.wait_for("ready");
        assert_eq!(curl(&["http://127.0.0.1:9999/v1/drills"]), 401);
        fs::write(&config, without).unwrap();
        process.signal(Signal::SIGHUP);
        let refused = process.wait_for("ERROR");
        assert!(refused.contains("without a `token_file`"), "{refused}");
        assert_eq!(curl(&["http://127.0.0.1:9999/v1/drills"]), 401);
        process.signal(Signal::SIGTERM);
        assert_eq!(process.end().code, Some(0));
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

/// Clients that ask for a drill's events at the same time, each on a connection of its own.
const STREAMS: usize = 10_000;
/// Threads that they are divided among.
const THREADS: usize = 8;

/// Clients of one thread: opened one after another, then closed in an order and at moments that have nothing to do with what they were told. Gives the
/// statuses of those that looked at their answer before they closed.
fn streams(address: &str, id: &str, thread: usize, all_open: &Barrier) -> Vec<u16> {
    let request = format!("GET /v1/drills/{id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let mut clients: Vec<TcpStream> = (0..STREAMS / THREADS)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            // One that is refused at once may be closed before it has asked.
            let _ = stream.write_all(request.as_bytes());
            stream
        })
        .collect();
    all_open.wait();
    let mut random = 88_172_645_463_325_252_u64 + thread as u64;
    let mut statuses = Vec::new();
    while !clients.is_empty() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut client = clients.swap_remove(usize::try_from(random % clients.len() as u64).unwrap());
        // Half of them go before they have read anything, some in the middle of an event.
        let mut head = [0; 160];
        if random & 1 << 40 != 0 && client.read_exact(&mut head[..12]).is_ok() {
            statuses.push(std::str::from_utf8(&head[9..12]).unwrap().parse().unwrap());
            if random & 1 << 41 != 0 {
                let _ = client.read(&mut head);
            }
        }
    }
    statuses
}

#[test]
fn a_thousand_slow_clients_and_ten_thousand_streams_that_close_at_random_do_not_disturb_a_drill() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    in_namespace(|| {
        let store = Service::store(&[]);
        let chain = Service::chain(1, &store.address, &["--tries", "1", "--timeout", "10s"]);
        let _load = Load::start(&chain.address, &["--rate", "50/s", "--duration", "600s", "--timeout", "2s"]);
        let agent = Agent::new();
        let daemon = Daemon::start(&agent, "limits: {connections: 2000, requests: 100000}\n");
        let playbook = Playbook::new(&chain, &store).phases(2, 12, 1).fault("{http_status: {status: 503, share: 50%}, to: store}");
        let id = daemon.drill(&playbook.expect("store downstream QPS <= 500").text());
        daemon.wait_for_phase(&id, "fault");
        let before = daemon.memory();
        // Half a head, half a body, nothing at all: half of the places.
        let mut slow: Vec<TcpStream> = (0..1_000).map(|_| TcpStream::connect(&daemon.address).unwrap()).collect();
        for (number, stream) in slow.iter_mut().enumerate() {
            let begun = match number % 3 {
                0 => "GET /v1/dri",
                1 => "POST /v1/drills HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/yaml\r\nContent-Length: 999\r\n\r\nversion",
                _ => "",
            };
            stream.write_all(begun.as_bytes()).unwrap();
        }
        let all_open = Barrier::new(THREADS + 1);
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let (address, id, all_open) = (&daemon.address, &id, &all_open);
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || streams(address, id, thread, all_open))).collect();
            all_open.wait();
            // Whatever is open by TCP, who is on the host sees the drill.
            let status = agent.run(&["status"]);
            assert!(status.stdout.contains("running (fault)"), "{status:#?}");
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let of = |status: u16| statuses.iter().filter(|other| **other == status).count();
        assert!(of(200) > 100 && of(503) > 1_000 && of(200) + of(503) == statuses.len(), "{} {} {}", of(200), of(503), statuses.len());
        let most = daemon.most_memory();
        assert!(most < before + 64 * 1024, "{before} KiB became {most} KiB");
        wait_until("others are answered while the slow ones are still there", || daemon.send("GET", "/healthz", "", "").0 == 200);
        assert_eq!(text(&daemon.ask("GET", &format!("/v1/drills/{id}")).1, "/phase"), "fault", "the drill was too short to be disturbed");
        // A slow body is refused by name.
        let mut answer = String::new();
        slow[1].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        slow[1].read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("slow-body"), "{answer}");
        let drill = daemon.ended(&id);
        assert_eq!((text(&drill, "/state"), text(&drill, "/verdict")), ("finished", "pass"), "{drill:#}");
        assert_eq!(count(&drill, "/result/data_quality/events_lost"), 0);
        assert_eq!(daemon.stop().code, Some(0));
    });
}

#[test]
fn who_finds_no_place_is_told_so_and_a_limit_that_cannot_be_kept_is_none() {
    in_namespace(|| {
        let agent = Agent::new();
        let daemon = Daemon::start(&agent, "limits: {connections: 8, requests: 100000}\n");
        let held: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(&daemon.address).unwrap()).collect();
        let (status, problem) = daemon.ask("GET", "/v1/drills");
        assert_eq!((status, text(&problem, "/type")), (503, "urn:stormdrill:problem:busy"));
        assert_eq!(agent.run(&["status"]).code, Some(0), "the socket has places of its own");
        drop(held);
        wait_until("there is a place again", || daemon.send("GET", "/healthz", "", "").0 == 200);
        daemon.stop();

        let mut command = Command::new("prlimit");
        let config = agent.path("serve.yaml");
        fs::write(&config, "limits: {connections: 5000}\n").unwrap();
        command.args(["--nofile=4096:4096", PROGRAM, "--state-dir"]).arg(agent.state_dir()).args(["serve", "--config"]).arg(&config);
        let ended = Process::start(&mut command).end();
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.stderr.contains("5768 descriptors"), "{ended:#?}");
    });
}
