//! What the head of an HTTP/1 request says about its identity.

use std::mem::MaybeUninit;

use crate::retry::Identity;
use crate::retry::fingerprint::{self, BodyPrefix, Fingerprint, join};
use crate::retry::marker::MarkerHeader;
use crate::status::Status;
use crate::track::answer::Answer;
use crate::track::head;
use crate::track::heading::{self, Heading};

/// A head with more header lines than this is not read.
const MAX_HEADERS: usize = 128;

/// The identity of a request; `None` if its head cannot be read. Of a head that was cut, its full lines are read.
///
/// `bytes` starts with the head and may go on into the body, or into the next request.
#[must_use]
pub fn identity(bytes: &[u8], own: Option<&MarkerHeader>) -> Option<Identity> {
    match read(bytes, own) {
        Ok(httparse::Status::Partial) => read(&head::closed(bytes), own),
        whole => whole,
    }
    .ok()
    .and_then(|status| if let httparse::Status::Complete(identity) = status { identity } else { None })
}

fn read(bytes: &[u8], own: Option<&MarkerHeader>) -> httparse::Result<Option<Identity>> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    Ok(match request.parse_with_uninit_headers(bytes, &mut headers)? {
        httparse::Status::Complete(length) => httparse::Status::Complete(said_by(&request, bytes.get(length..).unwrap_or_default(), own)),
        httparse::Status::Partial => httparse::Status::Partial,
    })
}

/// What a parsed head says; `after` is what was captured behind it.
fn said_by(request: &httparse::Request<'_, '_>, after: &[u8], own: Option<&MarkerHeader>) -> Option<Identity> {
    let (method, target) = (request.method?, Target::of(request.path?));
    let mut heading = Heading::default();
    let (mut host, mut body_length, mut chunked) = (None, None, false);
    for header in request.headers.iter() {
        heading.field(header.name, header.value, own);
        if header.name.eq_ignore_ascii_case("host") {
            host = Some(header.value.trim_ascii());
        } else if header.name.eq_ignore_ascii_case("content-length") {
            body_length = decimal(header.value);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = true;
        }
    }
    // What follows a head without a body is the next request.
    let body = match body_length {
        _ if chunked => after,
        Some(limit) => &after[..after.len().min(usize::try_from(limit).unwrap_or(usize::MAX))],
        None => &[],
    };
    let authority = target.authority.map(str::as_bytes).or(host).unwrap_or_default();
    let path = target.path.split('?').next().unwrap_or_default();
    let mut found = heading.of_method(method.as_bytes());
    let method = fingerprint::of_bytes(method.as_bytes());
    // A length that was not told apart from one of zero.
    let length = body_length.map_or(0, |length| length.wrapping_add(1));
    let place = join(fingerprint::of_caseless(authority), fingerprint::of_bytes(target.path.as_bytes()));
    found.print = Some(Fingerprint {
        target: join(method, fingerprint::of_bytes(path.as_bytes())),
        call: join(join(method, place), length),
        body: BodyPrefix::of(body),
    });
    Some(found)
}

/// The answer that a head's status and the captured part of it are.
#[must_use]
pub(crate) fn answer(code: u16, head: &[u8]) -> Answer {
    let mut answer = Answer::of(Status::Code(code));
    if stormdrill_wire::http1::is_read(code) {
        let lines = head.split(|byte| *byte == b'\n').filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((std::str::from_utf8(&line[..colon]).ok()?, &line[colon + 1..]))
        });
        answer.wait_ns = heading::wait_ns(lines);
    }
    answer
}

/// A request target, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target<'a> {
    authority: Option<&'a str>,
    /// With its query.
    path: &'a str,
}

impl<'a> Target<'a> {
    /// Absolute form, as sent to proxies, names the authority; any other form is all path.
    fn of(target: &'a str) -> Self {
        let Some((scheme, rest)) = target.split_once("://") else {
            return Self { authority: None, path: target };
        };
        // An origin-form path may well have a URL in its query.
        if scheme.is_empty() || !scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) {
            return Self { authority: None, path: target };
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let path = if end == rest.len() { "/" } else { &rest[end..] };
        Self { authority: Some(&rest[..end]), path }
    }
}

