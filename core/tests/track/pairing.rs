//! Requests and responses, heads and connections.

use stormdrill_core::event::{Close, HeadPiece, ProbeEventKind};
use stormdrill_core::track::TrackConfig;
use stormdrill_core::window::Failure;

use crate::scene::{MS, STORE, Scene, WEB, event, failures, get, request, response, statuses, whole};

#[test]
fn a_response_belongs_to_the_request_of_its_number() {
    let edge = Scene::on(STORE).get(1, 1, 0, "/").answer(4, 1, 0, 200).get(5, 1, 1, "/").answer(10, 1, 1, 404).result();
    assert_eq!(edge.attempts, 2);
    assert_eq!(statuses(&edge), [("200", 1), ("404", 1)]);
    assert_eq!(edge.latency_ns, [3 * MS, 5 * MS]);
    assert_eq!(failures(&edge), []);
    assert_eq!(edge.pending, 0);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut scene = Scene::on(STORE);
    for index in 0..50 {
        scene.get(1, 1, index, &format!("/{index}"));
    }
    for index in 0..50 {
        scene.answer(10 + u64::from(index), 1, index, if index == 7 { 500 } else { 200 });
    }
    let edge = scene.result();
    assert_eq!(edge.attempts, 50);
    assert_eq!(statuses(&edge), [("200", 49), ("500", 1)]);
    assert_eq!(edge.failure_latency_ns, [16 * MS]);
    assert_eq!(edge.latency_ns.iter().sum::<u64>(), (9..59).sum::<u64>() * MS);
}

#[test]
fn a_response_event_may_come_before_its_requests() {
    let mut scene = Scene::on(STORE);
    scene.answer(4, 1, 0, 200).get(1, 1, 0, "/");
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge)), (1, vec![("200", 1)]));
    assert_eq!(edge.latency_ns, [3 * MS]);
}

#[test]
fn a_request_that_comes_after_the_hold_still_finds_its_answer() {
    let mut scene = Scene::on(STORE);
    scene.open(0, 1, "10.0.0.2:80").answer(4, 1, 0, 200).get(500, 2, 0, "/other").answer(500, 2, 0, 200);
    scene.tracker.finalised(500 * MS);
    scene.get(1, 1, 0, "/");
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge), edge.pending), (2, vec![("200", 2)], 0));
    assert_eq!(edge.latency_ns, [3 * MS, 0]);
    assert_eq!(scene.tracker.stats().late_events, 1);
    assert_eq!(scene.tracker.stats().mismatches.unpaired_responses, 0);
}

#[test]
fn a_lost_request_does_not_shift_the_pairs() {
    let mut scene = Scene::on(STORE);
    scene.get(1, 1, 0, "/").answer(2, 1, 0, 200).answer(4, 1, 1, 503).get(5, 1, 2, "/").answer(9, 1, 2, 201);
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge)), (2, vec![("200", 1), ("201", 1)]));
    assert_eq!(edge.latency_ns, [MS, 4 * MS]);
    assert_eq!(scene.tracker.stats().mismatches.unpaired_responses, 1);
}

#[test]
fn a_lost_response_leaves_its_attempt_without_an_outcome_and_the_next_pair_whole() {
    let mut scene = Scene::on(STORE);
    scene.get(1, 1, 0, "/").get(5, 1, 1, "/").answer(9, 1, 1, 200).close(20, 1, Close::Peer);
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge)), (2, vec![("200", 1)]));
    assert_eq!(edge.latency_ns, [4 * MS]);
    assert_eq!((failures(&edge), edge.pending), (vec![], 1), "an answer that was not seen is no failure");
    assert_eq!(scene.tracker.stats().mismatches.unseen_outcomes, 1);
}

