//! What a statement's first words say: whether carrying it out twice does harm.

use crate::retry::Repeat;
use crate::retry::fingerprint;

/// What it means to carry a statement out twice: an `INSERT` without a clause for rows that exist, and an `UPDATE`, are taken
/// for harmful. After an error that the server reported, it was not carried out at all.
#[must_use]
pub(crate) fn repeat(text: &[u8]) -> Repeat {
    let text = after_comments(text);
    let verb = text.split(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    let harmful = if verb.eq_ignore_ascii_case(b"insert") {
        !["insert ignore", "on duplicate key", "on conflict"].iter().any(|clause| has(text, clause.as_bytes()))
    } else {
        verb.eq_ignore_ascii_case(b"update")
    };
    if harmful { Repeat::HarmfulUnanswered } else { Repeat::Harmless }
}

/// Whether a statement only sets or asks for the session's settings, as drivers do on each new connection: it repeats nothing.
#[must_use]
pub(crate) fn is_setup(text: &[u8]) -> bool {
    let text = after_comments(text);
    let verb = text.split(|byte| !byte.is_ascii_alphabetic()).next().unwrap_or_default();
    let is = |word: &[u8]| verb.eq_ignore_ascii_case(word);
    let of_settings = || {
        let asked = text[verb.len()..].trim_ascii_start();
        [&b"@@"[..], b"pg_catalog.version()", b"version()", b"pg_catalog.set_config(", b"set_config(", b"current_schema()"]
            .iter()
            .any(|start| asked.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start)))
    };
    is(b"set") || is(b"use") || is(b"discard") || is(b"reset") || is(b"show") || is(b"select") && of_settings()
}

/// A statement's text for [`super::statements`]: its hash, whose lowest bit says whether it is harmful.
#[must_use]
pub(crate) fn stamp(text: &[u8], length: usize) -> u64 {
    fingerprint::of_captured(text, length) & !1 | u64::from(repeat(text) != Repeat::Harmless)
}

/// What such a stamp says; one that is no stamp says nothing.
#[must_use]
pub(crate) const fn repeat_of(stamp: Option<u64>) -> Repeat {
    match stamp {
        Some(stamp) if stamp & 1 == 1 => Repeat::HarmfulUnanswered,
        _ => Repeat::Harmless,
    }
}

/// The verb and what follows: tools put comments in front.
fn after_comments(mut text: &[u8]) -> &[u8] {
    loop {
        text = text.trim_ascii_start();
        let end = if text.starts_with(b"/*") {
            find(text, b"*/").map(|at| at + 2)
        } else if text.starts_with(b"--") || text.starts_with(b"#") {
            find(text, b"\n").map(|at| at + 1)
        } else if text.starts_with(b"(") {
            Some(1)
        } else {
            return text;
        };
        match end.and_then(|end| text.get(end..)) {
            Some(rest) => text = rest,
            None => return &[],
        }
    }
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    text.windows(needle.len()).position(|window| window == needle)
}

fn has(text: &[u8], lower: &[u8]) -> bool {
    text.windows(lower.len()).any(|window| window.eq_ignore_ascii_case(lower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drivers_say_on_each_connection_is_told_apart() {
        for text in [
            "SET NAMES utf8mb4",
            "set autocommit=0",
            "/* mysql-connector-j-8.4.0 */SELECT  @@session.auto_increment_increment AS auto_increment_increment",
            "SELECT @@version",
            "SET extra_float_digits = 3",
            "select pg_catalog.version()",
            "SHOW standard_conforming_strings",
            "USE shop",
            "SET",
        ] {
            assert!(is_setup(text.as_bytes()), "{text}");
        }
        for text in ["SELECT * FROM t", "SELECT version FROM t", "SETTLE", "INSERT INTO t SET a = 1", "BEGIN", "select", "", "/*"] {
            assert!(!is_setup(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn harm_is_told_by_the_verb() {
        for (text, harmful) in [
            ("INSERT INTO orders VALUES (1)", true),
            ("/* trace */ insert into orders values (1)", true),
            ("-- why\nUPDATE stock SET n = n - 1", true),
            ("INSERT IGNORE INTO orders VALUES (1)", false),
            ("insert into o values (1) on duplicate key update n = 2", false),
            ("INSERT INTO o VALUES (1) ON CONFLICT DO NOTHING", false),
            ("REPLACE INTO orders VALUES (1)", false),
            ("SELECT * FROM updates", false),
            ("(select 1)", false),
            ("updated", false),
            ("/* open", false),
            ("--", false),
            ("", false),
        ] {
            assert_eq!(repeat(text.as_bytes()) == Repeat::HarmfulUnanswered, harmful, "{text}");
            assert_eq!(repeat_of(Some(stamp(text.as_bytes(), text.len()))), repeat(text.as_bytes()));
        }
    }
}
