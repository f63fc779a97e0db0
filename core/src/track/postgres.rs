//! PostgreSQL: which statements are the same, and what errors mean.

use crate::event::{ConnId, SKIPPED};
use crate::retry::Identity;
use crate::retry::fingerprint::{self, BodyPrefix, Fingerprint, join};
use crate::status::{ErrorName, Meaning};
use crate::track::answer::Answer;
use crate::track::sql;
use crate::track::statements::{Name, Statements};

/// Sets statements apart from the requests of other protocols.
const POSTGRES: u64 = 0x5047_5351;

/// Tag and length of a message.
const HEADER: usize = 5;

/// Classes of SQLSTATE that mean that the server cannot, just now: connections, rollbacks, resources, operators, the system,
/// the server itself. Of the others, a lock that was not to be had and a server that became a standby.
const FAILED_CLASSES: [&[u8]; 6] = [b"08", b"40", b"53", b"57", b"58", b"XX"];
const FAILED: [&[u8]; 2] = [b"55P03", b"25006"];

/// The identity of a statement on a connection; `None` if it cannot be read. `bytes` is a Query, or an Execute with the messages
/// before it (Parse, Bind, Describe).
#[must_use]
pub(crate) fn identity(bytes: &[u8], conn: ConnId, statements: &mut Statements) -> Option<Identity> {
    let (mut text, mut call, mut is_named, mut is_setup) = (None, None, false, false);
    for message in Messages(bytes) {
        match message.tag {
            b'Q' => {
                let print = print(b'Q', fingerprint::of_captured(message.body, message.length));
                let (is_setup, repeat) = (sql::is_setup(message.body), sql::repeat(message.body));
                return Some(Identity { print: Some(print), is_setup, repeat, ..Identity::default() });
            }
            b'P' => {
                let (name, query) = cut(message.body)?;
                is_setup = sql::is_setup(query);
                let stamp = sql::stamp(query, message.length.checked_sub(name.len() + 1)?);
                statements.learn(conn, Name::Given(fingerprint::of_bytes(name)), stamp);
                text = Some(stamp);
            }
            b'B' => {
                let (portal, rest) = cut(message.body)?;
                let (name, arguments) = cut(rest)?;
                let given = Name::Given(fingerprint::of_bytes(name));
                is_named = true;
                text = statements.text(conn, given).or(text);
                let length = message.length.saturating_sub(portal.len() + name.len() + 2);
                call = Some(join(statements.called(conn, given), fingerprint::of_captured(arguments, length)));
            }
            _ => {}
        }
    }
    // An Execute whose Bind came earlier: nothing is known of it but where it is.
    let call = call.or_else(|| (!is_named && !bytes.is_empty()).then(|| join(conn.0, fingerprint::of_bytes(bytes))))?;
    Some(Identity { print: Some(print(b'E', call)), is_setup, repeat: sql::repeat_of(text), ..Identity::default() })
}

fn print(kind: u8, call: u64) -> Fingerprint {
    let target = join(POSTGRES, u64::from(kind));
    Fingerprint { target, call: join(target, call), body: BodyPrefix::default() }
}

/// What an answer of the kernel's `status` with these first bytes means. `before` is what the connection's last one meant: an Execute that an error
/// had the server skip failed as that did, and whoever asks again asks for all of them.
#[must_use]
pub(crate) fn answer(status: u16, bytes: &[u8], before: Meaning) -> Answer {
    if status == SKIPPED {
        return Answer::error(ErrorName::SKIPPED, if before == Meaning::Good { Meaning::TurnedDown } else { before });
    }
    Answer::told(status, || error(bytes))
}

/// The code among an ErrorResponse's fields, which may follow other messages.
fn error(bytes: &[u8]) -> Option<Answer> {
    let mut rest = Messages(bytes).find(|message| message.tag == b'E')?.body;
    loop {
        let (&field, value) = rest.split_first().filter(|(field, _)| **field != 0)?;
        let (value, next) = cut(value)?;
        if field == b'C' {
            let failed = FAILED_CLASSES.iter().any(|class| value.starts_with(class)) || FAILED.contains(&value);
            let meaning = if failed { Meaning::Failed } else { Meaning::TurnedDown };
            return Some(Answer::error(ErrorName::new(value), meaning));
        }
        rest = next;
    }
}

/// A text up to its zero byte, and what follows.
fn cut(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// One message, as far as it was captured.
struct Message<'a> {
    tag: u8,
    body: &'a [u8],
    /// The body's length, in bytes.
    length: usize,
}

