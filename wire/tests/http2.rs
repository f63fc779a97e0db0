//! HTTP/2 as clients and servers speak it.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

mod talk;

use std::collections::BTreeMap;

use stormdrill_wire::abi::{EventHeader, kind, protocol};
use stormdrill_wire::conn::side::{REQUEST, RESPONSE};
use stormdrill_wire::recogniser::{Note, Piece};
use stormdrill_wire::replay::{Observer, Replay};
use talk::{Turn, client, server};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Kind, stream, flags and bytes.
type One = (u8, u32, u8, Vec<u8>);

/// What was told, blocks joined.
#[derive(Default, Debug, PartialEq, Eq, Clone)]
struct Found {
    streams: [Vec<u8>; 2],
    told: [Vec<One>; 2],
    open: BTreeMap<usize, Vec<u8>>,
}

impl Observer for Found {
    fn note(&mut self, side: usize, note: &Note, piece: Piece) {
        if note.kind == 0 {
            return;
        }
        let bytes = &self.streams[side][piece.from as usize..piece.to as usize];
        let flags = note.flags & !EventHeader::FROM_SERVER;
        // HTTP/1's messages, before an upgrade, tell it by their kind.
        let is_stream = note.kind >= kind::BLOCK && note.kind != kind::UPGRADED;
        assert!(!is_stream || (note.flags & EventHeader::FROM_SERVER != 0) == (side == RESPONSE));
        if note.kind == kind::BLOCK {
            let block = self.open.entry(side).or_default();
            assert_eq!(block.len(), piece.offset as usize);
            block.extend(bytes);
            if flags & EventHeader::COMPLETE != 0 {
                let block = self.open.remove(&side).unwrap();
                self.told[side].push((note.kind, note.index, flags, block));
            }
        } else if note.kind == kind::STREAM_RESET {
            self.told[side].push((note.kind, note.index, flags, note.status.to_be_bytes().to_vec()));
        } else if note.kind == kind::STREAM_DATA || note.kind == kind::GO_AWAY {
            // How much of the one is at hand depends on the segments; the other says all by its number.
            self.told[side].push((note.kind, note.index, flags, vec![]));
        } else {
            self.told[side].push((note.kind, note.index, flags, bytes.to_vec()));
        }
    }
}

fn check(start: &Replay, turns: &[Turn], requests: u64, responses: u64) -> Found {
    talk::record(start, turns);
    let mut first = None;
    for piece in [usize::MAX, 1, 2, 3, 5, 8, 9, 10, 64, 255, 257] {
        let mut replay = start.clone();
        let mut found = Found::default();
        for (side, bytes) in turns {
            for segment in bytes.chunks(piece) {
                let seq = u32::try_from(found.streams[*side].len()).unwrap();
                found.streams[*side].extend(segment);
                replay.segment(*side, seq, segment, &mut found);
            }
        }
        assert_eq!((replay.requests, replay.responses), (requests, responses), "pieces of {piece}");
        assert_eq!((replay.foreign, replay.gaps, replay.conn().book.protocol), (0, 0, protocol::HTTP2));
        let first: &Found = first.get_or_insert_with(|| found.clone());
        for side in [REQUEST, RESPONSE] {
            let blocks = |found: &Found| {
                // How much of anything else is at hand depends on the segments.
                let is_whole = |told: &&One| matches!(told.0, kind::BLOCK | kind::STREAM_END | kind::STREAM_RESET | kind::GO_AWAY);
                found.told[side].iter().filter(is_whole).cloned().collect::<Vec<_>>()
            };
            assert_eq!(blocks(&found), blocks(first), "pieces of {piece}");
        }
    }
    first.unwrap()
}

fn opening() -> Vec<Turn> {
    vec![
        server(frame(4, 0, 0, &[0, 3, 0, 0, 0, 128])),
        client([PREFACE, &frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]), &frame(8, 0, 0, &[0, 1, 0, 0])].concat()),
        server(frame(4, 1, 0, &[])),
        client(frame(4, 1, 0, &[])),
    ]
}

const END: u8 = EventHeader::END_STREAM;
const COMPLETE: u8 = EventHeader::COMPLETE;

