//! A real Prometheus scrapes a real daemon during a real drill: every query of every dashboard has data, every rule works, and the numbers are
//! those of the drill's result. Run as root: `cargo xtask test --only privileged_dashboards`. Needs Debian's package prometheus.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use lab::{in_namespace, wait_until};
use rig::agent::Agent;
use rig::daemon::Daemon;
use rig::json::{count, text};
use rig::playbook::Playbook;
use rig::process::Process;
use rig::services::{Load, Service};
use serde_json::Value;

/// A Prometheus of the test's own.
struct Prometheus {
    address: String,
    _process: Process,
}

impl Prometheus {
    fn start(agent: &Agent, target: &str) -> Self {
        let dashboards = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards").canonicalize().unwrap();
        let config = agent.path("prometheus.yaml");
        fs::write(
            &config,
            format!(
                "global: {{scrape_interval: 500ms, evaluation_interval: 1s}}\nrule_files: [{}]\n\
                 scrape_configs: [{{job_name: stormdrill, static_configs: [{{targets: ['{target}']}}]}}]\n",
                dashboards.join("rules.yaml").display()
            ),
        )
        .unwrap();
        // The port is free once the listener is dropped, and nobody else is in the namespace to take it.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", agent.path("tsdb").display()));
        command.arg(format!("--web.listen-address={address}"));
        let process = Process::start(&mut command);
        wait_until("Prometheus is ready", || get(&address, "/-/ready").is_some_and(|(status, _)| status == 200));
        Self { address, _process: process }
    }

    fn api(&self, path: &str) -> Value {
        let (status, body) = get(&self.address, path).unwrap();
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"));
        assert_eq!((status, &answer["status"]), (200, &Value::from("success")), "{path}: {body}");
        answer["data"].clone()
    }

    /// Whether a query has data within the last two minutes.
    fn has_data(&self, query: &str) -> bool {
        let now = self.api("/api/v1/query?query=time()");
        let now: f64 = now["result"][0].as_f64().unwrap();
        let data = self.api(&format!("/api/v1/query_range?start={}&end={now}&step=1&query={}", now - 120.0, encoded(query)));
        data["result"].as_array().is_some_and(|series| !series.is_empty())
    }

    /// The one value of a query; `None` without one.
    fn value(&self, query: &str) -> Option<f64> {
        self.api(&format!("/api/v1/query?query={}", encoded(query))).pointer("/result/0/value/1")?.as_str()?.parse().ok()
    }
}

fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    // 1.0: the answer comes in one piece.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.get(9..12)?.parse().ok()?, body.to_owned()))
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The queries of a dashboard, its variables filled in with everything.
fn queries(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let notes = dashboard["annotations"]["list"].as_array().unwrap().iter();
    let filled = |query: &Value| {
        let query = query["expr"].as_str().unwrap();
        query.replace("$instance", ".*").replace("$edge", ".*").replace("$__rate_interval", "5s")
    };
    panels.chain(notes).map(filled).collect()
}

#[test]
fn every_panel_has_data_in_a_drill_and_the_numbers_are_those_of_its_result() {
    in_namespace(|| {
        let agent = Agent::new();
        let store = Service::store(&[]);
        let chain = Service::chain(1, &store.address, &["--tries", "100", "--timeout", "10s"]);
        let _load = Load::start(&chain.address, &["--rate", "50/s", "--duration", "600s", "--timeout", "2s"]);
        let (host, port) = store.address.rsplit_once(':').unwrap();
        let daemon = Daemon::start(
            &agent,
            &format!(
                "observe: {{ingress: {{web: {{port: {}}}}}, downstream: {{store: {{address: {host}, port: {port}}}}}, window: 500ms}}\n",
                chain.port()
            ),
        );
        let prometheus = Prometheus::start(&agent, &daemon.address);
        let playbook = Playbook::new(&chain, &store).phases(4, 6, 4).fault("{http_status: {status: 503, share: 30%}, to: store}");
        let id = daemon.drill(&playbook.expect("downstream QPS increase ≤ 20%").text());
        let drill = daemon.ended(&id);
        assert_eq!(text(&drill, "/state"), "finished", "{drill:#}");

        for name in ["drill", "edges", "agent"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../dashboards/{name}.json"));
            let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
            for query in queries(&dashboard) {
                wait_until(&format!("{name}: {query} has data"), || prometheus.has_data(&query));
            }
        }
        let rules = prometheus.api("/api/v1/rules");
        for rule in rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()) {
            assert_eq!(rule["health"], "ok", "{rule:#}");
            if rule["type"] == "recording" {
                let name = text(rule, "/name");
                wait_until(&format!("{name} has data"), || prometheus.has_data(name));
            }
        }

        let hits = count(&drill, "/result/faults/0/packets_hit");
        assert!(hits > 0);
        let is = |query: &str, expected: u64| prometheus.value(query) == Some(expected as f64);
        wait_until("hits agree", || is(r#"stormdrill_fault_packets_total{fault="http_status",outcome="hit"}"#, hits));
        // Each answer that was spoiled made the layer ask once more, and nothing else did.
        wait_until("retries agree", || is(r#"sum(stormdrill_retries_total{edge="store"})"#, hits));
        let verdict = format!("stormdrill_drill_verdict{{drill=\"{id}\",verdict=\"{}\"}}", text(&drill, "/verdict"));
        wait_until("the verdict agrees", || is(&verdict, 1));
        daemon.stop();
    });
}
