//! HTTP/2 and gRPC: streams as attempts.

use proptest::prelude::*;
use stormdrill_core::edge::Protocol;
use stormdrill_core::event::{Close, HeadPiece, ProbeEvent, ProbeEventKind, StreamEvent, StreamEventKind};
use stormdrill_core::window::{EdgeWindow, Failure};

use crate::scene::{MS, STORE, Scene, event, failures, retries, spoken, statuses};

/// A client and a server that speak without compression, so that a block is what it says.
struct Conn<'s> {
    scene: &'s mut Scene,
    id: u64,
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(u8::try_from(text.len()).expect("short"));
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

fn piece(bytes: Vec<u8>) -> HeadPiece {
    HeadPiece { offset: 0, bytes, complete: true, truncated: false }
}

fn told(ms: u64, conn: u64, stream: u32, from_server: bool, ends: bool, kind: StreamEventKind) -> ProbeEvent {
    let kind = ProbeEventKind::Stream(StreamEvent { stream, from_server, ends, joined_late: false, kind });
    spoken(Protocol::Http2, event(STORE, ms, conn, kind))
}

impl Conn<'_> {
    fn client(&mut self, ms: u64, stream: u32, ends: bool, fields: &[(&str, &str)]) -> &mut Self {
        self.scene.tell(told(ms, self.id, stream, false, ends, StreamEventKind::Block(piece(block(fields)))));
        self
    }

    fn server(&mut self, ms: u64, stream: u32, ends: bool, fields: &[(&str, &str)]) -> &mut Self {
        self.scene.tell(told(ms, self.id, stream, true, ends, StreamEventKind::Block(piece(block(fields)))));
        self
    }

    fn get(&mut self, ms: u64, stream: u32, path: &str) -> &mut Self {
        self.client(ms, stream, true, &[(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "store")])
    }

    fn call(&mut self, ms: u64, stream: u32, message: &str, more: &[(&str, &str)]) -> &mut Self {
        let head = [(":method", "POST"), (":path", "/pkg.Store/Buy"), (":authority", "store"), ("content-type", "application/grpc")];
        self.client(ms, stream, false, &[&head[..], more].concat());
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        let data = [&[0], &length[..], message.as_bytes()].concat();
        self.scene.tell(told(ms, self.id, stream, false, true, StreamEventKind::Data(data)));
        self
    }

    fn status(&mut self, ms: u64, stream: u32, status: &str) -> &mut Self {
        self.server(ms, stream, false, &[(":status", "200"), ("content-type", "application/grpc")]);
        self.server(ms, stream, true, &[("grpc-status", status)])
    }

    fn reset(&mut self, ms: u64, stream: u32, from_server: bool, code: u32) -> &mut Self {
        self.scene.tell(told(ms, self.id, stream, from_server, false, StreamEventKind::Reset(code)));
        self
    }
}

fn on(scene: &mut Scene, id: u64) -> Conn<'_> {
    Conn { scene, id }
}

