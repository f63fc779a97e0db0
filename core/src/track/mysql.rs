//! MySQL and MariaDB: which commands are the same, and what errors mean.

use crate::event::ConnId;
use crate::retry::fingerprint::{self, BodyPrefix, Fingerprint, join};
use crate::retry::{Identity, Repeat};
use crate::status::{ErrorName, Meaning, Status};
use crate::track::answer::Answer;
use crate::track::sql;
use crate::track::statements::{Name, Statements};

/// Sets commands apart from the requests of other protocols.
const MYSQL: u64 = 0x4d59_5351;

/// Packet header: three bytes of length, one of sequence.
const HEADER: usize = 4;
/// A packet of this length goes on in the next one.
const MULTI: usize = 0xff_ffff;

const COM_INIT_DB: u8 = 0x02;
const COM_QUERY: u8 = 0x03;
const COM_PING: u8 = 0x0e;
const COM_CHANGE_USER: u8 = 0x11;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_SET_OPTION: u8 = 0x1b;
const COM_RESET_CONNECTION: u8 = 0x1f;

/// Errors of a server that cannot, just now; asking again may help. Limits of connections and memory, shutdown, lock waits and
/// deadlocks, time limits, full disks and tables, a server that was made read-only.
const FAILED: [u16; 30] = [
    1021, 1037, 1038, 1040, 1041, 1047, 1053, 1105, 1114, 1129, 1135, 1152, 1158, 1159, 1160, 1161, 1180, 1203, 1205, 1206, 1213, 1226,
    1290, 1317, 1614, 1836, 1969, 3024, 3032, 3572,
];

/// The identity of a command on a connection; `None` if it cannot be read.
#[must_use]
pub(crate) fn identity(bytes: &[u8], conn: ConnId, index: u32, statements: &mut Statements) -> Option<Identity> {
    let payload = bytes.get(HEADER..)?;
    let (&command, rest) = payload.split_first()?;
    let length = usize::from(bytes[0]) | usize::from(bytes[1]) << 8 | usize::from(bytes[2]) << 16;
    let length = if length == MULTI { usize::MAX } else { length.checked_sub(1)? };
    let target = join(MYSQL, u64::from(command));
    let mut repeat = Repeat::Harmless;
    let mut is_setup = matches!(command, COM_INIT_DB | COM_PING | COM_CHANGE_USER | COM_SET_OPTION | COM_RESET_CONNECTION);
    let call = match command {
        COM_QUERY => {
            // Clients that know query attributes put the number of attributes and sets of them first.
            let text = rest.strip_prefix(&[0, 1]).unwrap_or(rest);
            repeat = sql::repeat(text);
            is_setup = sql::is_setup(text);
            fingerprint::of_captured(rest, length)
        }
        COM_STMT_PREPARE => {
            let text = sql::stamp(rest, length);
            statements.learn(conn, Name::Request(index), text);
            text
        }
        COM_STMT_EXECUTE => {
            let (number, arguments) = rest.split_first_chunk()?;
            let name = Name::Number(u32::from_le_bytes(*number));
            repeat = sql::repeat_of(statements.text(conn, name));
            join(statements.called(conn, name), fingerprint::of_captured(arguments, length.saturating_sub(4)))
        }
        _ => fingerprint::of_captured(rest, length),
    };
    let print = Fingerprint { target, call: join(target, call), body: BodyPrefix::default() };
    Some(Identity { print: Some(print), is_setup, repeat, ..Identity::default() })
}

/// What an answer of the kernel's `status` with these first bytes means. The answer to a preparation says by which number the
/// statement will be called.
#[must_use]
pub(crate) fn answer(status: u16, bytes: &[u8], conn: ConnId, index: u32, statements: &mut Statements) -> Answer {
    let answer = Answer::told(status, || error(bytes));
    if let Some(text) = statements.take(conn, Name::Request(index))
        && answer.status == Status::Ok
        && let Some((0, number)) = bytes.get(HEADER..).and_then(<[u8]>::split_first)
        && let Some(number) = number.first_chunk()
    {
        statements.learn(conn, Name::Number(u32::from_le_bytes(*number)), text);
    }
    answer
}

