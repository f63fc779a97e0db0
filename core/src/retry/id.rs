//! Identities on the wire that stay the same from attempt to attempt.
//!
//! Two strengths. A *call's* id (idempotency key, SDK invocation id) names one operation: with the same method and
//! path it is enough. A *request's* id (`x-request-id`, the span of a `traceparent`) names the caller's own request,
//! which may call us many times for different things, so that the whole call must be alike, query and body included.

use crate::edge::EdgeId;
use crate::retry::fingerprint::{self, BodyPrefix, Fingerprint};
use crate::track::aged::AgedMap;

/// The kinds of identity, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdKind {
    /// `Idempotency-Key` or `X-Idempotency-Key`.
    IdempotencyKey,
    /// `amz-sdk-invocation-id`.
    AmzInvocation,
    /// `gccl-invocation-id` in `x-goog-api-client`.
    GcclInvocation,
    /// `x-request-id`.
    RequestId,
    /// Trace and parent id of a W3C `traceparent`: attempts that share their span.
    Span,
}

impl IdKind {
    /// It names one operation, whatever the rest of the request looks like.
    #[must_use]
    pub const fn names_a_call(self) -> bool {
        matches!(self, Self::IdempotencyKey | Self::AmzInvocation | Self::GcclInvocation)
    }
}

/// The identity that one header states.
#[must_use]
pub fn identity<'v>(name: &str, value: &'v [u8]) -> Option<(IdKind, &'v [u8])> {
    let value = value.trim_ascii();
    let (kind, id) = if name.eq_ignore_ascii_case("x-request-id") {
        (IdKind::RequestId, value)
    } else if name.eq_ignore_ascii_case("idempotency-key") || name.eq_ignore_ascii_case("x-idempotency-key") {
        (IdKind::IdempotencyKey, value)
    } else if name.eq_ignore_ascii_case("amz-sdk-invocation-id") {
        (IdKind::AmzInvocation, value)
    } else if name.eq_ignore_ascii_case("x-goog-api-client") {
        let id = value.split(u8::is_ascii_whitespace).find_map(|token| token.strip_prefix(b"gccl-invocation-id/"));
        (IdKind::GcclInvocation, id?)
    } else if name.eq_ignore_ascii_case("traceparent") {
        (IdKind::Span, span(value)?)
    } else {
        return None;
    };
    (!id.is_empty()).then_some((kind, id))
}

/// The trace id of a `traceparent`.
#[must_use]
pub fn trace(name: &str, value: &[u8]) -> Option<u64> {
    let ids = name.eq_ignore_ascii_case("traceparent").then(|| span(value.trim_ascii())).flatten()?;
    Some(fingerprint::of_bytes(&ids[..32]))
}

/// `trace-id "-" parent-id` of a traceparent; version and flags may change between attempts.
fn span(value: &[u8]) -> Option<&[u8]> {
    let ids = value.get(3..52)?;
    let dashes = value[2] == b'-' && ids[32] == b'-' && value.get(52) == Some(&b'-');
    let hexadecimal = ids.iter().enumerate().all(|(at, byte)| at == 32 || byte.is_ascii_hexdigit());
    let unset = ids[..32].iter().all(|&byte| byte == b'0') || ids[33..].iter().all(|&byte| byte == b'0');
    (dashes && hexadecimal && !unset).then_some(ids)
}

/// The identities of one request, hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ids {
    found: [Option<(IdKind, u64)>; 4],
}

impl Ids {
    /// Keeps one more, once: a key may be sent under both of its names. A fifth is dropped; no client is known to send that many.
    pub fn push(&mut self, kind: IdKind, id: &[u8]) {
        let entry = Some((kind, fingerprint::of_bytes(id)));
        if self.found.contains(&entry) {
            return;
        }
        if let Some(free) = self.found.iter_mut().find(|slot| slot.is_none()) {
            *free = entry;
        }
    }

    /// Sets requests apart that cannot be attempts of one call: each carries an id, and the ids differ. `None` where nothing
    /// is stated. A span is no such id, since many clients open a new one for each attempt.
    #[must_use]
    pub fn apart(&self) -> Option<u64> {
        self.iter().filter(|(kind, _)| *kind != IdKind::Span).map(|(kind, id)| fingerprint::join(kind as u64, id)).reduce(fingerprint::join)
    }

    /// Those found.
    pub fn iter(&self) -> impl Iterator<Item = (IdKind, u64)> + '_ {
        self.found.iter().flatten().copied()
    }
}

/// What is remembered of one identity on one edge.
#[derive(Debug, Clone, Copy)]
struct Seen {
    attempts: u32,
    body: BodyPrefix,
}

/// Remembers which identities were seen on which edge, for a while.
#[derive(Debug)]
pub struct IdMemory {
    seen: AgedMap<Seen>,
}

impl IdMemory {
    /// Remembers up to `cap` identities, each until `ttl_ns` after it was last seen.
    #[must_use]
    pub fn new(cap: usize, ttl_ns: u64) -> Self {
        Self { seen: AgedMap::new(cap, ttl_ns) }
    }

    /// Takes note of a request, and returns how many attempts with one of its identities there were, this one included. Of a request of which
    /// nothing is known, only what names a call counts.
    pub fn note(&mut self, edge: EdgeId, ids: &Ids, print: Option<&Fingerprint>, at_ns: u64) -> u32 {
        let known = ids.iter().filter(|(kind, _)| print.is_some() || kind.names_a_call());
        let print = print.copied().unwrap_or_default();
        known.map(|(kind, id)| self.note_one(edge, kind, id, &print, at_ns)).max().unwrap_or(1)
    }

