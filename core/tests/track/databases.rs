//! Redis, MySQL and PostgreSQL: statuses, failures, and which commands are retries of which.

use stormdrill_core::edge::Protocol;
use stormdrill_core::event::{ANSWERED, ANSWERED_ERROR, Close, HeadPiece, ProbeEventKind, SKIPPED};

use crate::scene::{STORE, Scene, event, failures, retries, spoken, statuses};
use stormdrill_core::window::Failure;

struct Db {
    scene: Scene,
    protocol: Protocol,
}

impl Db {
    fn of(protocol: Protocol) -> Self {
        Self { scene: Scene::on(STORE), protocol }
    }

    fn ask(&mut self, ms: u64, conn: u64, index: u32, bytes: &[u8]) -> &mut Self {
        let piece = HeadPiece { offset: 0, bytes: bytes.to_vec(), complete: true, truncated: false };
        self.scene.tell(spoken(self.protocol, event(STORE, ms, conn, ProbeEventKind::RequestHead { index, piece })));
        self
    }

    fn answer(&mut self, ms: u64, conn: u64, index: u32, status: u16, bytes: &[u8]) -> &mut Self {
        let piece = HeadPiece { offset: 0, bytes: bytes.to_vec(), complete: true, truncated: false };
        let kind = ProbeEventKind::ResponseHead { index, status, requester_ended: false, piece };
        self.scene.tell(spoken(self.protocol, event(STORE, ms, conn, kind)));
        self
    }

    /// Some bytes of an error of which more is to come.
    fn part(&mut self, ms: u64, conn: u64, index: u32, offset: usize, bytes: &[u8]) -> &mut Self {
        let piece = part(offset, bytes);
        let kind = ProbeEventKind::ResponseHead { index, status: ANSWERED_ERROR, requester_ended: false, piece };
        self.scene.tell(spoken(self.protocol, event(STORE, ms, conn, kind)));
        self
    }
}

#[test]
fn what_an_error_skipped_failed_as_that_did_and_is_retried_with_it() {
    let error = |code: &str| [&b"E\0\0\0\x16"[..], format!("SERROR\0C{code}\0\0").as_bytes()].concat();
    let query = |n: u32| [&b"Q\0\0\0\x0d"[..], format!("SELECT {n}\0").as_bytes()].concat();
    for (code, retried) in [("40001", 3), ("23505", 0)] {
        let mut db = Db::of(Protocol::Postgres);
        for n in 0..3 {
            db.ask(1, 1, n, &query(n));
        }
        db.answer(2, 1, 0, ANSWERED_ERROR, &error(code)).answer(2, 1, 1, SKIPPED, b"").answer(2, 1, 2, SKIPPED, b"");
        for n in 0..3 {
            db.ask(3, 1, 3 + n, &query(n)).answer(4 + u64::from(n), 1, 3 + n, ANSWERED, b"");
        }
        // Of an error that answered nothing.
        db.ask(9, 1, 6, &query(9)).answer(10, 1, 6, SKIPPED, b"");
        let edge = db.scene.result();
        assert_eq!(statuses(&edge), [(format!("err:{code}").as_str(), 1), ("err:skipped", 3), ("ok", 3)]);
        assert_eq!((failures(&edge).iter().map(|(_, count)| count).sum::<u64>(), retries(&edge)), (retried, (0, 0, retried)));
    }
}

#[test]
fn an_error_that_is_cut_anywhere_has_its_name() {
    let of_postgres = [&b"E\0\0\0\x1a"[..], b"SERROR\0C40001\0Mtext\0\0"].concat();
    for (protocol, bytes, name) in [
        (Protocol::Redis, b"-LOADING wait\r\n".to_vec(), "err:LOADING"),
        (Protocol::Mysql, error(1213), "err:1213"),
        (Protocol::Postgres, of_postgres, "err:40001"),
    ] {
        for first in 1..bytes.len() {
            for second in first..bytes.len() {
                let mut db = Db::of(protocol);
                // Another connection's, and what was begun of another answer, are not in the way.
                db.ask(1, 1, 0, b"x").ask(1, 1, 1, b"x").ask(1, 2, 0, b"x");
                db.part(2, 1, 0, 0, &bytes[..1]).part(3, 2, 0, 0, b"ZZZ").answer(4, 1, 0, ANSWERED, b"");
                db.part(5, 1, 1, 0, &bytes[..first]);
                if first < second {
                    db.part(6, 1, 1, first, &bytes[first..second]);
                }
                let piece = HeadPiece { bytes: bytes[second..].to_vec(), complete: true, ..part(second, &[]) };
                let kind = ProbeEventKind::ResponseHead { index: 1, status: ANSWERED_ERROR, requester_ended: false, piece };
                db.scene.tell(spoken(protocol, event(STORE, 7, 1, kind)));
                let edge = db.scene.result();
                assert_eq!(statuses(&edge), [(name, 1), ("ok", 1)], "cut at {first} and {second}");
            }
        }
    }
}

