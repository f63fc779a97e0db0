//! The real daemon with real drills against the real lab: through HTTP, through the socket, and across its own death.
//! Run as root: `cargo xtask test --only privileged_serve`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use lab::{dump, in_namespace, wait_until};
use nix::sys::signal::Signal;
use rig::agent::{Agent, journals};
use rig::client::ask;
use rig::daemon::Daemon;
use rig::json::{count, keys, text};
use rig::nobody::Nobody;
use rig::playbook::Playbook;
use rig::process::{Ended, Process};
use rig::services::{Load, Service};
use serde_json::Value;
use stormdrill::cgroup::find_or_mount;

/// A store, one layer before it that does not retry, and a place for the daemon.
struct Scene {
    store: Service,
    chain: Service,
    agent: Agent,
}

impl Scene {
    fn new() -> Self {
        let store = Service::store(&[]);
        let chain = Service::chain(1, &store.address, &["--tries", "1", "--timeout", "10s"]);
        Self { store, chain, agent: Agent::new() }
    }

    /// A drill whose fault turns every answer of the store into 503, for as long as nobody ends it.
    fn endless(&self) -> String {
        Playbook::new(&self.chain, &self.store).phases(1, 300, 1).fault("{http_status: {status: 503, share: 100%}, to: store}").text()
    }
}

#[test]
fn a_drill_is_started_watched_and_aborted_with_http_alone() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new();
        let daemon = Daemon::start(&scene.agent, "");
        let id = daemon.drill(&scene.endless());
        daemon.wait_for_phase(&id, "fault");
        assert_eq!(ask(&scene.store.address), Some(503));
        assert_eq!(daemon.metric(&format!("stormdrill_drill_phase{{drill=\"{id}\",phase=\"fault\"}}")), Some(1.0));
        let (status, problem) = daemon.start_drill(&scene.endless());
        assert_eq!((status, text(&problem, "/drill")), (409, id.as_str()));

        let (status, drill) = daemon.ask("DELETE", &format!("/v1/drills/{id}"));
        // It answers when the fault is gone, not before.
        assert_eq!(ask(&scene.store.address), Some(200));
        assert_eq!(dump(), before);
        assert_eq!((status, text(&drill, "/state")), (200, "aborted"));
        assert_eq!(count(&drill, "/result/faults/0/packets_hit"), 1);
        assert_eq!(daemon.metric(&format!("stormdrill_drill_verdict{{drill=\"{id}\",verdict=\"aborted\"}}")), Some(1.0));
        assert_eq!(daemon.metric(&format!("stormdrill_drill_phase{{drill=\"{id}\",phase=\"fault\"}}")), None);
        assert!(scene.agent.has_no_journal());
        assert_eq!(daemon.stop().code, Some(0));
    });
}

