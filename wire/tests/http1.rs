//! The HTTP/1.x recogniser on streams as servers and clients send them.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

mod talk;

use stormdrill_wire::abi::{EventHeader, protocol};
use stormdrill_wire::conn::side::*;
use stormdrill_wire::recogniser::{Note, Piece, tally};
use stormdrill_wire::replay::{Observer, Replay};
use talk::{client, server};

/// Remembers what was found.
#[derive(Default, Debug, PartialEq, Eq, Clone)]
struct Found {
    heads: Vec<(usize, u32, u16, bool)>,
}

impl Observer for Found {
    fn note(&mut self, side: usize, note: &Note, _piece: Piece) {
        if note.tally != tally::NONE {
            // What answers nothing that was seen has no record.
            self.heads.push((side, note.index, note.status, note.kind == 0));
        }
    }
}

/// Feeds both sides in the given order, whole, and byte by byte; both must find the same.
fn check(turns: &[(usize, &str)], requests: u64, statuses: &[u16]) -> Replay {
    let bytes = |turn: &(usize, &str)| (turn.0, turn.1.as_bytes().to_vec());
    talk::record(&Replay::new([0, 0]), &turns.iter().map(bytes).collect::<Vec<_>>());
    let mut results = Vec::new();
    for piece in [usize::MAX, 1, 2, 3, 7, 255] {
        {
            let mut replay = Replay::new([100, 200]);
            let mut found = Found::default();
            let mut seq = [100_u32, 200];
            for &(side, text) in turns {
                for segment in text.as_bytes().chunks(piece) {
                    replay.segment(side, seq[side], segment, &mut found);
                    seq[side] += u32::try_from(segment.len()).unwrap();
                }
            }
            assert_eq!(replay.requests, requests, "pieces of {piece}: {turns:?}");
            let seen: Vec<u16> = found.heads.iter().filter(|h| h.0 == RESPONSE).map(|h| h.2).collect();
            assert_eq!(seen, statuses, "pieces of {piece}: {turns:?}");
            assert_eq!(replay.responses, statuses.len() as u64);
            results.push(replay);
        }
    }
    results.remove(0)
}

const GET: &str = "GET /index.html?x=1 HTTP/1.1\r\nHost: a\r\nUser-Agent: test/1.0 (something longer)\r\n\r\n";