#[test]
fn numbers_wrap_at_32_bits() {
    let mut scene = Scene::on(STORE);
    scene.get(1, 1, u32::MAX - 1, "/").get(2, 1, u32::MAX, "/").get(3, 1, 0, "/").get(4, 1, 1, "/");
    scene.answer(11, 1, u32::MAX - 1, 200).answer(12, 1, u32::MAX, 201).answer(13, 1, 0, 202).answer(14, 1, 1, 203);
    let edge = scene.result();
    assert_eq!(statuses(&edge), [("200", 1), ("201", 1), ("202", 1), ("203", 1)]);
    assert_eq!(edge.latency_ns, [10 * MS; 4]);
}

#[test]
fn responses_to_requests_from_before_the_observation_belong_to_nobody() {
    let mut scene = Scene::on(STORE);
    // A request was under way; its answer is the first that is counted, and stays one ahead for ever.
    scene.open(0, 1, "10.0.0.2:80").answer(3, 1, 0, 503);
    scene.get(5, 1, 0, "/").answer(6, 1, 1, 200).get(7, 1, 1, "/").answer(9, 1, 2, 404);
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge)), (2, vec![("200", 1), ("404", 1)]));
    assert_eq!(edge.latency_ns, [MS, 2 * MS]);
    assert_eq!(scene.tracker.stats().mismatches.unpaired_responses, 1);
}

#[test]
fn the_way_a_connection_ends_says_what_became_of_its_requests() {
    let cases = [
        (STORE, Close::Peer, Failure::NoAnswer),
        (STORE, Close::PeerReset, Failure::Reset),
        (STORE, Close::Local, Failure::ClientAbort),
        (STORE, Close::LocalReset, Failure::ClientAbort),
        (WEB, Close::Peer, Failure::ClientAbort),
        (WEB, Close::PeerReset, Failure::ClientAbort),
        (WEB, Close::Local, Failure::NoAnswer),
        (WEB, Close::LocalReset, Failure::Reset),
    ];
    for (edge, how, failure) in cases {
        let mut scene = Scene::on(edge);
        scene.get(1, 1, 0, "/a").get(1, 1, 1, "/b").answer(2, 1, 0, 200).close(9, 1, how);
        let edge = scene.result();
        assert_eq!(failures(&edge), [(failure, 1)], "{how:?}");
        assert_eq!(edge.failure_latency_ns, [8 * MS], "{how:?}");
        assert_eq!((statuses(&edge), edge.pending), (vec![("200", 1)], 0), "{how:?}");
    }
}

#[test]
fn an_answer_after_the_requester_has_ended_its_side_counts_if_the_requester_was_there_to_read_it() {
    let late = |index| {
        let piece = whole("HTTP/1.1 200 OK\r\n\r\n");
        ProbeEventKind::ResponseHead { index, status: 200, requester_ended: true, piece }
    };
    for (edge, how, is_read) in [
        (WEB, Close::PeerReset, false),
        (WEB, Close::Peer, true),
        (WEB, Close::LocalReset, true),
        (STORE, Close::LocalReset, false),
        (STORE, Close::Local, true),
    ] {
        let mut scene = Scene::on(edge);
        scene.get(1, 1, 0, "/a").tell(event(edge, 5, 1, late(0))).close(9, 1, how);
        let edge = scene.result();
        let (failed, answered): (&[_], &[_]) = if is_read { (&[], &[("200", 1)]) } else { (&[(Failure::ClientAbort, 1)], &[]) };
        assert_eq!((failures(&edge).as_slice(), statuses(&edge).as_slice(), edge.pending), (failed, answered, 0), "{how:?}");
        // When the answer came, not when the connection ended.
        let times = if is_read { &edge.latency_ns } else { &edge.failure_latency_ns };
        assert_eq!(times, &[4 * MS], "{how:?}");
    }
}

#[test]
fn a_connection_that_ends_after_its_answers_fails_nothing() {
    let mut scene = Scene::on(STORE);
    scene.get(1, 1, 0, "/").answer(2, 1, 0, 200).close(2, 1, Close::PeerReset);
    assert_eq!(failures(&scene.result()), []);
}

