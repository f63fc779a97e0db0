//! Attempt numbers that clients and proxies put on the wire: the strongest evidence there is.
//!
//! Where several markers meet in one head, the highest number wins: an Envoy that starts its own first try of a
//! call that the SDK before it is repeating writes `1`, and the call is a retry all the same.

/// A header of the user's own that carries an attempt number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkerHeader {
    /// The header's name, in any case.
    pub name: String,
    /// What its number counts.
    pub counts: MarkerCounts,
}

/// What a marker's number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerCounts {
    /// Attempts: 1 is the first.
    Attempts,
    /// Retries, or attempts before this one: 0 is the first.
    Retries,
}

impl MarkerHeader {
    /// Whether a text can be a header's name: a token of HTTP's, of 1 to 64 characters.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        (1..=64).contains(&text.len()) && text.bytes().all(token)
    }

    /// Takes what the number counts from the name: `X-Attempt` counts attempts, `X-Retry-Count` and
    /// `X-Previous-Attempts` count what came before.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let lower = name.to_ascii_lowercase();
        let attempts = lower.contains("attempt") && !lower.contains("previous") && !lower.contains("retr");
        let counts = if attempts { MarkerCounts::Attempts } else { MarkerCounts::Retries };
        Self { name: lower, counts }
    }
}

/// The attempt number that one header states, from 1; `None` if it is no marker or makes no sense as one.
#[must_use]
pub fn attempt_number(name: &str, value: &[u8], own: Option<&MarkerHeader>) -> Option<u32> {
    let value = value.trim_ascii();
    if name.eq_ignore_ascii_case("x-envoy-attempt-count") {
        return counted(value, MarkerCounts::Attempts);
    }
    if name.eq_ignore_ascii_case("grpc-previous-rpc-attempts") || name.eq_ignore_ascii_case("x-stainless-retry-count") {
        return counted(value, MarkerCounts::Retries);
    }
    if name.eq_ignore_ascii_case("amz-sdk-request") {
        let attempt = value.split(|&byte| byte == b';').find_map(|part| part.trim_ascii().strip_prefix(b"attempt="));
        return counted(attempt?.trim_ascii(), MarkerCounts::Attempts);
    }
    if name.eq_ignore_ascii_case("x-goog-api-client") {
        let attempt = value.split(u8::is_ascii_whitespace).find_map(|token| token.strip_prefix(b"gccl-attempt-count/"));
        return counted(attempt?, MarkerCounts::Attempts);
    }
    match own {
        Some(own) if name.eq_ignore_ascii_case(&own.name) => counted(value, own.counts),
        _ => None,
    }
}

/// A plain decimal as an attempt number; attempt 0 does not exist.
fn counted(value: &[u8], counts: MarkerCounts) -> Option<u32> {
    // `str::parse` would take a sign.
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u32 = std::str::from_utf8(value).ok()?.parse().ok()?;
    match counts {
        MarkerCounts::Attempts => (number > 0).then_some(number),
        MarkerCounts::Retries => number.checked_add(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_marker_is_read_with_its_own_base() {
        let own = MarkerHeader::named("X-Retry-Count");
        let cases: &[(&str, &str, Option<u32>)] = &[
            ("x-envoy-attempt-count", "1", Some(1)),
            ("X-Envoy-Attempt-Count", " 3 ", Some(3)),
            ("x-envoy-attempt-count", "0", None),
            ("x-envoy-attempt-count", "-1", None),
            ("x-envoy-attempt-count", "+2", None),
            ("x-envoy-attempt-count", "", None),
            ("x-envoy-attempt-count", "1, 2", None),
            ("x-envoy-attempt-count", "99999999999", None),
            ("grpc-previous-rpc-attempts", "0", Some(1)),
            ("grpc-previous-rpc-attempts", "1", Some(2)),
            ("grpc-previous-rpc-attempts", "4294967295", None),
            ("amz-sdk-request", "attempt=1; max=3", Some(1)),
            ("amz-sdk-request", "ttl=20260101T000000Z; attempt=2; max=3", Some(2)),
            ("amz-sdk-request", "attempt=2;max=3", Some(2)),
            ("amz-sdk-request", "max=3", None),
            ("x-goog-api-client", "gl-python/3.11 gccl/2.1 gccl-invocation-id/ab-cd gccl-attempt-count/2", Some(2)),
            ("x-goog-api-client", "gl-python/3.11 gccl/2.1", None),
            ("x-stainless-retry-count", "0", Some(1)),
            ("x-stainless-retry-count", "2", Some(3)),
            ("x-retry-count", "0", Some(1)),
            ("X-RETRY-COUNT", "1", Some(2)),
            ("x-retry", "1", None),
            ("retry-after", "5", None),
        ];
        for (name, value, expected) in cases {
            assert_eq!(attempt_number(name, value.as_bytes(), Some(&own)), *expected, "{name}: {value}");
        }
    }

    #[test]
    fn a_configured_header_counts_what_its_name_says() {
        let cases = [
            ("X-Attempt", MarkerCounts::Attempts),
            ("x-attempt-number", MarkerCounts::Attempts),
            ("X-Retry-Count", MarkerCounts::Retries),
            ("x-retry-attempt", MarkerCounts::Retries),
            ("x-previous-attempts", MarkerCounts::Retries),
        ];
        for (name, counts) in cases {
            assert_eq!(MarkerHeader::named(name).counts, counts, "{name}");
        }
        assert_eq!(attempt_number("x-retry-count", b"1", None), None);
    }
}
