//! Counts of the real program under real traffic, against what the services counted themselves. Run as root:
//! `cargo xtask test --only privileged_observe`. With `STORMDRILL_LONG=1` nginx is under full load for 20 seconds instead of 5.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::process::Command;

use lab::{Client, in_namespace};
use rig::agent::Agent;
use rig::json::{assert_keys, count, keys, phase};
use rig::nginx::Nginx;
use rig::services::{Load, Service};
use serde_json::{Value, json};

/// A store that fails at a rate, behind so many layers of three tries, and both of its edges.
struct Row {
    layers: u16,
    store: Service,
    chain: Option<Service>,
}

impl Row {
    fn start(layers: u16, fail: &str) -> Self {
        let store = Service::store(&["--fail", fail]);
        let chain = (layers > 0).then(|| Service::chain(layers, &store.address, &["--tries", "3", "--timeout", "60s"]));
        Self { layers, store, chain }
    }

    fn entry(&self) -> &str {
        &self.chain.as_ref().unwrap_or(&self.store).address
    }

    fn stop(self) -> Value {
        drop(self.chain);
        self.store.stop()
    }
}

/// Sends requests through each row under one observation, and gives the observation and each store's own counts.
fn observe(rows: Vec<(String, Row)>, requests: u32) -> (Value, Vec<Value>) {
    let agent = Agent::new();
    let ingress: Vec<String> = rows.iter().map(|(name, row)| format!("store-{name}=:{}", row.store.port())).collect();
    let downstream: Vec<String> = rows.iter().map(|(name, row)| format!("calls-{name}={}", row.store.address)).collect();
    let observation = agent.observe(&ingress, &downstream);
    for (_, row) in &rows {
        let load = Load::requests(row.entry(), requests);
        assert_eq!(count(&load, "/sent"), u64::from(requests), "{load:#}");
    }
    let result = observation.end();
    (result, rows.into_iter().map(|(_, row)| row.stop()).collect())
}

#[test]
fn layers_of_three_tries_multiply_twenty_requests_exactly() {
    in_namespace(|| {
        let rows = (0..=4).map(|layers| (layers.to_string(), Row::start(layers, "100%"))).collect::<Vec<_>>();
        assert!(rows.iter().all(|(name, row)| *name == row.layers.to_string()));
        let (result, stores) = observe(rows, 20);
        assert_contract(&result);
        for ((layers, store), expected) in stores.iter().enumerate().zip([20, 60, 180, 540, 1620]) {
            assert_eq!(count(store, "/requests"), expected, "the store's own count behind {layers} layers");
            for edge in [format!("store-{layers}"), format!("calls-{layers}")] {
                let all = phase(&result, &edge, "all");
                assert_eq!(count(all, "/requests"), expected, "{edge}: {all:#}");
                assert_eq!(count(all, "/responses"), expected, "{edge}: {all:#}");
                assert_eq!(all["status"], json!({"503": expected}), "{edge}");
                assert_eq!(all["retries"], json!({"marker": 0, "id": expected - 20, "matched": 0}), "{edge}");
                assert_eq!(count(all, "/failures/status"), expected, "{edge}");
            }
            assert_eq!(count(store, "/repeats"), expected - 20);
        }
        let quality = &result["data_quality"];
        assert_eq!(quality["sampling"], 1.0);
        for missed in keys(&result, "/data_quality").into_iter().filter(|key| *key != "sampling") {
            assert_eq!(quality[missed], 0, "{missed} in {quality:#}");
        }
    });
}

/// Checks the keys of an observation against its contract.
fn assert_contract(result: &Value) {
    assert_keys(result, "", "schema edges data_quality");
    assert_keys(result, "/data_quality", "events_lost sampling unknown_role_connections unparsed_connections");
    for (index, edge) in result["edges"].as_array().unwrap().iter().enumerate() {
        assert_keys(edge, "", "name role protocol phases");
        assert_eq!(edge["role"], if index < result["edges"].as_array().unwrap().len() / 2 { "ingress" } else { "downstream" });
        assert_eq!(keys(edge, "/phases"), ["all"]);
        assert_keys(
            edge,
            "/phases/all",
            "requests qps responses retries retry_ratio status failures latency_ms connections connections_opened tcp_retransmits",
        );
        assert_keys(edge, "/phases/all/retries", "marker id matched");
        assert_keys(edge, "/phases/all/latency_ms", "p50 p99");
    }
}

/// Mean and standard deviation of the calls that one request makes, when each fails with probability `p` and up to `tries` are made.
fn calls(p: f64, tries: i32) -> (f64, f64) {
    let mean = (1.0 - p.powi(tries)) / (1.0 - p);
    let square: f64 = (1..=tries).map(|k| f64::from(2 * k - 1) * p.powi(k - 1)).sum();
    (mean, (square - mean * mean).sqrt())
}