    fn note_one(&mut self, edge: EdgeId, kind: IdKind, id: u64, print: &Fingerprint, at_ns: u64) -> u32 {
        let about = if kind.names_a_call() { print.target } else { print.call };
        let place = u64::from(edge.0) << 8 | kind as u64;
        let key = fingerprint::join(fingerprint::join(place, id), about);
        let seen = self.seen.update(key, at_ns, |known: Option<Seen>| {
            let known = known.filter(|seen| kind.names_a_call() || !seen.body.contradicts(print.body));
            Seen { attempts: known.map_or(1, |seen| seen.attempts.saturating_add(1)), body: print.body }
        });
        seen.attempts
    }

    /// Identities forgotten for want of room before their time was over.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.seen.evicted()
    }

    /// Identities held now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn ids(kind: IdKind, id: &str) -> Ids {
        let mut ids = Ids::default();
        ids.push(kind, id.as_bytes());
        ids
    }

    fn print(target: u64, call: u64, body: &str) -> Fingerprint {
        Fingerprint { target, call, body: BodyPrefix::of(body.as_bytes()) }
    }

    #[test]
    fn every_identity_header_is_read() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let span = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        let cases = [
            ("Idempotency-Key", "\"k1\"", Some((IdKind::IdempotencyKey, "\"k1\""))),
            ("x-idempotency-key", "k1", Some((IdKind::IdempotencyKey, "k1"))),
            ("amz-sdk-invocation-id", "ab-cd", Some((IdKind::AmzInvocation, "ab-cd"))),
            ("x-goog-api-client", "gccl/2 gccl-invocation-id/u-1 gccl-attempt-count/1", Some((IdKind::GcclInvocation, "u-1"))),
            ("x-goog-api-client", "gccl/2", None),
            ("X-Request-ID", " r1 ", Some((IdKind::RequestId, "r1"))),
            ("x-request-id", "", None),
            ("traceparent", parent, Some((IdKind::Span, span))),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", None),
            ("traceparent", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", None),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", None),
            ("traceparent", "xx", None),
            ("x-correlation-id", "c", None),
        ];
        for (name, value, expected) in cases {
            let expected = expected.map(|(kind, id)| (kind, id.as_bytes()));
            assert_eq!(identity(name, value.as_bytes()), expected, "{name}: {value}");
        }
    }

    #[test]
    fn an_id_counts_per_edge_and_kind_and_target() {
        let mut memory = IdMemory::new(1000, 60 * SECOND);
        let key = ids(IdKind::IdempotencyKey, "k");
        assert_eq!(memory.note(EdgeId(0), &key, Some(&print(1, 1, "")), 0), 1);
        assert_eq!(memory.note(EdgeId(0), &key, Some(&print(1, 2, "other body")), 1), 2);
        assert_eq!(memory.note(EdgeId(1), &key, Some(&print(1, 1, "")), 2), 1, "another edge");
        assert_eq!(memory.note(EdgeId(0), &key, Some(&print(2, 1, "")), 3), 1, "another path");
        assert_eq!(memory.note(EdgeId(0), &ids(IdKind::RequestId, "k"), Some(&print(1, 1, "")), 4), 1, "another kind");
    }

    #[test]
    fn a_request_id_needs_the_whole_call_to_be_alike() {
        let mut memory = IdMemory::new(1000, 60 * SECOND);
        let id = ids(IdKind::RequestId, "r");
        assert_eq!(memory.note(EdgeId(0), &id, Some(&print(1, 1, "a")), 0), 1);
        assert_eq!(memory.note(EdgeId(0), &id, Some(&print(1, 2, "a")), 1), 1, "another query");
        assert_eq!(memory.note(EdgeId(0), &id, Some(&print(1, 1, "b")), 2), 1, "another body");
        assert_eq!(memory.note(EdgeId(0), &id, Some(&print(1, 1, "b")), 3), 2);
    }

    #[test]
    fn an_id_is_forgotten_after_its_time_to_live() {
        let mut memory = IdMemory::new(1000, 60 * SECOND);
        let id = ids(IdKind::IdempotencyKey, "k");
        assert_eq!(memory.note(EdgeId(0), &id, Some(&print(1, 1, "")), 0), 1);
        assert_eq!(memory.note(EdgeId(0), &id, Some(&print(1, 1, "")), 60 * SECOND), 2, "each sight renews it");
        assert_eq!(memory.note(EdgeId(0), &id, Some(&print(1, 1, "")), 121 * SECOND), 1);
    }

    #[test]
    fn a_key_sent_under_both_names_counts_once() {
        let mut memory = IdMemory::new(10, SECOND);
        let mut both = ids(IdKind::IdempotencyKey, "k");
        both.push(IdKind::IdempotencyKey, b"k");
        assert_eq!(memory.note(EdgeId(0), &both, Some(&print(1, 1, "")), 0), 1);
        assert_eq!(memory.note(EdgeId(0), &both, Some(&print(1, 1, "")), 1), 2);
    }

    #[test]
    fn the_strongest_count_of_several_ids_holds() {
        let mut memory = IdMemory::new(10, SECOND);
        let mut both = ids(IdKind::IdempotencyKey, "k");
        both.push(IdKind::RequestId, b"fresh each time 1");
        assert_eq!(memory.note(EdgeId(0), &both, Some(&print(1, 1, "")), 0), 1);
        let mut both = ids(IdKind::IdempotencyKey, "k");
        both.push(IdKind::RequestId, b"fresh each time 2");
        assert_eq!(memory.note(EdgeId(0), &both, Some(&print(1, 1, "")), 0), 2);
    }

    #[test]
    fn without_ids_every_attempt_is_the_first() {
        let mut memory = IdMemory::new(10, SECOND);
        assert_eq!(memory.note(EdgeId(0), &Ids::default(), Some(&print(1, 1, "")), 0), 1);
        assert!(memory.is_empty());
    }
}