#[test]
fn the_metrics_of_a_drill_agree_with_its_result() {
    in_namespace(|| {
        let scene = Scene::new();
        let _load = Load::start(&scene.chain.address, &["--rate", "100/s", "--duration", "300s", "--timeout", "2s"]);
        let daemon = Daemon::start(&scene.agent, "");
        let playbook = Playbook::new(&scene.chain, &scene.store).fault("{http_status: {status: 503, share: 50%}, to: store}");
        let id = daemon.drill(&playbook.expect("downstream QPS increase ≤ 20%").text());
        let drill = daemon.ended(&id);
        // Which verdict it is depends on how busy the host is: what counts here is that all say the same.
        assert_eq!(text(&drill, "/state"), "finished", "{drill:#}");
        let verdict = text(&drill, "/verdict");
        assert_eq!(verdict, text(&drill, "/result/verdict"));
        let in_result = |path: &str| -> u64 {
            let windows = drill.pointer("/result/windows").and_then(Value::as_array).unwrap();
            windows
                .iter()
                .map(|window| count(window["edges"].as_array().unwrap().iter().find(|edge| edge["name"] == "store").unwrap(), path))
                .sum()
        };
        let requests = r#"stormdrill_requests_total{edge="store",protocol="http",role="downstream"}"#;
        assert_eq!(daemon.metric(requests), Some(in_result("/requests") as f64));
        assert_eq!(
            daemon.metric(r#"stormdrill_fault_packets_total{fault="http_status",outcome="hit"}"#),
            Some(count(&drill, "/result/faults/0/packets_hit") as f64)
        );
        assert_eq!(daemon.metric(&format!("stormdrill_drill_verdict{{drill=\"{id}\",verdict=\"{verdict}\"}}")), Some(1.0));
        assert_eq!(daemon.metric(r#"stormdrill_connections{edge="store",role="downstream"}"#), None, "nobody observes it any more");
        daemon.stop();
    });
}

#[test]
fn edges_of_the_configuration_are_counted_without_a_drill() {
    in_namespace(|| {
        let scene = Scene::new();
        let observe = format!("observe: {{ingress: {{web: {{port: {}}}}}, window: 200ms}}\n", scene.chain.port());
        let daemon = Daemon::start(&scene.agent, &observe);
        assert_eq!(daemon.metric(r#"stormdrill_probe_attached{hook="ingress"}"#), Some(1.0));
        Load::requests(&scene.chain.address, 50);
        let is = |series: &str| daemon.metric(series) == Some(50.0);
        wait_until("the requests are counted", || is(r#"stormdrill_requests_total{edge="web",protocol="http",role="ingress"}"#));
        wait_until("the answers are counted", || {
            is(r#"stormdrill_responses_total{class="2xx",edge="web",protocol="http",role="ingress"}"#)
        });
        wait_until("the times are there", || is(r#"stormdrill_request_duration_seconds_count{edge="web",protocol="http",role="ingress"}"#));
        let (_, edges) = daemon.ask("GET", "/v1/edges");
        assert_eq!(text(&edges, "/edges/0/window/name"), "web");
        assert_eq!(daemon.send("GET", "/readyz", "", "").0, 200);
        assert_eq!(daemon.stop().code, Some(0));
    });
}

#[test]
fn hooks_that_the_kernel_let_go_of_are_noticed() {
    in_namespace(|| {
        let scene = Scene::new();
        let name = format!("stormdrill-test-{}", std::process::id());
        let cgroup = find_or_mount(&scene.agent.state_dir()).unwrap().join(&name);
        fs::create_dir(&cgroup).unwrap();
        let config = format!("observe: {{ingress: {{web: {{port: 80}}}}, scope: {{cgroup: {name}}}, window: 200ms}}\n");
        let daemon = Daemon::start(&scene.agent, &config);
        let hooks = ["ingress", "egress", "sock_ops"].map(|hook| format!("stormdrill_probe_attached{{hook=\"{hook}\"}}"));
        wait_until("all hooks are in place", || hooks.iter().all(|hook| daemon.metric(hook) == Some(1.0)));
        assert_eq!(daemon.send("GET", "/readyz", "", "").0, 200);
        // A cgroup that is removed takes along what hangs on it, as happens when a service's unit is stopped.
        fs::remove_dir(&cgroup).unwrap();
        wait_until("it is noticed", || hooks.iter().all(|hook| daemon.metric(hook) == Some(0.0)));
        let (status, problem) = daemon.ask("GET", "/readyz");
        assert_eq!((status, text(&problem, "/detail")), (503, "a hook of the constant observation is no longer in place"));
        let ended = daemon.stop();
        assert!(ended.stderr.contains("let go of a hook"), "{ended:#?}");
    });
}

#[test]
fn a_killed_daemons_drill_is_aborted_after_the_restart_with_nothing_left_in_the_kernel() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new();
        let daemon = Daemon::start(&scene.agent, "");
        let id = daemon.drill(&scene.endless());
        daemon.wait_for_phase(&id, "fault");
        assert_eq!(ask(&scene.store.address), Some(503));
        let begin = Instant::now();
        daemon.kill();
        wait_until("the store's own answers are back", || ask(&scene.store.address) == Some(200));
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
        assert_eq!(journals(&scene.agent.state_dir()).len(), 1);

        let daemon = Daemon::start(&scene.agent, "");
        assert_eq!(dump(), before);
        assert!(scene.agent.has_no_journal());
        let (_, drill) = daemon.ask("GET", &format!("/v1/drills/{id}"));
        assert_eq!((text(&drill, "/state"), &drill["result"]), ("aborted", &Value::Null));
        let next = daemon.drill(&scene.endless());
        daemon.wait_for_phase(&next, "fault");
        assert_eq!(daemon.ask("DELETE", &format!("/v1/drills/{next}")).0, 200);
        assert_eq!(dump(), before);
        daemon.stop();
    });
}

#[test]
fn a_second_daemon_on_the_same_state_directory_is_refused_and_leaves_the_firsts_drill_alone() {
    in_namespace(|| {
        let scene = Scene::new();
        let daemon = Daemon::start(&scene.agent, "");
        let id = daemon.drill(&scene.endless());
        daemon.wait_for_phase(&id, "fault");
        let config = scene.agent.path("second.yaml");
        let (kept, socket) = (scene.agent.path("kept"), scene.agent.path("second.sock"));
        fs::write(&config, format!("listen: 127.0.0.1:0\nstate_dir: {}\nsocket: {}\n", kept.display(), socket.display())).unwrap();
        let second = scene.agent.run(&["serve", "--config", config.to_str().unwrap()]);
        assert_eq!(second.code, Some(2), "{second:#?}");
        assert!(second.stderr.contains("another daemon keeps its drills there"), "{second:#?}");
        let record = fs::read_to_string(kept.join(format!("drills/{id}.json"))).unwrap();
        assert!(record.contains("\"running\""), "{record}");
        assert_eq!(ask(&scene.store.address), Some(503));
        daemon.stop();
    });
}

#[test]
fn a_daemon_that_is_stopped_takes_its_faults_along() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new();
        let daemon = Daemon::start(&scene.agent, "");
        let id = daemon.drill(&scene.endless());
        daemon.wait_for_phase(&id, "fault");
        let ended = daemon.stop();
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(ask(&scene.store.address), Some(200));
        assert_eq!(dump(), before);
        assert!(scene.agent.has_no_journal() && !scene.agent.state_dir().join("api.sock").exists());
        let daemon = Daemon::start(&scene.agent, "");
        let (_, drill) = daemon.ask("GET", &format!("/v1/drills/{id}"));
        assert_eq!((text(&drill, "/state"), text(&drill, "/reason")), ("aborted", "the daemon is stopping"));
        daemon.stop();
    });
}

#[test]
fn the_command_line_lists_and_aborts_drills_through_the_socket() {
    in_namespace(|| {
        let scene = Scene::new();
        let missing = scene.agent.run(&["status"]);
        assert_eq!(missing.code, Some(2), "{missing:#?}");
        assert!(missing.stderr.contains("is `stormdrill serve` running?"), "{missing:#?}");

        let daemon = Daemon::start(&scene.agent, "");
        let id = daemon.drill(&scene.endless());
        daemon.wait_for_phase(&id, "fault");
        let status = scene.agent.run(&["status"]);
        assert!(status.stdout.starts_with(&id) && status.stdout.contains("running (fault)"), "{status:#?}");
        let socket = scene.agent.state_dir().join("api.sock");
        let other = Process::start(&mut Nobody::new().command(&["abort", &id, "--socket", socket.to_str().unwrap()])).end();
        assert_eq!(other.code, Some(2), "others must not end drills: {other:#?}");
        assert_eq!(ask(&scene.store.address), Some(503));
        let abort = scene.agent.run(&["abort", &id]);
        assert_eq!(abort.code, Some(0), "{abort:#?}");
        assert!(abort.stdout.contains("aborted"), "{abort:#?}");
        assert_eq!(ask(&scene.store.address), Some(200));
        assert_eq!(scene.agent.run(&["abort", "0123456789abcdef"]).code, Some(64));

        let second = scene.agent.run(&["serve", "--config", scene.agent.path("serve.yaml").to_str().unwrap()]);
        assert_eq!(second.code, Some(2), "a second daemon on the same socket: {second:#?}");
        assert_eq!(daemon.ask("GET", "/v1/drills").0, 200);
        daemon.stop();
    });
}

#[test]
fn a_drill_that_the_daemon_carries_out_looks_like_one_that_ran_here() {
    in_namespace(|| {
        let scene = Scene::new();
        let _load = Load::start(&scene.chain.address, &["--rate", "100/s", "--duration", "300s", "--timeout", "2s"]);
        let daemon = Daemon::start(&scene.agent, "");
        let playbook = Playbook::new(&scene.chain, &scene.store).expect("store downstream QPS <= 500").text();
        let drill =
            scene.agent.drill_with(&playbook, &["--remote", "--set", "phases.fault=3s", "--report", report(&scene).to_str().unwrap()]);
        let result = drill.end();
        assert_eq!(result.ended.code, Some(0), "{:#?}", result.ended);
        let (remote, local) = (result.json, scene.agent.drill(&playbook).end());
        assert_eq!(keys(&remote, ""), keys(&local.json, ""));
        let fault = &remote["phases"].as_array().unwrap()[1];
        let seconds = (count(fault, "/end_ns") - count(fault, "/start_ns")) / 1_000_000_000;
        assert_eq!(seconds, 3, "the override was passed on");
        assert!(fs::read_dir(report(&scene)).unwrap().count() == 5);
        // Numbers differ from one drill to the next; what is said, and in which order, does not.
        let words = |text: &str| -> Vec<String> {
            // What was missed depends on how busy the host is.
            let text = text.split("not seen:").next().unwrap();
            let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_alphabetic() || c == ':');
            let mut all: Vec<String> = text.split_whitespace().filter(is_word).map(str::to_owned).collect();
            all.dedup();
            all
        };
        let heads = |ended: &Ended| -> Vec<String> {
            ended.stderr.lines().filter(|line| !line.starts_with([' ', 'd'])).map(|line| words(line).join(" ")).collect()
        };
        assert_eq!(heads(&result.ended), heads(&local.ended));
        assert_eq!(words(&result.ended.stdout), words(&local.ended.stdout));
        daemon.stop();
    });
}

fn report(scene: &Scene) -> PathBuf {
    scene.agent.path("reports")
}

#[test]
fn a_signal_ends_a_drill_on_the_daemon_and_is_waited_for() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new();
        let token = scene.agent.path("token");
        fs::write(&token, "a-token-of-the-test\n").unwrap();
        let daemon = Daemon::start(&scene.agent, &format!("token_file: {}\n", token.display()));
        let url = format!("http://{}", daemon.address);
        let refused = scene.agent.drill_with(&scene.endless(), &["--remote", &url]).end_without_result();
        assert_eq!(refused.code, Some(2));
        assert!(refused.stderr.contains("Authorization"), "{refused:#?}");

        let mut drill = scene.agent.drill_with(&scene.endless(), &["--remote", &url, "--token-file", token.to_str().unwrap()]);
        drill.wait_for_phase("fault");
        wait_until("the fault is there", || ask(&scene.store.address) == Some(503));
        let second = scene.agent.share();
        let second = Process::start(second.command(&["run", "--remote"]).arg(scene.agent.path("playbook.yaml"))).end();
        assert_eq!(second.code, Some(64), "the playbook was taken for the URL: {second:#?}");
        let second = Process::start(scene.agent.command(&["run"]).arg(scene.agent.path("playbook.yaml")).arg("--remote")).end();
        assert_eq!(second.code, Some(2), "{second:#?}");
        assert!(second.stderr.contains("overlapping target"), "{second:#?}");
        drill.signal(Signal::SIGINT);
        let result = drill.end();
        assert_eq!(ask(&scene.store.address), Some(200));
        assert_eq!((result.ended.code, text(&result.json, "/drill/aborted")), (Some(4), "aborted through the API"), "{:#?}", result.ended);
        assert_eq!(dump(), before);
        daemon.stop();
    });
}

