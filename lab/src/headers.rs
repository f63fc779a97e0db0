//! The headers that the lab reads and writes, and which of a request's headers one hop hands to the next.

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::policy::deadline::Deadline;

/// One id per logical request, the same over all its attempts and through all layers.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The attempt's number on its own edge, from 1; each layer overwrites it, as Envoy does.
pub const ATTEMPT_COUNT: HeaderName = HeaderName::from_static("x-envoy-attempt-count");
/// How long the caller still waits, in whole milliseconds. Needs no common clock.
pub const EXPECTED_TIMEOUT_MS: HeaderName = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");
/// When the caller gives up, in seconds since the Unix epoch with a fraction.
pub const REQUEST_DEADLINE: HeaderName = HeaderName::from_static("x-request-deadline");

/// Headers that belong to one hop (RFC 9110 section 7.6.1), and those that hyper or the lab sets anew.
const ONE_HOP: [HeaderName; 12] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::HOST,
    header::EXPECT,
    header::DATE,
];

/// What of a message's headers goes to the next hop.
#[must_use]
pub fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    for name in &ONE_HOP {
        kept.remove(name);
    }
    kept
}

/// Takes the lab's own headers out: each hop decides about them afresh.
pub fn strip_own(headers: &mut HeaderMap) {
    for name in [REQUEST_ID, ATTEMPT_COUNT, EXPECTED_TIMEOUT_MS, REQUEST_DEADLINE] {
        headers.remove(name);
    }
}

/// Reads the caller's deadline. The relative header wins, because it needs no common clock; a malformed one is as none.
///
/// `now` and `unix` are the same instant, on the lab's clock and as time since the Unix epoch.
#[must_use]
pub fn deadline(headers: &HeaderMap, now: std::time::Duration, unix: std::time::Duration) -> Option<Deadline> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    text(EXPECTED_TIMEOUT_MS)
        .and_then(|ms| Deadline::from_relative(ms, now))
        .or_else(|| text(REQUEST_DEADLINE).and_then(|at| Deadline::from_absolute(at, now, unix)))
}

/// Writes the deadline in both forms.
pub fn set_deadline(headers: &mut HeaderMap, deadline: Deadline, now: std::time::Duration, unix: std::time::Duration) {
    headers.insert(EXPECTED_TIMEOUT_MS, HeaderValue::from(deadline.relative_ms(now)));
    if let Ok(value) = HeaderValue::from_str(&deadline.absolute_text(now, unix)) {
        headers.insert(REQUEST_DEADLINE, value);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_hop_keeps_what_is_end_to_end() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        headers.insert(header::HOST, HeaderValue::from_static("a"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        assert_eq!(end_to_end(&headers).keys().collect::<Vec<_>>(), [header::ACCEPT]);
    }

    #[test]
    fn a_deadline_survives_the_hop() {
        let (now, unix) = (Duration::from_secs(5), Duration::from_secs(1_700_000_000));
        let sent = Deadline::after(now, Duration::from_millis(250));
        let mut headers = HeaderMap::new();
        set_deadline(&mut headers, sent, now, unix);
        assert_eq!(headers.get(EXPECTED_TIMEOUT_MS).unwrap(), "250");
        assert_eq!(headers.get(REQUEST_DEADLINE).unwrap(), "1700000000.250");
        assert_eq!(deadline(&headers, now, unix), Some(sent));
        headers.remove(EXPECTED_TIMEOUT_MS);
        assert_eq!(deadline(&headers, now, unix), Some(sent));
    }
}
