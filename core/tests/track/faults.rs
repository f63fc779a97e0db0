//! What is wrong with retries, and what is done for nobody: HTTP/1 heads in, counts out.

use stormdrill_core::event::{Close, HeadPiece, ProbeEventKind};
use stormdrill_core::track::TrackConfig;
use stormdrill_core::window::EdgeWindow;

use crate::scene::{MS, STORE, Scene, WEB, event, get, request, response, retries};

fn answer_with(scene: &mut Scene, ms: u64, conn: u64, index: u32, status: u16, headers: &str) {
    let head = format!("HTTP/1.1 {status} X\r\n{headers}\r\n");
    let piece = HeadPiece { offset: 0, bytes: head.into_bytes(), complete: true, truncated: false };
    let kind = ProbeEventKind::ResponseHead { index, status, requester_ended: false, piece };
    scene.tell(event(scene.edge, ms, conn, kind));
}

fn post(headers: &str) -> String {
    format!("POST /orders HTTP/1.1\r\nHost: store\r\n{headers}\r\n")
}

#[test]
fn methods_that_are_not_idempotent_need_a_key() {
    for (head, harmful) in [
        (post(""), 1),
        (post("Idempotency-Key: k\r\n"), 0),
        (post("").replace("POST", "PATCH"), 1),
        (post("").replace("POST", "PUT"), 0),
        (get("/orders", ""), 0),
    ] {
        let mut scene = Scene::on(STORE);
        scene.ask(1, 1, 0, &head).answer(2, 1, 0, 503).ask(3, 1, 1, &head).answer(4, 1, 1, 200);
        let edge = scene.result();
        assert_eq!((edge.retries.total(), edge.non_idempotent_retries), (1, harmful), "{head}");
    }
}

#[test]
fn to_ask_again_after_a_refusal_is_hopeless() {
    for (status, second, hopeless) in [
        (404, get("/a", "x-request-id: r\r\n"), 1),
        (422, get("/a", "x-request-id: r\r\nx-envoy-attempt-count: 2\r\n"), 1),
        (200, get("/a", "x-request-id: r\r\n"), 0),
        (503, get("/a", "x-request-id: r\r\n"), 0),
        (404, get("/a", "x-request-id: other\r\n"), 0),
    ] {
        let mut scene = Scene::on(STORE);
        scene.ask(1, 1, 0, &get("/a", "x-request-id: r\r\n")).answer(2, 1, 0, status);
        scene.ask(3, 1, 1, &second).answer(4, 1, 1, 200);
        assert_eq!(scene.result().nonretryable_retries, hopeless, "{status} {second}");
    }
    // Polls of what is not there are no retries at all.
    let mut polls = Scene::on(STORE);
    for n in 0..10 {
        polls.get(u64::from(n) * 10, 1, n, "/a").answer(u64::from(n) * 10 + 1, 1, n, 404);
    }
    assert_eq!(polls.result().nonretryable_retries, 0);
}

#[test]
fn a_pause_that_was_asked_for_is_to_be_kept() {
    for (headers, ms, early) in [
        ("Retry-After: 1\r\n", 500, 1),
        ("Retry-After: 1\r\n", 960, 0),
        ("retry-after: Fri, 31 Dec 1999 23:59:59 GMT\r\nDate: Fri, 31 Dec 1999 23:59:57 GMT\r\n", 1500, 1),
        ("", 10, 0),
    ] {
        let mut scene = Scene::on(STORE);
        scene.get(1, 1, 0, "/a");
        answer_with(&mut scene, 2, 1, 0, 503, headers);
        scene.get(ms, 1, 1, "/a").answer(ms + 1, 1, 1, 200);
        let edge = scene.result();
        assert_eq!((retries(&edge), edge.retry_after_violations), ((0, 0, 1), early), "{headers} {ms}");
    }
    // Long after a retry can be matched, an id still tells.
    let mut scene = Scene::on(STORE);
    let head = get("/a", "x-request-id: r\r\n");
    scene.ask(1, 1, 0, &head);
    answer_with(&mut scene, 2, 1, 0, 429, "Retry-After: 9\r\n");
    scene.ask(5_000, 1, 1, &head).answer(5_001, 1, 1, 200);
    assert_eq!(scene.result().retry_after_violations, 1);
}

