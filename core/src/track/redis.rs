//! Redis: which commands are the same, and what errors mean.

use crate::retry::fingerprint::{self, BodyPrefix, Fingerprint, join};
use crate::retry::{Identity, Repeat};
use crate::status::{ErrorName, Meaning};
use crate::track::answer::Answer;

/// Sets commands apart from the requests of other protocols.
const REDIS: u64 = 0x5245_4449;

/// Commands that do something else the second time.
const NOT_IDEMPOTENT: [&str; 28] = [
    "append",
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzpopmax",
    "bzpopmin",
    "decr",
    "decrby",
    "getdel",
    "hincrby",
    "hincrbyfloat",
    "incr",
    "incrby",
    "incrbyfloat",
    "linsert",
    "lmove",
    "lpop",
    "lpush",
    "publish",
    "rpop",
    "rpoplpush",
    "rpush",
    "spop",
    "xadd",
    "zincrby",
    "zpopmin",
];

/// Commands with which clients make a connection ready, ask who the server is, or leave.
const SETUP: [&str; 12] =
    ["auth", "client", "cluster", "command", "hello", "info", "quit", "readonly", "readwrite", "reset", "select", "sentinel"];

/// Errors of a server that cannot, just now: asking again may help.
const FAILED: [&str; 12] = [
    "BUSY",
    "CLUSTERDOWN",
    "IOERR",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOMASTERLINK",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNKILLABLE",
];

/// The identity of a command; `None` if it cannot be read. `bytes` starts with it, and may go on or be cut.
#[must_use]
pub fn identity(bytes: &[u8]) -> Option<Identity> {
    let command = Command::read(bytes)?;
    let name = fingerprint::of_caseless(command.name);
    let is_of = |names: &[&str]| names.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(command.name));
    let call = fingerprint::of_captured(bytes, command.length.unwrap_or(usize::MAX));
    Some(Identity {
        print: Some(Fingerprint { target: join(REDIS, name), call: join(join(REDIS, name), call), body: BodyPrefix::default() }),
        is_setup: is_of(&SETUP),
        repeat: if is_of(&NOT_IDEMPOTENT) { Repeat::HarmfulUnanswered } else { Repeat::Harmless },
        ..Identity::default()
    })
}

/// What an answer of the kernel's `status` with these first bytes means.
#[must_use]
pub(crate) fn answer(status: u16, bytes: &[u8]) -> Answer {
    Answer::told(status, || error(bytes))
}

fn error(bytes: &[u8]) -> Option<Answer> {
    // RESP3 may send the length first: `!21\r\nSYNTAX invalid syntax\r\n`.
    let text = match bytes.split_first()? {
        (b'-', text) => text,
        (b'!', rest) => &rest[rest.iter().position(|byte| *byte == b'\n')? + 1..],
        _ => return None,
    };
    let word = text.split(|byte| !byte.is_ascii_graphic()).next().unwrap_or_default();
    let name = ErrorName::new(word);
    let meaning = match name.as_str() {
        // Sent elsewhere: the request that follows goes to another server.
        "MOVED" | "ASK" => Meaning::Good,
        "ERR" if text.starts_with(b"ERR max number of clients") => Meaning::Failed,
        known if FAILED.contains(&known) => Meaning::Failed,
        _ => Meaning::TurnedDown,
    };
    Some(Answer::error(name, meaning))
}

/// A command, as far as it was captured.
struct Command<'a> {
    name: &'a [u8],
    /// In bytes; `None` if its end was not captured.
    length: Option<usize>,
}

impl<'a> Command<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        if bytes.first() != Some(&b'*') {
            return Self::read_inline(bytes);
        }
        let (count, mut at) = number(bytes, 1)?;
        let mut name = None;
        for _ in 0..count {
            let Some((length, start)) = bytes.get(at).filter(|byte| **byte == b'$').and_then(|_| number(bytes, at + 1)) else {
                return name.map(|name| Self { name, length: None });
            };
            let end = start.checked_add(length)?;
            name = name.or_else(|| bytes.get(start..end));
            at = end.checked_add(2)?;
            if at > bytes.len() {
                return name.map(|name| Self { name, length: None });
            }
        }
        name.map(|name| Self { name, length: Some(at) })
    }

    /// `PING\r\n`, as typed by hand.
    fn read_inline(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let line = bytes[..end.unwrap_or(bytes.len())].trim_ascii();
        let name = line.split(u8::is_ascii_whitespace).next().filter(|name| !name.is_empty())?;
        Some(Self { name, length: end.map(|end| end + 1) })
    }
}