fn found(act: impl FnOnce(&mut Conn<'_>)) -> EdgeWindow {
    let mut scene = Scene::on(STORE);
    act(&mut on(&mut scene, 1));
    scene.result()
}

#[test]
fn streams_are_answered_in_any_order() {
    let edge = found(|conn| {
        for n in 0..100 {
            conn.get(u64::from(n), 2 * n + 1, &format!("/{n}"));
        }
        for n in (0..100).rev() {
            conn.server(300 - u64::from(n), 2 * n + 1, true, &[(":status", if n % 10 == 0 { "503" } else { "200" })]);
        }
    });
    assert_eq!(statuses(&edge), [("200", 90), ("503", 10)]);
    assert_eq!((edge.attempts, failures(&edge)), (100, vec![(Failure::Status, 10)]));
    // Stream n began at n ms and was answered at 300 - n.
    let mut latencies = edge.latency_ns;
    latencies.sort_unstable();
    assert_eq!((latencies[0], latencies[99]), (102 * MS, 300 * MS));
}

#[test]
fn interim_answers_are_none_and_trailers_are_no_second_one() {
    let edge = found(|conn| {
        conn.get(1, 1, "/");
        conn.server(2, 1, false, &[(":status", "103")]).server(5, 1, false, &[(":status", "200")]);
        conn.server(9, 1, true, &[("server-timing", "x")]);
    });
    assert_eq!((statuses(&edge), edge.latency_ns.as_slice()), (vec![("200", 1)], &[4 * MS][..]));
}

#[test]
fn the_status_of_a_call_comes_with_its_trailers() {
    let edge = found(|conn| {
        conn.call(1, 1, "a", &[]).status(2, 1, "0");
        // Trailers only.
        conn.call(3, 3, "b", &[]).server(4, 3, true, &[(":status", "200"), ("grpc-status", "14")]);
        // A proxy that speaks no gRPC, and a server that ends without trailers.
        conn.call(5, 5, "c", &[]).server(6, 5, true, &[(":status", "502")]);
        conn.call(7, 7, "d", &[]).server(8, 7, false, &[(":status", "200")]);
        conn.scene.tell(told(9, 1, 7, true, true, StreamEventKind::End));
    });
    assert_eq!(statuses(&edge), [("502", 1), ("grpc:OK", 1), ("grpc:UNAVAILABLE", 1), ("grpc:UNKNOWN", 1)]);
    assert_eq!(failures(&edge), [(Failure::Status, 3)]);
    assert_eq!(edge.protocols, [(Protocol::Grpc, 4)].into());
    assert_eq!(edge.told_status, edge.status);
}

#[test]
fn calls_are_told_apart_by_their_message() {
    let edge = found(|conn| {
        conn.call(1, 1, "order 1", &[]).status(2, 1, "14");
        for n in 1..100 {
            conn.call(2 + u64::from(n), 2 * n + 1, &format!("order {}", n + 1), &[]).status(3 + u64::from(n), 2 * n + 1, "0");
        }
        conn.call(200, 201, "order 1", &[]).status(201, 201, "0");
    });
    assert_eq!((edge.attempts, retries(&edge)), (101, (0, 0, 1)));
    assert_eq!(edge.first_gaps_ns, [198 * MS]);
}

#[test]
fn markers_of_grpc_are_read() {
    let edge = found(|conn| {
        conn.call(1, 1, "a", &[("grpc-timeout", "1S")]).status(2, 1, "14");
        conn.call(3, 3, "a", &[("grpc-timeout", "1S"), ("grpc-previous-rpc-attempts", "1")]).status(4, 3, "0");
    });
    assert_eq!((retries(&edge), edge.attempts_max), ((1, 0, 0), 2));
}

#[test]
fn a_pushback_is_held_against_the_next_attempt() {
    for (ms, early) in [(100, 1), (1100, 0)] {
        let edge = found(|conn| {
            conn.call(1, 1, "a", &[]).server(2, 1, true, &[(":status", "200"), ("grpc-status", "14"), ("grpc-retry-pushback-ms", "1000")]);
            conn.call(ms, 3, "a", &[("grpc-previous-rpc-attempts", "1")]).status(ms + 1, 3, "0");
        });
        assert_eq!((retries(&edge), edge.retry_after_violations), ((1, 0, 0), early), "{ms}");
    }
}

#[test]
fn resets_say_who_gave_up() {
    let edge = found(|conn| {
        conn.get(1, 1, "/a").reset(2, 1, false, 8);
        conn.get(3, 3, "/b").reset(4, 3, true, 2);
        conn.get(5, 5, "/c").reset(6, 5, true, 7);
        // After the answer nothing is left to reset.
        conn.get(7, 7, "/d").server(8, 7, false, &[(":status", "200")]).reset(9, 7, false, 8);
        // A call that is given up between head and trailers.
        conn.call(10, 9, "a", &[]).server(11, 9, false, &[(":status", "200")]).reset(12, 9, false, 8);
    });
    assert_eq!(statuses(&edge), [("200", 1)]);
    assert_eq!(failures(&edge), [(Failure::Unprocessed, 1), (Failure::Reset, 1), (Failure::ClientAbort, 2)]);
}

#[test]
fn what_nobody_looked_at_is_replayed_and_not_retried_in_haste() {
    let mut scene = Scene::on(STORE);
    let mut conn = on(&mut scene, 1);
    let post = [(":method", "POST"), (":path", "/buy"), (":authority", "store")];
    conn.client(1, 1, true, &post).client(1, 3, true, &post);
    conn.scene.tell(told(2, 1, 1, true, false, StreamEventKind::GoAway));
    conn.server(3, 1, true, &[(":status", "200")]);
    let mut other = on(&mut scene, 2);
    other.client(4, 1, true, &post).server(5, 1, true, &[(":status", "200")]);
    let edge = scene.result();
    assert_eq!((statuses(&edge), failures(&edge)), (vec![("200", 2)], vec![(Failure::Unprocessed, 1)]));
    assert_eq!((retries(&edge), edge.replays, edge.non_idempotent_retries), ((0, 0, 1), 1, 0));
    assert!(edge.gaps_ns.is_empty() && edge.burst.retries == 0);
}

#[test]
fn a_post_that_is_sent_again_is_harmful() {
    let edge = found(|conn| {
        let post = [(":method", "POST"), (":path", "/buy"), (":authority", "store")];
        conn.client(1, 1, true, &post).server(2, 1, true, &[(":status", "503")]);
        conn.client(3, 3, true, &post).server(4, 3, true, &[(":status", "200")]);
    });
    assert_eq!((retries(&edge), edge.non_idempotent_retries), ((0, 0, 1), 1));
}

#[test]
fn what_is_open_ends_with_the_connection() {
    let mut scene = Scene::on(STORE);
    on(&mut scene, 1).get(1, 1, "/a").call(1, 3, "x", &[]).client(2, 5, false, &[(":method", "POST"), (":path", "/slow")]);
    scene.tell(spoken(Protocol::Http2, event(STORE, 3, 1, ProbeEventKind::Closed { how: Close::PeerReset })));
    let edge = scene.result();
    assert_eq!((edge.attempts, failures(&edge)), (3, vec![(Failure::Reset, 3)]));
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for_beyond_the_window() {
    let mut scene = Scene::on(STORE);
    on(&mut scene, 1).client(9_999, 1, false, &[(":method", "POST"), (":path", "/stream"), ("content-type", "application/grpc")]);
    scene.end_window(0);
    assert!(scene.tracker.finalised(11_000 * MS).is_empty(), "it is open");
    let windows = scene.tracker.flush(60_000 * MS);
    assert_eq!(windows[0].edges[1].attempts, 1);
    assert_eq!(failures(&windows[0].edges[1]), [(Failure::Hang, 1)]);
}

#[test]
fn a_connection_that_was_joined_late_says_what_it_can() {
    let mut scene = Scene::on(STORE);
    let late = |ms, from_server, ends, bytes: Vec<u8>| {
        let event_of = told(ms, 1, 41, from_server, ends, StreamEventKind::Block(piece(bytes)));
        let ProbeEventKind::Stream(told) = event_of.kind else { unreachable!("it is one") };
        ProbeEvent { kind: ProbeEventKind::Stream(StreamEvent { joined_late: true, ..told }), ..event_of }
    };
    // Field 70 is in a table that nobody has seen.
    let head = [&[0x80 | 70, 0x83][..], &block(&[("x-envoy-attempt-count", "2")])].concat();
    scene.tell(late(1, false, true, head)).tell(late(2, true, true, block(&[(":status", "200")])));
    scene.tell(late(3, true, true, vec![0x80 | 66]));
    let edge = scene.result();
    assert_eq!((edge.attempts, statuses(&edge), retries(&edge)), (1, vec![("200", 1)], (1, 0, 0)));
    assert_eq!(scene.tracker.stats().mismatches.headers_partial, 2);
}

#[test]
fn a_call_of_grpc_on_a_connection_that_was_joined_late_is_no_success_for_its_heads_200() {
    let mut scene = Scene::on(STORE);
    let late = |ms, stream, from_server, ends, kind| {
        let event_of = told(ms, 1, stream, from_server, ends, kind);
        let ProbeEventKind::Stream(told) = event_of.kind else { unreachable!("it is one") };
        ProbeEvent { kind: ProbeEventKind::Stream(StreamEvent { joined_late: true, ..told }), ..event_of }
    };
    // Path and content type are in a table that nobody has seen.
    let block = |bytes: &[u8]| StreamEventKind::Block(piece(bytes.to_vec()));
    let head = [&[0x83, 0x80 | 70, 0x80 | 71][..], &self::block(&[("x-request-id", "the caller's")])].concat();
    let ok = [0x88];
    let unread = [0x80 | 72];
    let mut ask = |ms, stream, body: &[u8]| {
        scene.tell(late(ms, stream, false, false, block(&head)));
        scene.tell(late(ms, stream, false, true, StreamEventKind::Data(body.to_vec())));
    };
    // Four different calls for one incoming request: no retries.
    for (ms, stream, body) in [(1, 41, b"\0\0\0\0\x01a"), (2, 43, b"\0\0\0\0\x01b"), (3, 45, b"\0\0\0\0\x01c"), (4, 47, b"\0\0\0\0\x01d")] {
        ask(ms, stream, body);
    }
    ask(5, 49, b"{\"order\": 1}");
    // A status that can be read, in trailers and without a body before; one that cannot, both ways; and what is none of gRPC.
    scene.tell(late(11, 41, true, false, block(&ok))).tell(late(11, 41, true, true, block(&self::block(&[("grpc-status", "14")]))));
    scene.tell(late(12, 43, true, true, block(&[&ok[..], &self::block(&[("grpc-status", "5")])].concat())));
    scene.tell(late(13, 45, true, false, block(&ok))).tell(late(13, 45, true, true, block(&unread)));
    scene.tell(late(14, 47, true, true, block(&[ok, unread].concat())));
    scene.tell(late(15, 49, true, false, block(&ok)));
    let edge = scene.result();
    assert_eq!((edge.attempts, retries(&edge)), (5, (0, 0, 0)));
    assert_eq!(statuses(&edge), [("200", 1), ("grpc:NOT_FOUND", 1), ("grpc:UNAVAILABLE", 1)]);
    assert_eq!(scene.tracker.stats().mismatches.unseen_outcomes, 2);
    assert_eq!(edge.protocols, [(Protocol::Http2, 1), (Protocol::Grpc, 4)].into());
}

/// Anything at all on a few streams.
fn nonsense() -> impl Strategy<Value = ProbeEvent> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(block(&[(":method", "POST"), (":path", "/a"), ("content-type", "application/grpc")])),
        Just(block(&[(":status", "200")])),
        Just(block(&[("grpc-status", "14")])),
    ];
    let piece = (prop_oneof![4 => Just(0_u32), 1 => 0_u32..60], bytes, any::<(bool, bool)>())
        .prop_map(|(offset, bytes, (partial, truncated))| HeadPiece { offset, bytes, complete: !partial, truncated });
    let kind = (0_u8..8, piece, any::<u32>()).prop_map(|(kind, piece, number)| match kind {
        0..=2 => StreamEventKind::Block(piece),
        3 => StreamEventKind::Data(piece.bytes),
        4 => StreamEventKind::End,
        5 => StreamEventKind::Reset(number % 9),
        6 => StreamEventKind::GoAway,
        _ => {
            if piece.truncated {
                StreamEventKind::Missed
            } else {
                StreamEventKind::Settings(piece.bytes)
            }
        }
    });
    (0_u64..9_999, 0_u64..3, 0_u32..12, any::<(bool, bool, bool)>(), kind).prop_map(
        |(ms, conn, stream, (from_server, ends, late), kind)| {
            let told = told(ms, conn, stream, from_server, ends, kind);
            let ProbeEventKind::Stream(inner) = told.kind else { unreachable!("it is one") };
            ProbeEvent { kind: ProbeEventKind::Stream(StreamEvent { joined_late: late, ..inner }), ..told }
        },
    )
}

