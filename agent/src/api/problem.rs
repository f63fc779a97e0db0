//! Errors as clients get them: `application/problem+json` (RFC 9457), each kind with a stable `type`.
//!
//! Errors elsewhere know no HTTP; here is where they get a status. What a client should not see goes to the log.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::daemon::cluster::ClaimError;
use crate::daemon::drills::start::StartError;
use crate::daemon::store::StoreError;
use crate::etcd::EtcdError;
use crate::report::log::chain;

/// The kinds of problem. Their `type` is a contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "Kind::title says it")]
pub enum Kind {
    BadRequest,
    Unauthorized,
    CrossOrigin,
    NotFound,
    MethodNotAllowed,
    SlowBody,
    Overlap,
    BodyTooLarge,
    UnsupportedMedia,
    WrongHost,
    BadPlaybook,
    KeyReused,
    TooMany,
    TooFast,
    Internal,
    Busy,
    Unavailable,
}

impl Kind {
    /// All of them, by status.
    pub const ALL: [Self; 17] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::CrossOrigin,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::SlowBody,
        Self::Overlap,
        Self::BodyTooLarge,
        Self::UnsupportedMedia,
        Self::WrongHost,
        Self::BadPlaybook,
        Self::KeyReused,
        Self::TooMany,
        Self::TooFast,
        Self::Internal,
        Self::Busy,
        Self::Unavailable,
    ];

    const fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::BadRequest => (400, "bad-request", "The request cannot be read"),
            Self::Unauthorized => (401, "unauthorized", "A bearer token is needed"),
            Self::CrossOrigin => (403, "cross-origin", "Requests from other origins are refused"),
            Self::NotFound => (404, "not-found", "There is no such thing"),
            Self::MethodNotAllowed => (405, "method-not-allowed", "This cannot be done with that"),
            Self::SlowBody => (408, "slow-body", "The body did not arrive in time"),
            Self::Overlap => (409, "overlapping-drill", "Another drill disturbs the same target"),
            Self::BodyTooLarge => (413, "body-too-large", "The body is too large"),
            Self::UnsupportedMedia => (415, "unsupported-media-type", "The body is of a type that is not read here"),
            Self::WrongHost => (421, "wrong-host", "The Host header names another host"),
            Self::BadPlaybook => (422, "bad-playbook", "The playbook has problems"),
            Self::KeyReused => (422, "idempotency-key-reused", "The idempotency key was used for another request"),
            Self::TooMany => (429, "too-many", "As many as may be are there already"),
            Self::TooFast => (429, "too-fast", "Requests come too fast"),
            Self::Internal => (500, "internal", "Something went wrong in the daemon"),
            Self::Busy => (503, "busy", "As many clients as may be are there already"),
            Self::Unavailable => (503, "unavailable", "The daemon cannot do this now"),
        }
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The `type`.
    #[must_use]
    pub fn uri(self) -> String {
        format!("urn:stormdrill:problem:{}", self.row().1)
    }

    /// The `title`.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.row().2
    }
}

/// One problem.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    detail: String,
    more: Map<String, Value>,
}

impl Problem {
    /// A problem with what is particular to this time.
    pub(super) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), more: Map::new() }
    }

    /// Adds a member of its own.
    pub(super) fn with(mut self, key: &str, value: Value) -> Self {
        self.more.insert(key.to_owned(), value);
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.kind.status();
        let mut body = json!({
            "type": self.kind.uri(),
            "title": self.kind.title(),
            "status": status.as_u16(),
            "detail": self.detail,
        });
        if let Value::Object(members) = &mut body {
            members.extend(self.more);
        }
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.kind {
            Kind::Unauthorized => drop(headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Kind::TooMany | Kind::Busy | Kind::Unavailable => drop(headers.insert(header::RETRY_AFTER, HeaderValue::from_static("10"))),
            Kind::TooFast => drop(headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"))),
            // What is left of the body is not read, so that the connection cannot go on.
            Kind::SlowBody | Kind::BodyTooLarge => drop(headers.insert(header::CONNECTION, HeaderValue::from_static("close"))),
            _ => {}
        }
        response
    }
}

impl From<StartError> for Problem {
    fn from(error: StartError) -> Self {
        match &error {
            StartError::Overlap { id } => Self::new(Kind::Overlap, error.to_string()).with("drill", json!(id)),
            StartError::KeyReused { id } => Self::new(Kind::KeyReused, error.to_string()).with("drill", json!(id)),
            StartError::TooMany { .. } => Self::new(Kind::TooMany, error.to_string()),
            StartError::Claim(ClaimError::Elsewhere { host, id }) => {
                Self::new(Kind::Overlap, error.to_string()).with("drill", json!(id)).with("host", json!(host))
            }
            StartError::Claim(ClaimError::Busy | ClaimError::Etcd(_)) => {
                tracing::error!("{}", chain(&error));
                Self::new(Kind::Unavailable, error.to_string())
            }
            StartError::Stopping => Self::new(Kind::Unavailable, error.to_string()),
            StartError::Store(_) | StartError::Thread(_) => internal(&error),
        }
    }
}

impl From<EtcdError> for Problem {
    fn from(error: EtcdError) -> Self {
        tracing::error!("{}", chain(&error));
        Self::new(Kind::Unavailable, error.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        internal(&error)
    }
}

/// A problem of the daemon's own: the log has the details.
pub(super) fn internal(error: &dyn std::error::Error) -> Problem {
    tracing::error!("{}", chain(error));
    Problem::new(Kind::Internal, "see the daemon's log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_told_apart() {
        let types: std::collections::BTreeSet<String> = Kind::ALL.iter().map(|kind| kind.uri()).collect();
        assert_eq!(types.len(), Kind::ALL.len());
    }
}
