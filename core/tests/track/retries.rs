//! What counts as a retry, under which evidence.

use stormdrill_core::edge::EdgeId;
use stormdrill_core::event::Close;
use stormdrill_core::retry::marker::MarkerHeader;
use stormdrill_core::track::TrackConfig;

use crate::scene::{STORE, Scene, WEB, get, request, retries};

fn id(value: &str) -> String {
    get("/orders", &format!("x-request-id: {value}\r\n"))
}

#[test]
fn a_marker_above_the_first_attempt_is_a_retry() {
    let cases = [
        ("x-envoy-attempt-count: 1", 0),
        ("x-envoy-attempt-count: 2", 1),
        ("grpc-previous-rpc-attempts: 1", 1),
        ("amz-sdk-request: attempt=1; max=3", 0),
        ("amz-sdk-request: attempt=3; max=3", 1),
        ("x-goog-api-client: gccl-invocation-id/a gccl-attempt-count/2", 1),
        ("x-stainless-retry-count: 0", 0),
        ("x-stainless-retry-count: 1", 1),
        ("x-my-tries-before: 0", 0),
        ("x-my-tries-before: 1", 1),
    ];
    for (header, expected) in cases {
        let marker = Some(MarkerHeader::named("X-My-Tries-Before"));
        let mut scene = Scene::with(STORE, TrackConfig { marker, ..TrackConfig::default() });
        scene.ask(1, 1, 0, &get("/", &format!("{header}\r\n"))).answer(2, 1, 0, 200);
        assert_eq!(retries(&scene.result()), (expected, 0, 0), "{header}");
    }
}

#[test]
fn each_attempt_counts_under_its_strongest_evidence_only() {
    let mut scene = Scene::on(STORE);
    let both = |number: u32| get("/", &format!("x-request-id: r\r\nx-envoy-attempt-count: {number}\r\n"));
    scene.ask(1, 1, 0, &both(1)).answer(2, 1, 0, 503);
    scene.ask(3, 1, 1, &both(2)).answer(4, 1, 1, 503);
    scene.ask(5, 1, 2, &get("/", "x-request-id: r\r\n")).answer(6, 1, 2, 503);
    scene.get(7, 1, 3, "/").answer(8, 1, 3, 503);
    scene.get(9, 1, 4, "/").answer(10, 1, 4, 200);
    assert_eq!(retries(&scene.result()), (1, 1, 1), "the one without an id is no attempt of the request that has one");
}

#[test]
fn a_marker_that_says_first_is_believed_against_id_and_match() {
    let mut scene = Scene::on(STORE);
    let first = get("/", "x-request-id: r\r\nx-envoy-attempt-count: 1\r\n");
    scene.ask(1, 1, 0, &first).answer(2, 1, 0, 503).ask(3, 1, 1, &first).answer(4, 1, 1, 200);
    let edge = scene.result();
    assert_eq!(retries(&edge), (0, 0, 0));
    assert_eq!(edge.attempts_max, 2, "here it is the second attempt of this request");
}

#[test]
fn an_id_is_followed_across_connections() {
    let mut scene = Scene::on(STORE);
    scene.ask(1, 1, 0, &id("a")).answer(2, 1, 0, 200).close(3, 1, Close::Peer);
    scene.ask(4, 2, 0, &id("a")).answer(5, 2, 0, 200).ask(6, 3, 0, &id("b")).answer(7, 3, 0, 200);
    let edge = scene.result();
    assert_eq!(retries(&edge), (0, 1, 0));
    assert_eq!(edge.attempts_max, 2);
}

#[test]
fn an_id_on_another_path_or_edge_is_no_retry() {
    let mut scene = Scene::on(STORE);
    scene.ask(1, 1, 0, &id("a")).answer(2, 1, 0, 200);
    scene.ask(3, 1, 1, &get("/stock", "x-request-id: a\r\n")).answer(4, 1, 1, 200);
    scene.ask(5, 1, 2, &id("a").replace("GET", "PUT")).answer(6, 1, 2, 200);
    scene.tell(request(WEB, 7, 9, 0, &id("a")));
    let window = scene.window(0);
    assert!(window.edges.iter().all(|edge| edge.retries.total() == 0), "{window:?}");
}

#[test]
fn an_id_is_forgotten_after_a_minute() {
    let mut scene = Scene::on(STORE);
    scene.ask(0, 1, 0, &id("a")).answer(1, 1, 0, 200).ask(60_000, 1, 1, &id("a")).answer(60_001, 1, 1, 200);
    scene.ask(120_001, 1, 2, &id("a")).answer(120_002, 1, 2, 200);
    for epoch in [0, 6, 12] {
        scene.end_window(epoch);
    }
    let windows = scene.tracker.flush(u64::MAX);
    let found: Vec<_> = windows.iter().map(|window| retries(&window.edges[1]).1).collect();
    assert_eq!(found, [0, 1, 0]);
}