fn decimal(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::id::IdKind;

    fn parse(text: &str) -> Option<Identity> {
        identity(text.as_bytes(), None)
    }

    fn print(text: &str) -> Fingerprint {
        parse(text).and_then(|identity| identity.print).expect("it can be read")
    }

    #[test]
    fn marker_and_ids_are_taken_from_the_headers() {
        let found = parse("GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: r\r\nx-envoy-attempt-count: 1\r\nx-stainless-retry-count: 2\r\n\r\n")
            .expect("it can be read");
        assert_eq!(found.marker, Some(3), "the highest of several");
        assert_eq!(found.ids.iter().map(|(kind, _)| kind).collect::<Vec<_>>(), [IdKind::RequestId]);
    }

    #[test]
    fn a_configured_marker_is_read() {
        let own = MarkerHeader::named("X-Try");
        let head = b"GET / HTTP/1.1\r\nx-try: 1\r\n\r\n";
        assert_eq!(identity(head, Some(&own)).and_then(|found| found.marker), Some(2));
    }

    #[test]
    fn absolute_and_origin_form_are_the_same_call() {
        let origin = print("GET /a?b=c HTTP/1.1\r\nHost: Example.com\r\n\r\n");
        assert_eq!(origin, print("GET http://example.com/a?b=c HTTP/1.1\r\nHost: other\r\n\r\n"));
        assert_eq!(print("GET / HTTP/1.1\r\nHost: h:8080\r\n\r\n"), print("GET http://h:8080 HTTP/1.1\r\nHost: h:8080\r\n\r\n"));
    }

    #[test]
    fn targets_are_taken_apart() {
        let cases = [
            ("/a?b", None, "/a?b"),
            ("*", None, "*"),
            ("host:443", None, "host:443"),
            ("http://h/a", Some("h"), "/a"),
            ("http://h?q", Some("h"), "?q"),
            ("/go?to=http://h/a", None, "/go?to=http://h/a"),
            ("://h/", None, "://h/"),
        ];
        for (target, authority, path) in cases {
            assert_eq!(Target::of(target), Target { authority, path }, "{target}");
        }
    }

    #[test]
    fn each_part_of_a_call_tells_calls_apart() {
        let base = print("POST /a?b=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}");
        for other in [
            "PUT /a?b=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}",
            "POST /b?b=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}",
            "POST /a?b=2 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}",
            "POST /a?b=1 HTTP/1.1\r\nHost: i\r\nContent-Length: 2\r\n\r\n{}",
            "POST /a?b=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n{}",
            "POST /a?b=1 HTTP/1.1\r\nHost: h\r\n\r\n",
        ] {
            assert_ne!(print(other).call, base.call, "{other}");
        }
        assert_eq!(print("POST /a?b=2 HTTP/1.1\r\n\r\n").target, base.target, "the query is no part of the target");
        assert!(print("POST /a?b=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n[]").body.contradicts(base.body));
    }

    #[test]
    fn the_next_pipelined_request_is_no_body() {
        let alone = print("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(alone, print("GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /next HTTP/1.1\r\n\r\n"));
        let post = print("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!(post, print("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}GET /next HTTP/1.1\r\n\r\n"));
    }

    #[test]
    fn a_cut_head_says_what_its_full_lines_say() {
        let cut = b"GET /a HTTP/1.1\r\nHost: h\r\nx-request-id: r\r\nCookie: abc";
        let found = identity(cut, None).expect("it can be read");
        assert_eq!(found.ids.iter().count(), 1);
        assert_eq!(found.print, Some(print("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")));
        for bytes in [&b"GET /a HT"[..], b"", b"\x16\x03\x01", b"GET"] {
            assert_eq!(identity(bytes, None), None);
        }
    }
}
