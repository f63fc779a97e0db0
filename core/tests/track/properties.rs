//! What holds whatever happens on the wire.

use proptest::prelude::*;
use stormdrill_core::event::{Close, HeadPiece, ProbeEvent, ProbeEventKind};
use stormdrill_core::window::{EdgeWindow, Failure, Window};

use crate::scene::{MS, STORE, Scene, event, get, request, response};

/// One request and what becomes of it.
#[derive(Debug, Clone)]
struct Call {
    start: u64,
    lasts: u64,
    fate: Fate,
    path: u8,
    id: Option<u8>,
    marker: Option<u8>,
}

#[derive(Debug, Clone)]
enum Fate {
    Answered(u16),
    Closed(Close),
    Open,
}

fn call() -> impl Strategy<Value = Call> {
    let fate = prop_oneof![
        4 => prop_oneof![Just(200_u16), Just(404), Just(429), Just(503)].prop_map(Fate::Answered),
        2 => prop_oneof![Just(Close::Peer), Just(Close::PeerReset), Just(Close::Local), Just(Close::LocalReset)]
            .prop_map(Fate::Closed),
        1 => Just(Fate::Open),
    ];
    let marks = (proptest::option::of(0_u8..4), proptest::option::weighted(0.3, 1_u8..4));
    (0_u64..19_000, 0_u64..3_000, fate, 0_u8..3, marks).prop_map(|(start, lasts, fate, path, (id, marker))| Call {
        start,
        lasts,
        fate,
        path,
        id,
        marker,
    })
}

/// Each call on a connection of its own.
fn events(calls: &[Call]) -> Vec<ProbeEvent> {
    let mut events = Vec::new();
    for (conn, call) in (1..).zip(calls) {
        let id = call.id.map(|id| format!("x-request-id: {id}\r\n")).unwrap_or_default();
        let marker = call.marker.map(|number| format!("x-envoy-attempt-count: {number}\r\n")).unwrap_or_default();
        let head = get(&format!("/{}", call.path), &format!("{id}{marker}"));
        let end = (call.start + call.lasts).min(19_999);
        events.push(request(STORE, call.start, conn, 0, &head));
        match call.fate {
            Fate::Answered(status) => events.push(response(STORE, end, conn, 0, status)),
            Fate::Closed(how) => {
                let kind = ProbeEventKind::Closed { how };
                events.push(event(STORE, end, conn, kind));
            }
            Fate::Open => {}
        }
    }
    events.sort_by_key(|event| event.at_ns);
    events
}

fn run(events: impl IntoIterator<Item = ProbeEvent>) -> (Vec<Window>, Scene) {
    let mut scene = Scene::on(STORE);
    scene.end_window(0);
    scene.end_window(1);
    let mut windows = Vec::new();
    for event in events {
        let now_ns = event.at_ns;
        scene.tell(event);
        windows.extend(scene.tracker.finalised(now_ns));
    }
    windows.extend(scene.tracker.flush(20_000 * MS));
    (windows, scene)
}

/// Events that no sound kernel would send, on a few connections.
fn nonsense() -> impl Strategy<Value = ProbeEvent> {
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(get("/", "x-request-id: r\r\nIdempotency-Key: k\r\n").into_bytes()),
        Just(b"GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\nbody".to_vec()),
    ];
    let offset = prop_oneof![4 => Just(0_u32), 1 => 0_u32..100, 1 => any::<u32>()];
    let piece = (offset, bytes, any::<(bool, bool)>()).prop_map(|(offset, bytes, (complete, truncated))| HeadPiece {
        offset,
        bytes,
        complete,
        truncated,
    });
    let index = prop_oneof![4 => 0_u32..4, 1 => any::<u32>()];
    let close = prop_oneof![Just(Close::Peer), Just(Close::PeerReset), Just(Close::Local), Just(Close::LocalReset)];
    let kind = (0_u8..5, index, piece, any::<u16>(), close).prop_map(|(kind, index, piece, status, how)| match kind {
        0 | 1 => ProbeEventKind::RequestHead { index, piece },
        2 | 3 => ProbeEventKind::ResponseHead { index, status, requester_ended: false, piece },
        _ => ProbeEventKind::Closed { how },
    });
    (0_u64..19_999, 0_u64..3, kind).prop_map(|(ms, conn, kind)| event(STORE, ms, conn, kind))
}

/// In how many ways an edge's attempts ended.
fn outcomes(edge: &EdgeWindow) -> u64 {
    let answered: u64 = edge.status.values().sum();
    let unanswered = edge.failures.iter().filter(|(failure, _)| **failure != Failure::Status);
    answered + unanswered.map(|(_, count)| count).sum::<u64>() + edge.pending
}

/// Orders what has no order of its own.
fn sorted(mut windows: Vec<Window>) -> Vec<Window> {
    for edge in windows.iter_mut().flat_map(|window| &mut window.edges) {
        edge.latency_ns.sort_unstable();
        edge.failure_latency_ns.sort_unstable();
        edge.waited_ns.sort_unstable();
    }
    windows
}