#[test]
fn a_daemon_that_dies_and_comes_back_is_found_again_by_who_watches_its_drill() {
    in_namespace(|| {
        let scene = Scene::new();
        let daemon = Daemon::start(&scene.agent, "");
        let mut drill = scene.agent.drill_with(&scene.endless(), &["--remote"]);
        drill.wait_for_phase("fault");
        daemon.kill();
        let daemon = Daemon::start(&scene.agent, "");
        let ended = drill.end_without_result();
        assert_eq!(ended.code, Some(4), "{ended:#?}");
        daemon.stop();
    });
}

#[test]
fn a_new_configuration_is_taken_over_while_the_daemon_runs_or_refused_as_a_whole() {
    in_namespace(|| {
        let scene = Scene::new();
        let mut daemon = Daemon::start(&scene.agent, "");
        let observe = format!("observe: {{ingress: {{web: {{port: {}}}}}, window: 200ms}}\n", scene.chain.port());
        daemon.reload(&scene.agent, &observe, "reloaded");
        Load::requests(&scene.chain.address, 20);
        let requests = r#"stormdrill_requests_total{edge="web",protocol="http",role="ingress"}"#;
        wait_until("the new edge is counted", || daemon.metric(requests) == Some(20.0));

        let id = daemon.drill(&scene.endless());
        daemon.wait_for_phase(&id, "fault");
        let refused = daemon.reload(&scene.agent, "", "ERROR");
        assert!(refused.contains("cannot change while a drill runs"), "{refused}");
        let refused = daemon.reload(&scene.agent, "socket: /elsewhere\n", "ERROR");
        assert!(refused.contains("`socket` changes with a restart only"), "{refused}");
        daemon.reload(&scene.agent, "retantion: 1\n", "ERROR");
        // Nothing of it was taken over, and the drill goes on.
        assert_eq!(ask(&scene.store.address), Some(503));
        assert_eq!(text(&daemon.ask("GET", "/v1/edges").1, "/edges/0/name"), "web");
        daemon.ask("DELETE", &format!("/v1/drills/{id}"));
        daemon.reload(&scene.agent, "retention: 5\n", "reloaded");
        assert_eq!(daemon.metric(r#"stormdrill_probe_attached{hook="egress"}"#), Some(0.0));
        assert_eq!(daemon.metric(r#"stormdrill_connections{edge="web",role="ingress"}"#), None);
        assert_eq!(daemon.stop().code, Some(0));
    });
}

#[test]
fn systemd_is_told_when_the_daemon_is_ready_and_when_it_stops() {
    in_namespace(|| {
        let scene = Scene::new();
        let path = scene.agent.path("notify.sock");
        let systemd = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        systemd.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let hear = || {
            let mut said = [0; 64];
            let length = systemd.recv(&mut said).unwrap();
            String::from_utf8(said[..length].to_vec()).unwrap()
        };
        let daemon = Daemon::start_under(&scene.agent, &path);
        assert_eq!([hear(), hear()], ["READY=1\n", "WATCHDOG=1\n"]);
        daemon.stop();
        assert_eq!(hear(), "STOPPING=1\n");
    });
}