fn outcomes(edge: &EdgeWindow) -> u64 {
    let unanswered = edge.failures.iter().filter(|(failure, _)| **failure != Failure::Status);
    edge.status.values().sum::<u64>() + unanswered.map(|(_, count)| count).sum::<u64>() + edge.pending
}

proptest! {
    #[test]
    fn nonsense_never_breaks_the_books(events in proptest::collection::vec(nonsense(), 0..120)) {
        let mut scene = Scene::on(STORE);
        for (number, event) in events.into_iter().enumerate() {
            let now_ns = event.at_ns;
            scene.tell(event);
            if number % 7 == 0 {
                prop_assert!(scene.tracker.finalised(now_ns).is_empty());
            }
        }
        let edge = scene.result();
        prop_assert_eq!(outcomes(&edge), edge.attempts);
        prop_assert!(edge.retries.total() <= edge.attempts);
        prop_assert!(edge.replays <= edge.retries.total());
    }

    #[test]
    fn every_stream_has_one_outcome_whatever_the_interleaving(
        calls in proptest::collection::vec((0_u64..500, 1_u64..400, 0_u8..5, any::<bool>()), 1..60),
    ) {
        let mut scene = Scene::on(STORE);
        let mut told_events = Vec::new();
        let mut starts: Vec<_> = calls.clone();
        starts.sort_by_key(|(start, ..)| *start);
        for ((start, lasts, fate, grpc), n) in starts.iter().zip(0_u32..) {
            let stream = 2 * n + 1;
            let mut fields = vec![(":method", "POST"), (":path", "/x")];
            if *grpc {
                fields.push(("content-type", "application/grpc"));
            }
            told_events.push(told(*start, 1, stream, false, false, StreamEventKind::Block(piece(block(&fields)))));
            told_events.push(told(*start, 1, stream, false, true, StreamEventKind::Data(vec![0, 0, 0, 0, 1, b'x'])));
            let end = start + lasts;
            let status: &[(&str, &str)] = if *grpc { &[(":status", "200"), ("grpc-status", "0")] } else { &[(":status", "200")] };
            match fate {
                0 => told_events.push(told(end, 1, stream, true, false, StreamEventKind::Reset(2))),
                1 => told_events.push(told(end, 1, stream, false, false, StreamEventKind::Reset(8))),
                2 => {}
                _ => told_events.push(told(end, 1, stream, true, true, StreamEventKind::Block(piece(block(status))))),
            }
        }
        told_events.sort_by_key(|event| event.at_ns);
        for event in told_events {
            scene.tell(event);
        }
        let edge = scene.result();
        prop_assert_eq!(edge.attempts, calls.len() as u64);
        let count = |fates: std::ops::Range<u8>| calls.iter().filter(|(_, _, fate, _)| fates.contains(fate)).count() as u64;
        prop_assert_eq!(edge.status.values().sum::<u64>(), count(3..5));
        prop_assert_eq!(edge.failures.get(&Failure::Reset).copied().unwrap_or(0), count(0..1));
        prop_assert_eq!(edge.failures.get(&Failure::ClientAbort).copied().unwrap_or(0), count(1..2));
    }
}

#[test]
fn the_request_that_asked_for_an_upgrade_is_answered_on_stream_1() {
    let mut scene = Scene::on(STORE);
    scene.get(1, 5, 0, "/before").answer(2, 5, 0, 200).get(3, 5, 1, "/");
    scene.tell(spoken(Protocol::Http, event(STORE, 4, 5, ProbeEventKind::Upgraded { index: 1 })));
    let mut conn = Conn { scene: &mut scene, id: 5 };
    conn.server(8, 1, true, &[(":status", "503")]).get(9, 3, "/again").server(10, 3, true, &[(":status", "204")]);
    let edge = scene.result();
    assert_eq!((edge.attempts, edge.pending, failures(&edge)), (3, 0, vec![(Failure::Status, 1)]));
    assert_eq!(statuses(&edge), [("200", 1), ("204", 1), ("503", 1)]);
    assert_eq!(edge.told_status.values().sum::<u64>(), 2, "the kernel does not count these by code");
    assert_eq!(edge.latency_ns, [MS, 5 * MS, MS]);
    assert_eq!(scene.tracker.stats().mismatches, Default::default());
}