fn part(offset: usize, bytes: &[u8]) -> HeadPiece {
    HeadPiece { offset: u32::try_from(offset).expect("short"), bytes: bytes.to_vec(), complete: false, truncated: false }
}

fn resp(words: &[&str]) -> Vec<u8> {
    let bulks: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{bulks}", words.len()).into_bytes()
}

#[test]
fn redis_commands_are_counted_by_their_errors_and_retried_after_failures_only() {
    let mut db = Db::of(Protocol::Redis);
    db.ask(1, 1, 0, &resp(&["GET", "a"])).answer(2, 1, 0, ANSWERED_ERROR, b"-LOADING wait\r\n");
    db.ask(3, 1, 1, &resp(&["GET", "a"])).answer(4, 1, 1, ANSWERED, b"$1\r\n1\r\n");
    // Another key, and the same key after an answer that is no failure, are no retries.
    db.ask(5, 1, 2, &resp(&["GET", "b"])).answer(6, 1, 2, ANSWERED_ERROR, b"-WRONGTYPE no\r\n");
    db.ask(7, 1, 3, &resp(&["GET", "b"])).answer(8, 1, 3, ANSWERED_ERROR, b"-MOVED 1 h:1\r\n");
    db.ask(9, 1, 4, &resp(&["GET", "b"])).answer(10, 1, 4, ANSWERED, b"$1\r\n1\r\n");
    let edge = db.scene.result();
    assert_eq!(statuses(&edge), [("err:LOADING", 1), ("err:MOVED", 1), ("err:WRONGTYPE", 1), ("ok", 2)]);
    assert_eq!(failures(&edge), [(Failure::Status, 1)]);
    assert_eq!(retries(&edge), (0, 0, 1));
    assert_eq!(edge.protocols, [(Protocol::Redis, 5)].into());
    assert_eq!(edge.told_status.len(), 3, "the kernel counts what is no error itself");
}

#[test]
fn what_makes_each_new_connection_ready_repeats_nothing() {
    // redis-py on three connections, of which the first two are given up: only the GET is tried again.
    let mut db = Db::of(Protocol::Redis);
    for conn in 0..3_u64 {
        let ms = 100 * conn;
        for (index, words) in
            [&["HELLO", "3"][..], &["CLIENT", "SETINFO", "LIB-NAME", "redis-py"], &["SELECT", "1"]].into_iter().enumerate()
        {
            db.ask(ms + 1, conn, u32::try_from(index).unwrap_or(0), &resp(words));
        }
        db.ask(ms + 2, conn, 3, &resp(&["GET", "a"]));
        db.scene.tell(spoken(Protocol::Redis, event(STORE, ms + 50, conn, ProbeEventKind::Closed { how: Close::Local })));
    }
    let edge = db.scene.result();
    assert_eq!((edge.attempts, retries(&edge)), (12, (0, 0, 2)), "twelve commands are counted, two of them are retries");
}

#[test]
fn ninety_nine_different_commands_are_no_retries_of_a_failed_one() {
    let mut db = Db::of(Protocol::Redis);
    for n in 0..99 {
        let ms = 10 * u64::from(n);
        db.ask(ms, 1, n, &resp(&["SET", "stock", &n.to_string()]));
        db.answer(ms + 1, 1, n, ANSWERED_ERROR, b"-OOM no memory\r\n");
    }
    let edge = db.scene.result();
    assert_eq!((edge.attempts, retries(&edge)), (99, (0, 0, 0)));
}

#[test]
fn a_pipeline_s_answers_belong_to_its_commands_in_order() {
    let mut db = Db::of(Protocol::Redis);
    for n in 0..50 {
        db.ask(1, 1, n, &resp(&["INCR", &n.to_string()]));
    }
    for n in 0..50 {
        let failed = n % 2 == 0;
        db.answer(2 + u64::from(n), 1, n, if failed { ANSWERED_ERROR } else { ANSWERED }, if failed { b"-BUSY x\r\n" } else { b":1\r\n" });
    }
    let edge = db.scene.result();
    assert_eq!(statuses(&edge), [("err:BUSY", 25), ("ok", 25)]);
}