/// The messages that some bytes start with.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let (header, rest) = self.0.split_at_checked(HEADER)?;
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
        let length = usize::try_from(length).ok()?.checked_sub(4)?;
        let body = &rest[..rest.len().min(length)];
        self.0 = &rest[body.len()..];
        Some(Message { tag: header[0], body, length })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use proptest::prelude::*;

    use super::*;
    use crate::event::{ANSWERED, ANSWERED_ERROR};
    use crate::retry::Repeat;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag], &length[..], body].concat()
    }

    fn parse(name: &str, text: &str) -> Vec<u8> {
        message(b'P', format!("{name}\0{text}\0\0\0").as_bytes())
    }

    fn bind(name: &str, argument: &str) -> Vec<u8> {
        message(b'B', format!("\0{name}\0\0\0\0\x01\0\0\0\x01{argument}\0\0").as_bytes())
    }

    fn execute() -> Vec<u8> {
        message(b'E', b"\0\0\0\0\0")
    }

    fn ask(parts: &[Vec<u8>], conn: u64, statements: &mut Statements) -> Identity {
        identity(&parts.concat(), ConnId(conn), statements).unwrap()
    }

    #[test]
    fn simple_queries_differ_by_their_text() {
        let mut statements = Statements::default();
        let mut print = |text: &str| ask(&[message(b'Q', format!("{text}\0").as_bytes())], 1, &mut statements).print;
        assert_eq!(print("SELECT 1"), print("SELECT 1"));
        assert_ne!(print("SELECT 1"), print("SELECT 2"));
        assert_eq!(ask(&[message(b'Q', b"INSERT INTO t VALUES (1)\0")], 1, &mut statements).repeat, Repeat::HarmfulUnanswered);
    }

    #[test]
    fn what_makes_a_connection_ready_is_told_apart() {
        let mut statements = Statements::default();
        assert!(ask(&[message(b'Q', b"SET search_path TO shop\0")], 1, &mut statements).is_setup);
        assert!(ask(&[parse("", "SET extra_float_digits = 3"), bind("", ""), execute()], 1, &mut statements).is_setup);
        assert!(!ask(&[parse("", "SELECT $1"), bind("", "a"), execute()], 1, &mut statements).is_setup);
    }

    #[test]
    fn extended_ones_differ_by_statement_and_arguments() {
        let mut statements = Statements::default();
        let first = ask(&[parse("", "SELECT $1"), bind("", "a"), execute()], 1, &mut statements).print;
        assert_eq!(ask(&[parse("", "SELECT $1"), bind("", "a"), execute()], 2, &mut statements).print, first);
        assert_ne!(ask(&[parse("", "SELECT $1"), bind("", "b"), execute()], 2, &mut statements).print, first);
        assert_ne!(ask(&[parse("", "SELECT $1+1"), bind("", "a"), execute()], 2, &mut statements).print, first);
    }

    #[test]
    fn a_named_statement_is_the_text_that_it_was_made_from() {
        let mut statements = Statements::default();
        let named = |conn, name: &str, statements: &mut Statements| {
            ask(&[parse(name, "UPDATE t SET n = $1"), bind(name, "1"), execute()], conn, statements);
            ask(&[bind(name, "7"), execute()], conn, statements)
        };
        let (one, other) = (named(1, "S_1", &mut statements), named(2, "S_9", &mut statements));
        assert_eq!(one, other);
        assert_eq!(one.repeat, Repeat::HarmfulUnanswered);
        let unseen = ask(&[bind("S_1", "7"), execute()], 3, &mut statements);
        assert_ne!(unseen.print, one.print);
        assert_eq!(unseen.print, ask(&[bind("S_1", "7"), execute()], 3, &mut statements).print);
    }

    #[test]
    fn errors_are_told_apart() {
        for (code, meaning) in [
            ("53300", Meaning::Failed),
            ("40001", Meaning::Failed),
            ("57014", Meaning::Failed),
            ("55P03", Meaning::Failed),
            ("23505", Meaning::TurnedDown),
            ("42601", Meaning::TurnedDown),
        ] {
            let bytes = [message(b'1', b""), message(b'E', format!("SERROR\0VERROR\0C{code}\0Mtext\0\0").as_bytes())].concat();
            let answer = answer(ANSWERED_ERROR, &bytes, Meaning::Good);
            assert_eq!((answer.status.to_string(), answer.meaning), (format!("err:{code}"), meaning));
        }
        assert_eq!(answer(ANSWERED_ERROR, &message(b'E', b"SERR"), Meaning::Failed).status.to_string(), "err:other");
        assert_eq!(answer(ANSWERED, b"", Meaning::Failed).status.to_string(), "ok");
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_asked(bytes in proptest::collection::vec(any::<u8>(), 0..40), tag in prop_oneof![Just(b'P'), Just(b'B'), Just(b'Q'), Just(b'E')]) {
            let mut statements = Statements::default();
            let bytes = [message(tag, &bytes), bytes].concat();
            for cut in 0..bytes.len() {
                std::hint::black_box(identity(&bytes[..cut], ConnId(1), &mut statements));
                std::hint::black_box(answer(ANSWERED_ERROR, &bytes[..cut], Meaning::Good));
            }
        }
    }
}
