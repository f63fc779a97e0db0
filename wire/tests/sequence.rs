//! Retransmissions, duplicates, overlaps, gaps and disorder.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

use proptest::prelude::*;
use stormdrill_wire::conn::side::{REQUEST, RESPONSE};
use stormdrill_wire::replay::Replay;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nX-Pad: 0123456789012345678901234567890123456789\r\n\r\n";
const LEN: u32 = 76;
const _: () = assert!(GET.len() == LEN as usize);

fn post(body: usize) -> Vec<u8> {
    let mut bytes = format!("POST /x HTTP/1.1\r\nContent-Length: {body}\r\n\r\n").into_bytes();
    bytes.extend(b"GET / HTTP/1.1\r\n\r\n".iter().cycle().take(body));
    bytes
}

#[test]
fn a_retransmission_is_not_counted_again() {
    let mut replay = Replay::new([0, 0]);
    for _ in 0..3 {
        replay.segment(REQUEST, 0, GET, &mut ());
    }
    assert_eq!((replay.requests, replay.bytes[0]), (1, u64::from(LEN)));
}

#[test]
fn a_retransmission_that_brings_more_is_read_from_where_it_is_new() {
    let mut replay = Replay::new([0, 0]);
    replay.segment(REQUEST, 0, GET, &mut ());
    replay.segment(REQUEST, 0, &GET.repeat(2), &mut ());
    replay.segment(REQUEST, LEN, &GET.repeat(3), &mut ());
    assert_eq!((replay.requests, replay.bytes[0]), (4, 4 * u64::from(LEN)));
}

#[test]
fn sequence_numbers_wrap() {
    let start = u32::MAX - 20;
    let mut replay = Replay::new([start, 0]);
    for i in 0..5 {
        replay.segment(REQUEST, start.wrapping_add(i * LEN), GET, &mut ());
        replay.segment(REQUEST, start.wrapping_add(i * LEN), GET, &mut ());
    }
    assert_eq!(replay.requests, 5);
}

#[test]
fn a_first_segment_that_comes_last_is_counted() {
    let mut replay = Replay::new([0, 0]);
    replay.segment(REQUEST, LEN, GET, &mut ());
    replay.segment(REQUEST, 0, GET, &mut ());
    replay.segment(REQUEST, 2 * LEN, GET, &mut ());
    assert_eq!((replay.requests, replay.gaps), (3, 0));
}

#[test]
fn a_head_whose_first_part_comes_last_is_counted_once() {
    let (first, second) = GET.split_at(40);
    let mut replay = Replay::new([0, 0]);
    replay.segment(REQUEST, 40, second, &mut ());
    replay.segment(REQUEST, 0, first, &mut ());
    assert_eq!((replay.requests, replay.gaps), (1, 0));
    replay.segment(REQUEST, LEN, GET, &mut ());
    assert_eq!(replay.requests, 2);
}

#[test]
fn body_bytes_that_are_missing_do_not_matter() {
    let post = post(10_000);
    let mut replay = Replay::new([0, 0]);
    let at = |from: usize, to: usize, replay: &mut Replay| {
        replay.segment(REQUEST, u32::try_from(from).unwrap(), &post[from..to], &mut ());
    };
    at(0, 1000, &mut replay);
    at(2000, 3000, &mut replay);
    at(5000, 6000, &mut replay);
    at(9000, post.len(), &mut replay);
    replay.segment(REQUEST, u32::try_from(post.len()).unwrap(), GET, &mut ());
    assert_eq!((replay.requests, replay.gaps), (2, 0));
}

#[test]
fn a_missing_head_is_counted_when_it_comes_and_its_body_is_no_request() {
    // No segment of the body begins like a message: one that does, with its head still missing, would be taken for one.
    let post = post(3000);
    let starts_like_one = |at: usize| post[at..].starts_with(b"GET ");
    let (first, second) = (1003, 2007);
    assert!(!starts_like_one(first) && !starts_like_one(second));
    let mut replay = Replay::new([0, 0]);
    for (from, to) in [(first, second), (second, post.len()), (0, first)] {
        replay.segment(REQUEST, u32::try_from(from).unwrap(), &post[from..to], &mut ());
    }
    replay.segment(REQUEST, u32::try_from(post.len()).unwrap(), GET, &mut ());
    assert_eq!((replay.requests, replay.gaps), (2, 0));
}

#[test]
fn a_counter_never_freezes_at_a_gap() {
    let mut replay = Replay::new([0, 0]);
    for i in 0..20 {
        replay.segment(REQUEST, 2 * i * LEN, GET, &mut ());
    }
    assert!(replay.requests >= 12 && replay.gaps > 0, "{replay:?}");
}

/// A stream of messages, and how many there are.
fn requests() -> impl Strategy<Value = (Vec<u8>, u64)> {
    let chunked =
        b"PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n12;a=b\r\nGET / HTTP/1.1\r\n\r\n\r\n0\r\n\r\n".to_vec();
    let one = prop_oneof![
        Just(GET.to_vec()),
        (0_usize..700).prop_map(post),
        Just(chunked),
        Just(b"\r\nHEAD /h HTTP/1.0\n\n".to_vec()),
        (0_usize..2000).prop_map(|n| format!("DELETE /{} HTTP/1.1\r\nA: {}\r\n\r\n", "d".repeat(n / 4), "v".repeat(n)).into_bytes()),
    ];
    prop::collection::vec(one, 1..12).prop_map(|all| (all.concat(), all.len() as u64))
}