/// A decimal at an offset, and where the line after it begins.
fn number(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let line = bytes.get(from..)?;
    let end = line.iter().take(12).position(|byte| *byte == b'\r')?;
    let value = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
    (line.get(end + 1) == Some(&b'\n')).then_some((value, from + end + 2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{ANSWERED, ANSWERED_ERROR};

    fn command(words: &[&str]) -> Vec<u8> {
        let bulks = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), bulks.collect::<String>()).into_bytes()
    }

    fn call(bytes: &[u8]) -> u64 {
        identity(bytes).and_then(|identity| identity.print).map(|print| print.call).expect("it can be read")
    }

    #[test]
    fn commands_differ_by_name_and_arguments() {
        let get = command(&["GET", "a"]);
        assert_eq!(call(&get), call(&[get.as_slice(), b"*1\r\n$4\r\nPING\r\n"].concat()), "the next command is no part of it");
        for other in [command(&["GET", "b"]), command(&["SET", "a"]), command(&["GET", "a", "b"])] {
            assert_ne!(call(&get), call(&other));
        }
        assert_eq!(call(b"PING\r\n"), call(b"PING\r\nPING\r\n"));
    }

    #[test]
    fn a_cut_command_is_compared_by_what_is_there() {
        let long = "x".repeat(3000);
        let set = command(&["SET", "key", &long]);
        assert_eq!(call(&set[..600]), call(&set[..1000]));
        assert_ne!(call(&set[..600]), call(&command(&["SET", "kez", &long])[..600]));
        assert!(identity(b"*2\r\n$3\r\nG").is_none(), "without a name there is nothing to compare");
    }

    #[test]
    fn commands_that_count_are_not_idempotent() {
        for (name, repeat) in [("INCR", Repeat::HarmfulUnanswered), ("lpush", Repeat::HarmfulUnanswered), ("SET", Repeat::Harmless)] {
            assert_eq!(identity(&command(&[name, "k"])).map(|identity| identity.repeat), Some(repeat), "{name}");
        }
    }

    #[test]
    fn commands_that_make_a_connection_ready_are_told_apart() {
        for words in [&["HELLO", "3"][..], &["client", "SETINFO", "LIB-NAME", "redis-py"], &["AUTH", "secret"], &["SELECT", "1"]] {
            assert!(identity(&command(words)).is_some_and(|identity| identity.is_setup), "{words:?}");
        }
        for words in [&["GET", "a"][..], &["PING"], &["SET", "hello", "auth"]] {
            assert!(identity(&command(words)).is_some_and(|identity| !identity.is_setup), "{words:?}");
        }
    }

    #[test]
    fn errors_are_told_apart() {
        for (bytes, text, meaning) in [
            ("-LOADING Redis is loading the dataset in memory\r\n", "err:LOADING", Meaning::Failed),
            ("-OOM command not allowed when used memory > 'maxmemory'.\r\n", "err:OOM", Meaning::Failed),
            ("-MOVED 3999 127.0.0.1:6381\r\n", "err:MOVED", Meaning::Good),
            ("-ASK 3999 127.0.0.1:6381\r\n", "err:ASK", Meaning::Good),
            ("-ERR unknown command\r\n", "err:ERR", Meaning::TurnedDown),
            ("-ERR max number of clients reached\r\n", "err:ERR", Meaning::Failed),
            ("-WRONGTYPE Operation against a key\r\n", "err:WRONGTYPE", Meaning::TurnedDown),
            ("!21\r\nSYNTAX invalid syntax\r\n", "err:SYNTAX", Meaning::TurnedDown),
            ("-made up by a script\r\n", "err:other", Meaning::TurnedDown),
            ("", "err:other", Meaning::TurnedDown),
        ] {
            let answer = answer(ANSWERED_ERROR, bytes.as_bytes());
            assert_eq!((answer.status.to_string().as_str(), answer.meaning), (text, meaning), "{bytes}");
        }
        assert_eq!(answer(ANSWERED, b"+OK\r\n").status.to_string(), "ok");
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_asked(bytes in proptest::collection::vec(any::<u8>(), 0..60), front in 0_usize..4) {
            let front: &[u8] = [&b""[..], b"*2\r\n$3\r\nGET\r\n$", b"*99999999\r\n$1\r\n", b"*1\r\n$99999999999\r\n"][front];
            let bytes = [front, &bytes].concat();
            std::hint::black_box(identity(&bytes));
            std::hint::black_box(answer(ANSWERED_ERROR, &bytes));
        }
    }
}
