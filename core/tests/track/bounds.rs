//! Memory stays bounded, and what the bounds cost is counted.

use stormdrill_core::track::TrackConfig;
use stormdrill_core::track::stats::Mismatches;

use crate::scene::{STORE, Scene, get, statuses};

fn small() -> TrackConfig {
    TrackConfig {
        max_held: 64,
        max_connections: 100,
        max_attempts: 50,
        max_ids: 100,
        max_failures: 100,
        max_durations: 100,
        ..TrackConfig::default()
    }
}

#[test]
fn connections_that_never_close_push_out_the_oldest() {
    let mut scene = Scene::with(STORE, small());
    for conn in 0..1000 {
        scene.get(conn, conn, 0, "/").answer(conn, conn, 0, 200);
    }
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge)), (1000, vec![("200", 1000)]));
    assert_eq!(scene.tracker.open_connections(STORE), 100);
    assert_eq!(scene.tracker.stats().mismatches.evicted_connections, 900);
}

#[test]
fn attempts_that_never_end_push_out_the_oldest() {
    let mut scene = Scene::with(STORE, small());
    for index in 0..1000 {
        scene.get(u64::from(index), 1, index, "/");
    }
    scene.answer(2000, 1, 999, 200).answer(2001, 1, 0, 200);
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge), edge.pending), (1000, vec![("200", 1)], 999));
    let mismatches = scene.tracker.stats().mismatches;
    assert_eq!((mismatches.evicted_attempts, mismatches.unseen_outcomes), (950, 49));
    assert_eq!(mismatches.unpaired_responses, 1);
}

#[test]
fn identities_and_failures_are_forgotten_oldest_first() {
    let mut scene = Scene::with(STORE, small());
    for index in 0..1000 {
        let head = get(&format!("/{index}"), &format!("x-request-id: {index}\r\n"));
        scene.ask(u64::from(index), 1, index, &head).answer(u64::from(index), 1, index, 503);
    }
    // The newest are still known, the oldest are not.
    scene.ask(1500, 1, 1000, &get("/999", "x-request-id: 999\r\n")).answer(1501, 1, 1000, 200);
    scene.ask(1502, 1, 1001, &get("/0", "x-request-id: 0\r\n")).answer(1503, 1, 1001, 200);
    let edge = scene.result();
    assert_eq!((edge.retries.id, edge.retries.matched), (1, 0));
    let stats = scene.tracker.stats();
    assert!(stats.evicted_ids >= 900, "{stats:?}");
    assert_eq!(stats.evicted_failures, 900);
}

#[test]
fn durations_beyond_the_cap_are_sampled() {
    let mut scene = Scene::with(STORE, small());
    for index in 0..1000 {
        scene.get(u64::from(index), 1, index, "/").answer(u64::from(index), 1, index, 200);
    }
    let edge = scene.result();
    assert_eq!((edge.latency_ns.len(), statuses(&edge)), (100, vec![("200", 1000)]));
    assert_eq!(scene.tracker.stats().misfits.durations, 900);
}

#[test]
fn a_hundred_thousand_requests_leave_nothing_behind() {
    const REQUESTS: u32 = 100_000;
    let mut scene = Scene::on(STORE);
    let heads: Vec<String> = (0..64).map(|path| get(&format!("/{path}"), "x-request-id: r\r\n")).collect();
    for n in 0..REQUESTS {
        let (conn, ms) = (u64::from(n % 500), u64::from(n) / 20);
        scene.ask(ms, conn, n / 500, &heads[n as usize % 64]).answer(ms + 1, conn, n / 500, 200);
    }
    let edge = scene.result();
    let all = u64::from(REQUESTS);
    assert_eq!((edge.attempts, edge.pending, statuses(&edge)), (all, 0, vec![("200", all)]));
    assert_eq!(edge.retries.id, all - 64);
    let stats = scene.tracker.stats();
    assert_eq!((stats.events, stats.late_events), (2 * all, 0));
    assert_eq!(stats.mismatches, Mismatches::default());
    assert_eq!(scene.tracker.open_connections(STORE), 500);
}
