//! Redis as clients and servers speak it.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

mod talk;

use proptest::prelude::*;
use stormdrill_wire::abi::protocol;
use stormdrill_wire::conn::side::{REQUEST, RESPONSE};
use stormdrill_wire::replay::Replay;
use talk::{Turn, check, check_from, check_turned_away, client, server};

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

#[test]
fn a_command_and_its_reply_are_counted() {
    let get = command(&["GET", "key"]);
    let (replay, told) = check(&[client(&get), server("$5\r\nvalue\r\n"), client(&get), server("$-1\r\n")], 2, &[false, false]);
    assert_eq!(replay.conn().book.protocol, protocol::REDIS);
    assert_eq!(told.heads[&(REQUEST, 0)], get);
    assert_eq!(told.heads[&(RESPONSE, 0)], b"$5\r\n");
}

#[test]
fn errors_are_errors_wherever_their_line_ends() {
    check(
        &[client(command(&["GET", "a"])), server("-MOVED 3999 127.0.0.1:6381\r\n"), client(command(&["X"])), server("!5\r\nERR x\r\n")],
        2,
        &[true, true],
    );
}

#[test]
fn many_pipelined_commands_in_one_segment_are_as_many() {
    let set = command(&["SET", "key:0001", "value with\r\n*1\r\n$4\r\nPING\r\n in it"]);
    check(&[client(set.repeat(500)), server("+OK\r\n".repeat(500))], 500, &[false; 500]);
}

#[test]
fn nested_replies_are_one_reply_each() {
    let nested = "*3\r\n*2\r\n:1\r\n$1\r\nx\r\n*0\r\n*-1\r\n";
    let map = "%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n#t\r\n_\r\n";
    let set = "~2\r\n,1.5\r\n(12345678901234567890\r\n";
    let verbatim = "=15\r\ntxt:Some string\r\n";
    let with_error = "*2\r\n-ERR inner\r\n+OK\r\n";
    let replies = [nested, map, set, verbatim, with_error, "*0\r\n", "+PONG\r\n"].concat();
    check(&[client(command(&["PING"]).repeat(7)), server(replies)], 7, &[false; 7]);
}

#[test]
fn pushed_messages_and_attributes_answer_nothing() {
    let push = ">3\r\n+message\r\n+channel\r\n$2\r\nhi\r\n";
    let attribute = "|1\r\n+ttl\r\n:10\r\n";
    let inner = format!("*2\r\n{attribute}:1\r\n:2\r\n");
    let replies = format!("{push}{attribute}+OK\r\n{push}-ERR no\r\n{inner}{push}");
    check(&[client(command(&["PING"]).repeat(3)), server(replies)], 3, &[false, true, false]);
}

fn pushed(kind: &str, channel: &str) -> String {
    format!(">3\r\n${}\r\n{kind}\r\n${}\r\n{channel}\r\n:1\r\n", kind.len(), channel.len())
}

#[test]
fn in_resp3_a_subscription_is_answered_by_its_first_confirmation() {
    for name in ["SUBSCRIBE", "psubscribe", "SSubscribe", "UNSUBSCRIBE", "punsubscribe", "SUNSUBSCRIBE"] {
        let confirmed = |channel| pushed(&name.to_lowercase(), channel);
        let turns = [
            client([command(&[name, "a", "b", "c"]), command(&["GET", "k"]), command(&[name]), command(&["PING"])].concat()),
            server([confirmed("a"), pushed("message", "z"), confirmed("b"), confirmed("c")].concat()),
            server(["$1\r\nv\r\n", &pushed("pmessage", "z"), &confirmed("a"), "+PONG\r\n", &confirmed("b")].concat()),
            client(command(&[name, "d"])),
            server([pushed("smessage", "z"), confirmed("d")].concat()),
            // Not let: an answer like any other. In RESP2 all are.
            client([command(&[name, "e"]), command(&[name, "f"])].concat()),
            server("-NOPERM no\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nf\r\n:1\r\n"),
        ];
        check(&turns, 7, &[false, false, false, false, false, true, false]);
        // What was asked meanwhile is answered by none of them.
        let (replay, _) = check(&turns[..2], 4, &[false]);
        assert_eq!(replay.conn().book.response_count, 1);
    }
}

