//! One caller of one address: sends a request, and tries again as its policy says.
//!
//! The chain's layers and the load generator are both callers; only what surrounds the call differs.

use std::sync::Mutex;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, Uri};

mod report;

pub use report::CallerReport;

use crate::clock::Clock;
use crate::counts::{Counter, StatusCounts};
use crate::headers;
use crate::lock::lock;
use crate::policy::breaker::Breaker;
use crate::policy::budget::Budget;
use crate::policy::deadline::Deadline;
use crate::policy::{Marker, RetryAfter, RetryPolicy};
use crate::pool::{Pool, SendError};

/// A logical request, of which each attempt is a copy.
#[derive(Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub path: PathAndQuery,
    /// End-to-end headers, without the lab's own.
    pub headers: HeaderMap,
    /// The body, which may be empty.
    pub body: Bytes,
    /// The request id, sent if the marker says so.
    pub id: HeaderValue,
    /// When the caller's caller gives up.
    pub deadline: Option<Deadline>,
}

/// How the last attempt failed.
#[derive(Debug)]
pub enum Failure {
    /// It was answered 429 or 5xx.
    Answer(Response<Bytes>),
    /// It was not answered.
    NoAnswer(SendError),
    /// The breaker was open: nothing was sent.
    Open,
}

/// How a call ended.
#[derive(Debug)]
pub enum Outcome {
    /// An answer below 500 that is not 429.
    Answered(Response<Bytes>),
    /// All tries were used, or the budget refused the next one.
    Failed(Failure),
    /// The deadline passed, or would pass during the wait, before a try could start. What failed before, if anything.
    TooLate(Option<Failure>),
}

/// What one caller did.
#[derive(Debug, Default)]
pub struct CallerCounts {
    requests: Counter,
    tries: Counter,
    retries: Counter,
    answers: StatusCounts,
    connect_errors: Counter,
    resets: Counter,
    timeouts: Counter,
    budget_refusals: Counter,
    deadline_refusals: Counter,
    breaker_refusals: Counter,
}

/// The settings of a caller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallerConfig {
    /// When it tries again.
    pub policy: RetryPolicy,
    /// The most one try may take.
    pub timeout: Duration,
    /// Which markers it sends.
    pub marker: Marker,
    /// The seed of its jitter.
    pub seed: u64,
}

/// A caller of one address.
#[derive(Debug)]
pub struct Caller {
    config: CallerConfig,
    pool: Pool,
    host: HeaderValue,
    budget: Option<Mutex<Budget>>,
    breaker: Option<Mutex<Breaker>>,
    jitter: Mutex<fastrand::Rng>,
    clock: Clock,
    counts: CallerCounts,
}

impl Caller {
    /// A caller that sends `host` as its Host header.
    #[must_use]
    pub fn new(config: CallerConfig, pool: Pool, host: HeaderValue, clock: Clock) -> Self {
        let budget = config.policy.budget.map(|limits| Mutex::new(Budget::new(limits)));
        let breaker = config.policy.breaker.map(|limits| Mutex::new(Breaker::new(limits)));
        let jitter = Mutex::new(fastrand::Rng::with_seed(config.seed));
        Self { config, pool, host, budget, breaker, jitter, clock, counts: CallerCounts::default() }
    }