#[test]
fn a_stream_is_a_request_and_its_end_a_response() {
    let mut turns = opening();
    turns.extend([
        client(frame(1, 5, 1, b"\x82\x84\x86")),
        server([frame(1, 4, 1, b"\x88"), frame(0, 0, 1, &[7; 700]), frame(0, 1, 1, b"x")].concat()),
        client([frame(1, 4, 3, b"\x83"), frame(0, 1, 3, b"hello")].concat()),
        server([frame(1, 4, 3, b"\x88"), frame(0, 0, 3, b"x"), frame(1, 5, 3, b"trailers")].concat()),
    ]);
    let found = check(&Replay::new([0, 0]), &turns, 2, 2);
    let told: Vec<_> = found.told[REQUEST].iter().filter(|told| told.0 != kind::SETTINGS).cloned().collect();
    assert_eq!(
        told,
        [
            (kind::BLOCK, 1, END | COMPLETE, b"\x82\x84\x86".to_vec()),
            (kind::BLOCK, 3, COMPLETE, b"\x83".to_vec()),
            (kind::STREAM_DATA, 3, 0, vec![]),
            (kind::STREAM_END, 3, END, vec![]),
        ]
    );
    assert!(found.told[RESPONSE].contains(&(kind::STREAM_END, 1, END, vec![])));
    assert!(found.told[RESPONSE].contains(&(kind::BLOCK, 3, END | COMPLETE, b"trailers".to_vec())));
    assert!(found.told[REQUEST].contains(&(kind::SETTINGS, 0, 0, vec![0, 4, 0, 1, 0, 0])));
}

#[test]
fn blocks_go_on_over_continuations_without_padding_and_priority() {
    let long = vec![0x40; 3000];
    let mut turns = opening();
    turns.push(client(
        [
            frame(1, 0x29, 1, &[&[5, 0, 0, 0, 0, 9], b"ab".as_slice(), &[0; 5]].concat()),
            frame(9, 0, 1, b""),
            frame(9, 0, 1, &long),
            frame(9, 4, 1, b"cd"),
            frame(1, 5, 3, b"z"),
        ]
        .concat(),
    ));
    let found = check(&Replay::new([0, 0]), &turns, 2, 0);
    assert!(found.told[REQUEST].contains(&(kind::BLOCK, 1, END | COMPLETE, [b"ab".as_slice(), &long, b"cd"].concat())));
}

#[test]
fn a_hundred_streams_at_once_are_a_hundred() {
    let mut turns = opening();
    let opened = (0..100).flat_map(|i| frame(1, 5, 2 * i + 1, b"\x82\x84\xbe")).collect::<Vec<u8>>();
    let heads = (0..100).flat_map(|i| frame(1, 4, 2 * i + 1, b"\x88"));
    let ends = (0..100).rev().flat_map(|i| frame(0, 1, 2 * i + 1, b"body"));
    turns.extend([client(opened), server(heads.chain(ends).collect::<Vec<u8>>())]);
    check(&Replay::new([0, 0]), &turns, 100, 100);
}

#[test]
fn resets_and_farewells_are_told_and_answer_nothing() {
    let mut turns = opening();
    turns.extend([
        client(frame(1, 5, 1, b"\x82")),
        server([frame(3, 0, 1, &7_u32.to_be_bytes()), frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11, b'b', b'y', b'e'])].concat()),
    ]);
    let found = check(&Replay::new([0, 0]), &turns, 1, 0);
    assert!(found.told[RESPONSE].contains(&(kind::STREAM_RESET, 1, 0, vec![0, 7])));
    assert!(found.told[RESPONSE].contains(&(kind::GO_AWAY, 1, 0, vec![])));
}

#[test]
fn a_reset_or_a_farewell_that_is_cut_anywhere_says_the_same() {
    let said = [
        frame(3, 0, 1, &8_u32.to_be_bytes()),
        frame(7, 0, 0, &[0, 1, 2, 5, 0, 0, 0, 0]),
        frame(3, 0, 3, &0x0001_0007_u32.to_be_bytes()),
        frame(7, 0, 0, &[0x80, 0, 0, 3, 0, 0, 0, 2, b'b', b'y', b'e']),
        // Whose block begins anew.
        frame(1, 5, 5, b"\x88"),
    ]
    .concat();
    let expected = [
        (kind::STREAM_RESET, 1, 0, vec![0, 8]),
        (kind::GO_AWAY, 0x01_0205, 0, vec![]),
        (kind::STREAM_RESET, 3, 0, vec![0xff, 0xff]),
        (kind::GO_AWAY, 3, 0, vec![]),
        (kind::BLOCK, 5, END | COMPLETE, b"\x88".to_vec()),
    ];
    let mut before = opening();
    before.push(client([frame(1, 5, 1, b"\x82"), frame(1, 5, 3, b"\x82"), frame(1, 5, 5, b"\x82")].concat()));
    talk::record(&Replay::new([0, 0]), &[before.clone(), said.chunks(1).map(server).collect()].concat());
    for first in 1..said.len() {
        for second in first..said.len() {
            let mut turns = before.clone();
            turns.extend([server(&said[..first]), server(&said[first..second]), server(&said[second..])]);
            let mut replay = Replay::new([0, 0]);
            let mut found = Found::default();
            for (side, bytes) in turns {
                let seq = u32::try_from(found.streams[side].len()).unwrap();
                found.streams[side].extend(&bytes);
                replay.segment(side, seq, &bytes, &mut found);
            }
            let told: Vec<_> = found.told[RESPONSE].iter().filter(|told| told.0 != kind::SETTINGS).cloned().collect();
            assert_eq!(told, expected, "cut at {first} and {second}");
        }
    }
}