proptest! {
    #[test]
    fn counts_are_conserved(calls in proptest::collection::vec(call(), 0..60)) {
        let (windows, scene) = run(events(&calls));
        prop_assert_eq!(windows.len(), 2);
        for (window, from) in windows.iter().zip([0, 10_000]) {
            let edge = &window.edges[1];
            let started = calls.iter().filter(|call| (from..from + 10_000).contains(&call.start)).count() as u64;
            prop_assert_eq!(edge.attempts, started);
            prop_assert_eq!(outcomes(edge), started);
            prop_assert!(edge.retries.total() <= edge.attempts);
            prop_assert!(edge.hedges <= edge.retries.matched);
            prop_assert_eq!(edge.latency_ns.len() as u64, edge.status.values().sum::<u64>());
            prop_assert_eq!(edge.failure_latency_ns.len() as u64, edge.failures.values().sum::<u64>());
            let marked = calls.iter().filter(|call| {
                (from..from + 10_000).contains(&call.start) && call.marker.is_some_and(|number| number > 1)
            });
            prop_assert_eq!(edge.retries.marker, marked.count() as u64, "markers are believed to the letter");
        }
        let stats = scene.tracker.stats();
        prop_assert_eq!(stats.mismatches.unpaired_responses, 0);
        prop_assert_eq!(stats.misfits.attempts, 0);
    }

    #[test]
    fn matched_retries_never_outnumber_what_could_explain_them(calls in proptest::collection::vec(call(), 0..60)) {
        let (windows, _) = run(events(&calls));
        let explainable = calls.iter().filter(|call| !matches!(call.fate, Fate::Answered(200 | 404))).count() as u64;
        let (mut failed, mut hedges) = (0, 0);
        for window in &windows {
            failed += window.edges[1].retries.matched - window.edges[1].hedges;
            hedges += window.edges[1].hedges;
        }
        prop_assert!(failed <= explainable, "{} of {}", failed, explainable);
        prop_assert!(failed + hedges <= calls.len() as u64);
    }

    #[test]
    fn the_order_of_events_within_the_hold_does_not_matter(
        calls in proptest::collection::vec(call(), 0..40),
        jitter in proptest::collection::vec(0_u64..40, 80),
    ) {
        let ordered = events(&calls);
        let mut shuffled: Vec<_> = ordered.iter().cloned().zip(jitter.iter().cycle()).collect();
        shuffled.sort_by_key(|(event, late)| event.at_ns / MS + *late);
        let shuffled: Vec<_> = shuffled.into_iter().map(|(event, _)| event).collect();
        let ((expected, _), (found, scene)) = (run(ordered), run(shuffled));
        prop_assert_eq!(scene.tracker.stats().late_events, 0);
        prop_assert_eq!(sorted(found), sorted(expected));
    }

    #[test]
    fn nonsense_never_breaks_the_books(events in proptest::collection::vec(nonsense(), 0..80)) {
        let (windows, scene) = run(events);
        for window in &windows {
            let edge = &window.edges[1];
            prop_assert_eq!(outcomes(edge), edge.attempts);
            prop_assert!(edge.retries.total() <= edge.attempts);
        }
        prop_assert!(scene.tracker.open_connections(STORE) <= 3);
    }

    #[test]
    fn any_bytes_can_be_asked_for_an_identity(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0_usize..120) {
        let head = get("/a?b=c", "x-goog-api-client: gccl-invocation-id/u gccl-attempt-count/2\r\nContent-Length: 5\r\n");
        let mut bytes = bytes;
        std::hint::black_box(stormdrill_core::track::http::identity(&bytes, None));
        bytes.splice(0..0, head.into_bytes().into_iter().take(cut));
        std::hint::black_box(stormdrill_core::track::http::identity(&bytes, None));
    }

    #[test]
    fn losing_events_never_invents_an_answer_or_shifts_a_pair(
        kept in proptest::collection::vec(any::<(bool, bool)>(), 1..40),
    ) {
        // On one connection; request n is answered 200 + n after n + 1 ms, so that a shifted pair shows.
        let mut scene = Scene::on(STORE);
        for ((ask, answer), n) in kept.iter().zip(0_u32..) {
            let start = u64::from(n) * 100;
            if *ask {
                scene.get(start, 1, n, "/");
            }
            if *answer {
                scene.answer(start + u64::from(n) + 1, 1, n, u16::try_from(200 + n).unwrap());
            }
        }
        let edge = scene.result();
        let whole = kept.iter().zip(0_u64..).filter(|((ask, answer), _)| *ask && *answer);
        let whole: Vec<u64> = whole.map(|(_, n)| n).collect();
        prop_assert_eq!(edge.latency_ns, whole.iter().map(|n| (n + 1) * MS).collect::<Vec<_>>());
        prop_assert_eq!(edge.status.keys().cloned().collect::<Vec<_>>(),
            whole.iter().map(|n| (200 + n).to_string()).collect::<Vec<_>>());
    }
}
