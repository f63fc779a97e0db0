//! The lab's counts against each other, over real sockets: what a caller says it sent is what the callee says it got.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use stormdrill_lab::chain::{ChainConfig, Deadlines, RetryLayers};
use stormdrill_lab::load::{self, LoadConfig, LoadReport};
use stormdrill_lab::policy::Marker;
use stormdrill_lab::policy::budget::{BudgetLimits, Counting};
use stormdrill_lab::pool::Reuse;
use stormdrill_lab::rig::{RigReport, RunningRig};
use stormdrill_lab::store::StoreConfig;

const DRAIN: Duration = Duration::from_secs(5);
/// So long that a busy machine does not make a count of what was sent differ from what arrived.
const PATIENT: Duration = Duration::from_secs(60);

fn failing(share: f64) -> StoreConfig {
    StoreConfig { fail: share, ..StoreConfig::default() }
}

/// A chain whose downstream the rig fills in.
fn naive(layers: usize) -> ChainConfig {
    ChainConfig::naive(layers, ([127, 0, 0, 1], 0).into())
}

fn budgeted(layers: usize) -> ChainConfig {
    let deadlines = Deadlines::PassedOn { default: PATIENT };
    ChainConfig { deadlines, ..ChainConfig::budgeted(layers, ([127, 0, 0, 1], 0).into()) }
}

async fn run(store: StoreConfig, chain: ChainConfig, load: impl FnOnce(std::net::SocketAddr) -> LoadConfig) -> (LoadReport, RigReport) {
    let rig = RunningRig::start(store, ChainConfig { timeout: PATIENT, ..chain }).await.unwrap();
    let config = LoadConfig { timeout: PATIENT, ..load(rig.entry()) };
    let load = load::run(config, std::future::pending()).await;
    (load, rig.stop(DRAIN).await)
}

/// Every edge: what was sent is what arrived, and every request came to one end.
fn assert_conserved(load: &LoadReport, rig: &RigReport) {
    let mut sent = &load.downstream;
    for layer in &rig.chain.layers {
        assert_eq!(sent.attempts, layer.requests, "into {}", layer.name);
        assert_eq!(layer.requests, layer.answers.values().sum::<u64>() + layer.callers_gone + layer.in_flight);
        sent = &layer.downstream;
    }
    assert_eq!(sent.attempts, rig.store.requests, "into the store");
    assert_eq!(sent.attempts, sent.answers.values().sum::<u64>() + sent.resets + sent.abandoned);
    assert_eq!(rig.store.requests, rig.store.responses.values().sum::<u64>() + rig.store.client_gone);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_requests_onto_a_dead_store_multiply_by_three_at_each_layer() {
    for (layers, expected) in [(0, 20), (1, 60), (2, 180), (3, 540), (4, 1620)] {
        let (load, rig) = run(failing(1.0), naive(layers), |entry| LoadConfig::closed(entry, 20)).await;
        assert_eq!(rig.store.requests, expected, "{layers} layers");
        assert_eq!(rig.store.responses, [("503".to_owned(), expected)].into());
        assert_eq!((rig.store.request_ids, rig.store.repeats), (20, expected - 20));
        assert_eq!((load.scheduled, load.ok, load.answers["503"]), (20, 0, 20));
        assert_conserved(&load, &rig);
        // One request at a time needs one connection an edge, and none is lost to a failure that was answered.
        assert_eq!(rig.store.connections, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_hide_a_partial_failure_and_cost_what_the_formula_says() {
    let (load, rig) = run(failing(0.3), naive(3), |entry| LoadConfig { count: Some(600), ..LoadConfig::open(entry, 600.0) }).await;
    assert_conserved(&load, &rig);
    assert_eq!(load.success_ratio, Some(1.0));
    // (1 - p^27) / (1 - p) = 1.42857 calls per request, standard deviation sqrt(p) / (1 - p) = 0.782.
    let mean = f64::from(u32::try_from(rig.store.requests).unwrap()) / 600.0;
    assert!((mean - 1.42857).abs() < 3.0 * 0.782 / 600_f64.sqrt(), "{mean}");
    assert_eq!(rig.store.responses["200"], 600);
    assert_eq!(rig.store.failed, rig.store.responses["503"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_bounds_retries_when_everything_fails_and_only_one_layer_retries() {
    let (load, rig) = run(failing(1.0), budgeted(3), |entry| LoadConfig { count: Some(500), ..LoadConfig::open(entry, 500.0) }).await;
    assert_conserved(&load, &rig);
    let innermost = &rig.chain.layers[2].downstream;
    assert!(innermost.retries >= 3 && innermost.retries <= 50, "{} retries", innermost.retries);
    assert_eq!(rig.store.requests, 500 + innermost.retries);
    assert!(innermost.budget_refusals >= 450, "{} refusals", innermost.budget_refusals);
    for layer in &rig.chain.layers[..2] {
        assert_eq!((layer.downstream.attempts, layer.downstream.retries), (500, 0), "{}", layer.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_at_every_layer_multiply_too() {
    let chain = ChainConfig {
        retry: RetryLayers::All,
        budget: BudgetLimits { share: 0.5, floor: 0, window: Duration::from_secs(10), counting: Counting::Sliding },
        ..budgeted(2)
    };
    let (load, rig) = run(failing(1.0), chain, |entry| LoadConfig { count: Some(200), ..LoadConfig::open(entry, 400.0) }).await;
    assert_conserved(&load, &rig);
    assert!(rig.store.requests > 300, "one budget of 50% allows 300, two allow 450: {}", rig.store.requests);
    assert!(rig.store.requests <= 450, "{}", rig.store.requests);
}

#[tokio::test(flavor = "multi_thread")]
async fn markers_reach_the_store_as_chosen() {
    for (marker, ids, marked) in [(Marker::None, 0, 0), (Marker::Id, 5, 0), (Marker::Attempt, 0, 10), (Marker::Both, 5, 10)] {
        let chain = ChainConfig { marker, ..naive(1) };
        let (_, rig) = run(failing(1.0), chain, |entry| LoadConfig::closed(entry, 5)).await;
        assert_eq!((rig.store.request_ids, rig.store.marked_retries), (ids, marked), "{marker:?}");
        assert_eq!(rig.store.without_id, if ids == 0 { 15 } else { 0 }, "{marker:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_gives_one_id_to_all_attempts_of_a_request_that_has_none() {
    let (_, rig) = run(failing(1.0), naive(1), |entry| LoadConfig { marker: Marker::None, ..LoadConfig::closed(entry, 5) }).await;
    assert_eq!((rig.store.request_ids, rig.store.repeats), (5, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keepalive_every_request_has_a_connection_of_its_own() {
    let load = |entry| LoadConfig { reuse: Reuse::Close, ..LoadConfig::closed(entry, 10) };
    let (load, rig) = run(StoreConfig::default(), naive(0), load).await;
    assert_eq!((load.ok, load.downstream.connections, rig.store.connections), (10, 10, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_and_a_query_come_through_all_layers() {
    let (load, rig) = run(StoreConfig::default(), naive(2), |entry| LoadConfig {
        method: hyper::Method::POST,
        body: "x".repeat(100_000).into(),
        unique_path: true,
        ..LoadConfig::closed(entry, 3)
    })
    .await;
    assert_eq!(load.ok, 3);
    assert_conserved(&load, &rig);
}