/// `ff`, the code, and the text.
pub(crate) fn error(bytes: &[u8]) -> Option<Answer> {
    let (0xff, rest) = bytes.get(HEADER..)?.split_first()? else { return None };
    let code = u16::from_le_bytes(*rest.first_chunk()?);
    let meaning = if FAILED.contains(&code) { Meaning::Failed } else { Meaning::TurnedDown };
    Some(Answer::error(ErrorName::new(code.to_string().as_bytes()), meaning))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use proptest::prelude::*;

    use super::*;
    use crate::event::{ANSWERED, ANSWERED_ERROR};

    fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        [&length[..3], &[sequence], payload].concat()
    }

    fn query(text: &str) -> Vec<u8> {
        packet(0, &[&[COM_QUERY], text.as_bytes()].concat())
    }

    fn ask(bytes: &[u8], conn: u64, index: u32, statements: &mut Statements) -> Identity {
        identity(bytes, ConnId(conn), index, statements).unwrap()
    }

    fn call(bytes: &[u8]) -> u64 {
        ask(bytes, 1, 0, &mut Statements::default()).print.unwrap().call
    }

    #[test]
    fn queries_differ_to_their_last_byte() {
        assert_eq!(call(&query("SELECT 1")), call(&query("SELECT 1")));
        assert_ne!(call(&query("SELECT 1")), call(&query("SELECT 2")));
        let long = format!("SELECT {}", "1,".repeat(1000));
        let (one, other) = (query(&format!("{long}1")), query(&format!("{long}2")));
        assert_eq!(call(&one[..520]), call(&one[..600]), "cut at different places");
        assert_eq!(call(&one[..520]), call(&other[..520]), "what was not captured cannot be compared");
        assert_ne!(call(&one), call(&other));
        assert_eq!(ask(&query("UPDATE t SET n = n + 1"), 1, 0, &mut Statements::default()).repeat, Repeat::HarmfulUnanswered);
    }

    #[test]
    fn what_makes_a_connection_ready_is_told_apart() {
        let is_setup = |bytes: &[u8]| ask(bytes, 1, 0, &mut Statements::default()).is_setup;
        for bytes in [query("SET NAMES utf8mb4"), query("\0\u{1}SET AUTOCOMMIT = 0"), packet(0, &[COM_PING]), packet(0, b"\x02shop")] {
            assert!(is_setup(&bytes), "{bytes:?}");
        }
        assert!(!is_setup(&query("SELECT 1")));
    }

    fn execute(number: u32, argument: u8) -> Vec<u8> {
        packet(0, &[&[COM_STMT_EXECUTE][..], &number.to_le_bytes(), &[0, 1, 0, 0, 0, 0, 1, argument]].concat())
    }

    fn prepare(statements: &mut Statements, conn: u64, number: u32) {
        ask(&packet(0, b"\x16INSERT INTO t VALUES (?)"), conn, 7, statements);
        let prepared = packet(1, &[&[0][..], &number.to_le_bytes(), &[0; 7]].concat());
        assert_eq!(answer(ANSWERED, &prepared, ConnId(conn), 7, statements).status, Status::Ok);
    }

    #[test]
    fn a_prepared_statement_is_the_same_under_other_numbers() {
        let mut statements = Statements::default();
        prepare(&mut statements, 1, 1);
        prepare(&mut statements, 2, 9);
        let mut print = |number, argument, conn| ask(&execute(number, argument), conn, 8, &mut statements).print;
        assert_eq!(print(1, 5, 1), print(9, 5, 2));
        assert_ne!(print(1, 5, 1), print(9, 6, 2), "another argument");
        assert_ne!(print(1, 5, 3), print(1, 5, 1), "a statement that nobody saw prepared");
        assert_eq!(ask(&execute(1, 5), 1, 8, &mut statements).repeat, Repeat::HarmfulUnanswered);
    }

    #[test]
    fn errors_are_told_apart() {
        for (code, meaning) in [(1040_u16, Meaning::Failed), (1205, Meaning::Failed), (1213, Meaning::Failed), (1064, Meaning::TurnedDown)]
        {
            let bytes = packet(1, &[&[0xff][..], &code.to_le_bytes(), b"#08004Too many connections"].concat());
            let answer = answer(ANSWERED_ERROR, &bytes, ConnId(1), 0, &mut Statements::default());
            assert_eq!((answer.status.to_string(), answer.meaning), (format!("err:{code}"), meaning));
        }
        let cut = answer(ANSWERED_ERROR, &[1, 0, 0, 1, 0xff], ConnId(1), 0, &mut Statements::default());
        assert_eq!(cut.status.to_string(), "err:other");
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_asked(bytes in proptest::collection::vec(any::<u8>(), 0..40), command in 0_u8..32) {
            let mut statements = Statements::default();
            let bytes = [&[9, 0, 0, 0, command][..], &bytes].concat();
            for cut in 0..bytes.len() {
                std::hint::black_box(identity(&bytes[..cut], ConnId(1), 0, &mut statements));
                std::hint::black_box(answer(ANSWERED_ERROR, &bytes[..cut], ConnId(1), 0, &mut statements));
            }
        }
    }
}