fn responses() -> impl Strategy<Value = (Vec<u8>, u64)> {
    let one = prop_oneof![
        Just(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec()),
        Just(b"HTTP/1.1 204 No Content\r\nDate: Sun, 29 Nov 2026 21:00:00 GMT\r\n\r\n".to_vec()),
        Just(b"HTTP/1.1 503 Service Temporarily Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_vec()),
        (0_usize..900)
            .prop_map(|n| format!("HTTP/1.1 404 Not Found\r\nServer: x\r\ncontent-length: {n}\r\n\r\n{}", "b".repeat(n)).into_bytes()),
    ];
    prop::collection::vec(one, 1..12).prop_map(|all| (all.concat(), all.len() as u64))
}

fn cuts(len: usize, at: &[prop::sample::Index]) -> Vec<(usize, usize)> {
    let mut cuts: Vec<usize> = at.iter().map(|index| index.index(len)).chain([0, len]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_counts(
        (bytes, count) in requests(),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        start in any::<u32>(),
    ) {
        let mut replay = Replay::new([start, 0]);
        for (from, to) in cuts(bytes.len(), &at) {
            replay.segment(REQUEST, start.wrapping_add(u32::try_from(from).unwrap()), &bytes[from..to], &mut ());
        }
        prop_assert_eq!(replay.requests, count);
        prop_assert_eq!(replay.bytes[0], bytes.len() as u64);
        prop_assert_eq!((replay.gaps, replay.foreign), (0, 0));
    }

    #[test]
    fn any_split_of_responses_gives_the_same_counts(
        (bytes, count) in responses(),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut replay = Replay::new([0, 0]);
        for (from, to) in cuts(bytes.len(), &at) {
            replay.segment(RESPONSE, u32::try_from(from).unwrap(), &bytes[from..to], &mut ());
        }
        prop_assert_eq!(replay.responses, count);
    }

    #[test]
    fn repeated_and_overlapping_segments_change_nothing(
        (bytes, count) in requests(),
        at in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        again in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..20),
    ) {
        let mut replay = Replay::new([0, 0]);
        let cuts = cuts(bytes.len(), &at);
        let mut again = again.iter();
        for &(from, to) in &cuts {
            replay.segment(REQUEST, u32::try_from(from).unwrap(), &bytes[from..to], &mut ());
            if let Some((a, b)) = again.next() {
                let (a, b) = (a.index(to), b.index(to));
                let (a, b) = (a.min(b), a.max(b));
                replay.segment(REQUEST, u32::try_from(a).unwrap(), &bytes[a..b], &mut ());
            }
        }
        prop_assert_eq!(replay.requests, count);
        prop_assert_eq!(replay.bytes[0], bytes.len() as u64);
    }

    #[test]
    fn one_late_segment_at_a_time_changes_nothing_where_messages_fill_segments(
        count in 2_usize..30,
        late in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        delay in 1_usize..5,
    ) {
        // Each segment is a message of its own, as on connections without pipelining.
        let mut order: Vec<usize> = (0..count).collect();
        let mut from = 0;
        for index in late {
            let at = index.index(count);
            // Only one hole is remembered: the next segment is late only when the last late one has come.
            if at >= from && at + delay < count {
                let segment = order.remove(at);
                order.insert(at + delay, segment);
                from = at + delay + 1;
            }
        }
        let mut replay = Replay::new([0, 0]);
        for &i in &order {
            replay.segment(REQUEST, u32::try_from(i).unwrap() * LEN, GET, &mut ());
        }
        prop_assert_eq!((replay.requests, replay.gaps), (count as u64, 0), "{:?}", order);
    }

    #[test]
    fn random_bytes_never_count_or_panic(
        segments in prop::collection::vec((0_usize..2, any::<u32>(), prop::collection::vec(any::<u8>(), 1..600)), 1..30),
        near in any::<bool>(),
    ) {
        let mut replay = Replay::new([0, 0]);
        let mut seq = [0_u32; 2];
        for (side, jump, bytes) in segments {
            seq[side] = if near { seq[side].wrapping_add(jump % 700) } else { jump };
            replay.segment(side, seq[side], &bytes, &mut ());
        }
        prop_assert_eq!((replay.requests, replay.responses), (0, 0));
    }

    #[test]
    fn damaged_streams_never_panic(
        (mut bytes, _) in requests(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        order in prop::collection::vec((any::<prop::sample::Index>(), 1_usize..900), 1..40),
    ) {
        for (at, byte) in damage {
            let len = bytes.len();
            bytes[at.index(len)] = byte;
        }
        let mut replay = Replay::new([0, 0]);
        for (at, len) in order {
            let from = at.index(bytes.len());
            let to = (from + len).min(bytes.len());
            replay.segment(REQUEST, u32::try_from(from).unwrap(), &bytes[from..to], &mut ());
        }
        prop_assert!(replay.requests <= bytes.len() as u64 / 16);
    }
}

#[test]
fn a_first_byte_that_comes_alone_is_kept_where_the_ring_ends_too() {
    // The ring's last place but fifteen.
    let start = 2_338_521_073_u32;
    let mut replay = Replay::new([start, 0]);
    replay.segment(REQUEST, start, &GET[..1], &mut ());
    replay.segment(REQUEST, start.wrapping_add(1), &GET[1..], &mut ());
    assert_eq!((replay.requests, replay.gaps, replay.foreign), (1, 0, 0), "{replay:?}");
}
