//! When to try again: pure rules, with time and chance as arguments.

use hyper::{Method, StatusCode};

pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod deadline;

use backoff::Backoff;
use breaker::BreakerLimits;
use budget::BudgetLimits;

/// Which headers tell the callee that an attempt is one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Marker {
    /// Neither: attempts can only be matched by what they look like.
    None,
    /// `x-request-id`, the same over all attempts of a request.
    Id,
    /// `x-envoy-attempt-count`, from 1.
    Attempt,
    /// Both headers.
    Both,
}

impl Marker {
    /// Whether `x-request-id` is sent.
    #[must_use]
    pub fn has_id(self) -> bool {
        matches!(self, Self::Id | Self::Both)
    }

    /// Whether `x-envoy-attempt-count` is sent.
    #[must_use]
    pub fn has_attempt(self) -> bool {
        matches!(self, Self::Attempt | Self::Both)
    }
}

/// How one caller retries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; 1 means no retry. Never 0.
    pub tries: u32,
    /// The wait before each retry; none means at once.
    pub backoff: Option<Backoff>,
    /// The limit of retries against requests; none means no limit.
    pub budget: Option<BudgetLimits>,
    /// Which methods are retried.
    pub methods: Methods,
    /// Which answers are.
    pub on: RetryOn,
    /// Whether a Retry-After is waited for.
    pub retry_after: RetryAfter,
    /// The breaker before all tries; none means none.
    pub breaker: Option<BreakerLimits>,
}

/// Which methods are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Methods {
    /// Every method.
    All,
    /// GET, HEAD, OPTIONS, TRACE, PUT and DELETE.
    Idempotent,
}

impl Methods {
    /// Whether this one is.
    #[must_use]
    pub fn allow(self, method: &Method) -> bool {
        self == Self::All || method.is_idempotent()
    }
}

/// Which answers are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RetryOn {
    /// Any 5xx, and 429.
    Failures,
    /// Any 4xx too, which cannot get better.
    Errors,
}

impl RetryOn {
    /// Whether this one is.
    #[must_use]
    pub fn includes(self, status: StatusCode) -> bool {
        is_failure(status) || self == Self::Errors && status.is_client_error()
    }
}

/// What becomes of a Retry-After in a failed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RetryAfter {
    /// It is not read.
    Ignored,
    /// No retry begins before it is over.
    Obeyed,
}

impl RetryPolicy {
    /// Retries at once and without limit until `tries` attempts are spent.
    #[must_use]
    pub fn naive(tries: u32) -> Self {
        Self {
            tries,
            backoff: None,
            budget: None,
            methods: Methods::All,
            on: RetryOn::Failures,
            retry_after: RetryAfter::Ignored,
            breaker: None,
        }
    }

    /// Never retries.
    #[must_use]
    pub fn fail_fast() -> Self {
        Self::naive(1)
    }
}

/// Whether an answer counts as a failed attempt: any 5xx, and 429.
#[must_use]
pub fn is_failure(status: StatusCode) -> bool {
    status.as_u16() >= 500 || status == StatusCode::TOO_MANY_REQUESTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn business_answers_are_not_retried() {
        for status in [StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::CONFLICT] {
            assert!(!is_failure(status), "{status}");
        }
        for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::GATEWAY_TIMEOUT] {
            assert!(is_failure(status), "{status}");
        }
    }
}