#[test]
fn a_status_of_class_5_and_429_are_failures_and_other_4xx_are_not() {
    for (status, fails) in [(200, 0), (302, 0), (404, 0), (408, 0), (429, 1), (499, 0), (500, 1), (503, 1), (599, 1)] {
        let edge = Scene::on(STORE).get(1, 1, 0, "/").answer(4, 1, 0, status).result();
        assert_eq!(edge.failures.get(&Failure::Status).copied().unwrap_or(0), fails, "{status}");
        assert_eq!(edge.latency_ns.len(), 1, "{status}: a failure with an answer has both times");
    }
}

#[test]
fn a_head_in_pieces_is_one_attempt_that_starts_when_the_head_is_complete() {
    let head = get("/in/pieces", "x-envoy-attempt-count: 2\r\n");
    for cut in 1..head.len() {
        let mut scene = Scene::on(STORE);
        let piece = |range: std::ops::Range<usize>, complete| HeadPiece {
            offset: u32::try_from(range.start).unwrap(),
            bytes: head.as_bytes()[range].to_vec(),
            complete,
            truncated: false,
        };
        let first = ProbeEventKind::RequestHead { index: 0, piece: piece(0..cut, false) };
        let second = ProbeEventKind::RequestHead { index: 0, piece: piece(cut..head.len(), true) };
        // The second piece's event comes first.
        scene.tell(event(STORE, 3, 1, second)).tell(event(STORE, 1, 1, first)).answer(5, 1, 0, 200);
        let edge = scene.result();
        assert_eq!((edge.attempts, edge.retries.marker), (1, 1), "cut at {cut}");
        assert_eq!(edge.latency_ns, [2 * MS], "cut at {cut}");
    }
}

fn fragment(complete: bool, truncated: bool) -> ProbeEventKind {
    let bytes = b"GET /long HTTP/1.1\r\nx-envoy-attempt-count: 2\r\nCookie: abc".to_vec();
    ProbeEventKind::RequestHead { index: 0, piece: HeadPiece { offset: 0, bytes, complete, truncated } }
}

#[test]
fn a_head_that_was_cut_is_used_for_what_it_has() {
    let mut complete = Scene::on(STORE);
    complete.tell(event(STORE, 1, 1, fragment(true, true)));
    let mut answered = Scene::on(STORE);
    answered.tell(event(STORE, 1, 1, fragment(false, true))).answer(5, 1, 0, 200);
    let mut followed = Scene::on(STORE);
    followed.tell(event(STORE, 1, 1, fragment(false, true))).get(5, 1, 1, "/");
    let mut ended = Scene::on(STORE);
    ended.tell(event(STORE, 1, 1, fragment(false, true))).close(5, 1, Close::Peer);
    for (name, mut scene) in [("complete", complete), ("answered", answered), ("followed", followed), ("ended", ended)] {
        assert_eq!(scene.result().retries.marker, 1, "{name}");
    }
}

#[test]
fn a_head_that_never_ends_is_no_request() {
    let mut scene = Scene::on(STORE);
    scene.tell(event(STORE, 1, 1, fragment(false, false))).close(5, 1, Close::Local);
    let edge = scene.result();
    assert_eq!((edge.attempts, failures(&edge)), (0, vec![]));
    assert_eq!(scene.tracker.stats().mismatches.unfinished_heads, 1);
}

#[test]
fn a_request_that_cannot_be_read_is_an_attempt_all_the_same() {
    let mut scene = Scene::on(STORE);
    scene.ask(1, 1, 0, "\u{1}\u{2} rubbish\r\n\r\n").answer(2, 1, 0, 400);
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge)), (1, vec![("400", 1)]));
    assert_eq!(scene.tracker.stats().mismatches.unread_heads, 1);
}

#[test]
fn an_answer_in_pieces_is_one_answer() {
    let mut scene = Scene::on(STORE);
    let piece = |offset, complete| {
        let piece = HeadPiece { offset, bytes: b"HTTP/1.1 200 OK\r\n".to_vec(), complete, truncated: false };
        ProbeEventKind::ResponseHead { index: 0, status: 200, requester_ended: false, piece }
    };
    scene.get(1, 1, 0, "/").tell(event(STORE, 3, 1, piece(0, false))).tell(event(STORE, 6, 1, piece(17, true)));
    let edge = scene.result();
    assert_eq!((statuses(&edge), edge.latency_ns.clone()), (vec![("200", 1)], vec![5 * MS]));
    assert_eq!(scene.tracker.stats().mismatches.unpaired_responses, 0);
}

