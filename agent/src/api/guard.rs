//! Who may ask: before any handler runs.
//!
//! Without a token, reaching the address is the permission, so a web page must not be able to make a browser ask: the Host header has to be an
//! address of this host (a page whose own name resolves to 127.0.0.1 cannot fake that), and the Origin has to be the same. Requests that
//! come over the Unix socket were let in by their user id.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::problem::{Kind, Problem};
use super::{App, page};

/// How a connection came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// By TCP, from this address.
    Tcp(IpAddr),
    /// By TCP and TLS, from this address.
    Tls(IpAddr),
    /// Over the Unix socket, from a user that may.
    Local,
}

/// Lets a request pass, or answers it.
pub(super) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    // One that comes from nowhere, as in a test without a socket, is trusted as little as any.
    let peer = request.extensions().get::<Peer>().copied().unwrap_or(Peer::Tcp(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
    let in_time = match peer {
        Peer::Tcp(client) | Peer::Tls(client) if !app.may_ask(client) => Err(Problem::new(Kind::TooFast, "wait a second")),
        _ => Ok(()),
    };
    let admitted = in_time.and_then(|()| {
        let request = &request;
        admit(app.token().as_deref(), peer, request.uri().path(), request.headers(), request.uri().host())
    });
    let mut response = match admitted {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn admit(token: Option<&str>, peer: Peer, path: &str, headers: &HeaderMap, uri_host: Option<&str>) -> Result<(), Problem> {
    // One that is there twice may be read differently by whoever passed the request on: it counts as none that is good.
    let text = |name| {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?;
        Some(if values.next().is_some() { "?" } else { value.to_str().unwrap_or("?") })
    };
    let host = text(header::HOST).or(uri_host);
    if peer != Peer::Local {
        match token {
            // A liveness probe tells nothing and may ask without; the page's files are the same everywhere, and ask for the token themselves.
            Some(_) if path == "/healthz" || page::is_file(path) => {}
            Some(token) => authorise(token, text(header::AUTHORIZATION))?,
            None => {
                let host = host.ok_or_else(|| Problem::new(Kind::BadRequest, "the Host header is missing"))?;
                if !is_this_host(host) {
                    return Err(Problem::new(Kind::WrongHost, "use an address or `localhost` for the host"));
                }
            }
        }
    }
    // A link on another site may lead people to the page itself; whatever the page asks for comes from its own origin.
    let fetch = |name| text(HeaderName::from_static(name));
    let is_link = path == "/" && fetch("sec-fetch-mode") == Some("navigate") && fetch("sec-fetch-dest") == Some("document");
    if fetch("sec-fetch-site") == Some("cross-site") && !is_link {
        return Err(Problem::new(Kind::CrossOrigin, "the browser says that another site asks"));
    }
    let scheme = if matches!(peer, Peer::Tls(_)) { "https://" } else { "http://" };
    match text(header::ORIGIN) {
        None => Ok(()),
        Some(origin) if host.is_some_and(|host| origin.strip_prefix(scheme) == Some(host)) => Ok(()),
        Some(_) => Err(Problem::new(Kind::CrossOrigin, "the Origin header names another origin")),
    }
}

fn authorise(token: &str, given: Option<&str>) -> Result<(), Problem> {
    let given = given.and_then(|given| {
        let (scheme, token) = given.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    match given {
        Some(given) if same(token.as_bytes(), given.as_bytes()) => Ok(()),
        Some(_) => Err(Problem::new(Kind::Unauthorized, "the bearer token is not the right one")),
        None => Err(Problem::new(Kind::Unauthorized, "send `Authorization: Bearer TOKEN`")),
    }
}

/// Compares in a time that depends on the given text's length only, never on how much of it is right.
fn same(secret: &[u8], given: &[u8]) -> bool {
    let mut differs = u8::from(secret.len() != given.len());
    for (index, byte) in given.iter().enumerate() {
        // The secret is walked round, so that its length does not end the loop either.
        let against = secret.get(index % secret.len().max(1)).copied().unwrap_or_default();
        differs |= black_box(byte ^ against);
    }
    black_box(differs) == 0
}

/// A name that resolves to this host only here is no name; an address is what it is, and `localhost` is not for others to give away.
fn is_this_host(host: &str) -> bool {
    let name_ends = host.rfind(']').map_or(0, |at| at + 1);
    let port = host[name_ends..].find(':').map_or(host.len(), |at| name_ends + at);
    let (name, port) = host.split_at(port);
    if !port.chars().skip(1).all(|c| c.is_ascii_digit()) {
        return false;
    }
    match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|name| name.parse::<Ipv6Addr>().is_ok()),
        None => name.eq_ignore_ascii_case("localhost") || name.parse::<Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        for (given, expected) in
            [("0123456789abcdef", true), ("0123456789abcdeg", false), ("0123456789abcde", false), ("", false), ("0123456789abcdef0", false)]
        {
            assert_eq!(same(b"0123456789abcdef", given.as_bytes()), expected, "{given}");
        }
        assert!(!same(b"0123456789abcdef", b"0123456789abcdef0123456789abcdef"));
    }

    #[test]
    fn addresses_and_localhost_are_this_host_and_names_are_not() {
        for host in ["127.0.0.1", "127.0.0.1:9464", "localhost:1", "LOCALHOST", "[::1]", "[::1]:9464"] {
            assert!(is_this_host(host), "{host}");
        }
        for host in ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "", "localhost.evil.example", "[evil", "?", ":80"] {
            assert!(!is_this_host(host), "{host}");
        }
        for host in ["127.0.0.1:80@evil.example", "[::1]evil.example", "[::1]:80:80", "127.0.0.1]:80", "localhost:80,evil.example", "::1"] {
            assert!(!is_this_host(host), "{host}");
        }
    }
}