#[test]
fn to_count_again_is_harmful_unless_the_server_had_said_no() {
    for (answered, harmful) in [(true, 0), (false, 1)] {
        let mut db = Db::of(Protocol::Redis);
        db.ask(1, 1, 0, &resp(&["INCR", "n"]));
        if answered {
            db.answer(2, 1, 0, ANSWERED_ERROR, b"-OOM no memory\r\n");
        } else {
            db.scene.close(2, 1, Close::PeerReset);
        }
        db.ask(3, 2, 0, &resp(&["INCR", "n"])).answer(4, 2, 0, ANSWERED, b":1\r\n");
        let edge = db.scene.result();
        assert_eq!((retries(&edge), edge.non_idempotent_retries), ((0, 0, 1), harmful), "{answered}");
    }
}

fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_le_bytes();
    [&length[..3], &[sequence], payload].concat()
}

fn query(text: &str) -> Vec<u8> {
    packet(0, &[&[3], text.as_bytes()].concat())
}

fn error(code: u16) -> Vec<u8> {
    packet(1, &[&[0xff][..], &code.to_le_bytes(), b"#HY000text"].concat())
}

#[test]
fn mysql_statements_are_retried_after_deadlocks_on_whatever_connection() {
    let mut db = Db::of(Protocol::Mysql);
    db.ask(1, 1, 0, &query("UPDATE t SET n = 1 WHERE id = 7")).answer(2, 1, 0, ANSWERED_ERROR, &error(1213));
    db.ask(3, 2, 0, &query("UPDATE t SET n = 1 WHERE id = 7")).answer(4, 2, 0, ANSWERED_ERROR, &error(1205));
    db.ask(5, 2, 1, &query("UPDATE t SET n = 1 WHERE id = 8")).answer(6, 2, 1, ANSWERED_ERROR, &error(1064));
    db.ask(7, 2, 2, &query("UPDATE t SET n = 1 WHERE id = 8")).answer(8, 2, 2, ANSWERED, &packet(1, &[0, 0, 0]));
    let edge = db.scene.result();
    assert_eq!(statuses(&edge), [("err:1064", 1), ("err:1205", 1), ("err:1213", 1), ("ok", 1)]);
    assert_eq!((failures(&edge), retries(&edge)), (vec![(Failure::Status, 2)], (0, 0, 1)));
    assert_eq!(edge.non_idempotent_retries, 0, "a deadlock's victim was rolled back");
    assert_eq!(edge.gaps_ns, [1_000_000]);
}

#[test]
fn a_prepared_statement_is_followed_to_another_connection() {
    let mut db = Db::of(Protocol::Mysql);
    for (ms, conn, number) in [(1, 1, 1_u32), (10, 2, 44)] {
        db.ask(ms, conn, 0, &packet(0, b"\x16INSERT INTO t VALUES (?)"));
        db.answer(ms + 1, conn, 0, ANSWERED, &packet(1, &[&[0][..], &number.to_le_bytes(), &[0; 7]].concat()));
    }
    let execute = |number: u32| packet(0, &[&[0x17][..], &number.to_le_bytes(), &[0, 1, 0, 0, 0, 0, 1, 3, 0, 5]].concat());
    db.ask(20, 1, 1, &execute(1));
    db.scene.close(30, 1, Close::PeerReset);
    db.ask(40, 2, 1, &execute(44)).answer(41, 2, 1, ANSWERED, &packet(1, &[0, 1, 0]));
    let edge = db.scene.result();
    assert_eq!((retries(&edge), edge.non_idempotent_retries), ((0, 0, 1), 1));
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [&[tag], &length[..], body].concat()
}

fn extended(text: &str, argument: u8) -> Vec<u8> {
    let parse = message(b'P', format!("\0{text}\0\0\0").as_bytes());
    let bind = message(b'B', &[0, 0, 0, 0, 0, 1, 0, 0, 0, 1, argument, 0, 0]);
    [parse, bind, message(b'D', b"P\0"), message(b'E', &[0; 5])].concat()
}

#[test]
fn postgres_statements_are_told_by_text_and_parameters() {
    let mut db = Db::of(Protocol::Postgres);
    let refused = message(b'E', b"SERROR\0C40001\0Mcould not serialize\0\0");
    db.ask(1, 1, 0, &extended("UPDATE t SET n = $1", b'1')).answer(2, 1, 0, ANSWERED_ERROR, &refused);
    db.ask(3, 1, 1, &extended("UPDATE t SET n = $1", b'2')).answer(4, 1, 1, ANSWERED, b"");
    db.ask(5, 2, 0, &extended("UPDATE t SET n = $1", b'1')).answer(6, 2, 0, ANSWERED, b"");
    let edge = db.scene.result();
    assert_eq!(statuses(&edge), [("err:40001", 1), ("ok", 2)]);
    assert_eq!((failures(&edge), retries(&edge)), (vec![(Failure::Status, 1)], (0, 0, 1)));
}