#[test]
fn an_answer_that_breaks_off_in_its_head_is_none() {
    let mut scene = Scene::on(STORE);
    let piece = HeadPiece { offset: 0, bytes: b"HTTP/1.1 200 OK\r\n".to_vec(), complete: false, truncated: false };
    scene.get(1, 1, 0, "/").tell(event(STORE, 3, 1, ProbeEventKind::ResponseHead { index: 0, status: 200, requester_ended: false, piece }));
    scene.close(4, 1, Close::Peer);
    assert_eq!(failures(&scene.result()), [(Failure::NoAnswer, 1)]);
}

#[test]
fn a_request_told_twice_counts_once() {
    let mut scene = Scene::on(STORE);
    scene.get(1, 1, 0, "/").get(1, 1, 0, "/").answer(3, 1, 0, 200);
    let edge = scene.result();
    assert_eq!((edge.attempts, edge.pending), (1, 0));
    assert_eq!(scene.tracker.stats().mismatches.repeated_requests, 1);
}

#[test]
fn a_cookie_that_is_used_again_carries_nothing_over() {
    let mut scene = Scene::on(STORE);
    scene.get(1, 1, 5, "/").close(2, 1, Close::Local);
    scene.open(3, 1, "10.0.0.2:80").get(4, 1, 0, "/x").answer(5, 1, 0, 200);
    let edge = scene.result();
    assert_eq!((edge.attempts, edge.latency_ns.as_slice()), (2, &[MS][..]));
}

#[test]
fn an_unknown_role_is_counted_and_booked_on_no_edge() {
    let mut scene = Scene::on(STORE);
    let mut unknown = request(STORE, 1, 1, 0, &get("/", ""));
    unknown.role = None;
    let mut wrong = response(WEB, 1, 1, 0, 200);
    wrong.role = Some(stormdrill_core::edge::Role::Downstream);
    let mut nowhere = request(STORE, 1, 1, 0, &get("/", ""));
    nowhere.edge = stormdrill_core::edge::EdgeId(9);
    scene.tell(unknown).tell(wrong).tell(nowhere);
    let window = scene.window(0);
    assert!(window.edges.iter().all(|edge| edge.attempts == 0));
    let stats = scene.tracker.stats();
    assert_eq!((stats.events, stats.unknown_role, stats.misplaced), (3, 1, 2));
    assert_eq!(scene.tracker.open_connections(STORE), 0);
}

#[test]
fn open_connections_are_counted_by_edge() {
    let mut scene = Scene::with(STORE, TrackConfig { hold_ns: 0, ..TrackConfig::default() });
    scene.open(1, 1, "10.0.0.2:80").open(1, 2, "10.0.0.2:80").get(2, 3, 0, "/").close(3, 1, Close::Local);
    scene.close(3, 1, Close::Local).close(3, 99, Close::Local);
    scene.tracker.finalised(100 * MS);
    assert_eq!(scene.tracker.open_connections(STORE), 2);
    assert_eq!(scene.tracker.open_connections(WEB), 0);
}

#[test]
fn both_ends_on_one_host_are_two_connections() {
    let mut scene = Scene::on(STORE);
    scene.tell(request(STORE, 1, 1, 0, &get("/", ""))).tell(request(WEB, 1, 2, 0, &get("/", "")));
    scene.tell(response(WEB, 2, 2, 0, 200)).tell(response(STORE, 2, 1, 0, 200));
    let window = scene.window(0);
    assert_eq!(window.edges.iter().map(|edge| edge.attempts).collect::<Vec<_>>(), [1, 1]);
    assert!(window.edges.iter().all(|edge| edge.retries.total() == 0 && edge.pending == 0));
}