#[test]
fn attempts_that_share_their_span_are_one_request() {
    let span = get("/", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n");
    let other = get("/", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01\r\n");
    let mut scene = Scene::on(STORE);
    scene.ask(1, 1, 0, &span).answer(2, 1, 0, 200).ask(3, 1, 1, &span).answer(4, 1, 1, 200);
    scene.ask(5, 1, 2, &other).answer(6, 1, 2, 200);
    assert_eq!(retries(&scene.result()), (0, 1, 0));
}

#[test]
fn every_kind_of_failure_can_be_matched() {
    let mut status = Scene::on(STORE);
    status.get(1, 1, 0, "/").answer(2, 1, 0, 503).get(3, 1, 1, "/").answer(4, 1, 1, 200);
    assert_eq!(retries(&status.result()), (0, 0, 1));
    for how in [Close::Peer, Close::PeerReset, Close::Local, Close::LocalReset] {
        let mut scene = Scene::on(STORE);
        scene.get(1, 1, 0, "/").close(2, 1, how).get(3, 2, 0, "/").answer(4, 2, 0, 200);
        let edge = scene.result();
        assert_eq!((retries(&edge), edge.hedges), ((0, 0, 1), 0), "{how:?}");
    }
}

#[test]
fn polls_are_no_retries_while_nothing_fails() {
    let mut scene = Scene::on(STORE);
    for n in 0..900 {
        let ms = u64::from(n) * 11;
        scene.get(ms, 1, n, "/health").answer(ms + 2, 1, n, if n % 2 == 0 { 200 } else { 404 });
    }
    let edge = scene.result();
    assert_eq!((edge.attempts, retries(&edge)), (900, (0, 0, 0)));
}

#[test]
fn a_crowd_of_alike_requests_is_no_retry_while_nothing_fails() {
    // A load generator: 100 connections, one URL, answers after 300 ms.
    let mut scene = Scene::on(STORE);
    for round in 0..20 {
        for conn in 0..100 {
            let ms = u64::from(round) * 400 + conn;
            scene.get(ms, conn, round, "/").answer(ms + 300, conn, round, 200);
        }
    }
    let edge = scene.result();
    assert_eq!((edge.attempts, edge.retries.total(), edge.hedges), (2000, 0, 0));
}

#[test]
fn one_failure_explains_one_retry() {
    let mut scene = Scene::on(STORE);
    scene.get(1, 1, 0, "/").answer(2, 1, 0, 503);
    for n in 1..=5 {
        let ms = 10 * u64::from(n);
        scene.get(ms, 1, n, "/").answer(ms + 1, 1, n, 200);
    }
    assert_eq!(retries(&scene.result()), (0, 0, 1));
}

#[test]
fn a_chain_of_failures_is_a_chain_of_retries() {
    let mut scene = Scene::on(STORE);
    for n in 0..4_u32 {
        let ms = 100 * u64::from(n);
        scene.get(ms, u64::from(n), 0, "/").answer(ms + 5, u64::from(n), 0, 503);
    }
    let edge = scene.result();
    assert_eq!((retries(&edge), edge.attempts_max), ((0, 0, 3), 4));
}

#[test]
fn a_failure_explains_nothing_after_two_seconds() {
    for (ms, expected) in [(2002, 1), (2003, 0)] {
        let mut scene = Scene::on(STORE);
        scene.get(1, 1, 0, "/").answer(2, 1, 0, 503).get(ms, 1, 1, "/").answer(3000, 1, 1, 200);
        assert_eq!(retries(&scene.result()), (0, 0, expected), "{ms}");
    }
}

#[test]
fn another_call_is_no_retry() {
    let failed = "POST /a?b=1 HTTP/1.1\r\nHost: store\r\nContent-Length: 2\r\n\r\n{}";
    let others = [
        "POST /a?b=2 HTTP/1.1\r\nHost: store\r\nContent-Length: 2\r\n\r\n{}",
        "PUT /a?b=1 HTTP/1.1\r\nHost: store\r\nContent-Length: 2\r\n\r\n{}",
        "POST /a?b=1 HTTP/1.1\r\nHost: other\r\nContent-Length: 2\r\n\r\n{}",
        "POST /a?b=1 HTTP/1.1\r\nHost: store\r\nContent-Length: 2\r\n\r\n[]",
        "POST /a?b=1 HTTP/1.1\r\nHost: store\r\nContent-Length: 3\r\n\r\n{ }",
    ];
    for (head, expected) in others.into_iter().map(|other| (other, 0)).chain([(failed, 1)]) {
        let mut scene = Scene::on(STORE);
        scene.ask(1, 1, 0, failed).answer(2, 1, 0, 503).ask(3, 1, 1, head).answer(4, 1, 1, 200);
        assert_eq!(retries(&scene.result()), (0, 0, expected), "{head}");
    }
}

/// An edge whose one answer so far took 10 ms.
fn used_to_10_ms() -> Scene {
    let mut scene = Scene::on(STORE);
    scene.get(0, 9, 0, "/first").answer(10, 9, 0, 200);
    scene
}

#[test]
fn a_hedge_is_a_match_with_an_attempt_that_is_still_open() {
    let mut scene = used_to_10_ms();
    scene.get(20, 1, 0, "/").get(100, 2, 0, "/").answer(120, 2, 0, 200).answer(400, 1, 0, 503);
    // The hedged attempt failed later, but it has explained its one successor.
    scene.get(410, 3, 0, "/").answer(420, 3, 0, 200);
    let edge = scene.result();
    assert_eq!((retries(&edge), edge.hedges), ((0, 0, 1), 1));
}

#[test]
fn an_open_attempt_is_not_hedged_before_it_is_slower_than_the_edge_is_used_to() {
    for (age, expected) in [(49, 0), (50, 1)] {
        let mut scene = used_to_10_ms();
        scene.get(20, 1, 0, "/").get(20 + age, 2, 0, "/").answer(500, 1, 0, 200).answer(500, 2, 0, 200);
        assert_eq!(scene.result().hedges, expected, "{age}");
    }
    // Before any answer nobody knows what is long.
    let mut scene = Scene::on(STORE);
    scene.get(0, 1, 0, "/").get(2_000, 2, 0, "/").answer(2_500, 1, 0, 200).answer(2_500, 2, 0, 200);
    assert_eq!(scene.result().hedges, 0);
    for (age, expected) in [(299, 0), (300, 1)] {
        let mut scene = Scene::on(STORE);
        for n in 0..64 {
            scene.get(0, 1, n, &format!("/{n}")).answer(300, 1, n, 200);
        }
        scene.get(1000, 1, 64, "/").get(1000 + age, 2, 0, "/").answer(2000, 1, 64, 200).answer(2000, 2, 0, 200);
        assert_eq!(scene.result().hedges, expected, "{age}");
    }
}

#[test]
fn on_an_ingress_edge_each_peer_is_a_caller_of_its_own() {
    for (second, expected) in [("10.9.9.9:5", 1), ("[::ffff:10.9.9.9]:6", 1), ("10.9.9.8:5", 0)] {
        let mut scene = Scene::on(WEB);
        scene.open(0, 1, "10.9.9.9:4").get(1, 1, 0, "/").answer(2, 1, 0, 503);
        scene.open(3, 2, second).get(4, 2, 0, "/").answer(5, 2, 0, 200);
        assert_eq!(retries(&scene.result()), (0, 0, expected), "{second}");
    }
}

#[test]
fn on_an_ingress_edge_a_caller_that_is_not_known_is_nobody_else() {
    let mut scene = Scene::on(WEB);
    scene.get(1, 1, 0, "/").answer(2, 1, 0, 503).get(3, 2, 0, "/").answer(4, 2, 0, 200);
    assert_eq!(retries(&scene.result()), (0, 0, 0));
    let mut scene = Scene::on(STORE);
    scene.get(1, 1, 0, "/").answer(2, 1, 0, 503).get(3, 2, 0, "/").answer(4, 2, 0, 200);
    assert_eq!(retries(&scene.result()), (0, 0, 1), "on a downstream edge it is this host");
}

#[test]
fn three_tries_at_each_of_three_layers_are_counted_at_the_store() {
    // The chain marks attempts per layer and keeps the request's id: 9 first attempts of the last layer, 18 retries.
    let mut scene = Scene::on(STORE);
    let mut ms = 0;
    for n in 0..27 {
        let head = get("/", &format!("x-request-id: r\r\nx-envoy-attempt-count: {}\r\n", n % 3 + 1));
        scene.ask(ms, 1, n, &head).answer(ms + 1, 1, n, 503);
        ms += 3;
    }
    let edge = scene.result();
    assert_eq!((edge.attempts, retries(&edge), edge.attempts_max), (27, (18, 0, 0), 27));
    assert_eq!(edge.failures.values().sum::<u64>(), 27);
    assert_eq!(scene.edge, EdgeId(1));
}

#[test]
fn on_a_slow_edge_calls_that_overlap_from_the_first_on_are_no_retries() {
    let mut scene = Scene::on(STORE);
    // 300 ms each, one every 150 ms, each on a connection of its own.
    for call in 0..60 {
        scene.get(1_000 + 150 * call, call + 1, 0, "/");
        if call >= 2 {
            scene.answer(1_001 + 150 * call, call - 1, 0, 200);
        }
    }
    assert_eq!(retries(&scene.result()), (0, 0, 0));
}
