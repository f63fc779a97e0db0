//! The identity of a request from its header fields, and what follows of its body.

use super::compression::Fields;
use crate::edge::Protocol;
use crate::retry::Identity;
use crate::retry::fingerprint::{self, BodyPrefix, Fingerprint, join};
use crate::retry::marker::MarkerHeader;
use crate::track::heading::Heading;

/// A request whose body may yet tell it apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    identity: Identity,
    /// HTTP/2, or gRPC over it.
    pub(super) protocol: Protocol,
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
        Self { identity: Identity { print, ..identity }, protocol: if is_grpc { Protocol::Grpc } else { Protocol::Http2 } }
    }

    /// The identity, given the first bytes of the body, as far as they were seen.
    pub(super) fn with_body(&self, data: Option<&[u8]>) -> Identity {
        let (Some(print), Some(data)) = (self.identity.print, data) else { return self.identity };
        let print = match (self.protocol, data) {
            // A flag, the message's length, and the message.
            (Protocol::Grpc, [_, a, b, c, d, ..]) => {
                let length = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).map_or(usize::MAX, |length| length.saturating_add(5));
                Fingerprint { call: join(print.call, fingerprint::of_captured(data, length)), ..print }
            }
            _ => Fingerprint { body: BodyPrefix::of(data), ..print },
        };
        Identity { print: Some(print), ..self.identity }
    }
}
