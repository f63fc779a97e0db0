//! The identity of a request from its header fields, and what follows of its body.

use super::compression::Fields;
use crate::edge::Protocol;
use crate::retry::fingerprint::{self, BodyPrefix, Fingerprint, join};
use crate::retry::marker::MarkerHeader;
use crate::retry::{Identity, Repeat};
use crate::track::heading::Heading;

/// A request whose body may yet tell it apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    identity: Identity,
    /// HTTP/2, or gRPC over it.
    pub(super) protocol: Protocol,
    /// What it is could not be read, for want of the connection's table: only its body may tell.
    pub(super) is_untold: bool,
}

impl Request {
    /// What its fields say.
    pub(super) fn of(fields: &Fields, own: Option<&MarkerHeader>) -> Self {
        let mut heading = Heading::default();
        for (name, value) in &fields.fields {
            if let Ok(name) = std::str::from_utf8(name) {
                heading.field(name, value, own);
            }
        }
        let is_grpc =
            fields.get("content-type").is_some_and(|kind| kind.starts_with(b"application/grpc")) || fields.get("grpc-timeout").is_some();
        let method = fields.get(":method").unwrap_or_default();
        // All calls of gRPC are POST, and none says whether it may be repeated.
        let identity = if is_grpc { heading.of_any() } else { heading.of_method(method) };
        let print = fields.get(":path").map(|path| {
            let hashed = fingerprint::of_bytes(method);
            let short = path.split(|byte| *byte == b'?').next().unwrap_or_default();
            let authority = fields.get(":authority").or_else(|| fields.get("host")).unwrap_or_default();
            let place = join(fingerprint::of_caseless(authority), fingerprint::of_bytes(path));
            let length = fields.get("content-length").map_or(0, fingerprint::of_bytes);
            Fingerprint {
                target: join(hashed, fingerprint::of_bytes(short)),
                call: join(join(hashed, place), length),
                body: BodyPrefix::default(),
            }
        });
        let is_untold = fields.is_partial && !is_grpc && fields.get("content-type").is_none();
        Self { identity: Identity { print, ..identity }, protocol: if is_grpc { Protocol::Grpc } else { Protocol::Http2 }, is_untold }
    }

    /// The same, known to be a call of gRPC after all: of which none says whether it may be repeated.
    pub(super) fn of_grpc(self) -> Self {
        let identity = Identity { repeat: Repeat::default(), ..self.identity };
        Self { identity, protocol: Protocol::Grpc, is_untold: false }
    }

    /// The identity, given the first bytes of the body, as far as they were seen.
    pub(super) fn with_body(&self, data: Option<&[u8]>) -> Identity {
        let Some(data) = data else { return self.identity };
        let message = (self.protocol == Protocol::Grpc).then(|| framed(data)).flatten();
        let message = message.map(|length| fingerprint::of_captured(data, length));
        let Some(print) = self.identity.print else { return Identity { message, ..self.identity } };
        let print = match message {
            Some(message) => Fingerprint { call: join(print.call, message), ..print },
            None => Fingerprint { body: BodyPrefix::of(data), ..print },
        };
        Identity { print: Some(print), ..self.identity }
    }
}

/// The length of a message of gRPC with what stands before it: a flag, and the message's own length.
fn framed(data: &[u8]) -> Option<usize> {
    let [_, a, b, c, d, ..] = data else { return None };
    Some(usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).map_or(usize::MAX, |length| length.saturating_add(5)))
}

/// Whether a body begins as one of gRPC does: with messages, up to the end of what was seen. Text does not.
pub(super) fn is_framed(mut data: &[u8]) -> bool {
    const LARGEST: usize = 1 << 26;
    let mut found = false;
    while let (Some(0 | 1), Some(length)) = (data.first(), framed(data).filter(|length| *length <= LARGEST)) {
        (found, data) = (true, data.get(length..).unwrap_or_default());
    }
    // Less than what stands before a message may be left.
    found && (data.is_empty() || (data.len() < 5 && data[0] <= 1))
}