#[test]
fn frames_of_unknown_types_are_ignored_once_the_preface_was_seen() {
    for kind in [10, 12, 16, 17, 33, 0xbf, 0xff] {
        // Longer than anybody allows at first, of no stream, of any, with every flag, and none.
        let unknown =
            [frame(kind, 0, 0, b""), frame(kind, 0xff, 0, &[9; 20]), frame(kind, 0x2d, 1, &[1; 2000]), frame(kind, 8, 2, b"\xff")].concat();
        let turns = [
            server([&frame(4, 0, 0, b""), unknown.as_slice()].concat()),
            client([PREFACE, &unknown, &frame(4, 0, 0, b""), &unknown, &frame(1, 5, 1, b"\x82"), &unknown].concat()),
            server([unknown.as_slice(), &frame(1, 4, 1, b"\x88"), &unknown, &frame(0, 1, 1, b"x"), &unknown].concat()),
            client([unknown.as_slice(), &frame(1, 5, 3, b"\x82")].concat()),
            server([unknown.as_slice(), &frame(1, 5, 3, b"\x88")].concat()),
        ];
        for pin in [protocol::ANY, protocol::HTTP2] {
            check(&Replay::new([0, 0]).pinned(pin), &turns, 2, 2);
        }
    }
}

#[test]
fn a_connection_is_no_http2_without_the_whole_preface() {
    for at in 0..PREFACE.len() {
        let mut preface = PREFACE.to_vec();
        preface[at] ^= 1;
        for piece in [usize::MAX, 1, 5] {
            let mut replay = Replay::new([0, 0]).pinned(protocol::HTTP2);
            let mut seq = 0;
            for segment in [preface.as_slice(), &frame(1, 5, 1, b"\x82")].concat().chunks(piece) {
                replay.segment(REQUEST, seq, segment, &mut ());
                seq += u32::try_from(segment.len()).unwrap();
            }
            assert_eq!((replay.requests, replay.foreign), (0, 1), "byte {at}, pieces of {piece}");
        }
    }
}

#[test]
fn what_the_server_pushes_is_no_request_and_no_response() {
    let mut turns = opening();
    turns.extend([
        client(frame(1, 5, 1, b"\x82")),
        server(
            [
                frame(5, 4, 1, b"\0\0\0\x02pushed"),
                frame(1, 4, 1, b"\x88"),
                frame(1, 4, 2, b"\x88"),
                frame(0, 1, 2, b"x"),
                frame(0, 1, 1, b"y"),
            ]
            .concat(),
        ),
    ]);
    check(&Replay::new([0, 0]), &turns, 1, 1);
}

#[test]
fn a_connection_that_was_open_before_is_recognised_by_its_frames() {
    let one = |stream| client([frame(1, 4, stream, b"\x83\xbe"), frame(0, 1, stream, b"hello")].concat());
    let turns = [
        server(b"the rest of a body"),
        one(101),
        server([frame(1, 4, 101, b"\x88"), frame(0, 1, 101, b"x")].concat()),
        client(frame(1, 5, 103, b"\x82\xbe")),
        server(frame(1, 5, 103, b"\xbe")),
    ];
    let mut replay = Replay::found();
    let mut found = Found::default();
    for (side, bytes) in &turns {
        let seq = u32::try_from(found.streams[*side].len()).unwrap();
        found.streams[*side].extend(bytes);
        replay.segment(*side, seq, bytes, &mut found);
    }
    assert_eq!((replay.requests, replay.responses), (2, 2));
    assert_eq!(found.told[REQUEST][0].2 & EventHeader::JOINED_LATE, EventHeader::JOINED_LATE);
}

