//! Bodies in and out: bounded in size and time, of a type that is known.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::problem::{Kind, Problem, internal};

/// How long a body may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a text.
pub(super) async fn text(headers: &HeaderMap, body: Body, limit: usize) -> Result<String, Problem> {
    let too_large = || Problem::new(Kind::BodyTooLarge, format!("at most {limit} bytes are read"));
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > limit)) {
        return Err(too_large());
    }
    let read = tokio::time::timeout(PATIENCE, to_bytes(body, limit)).await;
    let bytes = match read {
        Err(_) => return Err(Problem::new(Kind::SlowBody, format!("it has {} seconds", PATIENCE.as_secs()))),
        Ok(Err(error)) => {
            let is_limit = std::error::Error::source(&error).is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
            return Err(if is_limit { too_large() } else { Problem::new(Kind::BadRequest, "the body broke off") });
        }
        Ok(Ok(bytes)) => bytes,
    };
    String::from_utf8(bytes.to_vec()).map_err(|_| Problem::new(Kind::BadRequest, "the body is not UTF-8 text"))
}

/// The media type without its parameters, in lower case.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a media type is YAML.
pub(super) fn is_yaml(media: &str) -> bool {
    matches!(media, "application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml")
}

/// An answer of JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => typed(status, "application/json", text),
        Err(error) => axum::response::IntoResponse::into_response(internal(&error)),
    }
}

/// An answer of some type.
pub(super) fn typed(status: StatusCode, media: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

/// The value of a key in a query, percent-decoding not done: the keys that there are take digits and names only.
pub(super) fn query<'q>(query: Option<&'q str>, key: &str) -> Option<&'q str> {
    query?.split('&').find_map(|pair| pair.split_once('=').filter(|(name, _)| *name == key).map(|(_, value)| value))
}

/// The number that a key in a query has, or a default.
pub(super) fn number(given: Option<&str>, key: &str, default: usize, most: usize) -> Result<usize, Problem> {
    let Some(text) = query(given, key) else { return Ok(default) };
    match text.parse::<usize>() {
        Ok(value) if (1..=most).contains(&value) => Ok(value),
        _ => Err(Problem::new(Kind::BadRequest, format!("`{key}` is a number from 1 to {most}"))),
    }
}
