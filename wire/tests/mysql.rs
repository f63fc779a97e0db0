//! MySQL as clients and servers speak it.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

mod talk;

use stormdrill_wire::abi::protocol;
use stormdrill_wire::conn::side::{REQUEST, RESPONSE};
use stormdrill_wire::replay::Replay;
use talk::{Turn, check, check_turned_away, client, server};

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_le_bytes().to_vec();
    bytes[3] = sequence;
    bytes.extend(payload);
    bytes
}

fn login(capabilities: u32) -> Vec<Turn> {
    let mut greeting = b"\x0a8.0.36-test\0".to_vec();
    greeting.extend([7; 40]);
    let mut answer = capabilities.to_le_bytes().to_vec();
    answer.extend([0; 28]);
    if capabilities & 0x800 == 0 {
        answer.extend(b"user\0secret\0db\0");
    }
    vec![server(packet(0, &greeting)), client(packet(1, &answer))]
}

fn query(text: &str) -> Vec<u8> {
    packet(0, format!("\u{3}{text}").as_bytes())
}

const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

/// A result of so many rows.
fn rows(count: usize) -> Vec<u8> {
    let mut bytes = packet(1, &[1]);
    let mut sequence = 2_u8;
    for payload in [b"column definition".as_slice()]
        .into_iter()
        .chain(std::iter::repeat_n(b"\x05value".as_slice(), count))
        .chain([b"\xfe\0\0\x02\0".as_slice()])
    {
        bytes.extend(packet(sequence, payload));
        sequence = sequence.wrapping_add(1);
    }
    bytes
}

fn with_login(turns: Vec<Turn>) -> Vec<Turn> {
    let mut all = login(0x00a2_8205);
    all.extend([server(packet(2, b"\xfemysql_native_password\0salt")), client(packet(3, &[9; 20])), server(packet(4, OK))]);
    all.extend(turns);
    all
}

#[test]
fn queries_are_counted_and_logins_are_not() {
    let error = packet(1, b"\xff\x10\x04#08004Too many connections");
    let turns = vec![client(query("select 1")), server(rows(1)), client(query("bad")), server(&error)];
    let (replay, told) = check(&with_login(turns), 2, &[false, true]);
    assert_eq!(replay.conn().book.protocol, protocol::MYSQL);
    assert_eq!(told.heads[&(REQUEST, 0)], query("select 1"));
    assert_eq!(told.heads[&(RESPONSE, 1)], error);
}

#[test]
fn commands_without_an_answer_are_none() {
    let prepared = packet(0, b"\x17\x01\0\0\0\0\x01\0\0\0");
    let turns = vec![
        client(packet(0, b"\x16select ?")),
        server(packet(1, &[0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])),
        client(packet(0, b"\x18\x01\0\0\0\0\0long data")),
        client(&prepared),
        server(rows(2)),
        client(packet(0, b"\x19\x01\0\0\0")),
        client(packet(0, b"\x0e")),
        server(packet(1, OK)),
        client(packet(0, b"\x01")),
    ];
    check(&with_login(turns), 3, &[false, false, false]);
}

#[test]
fn a_long_result_whose_numbers_wrap_is_one_answer() {
    let turns = (0..3).flat_map(|i| [client(query("select")), server(rows(250 + 3 * i)), client(query("again")), server(rows(1000))]);
    check(&with_login(turns.collect()), 6, &[false; 6]);
}

#[test]
fn a_result_of_any_length_leaves_the_next_answer_alone() {
    for count in 248..262 {
        let turns = vec![client(query("a")), server(rows(count)), client(query("b")), server(packet(1, b"\xff\x15\x04#28000x"))];
        let (replay, _) = talk::feed(Replay::new([0, 0]), &with_login(turns), usize::MAX);
        assert_eq!((replay.requests, replay.ok, replay.errors), (2, 1, 1), "{count} rows");
    }
}

#[test]
fn commands_that_are_sent_without_waiting_have_an_answer_each() {
    let turns = vec![client([query("a"), query("b"), query("c")].concat()), server([rows(300), packet(1, OK), rows(3)].concat())];
    check(&with_login(turns), 3, &[false; 3]);
}

#[test]
fn a_command_of_many_packets_is_one() {
    let mut long = vec![b'x'; 0xff_ffff];
    long[0] = 3;
    let mut command = packet(0, &long);
    command.extend(packet(1, &long[..1000]));
    let turns = with_login(vec![client(&command), server(packet(2, OK)), client(query("next")), server(packet(1, OK))]);
    let (replay, _) = talk::feed(Replay::new([0, 0]), &turns, 60_000);
    assert_eq!((replay.requests, replay.ok), (2, 2));
}

#[test]
fn the_data_of_a_load_is_no_command() {
    let turns = vec![
        client(query("LOAD DATA LOCAL INFILE 'x'")),
        server(packet(1, b"\xfbx")),
        client(packet(2, b"1,2,3\n4,5,6\n")),
        client(packet(3, b"")),
        server(packet(4, OK)),
        client(query("next")),
        server(packet(1, OK)),
    ];
    check(&with_login(turns), 2, &[false, false]);
}

#[test]
fn a_connection_that_asks_for_tls_is_tls() {
    let mut turns = login(0x00a2_8a05);
    turns.push(client(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 select"));
    turns.push(client(query("never seen in the clear")));
    let (replay, _) = talk::feed(Replay::new([0, 0]), &turns, usize::MAX);
    assert_eq!((replay.requests, replay.conn().book.protocol), (0, protocol::TLS));
}

#[test]
fn a_compressed_connection_is_unknown() {
    let mut turns = login(0x00a2_8225);
    turns.push(server(packet(2, OK)));
    turns.push(client(query("not really")));
    let (replay, _) = talk::feed(Replay::new([0, 0]), &turns, usize::MAX);
    assert_eq!((replay.requests, replay.conn().book.protocol), (0, protocol::UNKNOWN));
}

#[test]
fn a_connection_that_is_turned_away_is_told_and_is_no_answer() {
    let error = packet(0, b"\xff\x10\x04Too many connections");
    check_turned_away(&[server(&error)], &error, 0);
    // As the answer to the login, and with a first command that did not wait for it.
    let error = packet(2, b"\xff\x15\x04#28000Access denied for user");
    let mut turns = login(0x00a2_8205);
    turns.push(server(&error));
    check_turned_away(&turns, &error, 0);
    let mut turns = login(0x00a2_8205);
    turns.extend([client(query("select 1")), server(&error)]);
    check_turned_away(&turns, &error, 1);
}

#[test]
fn an_error_that_no_command_waits_for_is_no_login() {
    let error = packet(0, b"\xff\xbf\x0f#08S01The client was disconnected by the server because of inactivity");
    let (replay, _) = check(&with_login(vec![server(&error)]), 0, &[]);
    assert_eq!(replay.turned_away, 0);
    let (replay, _) = talk::feed(Replay::found(), &[client(query("a")), server(rows(1)), server(&error)], usize::MAX);
    assert_eq!((replay.ok, replay.turned_away), (1, 0));
}

#[test]
fn a_connection_that_was_open_before_is_recognised_by_its_next_command() {
    let turns = [
        server(b"the rest of a row"),
        client(query("select 1")),
        server(rows(3)),
        client(query("b")),
        server(packet(1, b"\xff\x15\x04#28000x")),
    ];
    let (replay, _) = talk::feed(Replay::found(), &turns, usize::MAX);
    assert_eq!((replay.requests, replay.ok, replay.errors), (2, 1, 1));
}
