//! `method` and `path` of an `http_status`: the requests whose answers are meant.

use super::super::super::fields::{self, Fields};
use super::super::super::node::Entry;
use super::super::super::problem::{Code, Draft, Place, Problems};
use crate::edge::{EdgeSpec, Protocol};
use crate::fault::{HTTP2_STATUSES, Requests};
use crate::wording::{excerpt, listed, nearest};

/// Methods that a fault can be limited to.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"];
/// Bytes of a path's beginning that the kernel compares.
const LONGEST: usize = 64;

pub(super) fn requests(fields: &Fields<'_>, problems: &mut Problems<'_>) -> Requests {
    Requests {
        method: fields.get("method").and_then(|entry| method(entry, problems)),
        path: fields.get("path").and_then(|entry| path(entry, problems)),
    }
}

/// What keeps an edge's answers from being given a status, if its protocol is said.
pub(super) fn speaks(edge: &EdgeSpec, status: u16, requests: &Requests, place: &Place) -> Option<Draft> {
    match edge.protocol {
        None | Some(Protocol::Http) => None,
        Some(Protocol::Http2 | Protocol::Grpc) if !requests.is_all() => {
            let message = format!("`{}` speaks HTTP/2, whose requests are compressed and not read for `method` and `path`", edge.name);
            Some(Draft::new(Code::Conflict, place, message).advice("leave both out"))
        }
        Some(Protocol::Http2 | Protocol::Grpc) if !HTTP2_STATUSES.contains(&status) => {
            let message = format!("`{}` speaks HTTP/2, whose answers cannot be given {status} in flight", edge.name);
            Some(Draft::new(Code::Conflict, place, message).advice("use 200, 206, 400, 404 or 500"))
        }
        Some(Protocol::Http2 | Protocol::Grpc) => None,
        Some(_) => {
            let message = format!("`http_status` needs HTTP, which `{}` does not speak", edge.name);
            Some(Draft::new(Code::Conflict, place, message))
        }
    }
}

fn method(entry: &Entry, problems: &mut Problems<'_>) -> Option<String> {
    let text = fields::text(entry, problems)?;
    if METHODS.contains(&text) {
        return Some(text.to_owned());
    }
    let upper = text.to_ascii_uppercase();
    let draft = Draft::new(Code::UnknownName, &entry.value.place, format!("there is no method `{}` to select by", excerpt(text)));
    let draft = draft.advice(format!("the methods are {}", listed(&METHODS)));
    problems.report(match nearest(&upper, METHODS) {
        Some(near) => draft.replace(near),
        None => draft,
    });
    None
}

fn path(entry: &Entry, problems: &mut Problems<'_>) -> Option<String> {
    let text = fields::text(entry, problems)?;
    let place = &entry.value.place;
    if !text.starts_with('/') {
        let draft = Draft::new(Code::BadValue, place, format!("`{}` is no beginning of a path", excerpt(text)));
        // Of a whole URL the path is what comes behind the host.
        let path =
            text.split_once("://").map_or_else(|| format!("/{text}"), |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]).to_owned());
        let draft = draft.advice("a path begins with `/`");
        problems.report(if path.chars().all(|c| c.is_ascii_graphic() && c != '#') { draft.replace(path) } else { draft });
        return None;
    }
    // Written as it is sent: what the line cannot hold would match nothing.
    if let Some(stray) = text.chars().find(|c| !c.is_ascii_graphic() || *c == '#') {
        let draft = Draft::new(Code::BadValue, place, format!("a path on the wire has no {stray:?}"));
        problems.report(draft.advice("write it percent-encoded, as the client sends it"));
        return None;
    }
    if text.len() > LONGEST {
        let message = format!("`path` has {} bytes, and only a beginning of {LONGEST} can be compared", text.len());
        problems.report(Draft::new(Code::OutOfRange, place, message).replace(text.get(..LONGEST).unwrap_or_default()));
        return None;
    }
    Some(text.to_owned())
}