#[test]
fn a_request_and_its_response_are_counted() {
    check(&[(REQUEST, GET), (RESPONSE, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")], 1, &[200]);
}

#[test]
fn a_body_is_not_a_request() {
    let body = "GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    let post = format!("POST /a HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    check(&[(REQUEST, &post), (REQUEST, GET)], 2, &[]);
}

#[test]
fn a_length_is_read_in_whatever_form_it_stands() {
    // The value, and how many bytes it says. What fits into a word is read at once, the rest digit by digit.
    for (value, length) in [
        ("0", 0),
        ("7", 7),
        (" 7", 7),
        ("  7", 7),
        ("\t42", 42),
        (" 42 ", 42),
        (" 12345", 12345),
        ("99999", 99999),
        (" 123456", 123_456),
        (" 00012", 12),
        (" 19, 19", 19),
    ] {
        let body = "GET / HTTP/1.1\r\n\r\n".repeat(length / 18 + 1);
        for (end, more) in [("\r\n", ""), ("\n", ""), ("\r\n", "A: b\r\n")] {
            let post = format!("POST / HTTP/1.1\r\nContent-Length:{value}{end}{more}\r\n{}", &body[..length]);
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length:{value}{end}{more}\r\n{}", &body[..length]);
            check(&[(REQUEST, &post), (RESPONSE, &answer), (REQUEST, GET), (RESPONSE, &answer)], 2, &[200, 200]);
        }
    }
}

#[test]
fn a_chunked_body_is_not_a_request_and_ends_where_it_ends() {
    let post = "POST /a HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n12;ext=1\r\nGET / HTTP/1.1\r\n\r\n\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
    check(&[(REQUEST, post), (REQUEST, GET), (REQUEST, post)], 3, &[]);
    let answer = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nHTTP/\r\n0\r\n\r\n";
    check(&[(REQUEST, GET), (REQUEST, GET), (RESPONSE, answer), (RESPONSE, answer)], 2, &[200, 200]);
}

#[test]
fn chunked_overrides_a_length_in_either_order() {
    for fields in ["Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 3"] {
        let post = format!("POST /a HTTP/1.1\r\n{fields}\r\n\r\n1\r\nx\r\n0\r\n\r\n");
        check(&[(REQUEST, &post), (REQUEST, GET)], 2, &[]);
    }
}

#[test]
fn fifty_pipelined_requests_in_one_segment_are_fifty() {
    let answers = "HTTP/1.1 204 No Content\r\nServer: x\r\n\r\n".repeat(50);
    check(&[(REQUEST, &GET.repeat(50)), (RESPONSE, &answers)], 50, &[204; 50]);
}

#[test]
fn interim_responses_are_not_counted() {
    let post = "POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let answers =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";
    check(&[(REQUEST, post), (RESPONSE, answers), (REQUEST, "ok"), (REQUEST, GET)], 2, &[201]);
}

#[test]
fn answers_without_a_body_are_followed_by_the_next() {
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let no_body = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    let not_modified = "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n";
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
    check(
        &[(REQUEST, head), (REQUEST, GET), (REQUEST, GET), (RESPONSE, no_body), (RESPONSE, not_modified), (RESPONSE, ok)],
        3,
        &[200, 304, 200],
    );
}

#[test]
fn nothing_after_an_upgrade_is_http() {
    let upgrade = "GET /chat HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let accepted = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n";
    check(
        &[(REQUEST, upgrade), (RESPONSE, accepted), (REQUEST, GET), (RESPONSE, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
        1,
        &[101],
    );
}

#[test]
fn nothing_after_a_tunnel_is_http_unless_it_was_refused() {
    let connect = "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
    check(&[(REQUEST, connect), (RESPONSE, "HTTP/1.1 200 OK\r\n\r\n"), (REQUEST, GET)], 1, &[200]);
    let refused = "HTTP/1.1 407 Proxy\r\nContent-Length: 0\r\n\r\n";
    check(&[(REQUEST, connect), (RESPONSE, refused), (REQUEST, GET), (RESPONSE, refused)], 2, &[407, 407]);
}

#[test]
fn absolute_and_asterisk_targets_are_requests() {
    check(&[(REQUEST, "GET http://host/path HTTP/1.1\r\n\r\n"), (REQUEST, "OPTIONS * HTTP/1.0\r\n\r\n")], 2, &[]);
}

#[test]
fn lenient_line_ends_are_taken() {
    check(
        &[(REQUEST, "\r\n\r\nGET / HTTP/1.1\nHost: a\n\n"), (RESPONSE, "HTTP/1.1 200\nContent-Length: 1\n\nxHTTP/1.0 404\r\n\r\n")],
        1,
        &[200, 404],
    );
}

#[test]
fn a_response_until_the_end_swallows_the_rest() {
    check(&[(REQUEST, GET), (RESPONSE, "HTTP/1.0 200 OK\r\nServer: x\r\n\r\nHTTP/1.0 200 OK\r\n\r\n")], 1, &[200]);
}

#[test]
fn header_names_are_compared_to_their_end_and_without_case() {
    let post =
        "POST / HTTP/1.1\r\nContent-Lengthy: 900\r\nContent-Len: 8\r\nCoNtEnT-LeNgTh:   4  \r\nTransfer-Encodings: chunked\r\n\r\nabcd";
    check(&[(REQUEST, post), (REQUEST, GET)], 2, &[]);
    check(&[(REQUEST, "POST / HTTP/1.1\r\nX-Content-Length: 90\r\n\r\n"), (REQUEST, GET)], 2, &[]);
}

#[test]
fn a_large_head_is_one_request() {
    let head = format!("GET / HTTP/1.1\r\nCookie: {}\r\n\r\n", "c".repeat(65_000));
    check(&[(REQUEST, &head), (REQUEST, GET)], 2, &[]);
    let many: String = (0..900).map(|i| format!("X-Header-{i}: value\r\n")).collect();
    check(&[(REQUEST, &format!("GET / HTTP/1.1\r\n{many}\r\n")), (REQUEST, GET)], 2, &[]);
}

#[test]
fn other_protocols_are_foreign_and_never_a_request() {
    let streams: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x05\x01\x05\x00\x00\x00\x01GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\nGET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET /\r\n\r\n",
        b"EHLO example.com\r\n\r\n",
    ];
    for stream in streams {
        for piece in [usize::MAX, 1, 5] {
            let mut replay = Replay::new([0, 0]);
            let mut seq = 0;
            for segment in stream.chunks(piece) {
                replay.segment(REQUEST, seq, segment, &mut ());
                seq += u32::try_from(segment.len()).unwrap();
            }
            assert_eq!((replay.requests, replay.foreign), (0, 1), "{:?}", String::from_utf8_lossy(stream));
            // Once foreign, always foreign.
            replay.segment(REQUEST, seq, GET.as_bytes(), &mut ());
            assert_eq!(replay.requests, 0);
        }
    }
}

#[test]
fn a_connection_found_open_is_picked_up_at_the_next_message() {
    let mut replay = Replay::found();
    replay.segment(REQUEST, 1000, b"rest of a body GET / HTTP/1.1\r\n\r\n", &mut ());
    assert_eq!(replay.requests, 0);
    replay.segment(REQUEST, 1033, GET.as_bytes(), &mut ());
    replay.segment(RESPONSE, 7, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &mut ());
    assert_eq!((replay.requests, replay.responses, replay.foreign), (1, 1, 0));
}

#[test]
fn the_answer_to_a_request_that_nobody_saw_has_no_index() {
    let mut replay = Replay::found();
    let mut found = Found::default();
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    replay.segment(RESPONSE, 7, ok, &mut found);
    replay.segment(REQUEST, 50, GET.as_bytes(), &mut found);
    replay.segment(RESPONSE, 7 + 38, ok, &mut found);
    assert_eq!(found.heads, [(RESPONSE, 0, 200, true), (REQUEST, 0, 0, false), (RESPONSE, 0, 200, false)]);
}

#[test]
fn pieces_of_a_head_join_without_overlap() {
    struct Pieces(Vec<(u32, u32, bool)>);
    impl Observer for Pieces {
        fn note(&mut self, _: usize, note: &Note, piece: Piece) {
            assert_eq!(note.index, 0);
            self.0.push((piece.offset, piece.to - piece.from, note.flags & EventHeader::COMPLETE != 0));
        }
    }
    let mut replay = Replay::new([0, 0]).pinned(protocol::HTTP1);
    let mut pieces = Pieces(Vec::new());
    let (first, second) = GET.as_bytes().split_at(30);
    replay.segment(REQUEST, 0, first, &mut pieces);
    replay.segment(REQUEST, 30, second, &mut pieces);
    let mut next = 0;
    for &(offset, len, _) in &pieces.0 {
        assert_eq!(offset, next);
        next += len;
    }
    assert_eq!(next as usize, GET.len());
    assert_eq!(pieces.0.iter().filter(|piece| piece.2).count(), 1);
}

#[test]
fn a_request_line_that_is_cut_is_recognised_on_a_connection_that_was_open_before() {
    for line in ["GET /a HTTP/1.1\r\n", "OPTIONS * HTTP/1.1\r\n", "CONNECT a:1 HTTP/1.1\r\n", "PATCH http://a/b HTTP/1.0\n"] {
        let request = format!("{line}Host: a\r\n\r\n");
        let answer = if line.starts_with('C') { "HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n" } else { "HTTP/1.1 204 X\r\n\r\n" };
        for cut in 1..line.len() {
            // What comes before it is the rest of a body, and may end like the beginning of a method.
            for before in ["", "the rest of a body", "P", "CO", "GET", "PUT me down"] {
                let mut turns = vec![client(before), client(&request[..cut]), client(&request[cut..]), server(answer)];
                turns.extend([client("GET /b HTTP/1.1\r\n\r\n"), server("HTTP/1.1 204 X\r\n\r\n")]);
                turns.retain(|turn| !turn.1.is_empty());
                if cut % 8 == 2 && line.starts_with('G') {
                    talk::record(&Replay::found(), &turns);
                }
                let (replay, _) = talk::feed_only(Replay::found(), &turns, usize::MAX);
                assert_eq!((replay.requests, replay.responses, replay.gaps), (2, 2, 0), "{before:?}, cut at {cut}: {request}");
                let read: u64 = turns.iter().map(|turn| turn.1.len() as u64).sum();
                assert_eq!(replay.bytes.iter().sum::<u64>(), read, "{before:?}, cut at {cut}: {request}");
            }
        }
        let turns = [client(&request), server(answer), client(&request), server(answer)];
        for piece in [1, 2, 3, 5, 8] {
            let (replay, _) = talk::feed(Replay::found(), &turns, piece);
            assert_eq!((replay.requests, replay.responses, replay.gaps), (2, 2, 0), "pieces of {piece}: {request}");
        }
    }
}

#[test]
fn what_only_begins_like_a_method_is_passed_over() {
    for text in ["GET", "POSTAL codes of all towns", "P\0x\0\x04", "CONNECT\r\n", "DELETE it\r\n", "HEADING\n", "*ast", "*1\r\nx"] {
        for piece in [usize::MAX, 1, 2, 3] {
            let mut turns: Vec<_> = text.as_bytes().chunks(piece.min(text.len())).map(client).collect();
            let passed = turns.len();
            turns.push(client("GET / HTTP/1.1\r\n\r\n"));
            if piece == 2 {
                talk::record(&Replay::found(), &turns);
            }
            let (replay, _) = talk::feed_only(Replay::found(), &turns, usize::MAX);
            assert_eq!((replay.requests, replay.responses, replay.gaps), (1, 0, 0), "{text:?} in pieces of {piece}");
            assert!(usize::from(replay.conn().book.looked) <= passed, "{text:?} in pieces of {piece}");
        }
    }
}

#[test]
fn a_status_line_that_is_cut_is_recognised_on_a_connection_that_was_open_before() {
    let turns =
        [server("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), client("GET /b HTTP/1.1\r\n\r\n"), server("HTTP/1.1 204 X\r\n\r\n")];
    for piece in [1, 2, 3, 5, 7] {
        let (replay, _) = talk::feed(Replay::found(), &turns, piece);
        assert_eq!((replay.requests, replay.responses, replay.gaps), (1, 2, 0), "pieces of {piece}");
    }
    for text in ["H", "HT", "HTTP", "HTTP/", "HTTP/1", "HTTP/2 200", "HELLO"] {
        let (replay, _) = talk::feed(Replay::found(), &[vec![server(text)], turns.to_vec()].concat(), usize::MAX);
        assert_eq!((replay.requests, replay.responses, replay.gaps), (1, 2, 0), "after {text}");
    }
}