#[test]
fn bytes_that_look_like_frames_are_nothing_without_a_preface() {
    for bytes in [frame(1, 5, 1, b"\x82\x84\x86"), frame(4, 0, 0, &[0; 6]), b"\x16\x03\x01\0\x05\x01\0\0\x01\x03".to_vec()] {
        for piece in [usize::MAX, 1, 4] {
            let mut replay = Replay::new([0, 0]);
            let mut seq = 0;
            for segment in bytes.repeat(3).chunks(piece) {
                replay.segment(REQUEST, seq, segment, &mut ());
                seq += u32::try_from(segment.len()).unwrap();
            }
            assert_eq!((replay.requests, replay.responses), (0, 0));
            assert!(replay.conn().book.protocol >= protocol::TLS);
        }
    }
}

#[test]
fn after_a_gap_that_was_given_up_the_numbers_tell_how_many_streams_were_missed() {
    let mut replay = Replay::new([0, 0]);
    let start = [PREFACE, &frame(1, 5, 1, b"\x82")].concat();
    replay.segment(REQUEST, 0, &start, &mut ());
    // 100 KB later, which no ring holds.
    let late = [frame(1, 5, 41, b"\x82"), frame(1, 5, 43, b"\x82")].concat();
    replay.segment(REQUEST, 100_000, &late, &mut ());
    assert_eq!((replay.requests, replay.gaps), (22, 1));
}

const ASKED: &str =
    "GET /a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
const GRANTED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";

/// From the grant on: stream 1 is answered before or after the client's preface, then stream 3 is asked and answered.
fn upgraded(granted: &str) -> Vec<Turn> {
    let answer = |stream| [frame(1, 4, stream, b"\x88"), frame(0, 1, stream, b"hello")].concat();
    vec![
        server([granted.as_bytes(), &frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]), &answer(1)].concat()),
        client([PREFACE, &frame(4, 0, 0, &[]), &frame(1, 5, 3, b"\x82\x84\x86")].concat()),
        server([frame(4, 1, 0, &[]), answer(3)].concat()),
    ]
}

#[test]
fn after_an_upgrade_the_request_that_asked_for_it_is_stream_1() {
    for granted in [
        GRANTED,
        "HTTP/1.1 101 Switching Protocols\r\nupgrade:H2C\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 101\r\nUpgrade: h2c\r\n\r\n",
        "HTTP/1.1 101\nUpgrade:\th2c\n\n",
    ] {
        let turns = [vec![client(ASKED)], upgraded(granted)].concat();
        let found = check(&Replay::new([0, 0]), &turns, 2, 2);
        assert!(found.told[RESPONSE].iter().any(|told| told.0 == kind::UPGRADED && told.1 == 0), "{granted}");
    }
    // Later on a connection, and where nobody saw what was asked before.
    let before = [client("GET / HTTP/1.1\r\n\r\n"), server("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")];
    let turns = [before.to_vec(), vec![client(ASKED)], upgraded(GRANTED)].concat();
    check(&Replay::new([0, 0]), &turns, 3, 3);
    let (replay, told) = talk::feed(Replay::found(), &turns, usize::MAX);
    assert_eq!((replay.requests, replay.responses, replay.conn().book.protocol), (3, 3, protocol::HTTP2));
    let late = EventHeader::JOINED_LATE;
    assert!(told.notes.iter().all(|(_, note)| note.flags & late == 0), "the tables of an upgraded connection are known: {told:?}");
}

#[test]
fn an_upgrade_that_is_not_granted_or_to_something_else_is_none() {
    let plain = "HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nContent-Length: 0\r\n\r\n";
    let (replay, _) = talk::feed(Replay::new([0, 0]), &[client(ASKED), server(plain), client(ASKED), server(plain)], usize::MAX);
    assert_eq!((replay.requests, replay.responses, replay.conn().book.protocol), (2, 2, protocol::HTTP1));
    for other in ["websocket", "h2c-14", "xh2c", "h2c, x"] {
        let other = format!("HTTP/1.1 101 Switching Protocols\r\nUpgrade: {other}\r\n\r\n");
        let turns = [client(ASKED), server(other), server(frame(1, 5, 1, b"\x88")), client("GET / HTTP/1.1\r\n\r\n")];
        let (replay, _) = talk::feed(Replay::new([0, 0]), &turns, usize::MAX);
        assert_eq!((replay.requests, replay.responses, replay.conn().book.protocol), (1, 1, protocol::HTTP1));
    }
}
