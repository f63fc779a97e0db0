//! The store: the last service of a chain, which answers, fails by chance, is slow, or has a limited capacity.
//!
//! The chance is drawn in the order of arrival, for requests that are not turned away before, so that a seed gives the
//! same failures whatever the timing.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};

pub mod capacity;
mod report;

pub use report::StoreReport;

use crate::clock::Clock;
use crate::counts::{Arrival, Counter, StatusCounts};
use crate::headers;
use crate::lock::lock;
use crate::policy::deadline::Deadline;
use crate::service::{self, Handler, Listening, ServiceError};
use capacity::{Admission, Capacity, Queue};

/// What a store does with a request whose deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Serves it as any other, for nobody.
    Serve,
    /// Answers 504 and uses no capacity, on arrival or when its turn comes.
    Drop,
}

/// The settings of a store.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreConfig {
    /// Where it listens; port 0 takes any free one.
    pub listen: SocketAddr,
    /// The share of requests answered `fail_status`, 0 to 1.
    pub fail: f64,
    /// The status of a chance failure.
    pub fail_status: StatusCode,
    /// Requests a second that it can serve, above 0; none means no limit.
    pub capacity: Option<f64>,
    /// What becomes of requests beyond the capacity.
    pub queue: Queue,
    /// The wait before every answer, after any queue.
    pub delay: Duration,
    /// The seed of the chance failures.
    pub seed: u64,
    /// What becomes of requests that nobody waits for any more.
    pub expired: Expired,
    /// The Retry-After of every answer, in seconds; successful ones have it too, since an injected fault may make failures of them.
    pub retry_after: Option<u32>,
    /// What [`RunningStore::dip`] does.
    pub dip: Dip,
}

/// A time of little capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dip {
    /// Requests a second, above 0; the rest is answered 503.
    pub capacity: f64,
    /// How long.
    pub lasts: Duration,
}

impl Default for StoreConfig {
    /// A store on a free port of 127.0.0.1 that answers everything 200 at once.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            fail: 0.0,
            fail_status: StatusCode::SERVICE_UNAVAILABLE,
            capacity: None,
            queue: Queue::Reject,
            delay: Duration::ZERO,
            seed: 1,
            expired: Expired::Serve,
            retry_after: None,
            dip: Dip { capacity: 1.0, lasts: Duration::ZERO },
        }
    }
}

/// A store that is listening.
#[derive(Debug)]
pub struct RunningStore {
    store: Arc<Store>,
    listening: Listening,
}

impl RunningStore {
    /// Starts a store.
    ///
    /// # Errors
    /// [`ServiceError::Listen`] when its address cannot be had.
    pub async fn start(config: StoreConfig) -> Result<Self, ServiceError> {
        let listen = config.listen;
        let store = Arc::new(Store::new(config, Clock::start()));
        let listening = Listening::start("store", listen, Arc::clone(&store)).await?;
        Ok(Self { store, listening })
    }

    /// The service that listens.
    #[must_use]
    pub fn listening(&self) -> &Listening {
        &self.listening
    }

    /// Lets the capacity dip from now on.
    pub fn dip(&self) {
        let store = &self.store;
        let dip = store.config.dip;
        *lock(&store.dip) = Some((store.clock.now() + dip.lasts, Capacity::new(dip.capacity, Queue::Reject)));
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> StoreReport {
        self.store.report(self.listening.address().to_string())
    }

    /// Ends the store, giving requests under way up to `drain`, and tells what it served.
    pub async fn stop(self, drain: Duration) -> StoreReport {
        let address = self.listening.address().to_string();
        self.listening.stop(drain).await;
        self.store.report(address)
    }
}

#[derive(Debug, Default)]
struct Counts {
    connections: Counter,
    requests: Counter,
    responses: StatusCounts,
    request_ids: Counter,
    repeats: Counter,
    without_id: Counter,
    marked_retries: Counter,
    client_gone: Counter,
    failed: Counter,
    rejected: Counter,
    expired: Counter,
    dropped: Counter,
    queue_peak: Counter,
}

#[derive(Debug)]
struct Store {
    config: StoreConfig,
    clock: Clock,
    capacity: Option<Mutex<Capacity>>,
    /// The end of a dip and what is served in it.
    dip: Mutex<Option<(Duration, Capacity)>>,
    chance: Mutex<fastrand::Rng>,
    /// Hashes of the ids seen: a million of them collide with a probability of 3 in 10^8.
    seen: Mutex<HashSet<u64>>,
    hasher: RandomState,
    counts: Counts,
}

/// What is decided on arrival.
enum Plan {
    /// Answer with this status at this instant.
    Answer(StatusCode, Duration),
    /// Answer 504 at this instant.
    Drop(Duration),
    /// Answer 503 now.
    Reject,
}

impl Store {
    fn new(config: StoreConfig, clock: Clock) -> Self {
        Self {
            capacity: config.capacity.map(|per_second| Mutex::new(Capacity::new(per_second, config.queue))),
            dip: Mutex::default(),
            chance: Mutex::new(fastrand::Rng::with_seed(config.seed)),
            seen: Mutex::default(),
            hasher: RandomState::new(),
            counts: Counts::default(),
            config,
            clock,
        }
    }

