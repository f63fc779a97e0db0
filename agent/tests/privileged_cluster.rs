//! Daemons of two hosts and a real etcd: playbooks for both, and no target disturbed by both.
//! Run as root: `cargo xtask test --only privileged_cluster`. Needs Debian's packages etcd-server and etcd-client.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::net::TcpListener;
use std::process::Command;

use lab::{in_namespace, run, wait_until};
use nix::sys::signal::Signal;
use rig::agent::Agent;
use rig::daemon::Daemon;
use rig::json::text;
use rig::process::Process;

/// An address that is no host's loopback.
const SHARED: &str = "10.77.0.1";

struct Etcd {
    url: String,
    process: Process,
}

impl Etcd {
    fn start(agent: &Agent) -> Self {
        // The ports are free once the listeners are dropped, and nobody else is in the namespace to take them.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let [url, peer] = [free(), free()].map(|listener| format!("http://{}", listener.local_addr().unwrap()));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(agent.path("etcd")).args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        let etcd = Self { url, process: Process::start(&mut command) };
        wait_until("etcd answers", || etcd.control(&["endpoint", "health"]).0);
        etcd
    }

    fn control(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new("etcdctl").env("ETCDCTL_API", "3").args(["--endpoints", &self.url]).args(arguments).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    fn config(&self) -> String {
        // The first one does not answer.
        format!("etcd: {{endpoints: [\"http://127.0.0.1:1\", \"{}\"], prefix: /test}}\n", self.url)
    }
}

/// A drill that disturbs a port of the shared address until somebody ends it.
fn playbook(name: &str, port: u16) -> String {
    format!(
        "version: 1\nname: {name}\nobserve: {{downstream: {{store: {{address: {SHARED}, port: {port}}}}}, window: 500ms}}\n\
         phases: {{baseline: 1s, fault: 300s, recovery: 1s}}\nfaults: [{{http_status: {{status: 503, share: 50%}}, to: store}}]\n"
    )
}

#[test]
fn two_hosts_find_the_same_playbooks_and_do_not_disturb_the_same_target() {
    in_namespace(|| {
        run("ip", &["address", "add", &format!("{SHARED}/32"), "dev", "lo"]);
        let agents = [Agent::new(), Agent::new()];
        let etcd = Etcd::start(&agents[0]);
        let one = Daemon::start(&agents[0], &etcd.config());
        let other = Daemon::start_on_host(&agents[1], "other-host", &etcd.config());
        assert!(etcd.control(&["put", "/test/playbooks/shared", &playbook("shared", 80)]).0);
        assert!(etcd.control(&["put", "/test/playbooks/broken", "version: 1"]).0);
        for daemon in [&one, &other] {
            let (_, list) = daemon.ask("GET", "/v1/playbooks");
            assert_eq!(list["playbooks"][1], serde_json::json!({ "name": "shared", "valid": true, "description": null }), "{list:#}");
            assert_eq!(list["playbooks"][0]["valid"], false);
        }

        let named = |daemon: &Daemon| {
            let (status, body) = daemon.send("POST", "/v1/drills", "Content-Type: application/json\r\n", r#"{"name": "shared"}"#);
            (status, serde_json::from_str::<serde_json::Value>(&body).unwrap())
        };
        let (status, drill) = named(&one);
        assert_eq!(status, 201, "{drill:#}");
        let id = text(&drill, "/id");
        let (status, refusal) = other.start_drill(&playbook("shared", 80));
        assert_eq!((status, text(&refusal, "/drill")), (409, id));
        assert_ne!(text(&refusal, "/host"), "other-host");
        let elsewhere = other.drill(&playbook("another", 81));
        assert_eq!(one.start_drill(&playbook("another", 81)).1["host"], "other-host");
        assert_eq!(one.start_drill(&playbook("shared", 80)).1["drill"], id, "its own is found by itself");

        one.ask("DELETE", &format!("/v1/drills/{id}"));
        wait_until("the claim is given back", || other.start_drill(&playbook("shared", 80)).0 == 201);
        other.kill();
        wait_until("a dead host's claim ends", || named(&one).0 == 201);
        assert!(!etcd.control(&["get", "--prefix", "/test/drills/"]).1.contains(&elsewhere));

        // Without etcd nobody can tell: what runs ends, and nothing begins.
        let (_, list) = one.ask("GET", "/v1/drills");
        let id = text(&list, "/drills/0/id").to_owned();
        etcd.process.signal(Signal::SIGKILL);
        let drill = one.ended(&id);
        assert_eq!(text(&drill, "/state"), "aborted");
        assert!(text(&drill, "/reason").contains("claim in etcd was lost"), "{drill:#}");
        assert_eq!(one.start_drill(&playbook("shared", 80)).0, 503);
        // What no other host can reach needs nobody's leave.
        let own = one.drill(&playbook("own", 80).replace(SHARED, "127.0.0.1"));
        one.ask("DELETE", &format!("/v1/drills/{own}"));
        one.stop();
    });
}