#[test]
fn commands_whose_names_are_as_long_are_answered_by_no_pushed_message() {
    for name in ["HINCRBYFLOAT", "ZREVRANGE", "PEXPIREAT", "SUBSCRIBED", "SUBSCRIBES", "SUBSCRIB.E", "UNSUBSCRIBER"] {
        let turns = [client(command(&[name, "subscribe", "SUBSCRIBE"])), server(pushed("subscribe", "a")), server("+OK\r\n")];
        check(&turns, 1, &[false]);
        check(&turns[..2], 1, &[]);
    }
    // More than are told apart: nothing is known of the first.
    let many = [command(&["SUBSCRIBE", "a"]), command(&["PING"]).repeat(256)].concat();
    check(&[client(many), server(pushed("subscribe", "a"))], 257, &[]);
    // What was taken for the beginning of a command, and is none, leaves nothing behind.
    let turns = [client(command(&["PING"])), server("+PONG\r\n"), client("*2\r\nx"), client(command(&["GET", "a"])), server("$-1\r\n")];
    let (replay, _) = talk::feed(Replay::new([0, 0]), &turns, usize::MAX);
    assert_eq!((replay.requests, replay.ok, replay.conn().book.protocol), (2, 2, protocol::REDIS));
}

#[test]
fn what_comes_without_a_command_answers_nothing() {
    let turns = [
        client(command(&["MONITOR"])),
        server("+OK\r\n"),
        server("+1339518083.107412 [0 127.0.0.1:60866] \"keys\" \"*\"\r\n".repeat(20)),
        client(command(&["QUIT"])),
        server("+OK\r\n"),
    ];
    check(&turns, 2, &[false, false]);
}

#[test]
fn a_transaction_has_a_reply_for_each_of_its_commands() {
    let all = [command(&["MULTI"]), command(&["INCR", "a"]), command(&["INCR", "b"]), command(&["EXEC"])].concat();
    check(&[client(all), server("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:2\r\n")], 4, &[false; 4]);
}

#[test]
fn inline_commands_are_commands_and_other_texts_are_none() {
    check(&[client("PING\r\n"), server("+PONG\r\n"), client("set a b\r\n\r\nget a\r\n"), server("+OK\r\n$1\r\nb\r\n")], 3, &[false; 3]);
    for text in ["USER anonymous\r\n", "EHLO a\r\n", "stats items\r\n", "get a\r\n", "set a 0 0 5\r\nhello\r\n", "incr a 1\r\n"] {
        let (replay, _) = check(&[client(text), server("500 what?\r\n")], 0, &[]);
        assert_eq!(replay.conn().book.protocol, protocol::UNKNOWN, "{text}");
    }
}

#[test]
fn a_large_value_is_no_command_and_need_not_be_read() {
    let value = String::from_utf8(command(&["PING"]).repeat(20_000)).unwrap();
    let turns = [
        client(command(&["SET", "k", &value])),
        server("+OK\r\n"),
        client(command(&["GET", "k"])),
        server(format!("${}\r\n{value}\r\n", value.len())),
    ];
    check(&turns, 2, &[false, false]);
}

#[test]
fn a_connection_that_was_open_before_is_recognised_by_its_next_command() {
    let turns: Vec<Turn> = (0..5).flat_map(|_| [client(command(&["GET", "a"])), server("$1\r\nx\r\n")]).collect();
    let (replay, told) = talk::feed(Replay::found(), &turns, usize::MAX);
    assert_eq!((replay.requests, replay.ok), (5, 5));
    assert_eq!(told.outcomes().len(), 5);
}

#[test]
fn a_command_that_is_cut_is_recognised_on_a_connection_that_was_open_before() {
    let turns: Vec<Turn> = (0..3).flat_map(|_| [client(command(&["GET", "a"])), server("$1\r\nx\r\n")]).collect();
    for piece in [1, 2, 3, 4, 5] {
        let (replay, _) = talk::feed(Replay::found(), &turns, piece);
        assert_eq!((replay.requests, replay.ok, replay.gaps), (3, 3, 0), "pieces of {piece}");
    }
}