    fn count_head(&self, head: &HeaderMap) {
        match head.get(headers::REQUEST_ID) {
            Some(id) if lock(&self.seen).insert(self.hasher.hash_one(id.as_bytes())) => self.counts.request_ids.add(),
            Some(_) => self.counts.repeats.add(),
            None => self.counts.without_id.add(),
        }
        let attempt = head.get(headers::ATTEMPT_COUNT).and_then(|value| value.to_str().ok());
        if attempt.and_then(|text| text.parse::<u32>().ok()).is_some_and(|attempt| attempt > 1) {
            self.counts.marked_retries.add();
        }
    }

    fn plan(&self, now: Duration, deadline: Option<Deadline>) -> Plan {
        let drops = self.config.expired == Expired::Drop;
        if drops && deadline.is_some_and(|deadline| deadline.remaining(now).is_none()) {
            self.counts.expired.add();
            return Plan::Drop(now);
        }
        let limit = deadline.filter(|_| drops).map(Deadline::instant);
        let at = match self.admit(now, limit) {
            Admission::Served(at) => at,
            Admission::ExpiresInQueue(at) => {
                self.counts.expired.add();
                return Plan::Drop(at);
            }
            Admission::Rejected => return Plan::Reject,
        };
        // Counted as expired by the time at which it is served, in whatever mode.
        if deadline.is_some_and(|deadline| deadline.remaining(at).is_none()) {
            self.counts.expired.add();
        }
        let failed = lock(&self.chance).f64() < self.config.fail;
        let status = if failed { self.config.fail_status } else { StatusCode::OK };
        Plan::Answer(status, at + self.config.delay)
    }

    fn admit(&self, now: Duration, limit: Option<Duration>) -> Admission {
        if let Some((end, dip)) = &mut *lock(&self.dip)
            && now < *end
        {
            return dip.admit(now, limit);
        }
        let Some(capacity) = &self.capacity else { return Admission::Served(now) };
        let mut capacity = lock(capacity);
        let admission = capacity.admit(now, limit);
        self.counts.queue_peak.raise_to(capacity.backlog(now));
        admission
    }

    fn answer(&self, arrival: Arrival<'_>, status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
        self.counts.responses.add(status);
        arrival.answered();
        let mut response = service::json(status, body);
        if let Some(seconds) = self.config.retry_after {
            response.headers_mut().insert(hyper::header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl Handler for Store {
    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let counts = &self.counts;
        let arrival = Arrival::new(&counts.requests, &counts.client_gone);
        let now = self.clock.now();
        self.count_head(request.headers());
        let plan = self.plan(now, headers::deadline(request.headers(), now, self.clock.unix(now)));
        if service::read_body(request.into_body()).await.is_none() {
            return self.answer(arrival, StatusCode::BAD_REQUEST, r#"{"error":"the request's body breaks off"}"#);
        }
        match plan {
            Plan::Answer(status, at) => {
                self.wait_until(at).await;
                if status == StatusCode::OK {
                    return self.answer(arrival, status, r#"{"service":"store","ok":true}"#);
                }
                counts.failed.add();
                self.answer(arrival, status, r#"{"service":"store","error":"failed by chance"}"#)
            }
            Plan::Drop(at) => {
                self.wait_until(at).await;
                counts.dropped.add();
                self.answer(arrival, StatusCode::GATEWAY_TIMEOUT, r#"{"service":"store","error":"deadline passed"}"#)
            }
            Plan::Reject => {
                counts.rejected.add();
                let status = StatusCode::SERVICE_UNAVAILABLE;
                self.answer(arrival, status, r#"{"service":"store","error":"over capacity"}"#)
            }
        }
    }

    fn connections(&self) -> &Counter {
        &self.counts.connections
    }
}

impl Store {
    /// Waits for an instant that is still to come. Without this check every answer would cost a timer's millisecond.
    async fn wait_until(&self, at: Duration) {
        if at > self.clock.now() {
            self.clock.sleep_until(at).await;
        }
    }
}