#[test]
fn the_expected_calls_are_those_of_the_formula() {
    let (mean, deviation) = calls(0.5, 2);
    // One call or two, half of the time each.
    assert!((mean - 1.5).abs() < 1e-12 && (deviation - 0.5).abs() < 1e-12, "{mean} {deviation}");
}

#[test]
fn chance_failures_multiply_as_the_formula_says() {
    in_namespace(|| {
        let shares = [10_u32, 30, 50, 90];
        let rows = shares.iter().map(|percent| (percent.to_string(), Row::start(3, &format!("{percent}%")))).collect();
        let (result, stores) = observe(rows, 600);
        for (store, percent) in stores.iter().zip(shares) {
            let requests = count(store, "/requests");
            for edge in [format!("store-{percent}"), format!("calls-{percent}")] {
                let all = phase(&result, &edge, "all");
                assert_eq!(count(all, "/requests"), requests, "{edge}");
                assert_eq!(count(all, "/status/503"), count(store, "/responses/503"), "{edge}");
                assert_eq!(count(all, "/status/200"), count(store, "/responses/200"), "{edge}");
                assert_eq!(all["retries"], json!({"marker": 0, "id": requests - 600, "matched": 0}), "{edge}");
            }
            let (mean, deviation) = calls(f64::from(percent) / 100.0, 27);
            let off = f64::from(u32::try_from(requests).unwrap()) - 600.0 * mean;
            assert!(off.abs() <= 3.0 * deviation * 600_f64.sqrt(), "{requests} requests at {percent}%, but {:.0} expected", 600.0 * mean);
        }
    });
}

/// Seconds of full load.
fn seconds() -> u32 {
    if std::env::var("STORMDRILL_LONG").is_ok_and(|value| value == "1") { 20 } else { 5 }
}

/// Checks both edges of the gateway against what the two nginx count, from one of their own counts to another.
fn assert_counted(result: &Value, gateway: u64, backend: u64, least: u64) {
    assert!(gateway > least && backend > least, "hardly any load: {gateway} and {backend} requests");
    let web = phase(result, "web", "all");
    let calls = phase(result, "backend", "all");
    assert_eq!(count(web, "/requests"), gateway, "requests at the gateway: {result:#}");
    assert_eq!(count(calls, "/requests"), backend, "requests to the backend: {result:#}");
}

fn observe_gateway(agent: &Agent, gateway: &Nginx, backend: &Nginx) -> rig::agent::Observation {
    agent.observe(&[format!("web=:{}", gateway.port)], &[format!("backend={}", backend.address())])
}

#[test]
fn a_gateway_under_full_load_is_counted_to_the_last_request() {
    in_namespace(|| {
        let (agent, backend) = (Agent::new(), Nginx::backend());
        let gateway = Nginx::gateway(&backend);
        let observation = observe_gateway(&agent, &gateway, &backend);
        let output = Command::new("wrk")
            .args(["-t2", "-c32", &format!("-d{}s", seconds()), &format!("http://{}/", gateway.address())])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // What wrk had under way when its time was up, nginx still serves.
        lab::wait_until("the gateway is at rest", || gateway.connections() == 0);
        let result = observation.end();
        assert_counted(&result, gateway.requests(), backend.requests(), u64::from(seconds()) * 500);
    });
}

#[test]
fn connections_that_were_open_before_are_counted_from_the_first_request_after() {
    in_namespace(|| {
        let (agent, backend) = (Agent::new(), Nginx::backend());
        let gateway = Nginx::gateway(&backend);
        let mut clients: Vec<Client> = (0..16).map(|_| Client::connect(&gateway.address())).collect();
        for client in &mut clients {
            assert_eq!(client.count("/", 3, 200), 3);
        }
        let (web_before, calls_before) = (gateway.requests(), backend.requests());
        assert_eq!((web_before, calls_before), (48, 48), "nginx's own count");

        let observation = observe_gateway(&agent, &gateway, &backend);
        let answered: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = clients.into_iter().map(|mut client| scope.spawn(move || client.count("/", 2000, 200))).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        let result = observation.end();
        let (web, calls) = (gateway.requests() - web_before, backend.requests() - calls_before);
        assert_eq!((web, calls), (answered, answered), "nginx's own count");
        assert_counted(&result, web, calls, 16 * 1999);
        assert_eq!(count(&result, "/data_quality/unknown_role_connections"), 0);
        assert_eq!(count(phase(&result, "web", "all"), "/connections_opened"), 0, "no connection was new");
    });
}
