//! The header fields that say something about a request's identity or time, and those that ask for a pause; the same in
//! HTTP/1, HTTP/2 and gRPC.

use crate::retry::id;
use crate::retry::marker::{self, MarkerHeader};
use crate::retry::{Deadline, Identity, Repeat};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// What the fields of one request say, taken in one by one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heading {
    found: Identity,
}

impl Heading {
    /// Takes in one field.
    pub(crate) fn field(&mut self, name: &str, value: &[u8], own: Option<&MarkerHeader>) {
        if let Some(number) = marker::attempt_number(name, value, own) {
            self.found.marker = Some(self.found.marker.map_or(number, |other| other.max(number)));
        }
        if let Some((kind, id)) = id::identity(name, value) {
            self.found.ids.push(kind, id);
        }
        self.found.trace = self.found.trace.or_else(|| id::trace(name, value));
        self.found.deadline = self.found.deadline.or_else(|| deadline(name, value.trim_ascii()));
    }

    /// What all of them say of a request of a method.
    #[must_use]
    pub(crate) fn of_method(self, method: &[u8]) -> Identity {
        let names_a_call = self.found.ids.iter().any(|(kind, _)| kind.names_a_call());
        let harmful = matches!(method, b"POST" | b"PATCH" | b"LOCK" | b"CONNECT") && !names_a_call;
        Identity { repeat: if harmful { Repeat::Harmful } else { Repeat::Harmless }, ..self.found }
    }

    /// The same where a method says nothing about harm.
    #[must_use]
    pub(crate) const fn of_any(self) -> Identity {
        self.found
    }
}

/// How long a request's sender waits.
fn deadline(name: &str, value: &[u8]) -> Option<Deadline> {
    if name.eq_ignore_ascii_case("grpc-timeout") {
        return grpc_timeout(value).map(Deadline::Within);
    }
    if name.eq_ignore_ascii_case("x-envoy-expected-rq-timeout-ms") {
        return number(value)?.checked_mul(MS).map(Deadline::Within);
    }
    if name.eq_ignore_ascii_case("x-request-deadline") {
        return unix_ns(value).map(Deadline::At);
    }
    None
}