#[test]
fn inline_commands_of_a_connection_that_was_open_before_are_counted_from_the_first() {
    for joined in [Replay::found, || Replay::new([0, 0])] {
        let turns = [
            client("PING\r\n"),
            server("+PONG\r\n"),
            client("set a b\r\nGET a\r\n"),
            server("+OK\r\n$1\r\nb\r\n"),
            client(command(&["GET", "a"])),
            server("$1\r\nx\r\n"),
            client("incr a\r\n"),
            server("-ERR value is not an integer or out of range\r\n"),
        ];
        let (replay, told) = talk::feed(joined(), &turns, usize::MAX);
        assert_eq!((replay.requests, replay.ok, replay.errors, replay.turned_away), (5, 4, 1, 0));
        assert_eq!(told.heads[&(REQUEST, 0)], b"PING\r\n");
        let (replay, _) =
            talk::feed(joined(), &[client("INCR a\r\n"), server(":1\r\n"), client("SELECT 9\r\n"), server("+OK\r\n")], usize::MAX);
        assert_eq!((replay.requests, replay.ok), (2, 2));
    }
}

#[test]
fn text_of_others_is_no_inline_command() {
    // Their answers end the doubt: what they say after is not read.
    for (ping, pong) in [("PING\r\n", "PONG\r\n"), ("PING :here\r\n", ":server PONG server :here\r\n")] {
        for joined in [Replay::found, || Replay::new([0, 0])] {
            let turns = [client(ping), server(pong), client("PUB a 5\r\nhello\r\n"), server("+OK\r\n"), client("GET a\r\n")];
            let (replay, _) = talk::feed(joined(), &turns, usize::MAX);
            assert_eq!((replay.requests, replay.responses, replay.conn().book.protocol), (1, 0, protocol::UNKNOWN), "{ping}");
        }
    }
    // In the middle of a stream, no line but whole ones to the segment's end.
    for text in [
        "SET a b\x01c\r\n",
        "GET / of a text that goes on\r\nand on",
        "PING \u{80}\r\n",
        "PING a long text with \x1b[0m in it\r\n",
        "\r\nPING\r\n",
    ] {
        let (replay, _) = talk::feed(Replay::found(), &[client(text.as_bytes()), server("+OK\r\n")], usize::MAX);
        assert_eq!((replay.requests, replay.responses), (0, 0), "{text}");
    }
}

#[test]
fn a_pin_decides_at_once() {
    check_from(&Replay::new([0, 0]).pinned(protocol::REDIS), &[client("COMMANDLESS x\r\n"), server("-ERR unknown\r\n")], 1, &[true]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn hostile_replies_never_answer_more_than_was_asked(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"*$%~>|-+:\r\n0123456789".to_vec())], 1..600), cut in 1_usize..300) {
        let mut replay = Replay::new([0, 0]).pinned(protocol::REDIS);
        replay.segment(REQUEST, 0, &command(&["PING"]).repeat(3), &mut ());
        let mut seq = 0;
        for piece in bytes.chunks(cut) {
            replay.segment(RESPONSE, seq, piece, &mut ());
            seq += u32::try_from(piece.len()).unwrap();
        }
        prop_assert!(replay.responses <= 3 && replay.requests == 3);
    }

    #[test]
    fn disorder_changes_nothing(count in 1_usize..60, order in prop::collection::vec(any::<prop::sample::Index>(), 60), cut in 20_usize..400) {
        let bytes = command(&["SET", "key", "v"]).repeat(count);
        let mut pieces: Vec<(u32, &[u8])> = Vec::new();
        for (i, piece) in bytes.chunks(cut).enumerate() {
            pieces.push((u32::try_from(i * cut).unwrap(), piece));
        }
        // Of each eight pieces any two change places.
        for (eight, index) in pieces.chunks_mut(8).zip(&order) {
            let len = eight.len();
            eight.swap(index.index(len), len - 1);
        }
        let mut replay = Replay::new([0, 0]);
        for &(seq, piece) in &pieces {
            replay.segment(REQUEST, seq, piece, &mut ());
            replay.segment(REQUEST, seq, piece, &mut ());
        }
        prop_assert_eq!((replay.requests, replay.gaps, replay.bytes[0]), (count as u64, 0, bytes.len() as u64));
    }
}

#[test]
fn a_client_that_is_not_let_in_is_told_and_is_no_answer() {
    for error in ["-ERR max number of clients reached\r\n", "-DENIED Redis is running in protected mode because\r\n"] {
        check_turned_away(&[server(error)], error.as_bytes(), 0);
    }
    // With a command that waits it is that one's answer; and a message that follows an answer is none.
    let (replay, _) = check(&[client("PING\r\n"), server("-ERR max number of clients reached\r\n"), server("-ERR more\r\n")], 1, &[true]);
    assert_eq!(replay.turned_away, 0);
}