    /// Tries until there is an answer, the tries are used, the budget refuses, or the deadline is over.
    pub async fn call(&self, call: &Call) -> Outcome {
        self.counts.requests.add();
        if let Some(budget) = &self.budget {
            lock(budget).request(self.clock.now());
        }
        if self.breaker.as_ref().is_some_and(|breaker| !lock(breaker).admits(self.clock.now())) {
            self.counts.breaker_refusals.add();
            return Outcome::Failed(Failure::Open);
        }
        let mut before = None;
        let mut attempt = 1;
        loop {
            let now = self.clock.now();
            let Some(remaining) = call.deadline.map_or(Some(Duration::MAX), |deadline| deadline.remaining(now)) else {
                self.counts.deadline_refusals.add();
                return Outcome::TooLate(before);
            };
            if attempt > 1 {
                self.counts.retries.add();
            }
            let failure = match self.attempt(call, attempt, now, remaining).await {
                Ok(answer) if !self.config.policy.on.includes(answer.status()) => {
                    self.note(Breaker::succeeded);
                    return Outcome::Answered(answer);
                }
                Ok(answer) => Failure::Answer(answer),
                Err(error) => Failure::NoAnswer(error),
            };
            self.note(|breaker| breaker.failed(self.clock.now()));
            let may_retry = self.breaker.as_ref().is_none_or(|breaker| lock(breaker).admits_retry());
            if attempt >= self.config.policy.tries || !may_retry || !self.config.policy.methods.allow(&call.method) {
                return Outcome::Failed(failure);
            }
            match self.before_retry(attempt - 1, call.deadline, self.asked_to_wait(&failure)).await {
                Next::Try => before = Some(failure),
                Next::Refused => {
                    // The listed breaker is told of each try that is refused.
                    (attempt..self.config.policy.tries).for_each(|_| self.note(|breaker| breaker.refused(self.clock.now())));
                    return Outcome::Failed(failure);
                }
                Next::TooLate => return Outcome::TooLate(Some(failure)),
            }
            attempt += 1;
        }
    }

    /// Asks the deadline, then the budget, and waits. The deadline first: a retry that cannot start costs no budget.
    async fn before_retry(&self, retry: u32, deadline: Option<Deadline>, at_least: Duration) -> Next {
        let now = self.clock.now();
        let wait = self.config.policy.backoff.map_or(Duration::ZERO, |backoff| backoff.wait(retry, lock(&self.jitter).f64()));
        let wait = wait.max(at_least);
        if deadline.is_some_and(|deadline| deadline.remaining(now + wait).is_none()) {
            self.counts.deadline_refusals.add();
            return Next::TooLate;
        }
        if self.budget.as_ref().is_some_and(|budget| !lock(budget).retry(now)) {
            self.counts.budget_refusals.add();
            return Next::Refused;
        }
        if !wait.is_zero() {
            self.clock.sleep_until(now + wait).await;
        }
        Next::Try
    }

    fn note(&self, of: impl FnOnce(&mut Breaker)) {
        if let Some(breaker) = &self.breaker {
            of(&mut lock(breaker));
        }
    }

    /// How long the answer asks to wait, in whole seconds, if this caller obeys that.
    fn asked_to_wait(&self, failure: &Failure) -> Duration {
        let Failure::Answer(answer) = failure else { return Duration::ZERO };
        if self.config.policy.retry_after == RetryAfter::Ignored {
            return Duration::ZERO;
        }
        let text = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        Duration::from_secs(text.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    }

    async fn attempt(&self, call: &Call, attempt: u32, now: Duration, remaining: Duration) -> Result<Response<Bytes>, SendError> {
        self.counts.tries.add();
        let result = self.pool.send(self.request(call, attempt, now), self.config.timeout.min(remaining)).await;
        match &result {
            Ok(answer) => self.counts.answers.add(answer.status()),
            Err(SendError::Connect { .. }) => self.counts.connect_errors.add(),
            Err(SendError::Reset(_)) => self.counts.resets.add(),
            Err(SendError::Timeout { .. }) => self.counts.timeouts.add(),
        }
        result
    }

    fn request(&self, call: &Call, attempt: u32, now: Duration) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = Uri::from(call.path.clone());
        let sent = request.headers_mut();
        *sent = call.headers.clone();
        sent.insert(header::HOST, self.host.clone());
        if self.config.marker.has_id() {
            sent.insert(headers::REQUEST_ID, call.id.clone());
        }
        if self.config.marker.has_attempt() {
            sent.insert(headers::ATTEMPT_COUNT, HeaderValue::from(attempt));
        }
        if let Some(deadline) = call.deadline {
            headers::set_deadline(sent, deadline, now, self.clock.unix(now));
        }
        request
    }
}

/// What the policy says about the next try.
enum Next {
    Try,
    Refused,
    TooLate,
}
