//! The load generator: open loop, so that a service that hangs does not slow its own load down.
//!
//! Each request has its time, from a schedule drawn beforehand. How late it really started is the *schedule lag*: when
//! that is large the machine was too busy, and the measurement is worth nothing. Latency counts from the scheduled time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderValue};

mod pacing;
mod record;
mod report;
pub mod schedule;
mod target;

pub use report::{LoadReport, Spread};
pub use target::{Target, TargetError};

use crate::caller::{Call, Caller, CallerConfig};
use crate::clock::Clock;
use crate::policy::deadline::Deadline;
use crate::policy::{Marker, RetryPolicy};
use crate::pool::{Pool, Reuse};
use pacing::Quit;
use record::Record;
use schedule::Arrivals;

/// When requests start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At this many a second, whatever the answers do.
    Open {
        /// Requests a second, above 0.
        rate: f64,
        /// How they are spaced.
        arrivals: Arrivals,
    },
    /// Each after the end of the one before.
    Closed,
}

/// The settings of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadConfig {
    /// Whom to call.
    pub target: Target,
    /// The method.
    pub method: Method,
    /// The body, which may be empty.
    pub body: Bytes,
    /// Whether each request's path gets `n=K` appended to its query, K from 1.
    pub unique_path: bool,
    /// When requests start.
    pub pace: Pace,
    /// The most requests to start; none means no limit.
    pub count: Option<u64>,
    /// How long to start requests; none means no limit.
    pub duration: Option<Duration>,
    /// The most one try may take.
    pub timeout: Duration,
    /// Attempts in all, retried at once; at least 1.
    pub tries: u32,
    /// Whether the timeout is announced as the deadline of the whole request, tries and all.
    pub deadline: bool,
    /// The most connections in use at once; a request beyond that waits, within its timeout.
    pub connections: u32,
    /// What becomes of a connection after its answer.
    pub reuse: Reuse,
    /// The markers to send.
    pub marker: Marker,
    /// The seed of Poisson arrivals.
    pub seed: u64,
}

impl LoadConfig {
    /// GETs of `/` at `address`, uniformly at `rate` a second, with no limit in number or time.
    #[must_use]
    pub fn open(address: SocketAddr, rate: f64) -> Self {
        Self {
            target: Target::root(address),
            method: Method::GET,
            body: Bytes::new(),
            unique_path: false,
            pace: Pace::Open { rate, arrivals: Arrivals::Uniform },
            count: None,
            duration: None,
            timeout: Duration::from_secs(3),
            tries: 1,
            deadline: false,
            connections: 10_000,
            reuse: Reuse::KeepAlive,
            marker: Marker::Id,
            seed: 1,
        }
    }

    /// `count` GETs of `/` at `address`, one after another.
    #[must_use]
    pub fn closed(address: SocketAddr, count: u64) -> Self {
        Self { pace: Pace::Closed, count: Some(count), ..Self::open(address, 1.0) }
    }
}

/// Runs a load until its schedule ends or `stop` does, waits for the answers of what has started, and reports.
pub async fn run(config: LoadConfig, stop: impl Future<Output = ()>) -> LoadReport {
    let clock = Clock::start();
    let client = Arc::new(Client::new(config, clock));
    let (quit, quitting) = Quit::new();
    let pacing = pacing::pace(Arc::clone(&client), quitting);
    tokio::pin!(pacing);
    let span = tokio::select! {
        span = &mut pacing => span,
        () = stop => {
            quit.tell();
            pacing.await
        }
    };
    client.record.report(client.caller.report(), span)
}

#[derive(Debug)]
struct Client {
    config: LoadConfig,
    caller: Caller,
    clock: Clock,
    /// The start of this run's ids, so that two runs never share one.
    tag: u32,
    record: Record,
}

impl Client {
    fn new(config: LoadConfig, clock: Clock) -> Self {
        let pool = Pool::new(config.target.address, config.reuse, config.connections);
        let caller =
            CallerConfig { policy: RetryPolicy::naive(config.tries), timeout: config.timeout, marker: config.marker, seed: config.seed };
        let caller = Caller::new(caller, pool, config.target.host.clone(), clock);
        Self { config, caller, clock, tag: fastrand::u32(..), record: Record::default() }
    }

    async fn request(&self, number: u64, due: Duration) {
        self.record.started(self.clock.now().saturating_sub(due));
        let id = format!("{:08x}-{number:06}", self.tag);
        let call = Call {
            method: self.config.method.clone(),
            path: if self.config.unique_path { self.config.target.numbered(number) } else { self.config.target.path.clone() },
            headers: HeaderMap::new(),
            body: self.config.body.clone(),
            id: HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("none")),
            deadline: self.config.deadline.then(|| Deadline::after(due, self.config.timeout)),
        };
        let outcome = self.caller.call(&call).await;
        self.record.ended(&outcome, self.clock.now().saturating_sub(due));
    }
}
