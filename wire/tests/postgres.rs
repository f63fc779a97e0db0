//! PostgreSQL as clients and servers speak it.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

mod talk;

use stormdrill_wire::abi::{outcome, protocol};
use stormdrill_wire::conn::side::{REQUEST, RESPONSE};
use stormdrill_wire::replay::Replay;
use talk::{Turn, check, check_turned_away, client, server};

fn message(tag: char, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(tag).unwrap()];
    bytes.extend((u32::try_from(payload.len()).unwrap() + 4).to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn untyped(code: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = (u32::try_from(rest.len()).unwrap() + 8).to_be_bytes().to_vec();
    bytes.extend(code.to_be_bytes());
    bytes.extend(rest);
    bytes
}

fn query(text: &str) -> Vec<u8> {
    message('Q', format!("{text}\0").as_bytes())
}

fn done(tag: &str) -> Vec<u8> {
    message('C', format!("{tag}\0").as_bytes())
}

fn ready() -> Vec<u8> {
    message('Z', b"I")
}

fn error() -> Vec<u8> {
    message('E', b"SERROR\0C53300\0Msorry\0\0")
}

fn rows(count: usize) -> Vec<u8> {
    [message('T', b"\0\x01name\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), message('D', b"\0\x01\0\0\0\x01x").repeat(count)].concat()
}

const VERSION: u32 = 3 << 16;

fn with_login(turns: Vec<Turn>) -> Vec<Turn> {
    let welcome = [message('R', &[0, 0, 0, 0]), message('S', b"server_version\x0016\0"), message('K', &[0; 8]), ready()].concat();
    let mut all = vec![
        client(untyped(80_877_103, b"")),
        server("N"),
        client(untyped(VERSION, b"user\0a\0database\0b\0\0")),
        server(message('R', &[0, 0, 0, 5, 1, 2, 3, 4])),
        client(message('p', b"md5secret\0")),
        server(welcome),
    ];
    all.extend(turns);
    all
}

#[test]
fn queries_are_counted_and_logins_are_not() {
    let turns = vec![
        client(query("select 1")),
        server([rows(1), done("SELECT 1"), ready()].concat()),
        client(query("bad")),
        server([message('N', b"SNOTICE\0\0"), error(), ready()].concat()),
        client(query("")),
        server([message('I', b""), ready()].concat()),
    ];
    let (replay, told) = check(&with_login(turns), 3, &[false, true, false]);
    assert_eq!(replay.conn().book.protocol, protocol::POSTGRES);
    assert_eq!(told.heads[&(REQUEST, 0)], query("select 1"));
    assert_eq!(told.heads[&(RESPONSE, 1)], error());
}

#[test]
fn a_login_that_is_turned_away_is_told_and_is_no_answer() {
    let startup = client(untyped(VERSION, b"user\0a\0database\0b\0\0"));
    check_turned_away(&[startup.clone(), server(error())], &error(), 0);
    let ask = server([message('N', b"SNOTICE\0\0"), message('R', &[0, 0, 0, 5, 1, 2, 3, 4])].concat());
    let secret = client(message('p', b"md5secret\0"));
    check_turned_away(&[startup, ask, secret, server(error())], &error(), 0);
    // Once it is let in, an error that nobody waits for is none of the login's.
    let (replay, _) = check(&with_login(vec![server(error())]), 0, &[]);
    assert_eq!(replay.turned_away, 0);
}

#[test]
fn a_query_of_many_statements_is_answered_once() {
    let turns = vec![
        client(query("a;b;c")),
        server([done("A"), rows(2), done("B"), done("C"), ready()].concat()),
        client(query("a;b;c")),
        server([done("A"), error(), ready()].concat()),
    ];
    check(&with_login(turns), 2, &[false, true]);
}

#[test]
fn executes_are_counted_with_what_leads_to_them() {
    let parse = message('P', b"\0select $1\0\0\0");
    let bind = message('B', b"\0\0\0\0\0\x01\0\0\0\x0242\0\0");
    let execute = message('E', b"\0\0\0\0\0");
    let sync = message('S', b"");
    let whole = [parse.as_slice(), &bind, &message('D', b"P\0"), &execute, &sync].concat();
    let answer = [message('1', b""), message('2', b""), rows(1), done("SELECT 1"), ready()].concat();
    let turns = vec![
        // Prepared first, and executed later.
        client([message('P', b"s1\0select 1\0\0\0"), message('D', b"Ss1\0"), sync.clone()].concat()),
        server([message('1', b""), message('t', b"\0\0"), ready()].concat()),
        client(&whole),
        server(&answer),
        client([bind.as_slice(), &execute, &sync].concat()),
        server([message('2', b""), message('s', b""), ready()].concat()),
    ];
    let (_, told) = check(&with_login(turns), 2, &[false, false]);
    assert_eq!(told.heads[&(REQUEST, 0)], whole[..whole.len() - 5]);
    assert_eq!(told.heads[&(REQUEST, 1)], [bind, execute].concat());
}

fn executes(count: usize) -> Vec<u8> {
    [message('B', b"\0s\0\0\0\0\0\0\0"), message('E', b"\0\0\0\0\0")].concat().repeat(count)
}

fn executed(count: usize) -> Vec<u8> {
    [message('2', b""), done("INSERT 0 1")].concat().repeat(count)
}

#[test]
fn in_a_pipeline_each_execute_has_its_answer_and_an_error_ends_them_up_to_sync() {
    let sync = message('S', b"");
    let turns = vec![
        client([executes(5), sync.clone(), executes(3), sync.clone(), executes(1), sync.clone()].concat()),
        server([executed(2), error(), ready(), executed(3), ready(), error(), ready()].concat()),
    ];
    let (_, told) = check(&with_login(turns), 9, &[false, false, true, true, true, false, false, false, true]);
    let (ok, error, skipped) = (outcome::OK, outcome::ERROR, outcome::SKIPPED);
    assert_eq!(told.outcomes(), [ok, ok, error, skipped, skipped, ok, ok, ok, error]);
}

#[test]
fn a_statement_that_does_not_parse_answers_nothing_but_the_executes_after_it() {
    let sync = message('S', b"");
    let parse = message('P', b"\0bad\0\0\0");
    let turns = vec![
        client([parse.clone(), sync.clone()].concat()),
        server([error(), ready()].concat()),
        client([parse, executes(2), sync].concat()),
        server([error(), ready()].concat()),
        client(query("next")),
        server([done("A"), ready()].concat()),
    ];
    check(&with_login(turns), 3, &[true, true, false]);
}

#[test]
fn a_thousand_executes_before_one_sync_are_a_thousand() {
    let turns = vec![client([executes(1000), message('S', b"")].concat()), server([executed(1000), ready()].concat())];
    check(&with_login(turns), 1000, &[false; 1000]);
}

#[test]
fn copied_data_is_no_request() {
    let data = message('d', b"Q\0\0\0\x08x\0\0\0");
    let turns = vec![
        client(query("copy a from stdin")),
        server(message('G', b"\0\0\0")),
        client([data.repeat(100), message('c', b"")].concat()),
        server([done("COPY 100"), ready()].concat()),
        client(query("copy a to stdout")),
        server([message('H', b"\0\0\0"), data.repeat(100), message('c', b""), done("COPY 100"), ready()].concat()),
        // An extended one, whose first Sync the server does not heed.
        client([executes(1), message('S', b"")].concat()),
        server([message('2', b""), message('G', b"\0\0\0")].concat()),
        client([data, message('c', b""), message('S', b"")].concat()),
        server([done("COPY 1"), ready()].concat()),
        client(query("a")),
        server([done("A"), ready()].concat()),
        client([executes(1), message('S', b"")].concat()),
        server([executed(1), ready()].concat()),
    ];
    check(&with_login(turns), 5, &[false; 5]);
}

#[test]
fn notices_and_notifications_answer_nothing() {
    let chatter = [message('N', b"SNOTICE\0\0"), message('A', b"\0\0\0\x01c\0p\0"), message('S', b"TimeZone\0UTC\0")].concat();
    let turns = vec![
        server(&chatter),
        client(query("a")),
        server([chatter.clone(), done("A"), chatter.clone(), ready()].concat()),
        server(chatter),
    ];
    check(&with_login(turns), 1, &[false]);
}

#[test]
fn encryption_is_tls_and_a_cancellation_is_nothing() {
    let turns = [client(untyped(80_877_103, b"")), server("S"), client(b"\x16\x03\x01\x02\0\x01\0"), client(query("not really"))];
    let (replay, _) = talk::feed(Replay::new([0, 0]), &turns, usize::MAX);
    assert_eq!((replay.requests, replay.conn().book.protocol), (0, protocol::TLS));
    let (replay, _) = check(&[client(untyped(80_877_102, &[1; 8]))], 0, &[]);
    assert_eq!(replay.conn().book.protocol, protocol::POSTGRES);
    let gss =
        vec![client(untyped(80_877_104, b"")), server("N")].into_iter().chain(with_login(vec![client(query("a"))])).collect::<Vec<_>>();
    check(&gss, 1, &[]);
}

#[test]
fn more_groups_than_are_told_apart_are_still_answered() {
    let all = [executes(1), message('S', b"")].concat().repeat(40);
    let turns = vec![client(all), server([executed(1), ready()].concat().repeat(40))];
    check(&with_login(turns), 40, &[false; 40]);
}

#[test]
fn a_connection_that_was_open_before_is_recognised_by_its_next_request() {
    let turns = [
        server(b"D\0\0\0\x20the rest of a row"),
        client(query("select 1")),
        server([rows(1), done("SELECT 1"), ready()].concat()),
        client([executes(2), message('S', b"")].concat()),
        server([executed(1), error(), ready()].concat()),
    ];
    let (replay, _) = talk::feed(Replay::found(), &turns, usize::MAX);
    assert_eq!((replay.requests, replay.ok, replay.errors), (3, 2, 1));
}

#[test]
fn what_mysql_sends_is_never_taken_for_it_however_long_it_is() {
    for length in 2..1200_u16 {
        let [low, high] = length.to_le_bytes();
        let command = [&[low, high, 0, 0, 3], "x".repeat(usize::from(length) - 1).as_bytes()].concat();
        for start in [Replay::found, || Replay::new([0, 0])] {
            let mut replay = start();
            replay.segment(REQUEST, 0, &command, &mut ());
            replay.segment(RESPONSE, 0, &[7, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0], &mut ());
            let (protocol, is_late) = (replay.conn().book.protocol, replay.conn().flows[0].flags != 0);
            // From its first byte on, MySQL's client never speaks first.
            let expected = if is_late { (protocol::MYSQL, 1, 1) } else { (protocol, 0, 0) };
            assert_eq!((protocol, replay.requests, replay.ok), expected, "{length}");
            assert_ne!(protocol, protocol::POSTGRES, "{length}");
        }
    }
    // Nor the other way round: a statement of any length is PostgreSQL's.
    for length in 1..1200 {
        let mut replay = Replay::found();
        replay.segment(REQUEST, 0, &query(&"q".repeat(length)), &mut ());
        replay.segment(RESPONSE, 0, &[done("Q"), ready()].concat(), &mut ());
        assert_eq!((replay.conn().book.protocol, replay.requests, replay.ok), (protocol::POSTGRES, 1, 1), "{length}");
    }
}