#[test]
fn pauses_are_from_the_end_of_the_attempt_before() {
    let mut scene = Scene::on(STORE);
    scene.get(0, 1, 0, "/").answer(10, 1, 0, 503).get(110, 1, 1, "/").answer(120, 1, 1, 503);
    scene.get(320, 1, 2, "/").answer(330, 1, 2, 200);
    let edge = scene.result();
    assert_eq!((edge.gaps_ns, edge.first_gaps_ns), (vec![100 * MS, 200 * MS], vec![100 * MS]));
    assert_eq!((edge.burst.retries, edge.burst.peak), (2, 1));
}

/// One request comes in, is dealt with as told, and the store is asked on its behalf.
fn chain(head: &str, gives_up: Option<u64>, answered: Option<u64>, asks: u64, done: u64) -> EdgeWindow {
    let mut scene = Scene::with(STORE, TrackConfig { wall_origin_ns: Some(1_700_000_000_000_000_000), ..TrackConfig::default() });
    scene.tell(request(WEB, 0, 1, 0, head));
    if let Some(ms) = answered {
        scene.tell(response(WEB, ms, 1, 0, 200));
    }
    if let Some(ms) = gives_up {
        scene.tell(event(WEB, ms, 1, ProbeEventKind::Closed { how: Close::Peer }));
    }
    scene.ask(asks, 2, 0, &get("/stock", "x-request-id: r\r\n")).answer(done, 2, 0, 200);
    scene.result()
}

#[test]
fn what_begins_after_the_caller_left_is_late_and_what_goes_on_is_orphaned() {
    let plain = get("/order", "x-request-id: r\r\n");
    let within = get("/order", "x-request-id: r\r\nx-envoy-expected-rq-timeout-ms: 100\r\n");
    let until = get("/order", "x-request-id: r\r\nX-Request-Deadline: 1700000000.1\r\n");
    for (head, gives_up, answered, asks, done, late, orphan_ms) in [
        (&plain, None, Some(50), 10, 40, 0, 0),
        (&plain, Some(100), None, 10, 300, 0, 195),
        (&plain, Some(100), None, 200, 300, 1, 100),
        (&plain, Some(100), None, 103, 104, 0, 0),
        (&plain, None, Some(50), 200, 300, 0, 0),
        (&within, None, None, 50, 90, 0, 0),
        (&within, None, None, 50, 160, 0, 60),
        (&within, None, None, 150, 160, 1, 10),
        (&until, None, None, 150, 160, 1, 10),
        (&until, Some(50), None, 60, 70, 1, 10),
    ] {
        let edge = chain(head, gives_up, answered, asks, done);
        assert_eq!((edge.late_starts, edge.orphan_ns), (late, orphan_ms * MS), "{head} {gives_up:?} {asks} {done}");
    }
}

#[test]
fn a_second_attempt_of_the_caller_is_waited_for() {
    let mut scene = Scene::on(STORE);
    let head = get("/order", "x-request-id: r\r\n");
    scene.tell(request(WEB, 0, 1, 0, &head)).tell(event(WEB, 100, 1, ProbeEventKind::Closed { how: Close::Peer }));
    scene.tell(request(WEB, 150, 2, 0, &head));
    scene.ask(200, 3, 0, &get("/stock", "x-request-id: r\r\n")).answer(210, 3, 0, 200);
    assert_eq!(scene.result().late_starts, 0);
}

#[test]
fn a_trace_ties_what_comes_in_to_what_goes_out() {
    let trace = |span: &str| format!("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-{span}-01\r\n");
    let mut scene = Scene::on(STORE);
    scene.tell(request(WEB, 0, 1, 0, &get("/order", &trace("00f067aa0ba902b7"))));
    scene.tell(event(WEB, 100, 1, ProbeEventKind::Closed { how: Close::PeerReset }));
    scene.ask(200, 2, 0, &get("/stock", &trace("00f067aa0ba902b8"))).answer(300, 2, 0, 200);
    let edge = scene.result();
    assert_eq!((edge.late_starts, edge.orphan_ns), (1, 100 * MS));
}

#[test]
fn an_answer_after_the_deadline_was_work_for_nobody() {
    let mut scene = Scene::on(WEB);
    scene.ask(0, 1, 0, &get("/", "x-envoy-expected-rq-timeout-ms: 100\r\n")).answer(130, 1, 0, 200);
    let edge = scene.result();
    assert_eq!((edge.late_starts, edge.orphan_ns), (0, 30 * MS));
}