/// Up to eight digits and a unit.
fn grpc_timeout(value: &[u8]) -> Option<u64> {
    let (unit, digits) = value.split_last()?;
    let unit = match unit {
        b'H' => 3600 * SECOND,
        b'M' => 60 * SECOND,
        b'S' => SECOND,
        b'm' => MS,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    number(digits).filter(|_| digits.len() <= 8)?.checked_mul(unit)
}

/// A time since 1970 in seconds, with decimals or without, milliseconds, microseconds or nanoseconds; which, its size tells.
fn unix_ns(value: &[u8]) -> Option<u64> {
    let mut parts = value.splitn(2, |byte| *byte == b'.');
    let whole = number(parts.next()?)?;
    let unit = match whole {
        0..=99_999_999_999 => SECOND,
        100_000_000_000..=99_999_999_999_999 => MS,
        100_000_000_000_000..=99_999_999_999_999_999 => 1_000,
        _ => 1,
    };
    let fraction = match parts.next() {
        None => 0,
        Some(digits) => {
            let digits = &digits[..digits.len().min(9)];
            let scale = 10_u64.pow(u32::try_from(digits.len()).ok()?);
            // Exact to the nanosecond for seconds, and as exact as anybody can ask for the smaller units.
            u64::try_from(u128::from(number(digits)?) * u128::from(unit) / u128::from(scale)).ok()?
        }
    };
    whole.checked_mul(unit)?.checked_add(fraction)
}

/// The pause that an answer asks for before another attempt, nanoseconds.
///
/// `Retry-After` in seconds, or as a date against the answer's own `Date`, so that no clocks are compared;
/// `grpc-retry-pushback-ms`, of which anything but a number forbids to retry; `x-amz-retry-after`, in milliseconds.
pub(crate) fn wait_ns<'v>(fields: impl Iterator<Item = (&'v str, &'v [u8])>) -> Option<u64> {
    let (mut wait, mut until, mut date) = (None, None, None);
    for (name, value) in fields {
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case("retry-after") {
            match number(value) {
                Some(seconds) => wait = Some(seconds.saturating_mul(SECOND)),
                None => until = http_date(value),
            }
        } else if name.eq_ignore_ascii_case("date") {
            date = http_date(value);
        } else if name.eq_ignore_ascii_case("grpc-retry-pushback-ms") {
            wait = Some(number(value).map_or(u64::MAX, |ms| ms.saturating_mul(MS)));
        } else if name.eq_ignore_ascii_case("x-amz-retry-after") {
            wait = number(value).map(|ms| ms.saturating_mul(MS));
        }
    }
    wait.or_else(|| Some(until?.checked_sub(date?)?.saturating_mul(SECOND)))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` as seconds since 1970.
fn http_date(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let mut words = text.split_once(", ")?.1.split([' ', ':']);
    let mut next = || words.next();
    let day: u64 = next()?.parse().ok()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = next()?;
    let month = months.iter().position(|known| *known == month)? as u64 + 1;
    let year: u64 = next()?.parse().ok().filter(|year| (1970..10_000).contains(year))?;
    let (hour, minute, second): (u64, u64, u64) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
    if day == 0 || day > 31 || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years that begin in March: the leap day is their last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// A plain decimal; `str::parse` would take a sign.
fn number(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_deadline_is_read() {
        for (name, value, expected) in [
            ("grpc-timeout", "1S", Some(Deadline::Within(SECOND))),
            ("grpc-timeout", "99999999n", Some(Deadline::Within(99_999_999))),
            ("Grpc-Timeout", "250m", Some(Deadline::Within(250 * MS))),
            ("grpc-timeout", "2H", Some(Deadline::Within(7200 * SECOND))),
            ("grpc-timeout", "999999999S", None),
            ("grpc-timeout", "S", None),
            ("grpc-timeout", "1", None),
            ("grpc-timeout", "-1S", None),
            ("x-envoy-expected-rq-timeout-ms", "1500", Some(Deadline::Within(1500 * MS))),
            ("X-Request-Deadline", "1700000000", Some(Deadline::At(1_700_000_000 * SECOND))),
            ("X-Request-Deadline", "1700000000.25", Some(Deadline::At(1_700_000_000 * SECOND + 250 * MS))),
            ("X-Request-Deadline", "1700000000250", Some(Deadline::At(1_700_000_000 * SECOND + 250 * MS))),
            ("X-Request-Deadline", "1700000000250000000", Some(Deadline::At(1_700_000_000 * SECOND + 250 * MS))),
            ("X-Request-Deadline", "soon", None),
            ("x-timeout", "5", None),
        ] {
            assert_eq!(deadline(name, value.as_bytes()), expected, "{name}: {value}");
        }
    }

    #[test]
    fn every_pause_is_read() {
        let wait = |fields: &[(&str, &str)]| wait_ns(fields.iter().map(|(name, value)| (*name, value.as_bytes())));
        assert_eq!(wait(&[("Retry-After", " 2 ")]), Some(2 * SECOND));
        assert_eq!(wait(&[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT"), ("date", "Fri, 31 Dec 1999 23:59:49 GMT")]), Some(10 * SECOND));
        assert_eq!(wait(&[("retry-after", "Sat, 01 Jan 2000 00:00:01 GMT"), ("date", "Fri, 31 Dec 1999 23:59:59 GMT")]), Some(2 * SECOND));
        assert_eq!(wait(&[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")]), None, "no clock but the server's own will do");
        assert_eq!(wait(&[("grpc-retry-pushback-ms", "100")]), Some(100 * MS));
        assert_eq!(wait(&[("grpc-retry-pushback-ms", "-1")]), Some(u64::MAX));
        assert_eq!(wait(&[("x-amz-retry-after", "1500")]), Some(1500 * MS));
        assert_eq!(wait(&[("server", "x")]), None);
    }

    #[test]
    fn dates_count_from_1970() {
        assert_eq!(http_date(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(http_date(b"Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        assert_eq!(http_date(b"Sunday, 06-Nov-94 08:49:37 GMT"), None);
    }

    #[test]
    fn a_key_excuses_a_method() {
        let mut with_key = Heading::default();
        with_key.field("idempotency-key", b"k", None);
        assert_eq!(with_key.of_method(b"POST").repeat, Repeat::Harmless);
        assert_eq!(Heading::default().of_method(b"POST").repeat, Repeat::Harmful);
        assert_eq!(Heading::default().of_method(b"PUT").repeat, Repeat::Harmless);
    }

    proptest! {
        #[test]
        fn nothing_breaks_the_reader(value in proptest::collection::vec(any::<u8>(), 0..40), name in 0_usize..8) {
            let names = ["grpc-timeout", "x-envoy-expected-rq-timeout-ms", "x-request-deadline", "retry-after", "date", "traceparent", "grpc-retry-pushback-ms", "x-amz-retry-after"];
            let mut heading = Heading::default();
            heading.field(names[name], &value, None);
            std::hint::black_box(wait_ns([(names[name], value.as_slice()), ("date", value.as_slice())].into_iter()));
        }
    }
}
