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
use tokio::sync::{mpsc, watch};

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
use record::Record;
use schedule::{Arrivals, Schedule};

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
    let (quit, quitting) = watch::channel(false);
    // On a task of its own, because a runtime's workers come sooner to their turn than the thread that waits for them.
    let pacing = tokio::spawn(pace(Arc::clone(&client), quitting));
    tokio::pin!(pacing);
    let paced = tokio::select! {
        paced = &mut pacing => paced,
        () = stop => {
            quit.send_replace(true);
            pacing.await
        }
    };
    // Should the pacing have panicked, what was recorded is still true, and `scheduled` shows that it broke off.
    let span = paced.unwrap_or_else(|_| clock.now());
    client.record.report(client.caller.report(), span)
}

/// Starts all requests and returns, once all have ended, how long starting them took.
async fn pace(client: Arc<Client>, mut quitting: watch::Receiver<bool>) -> Duration {
    let origin = client.clock.now();
    let (under_way, mut all_ended) = mpsc::channel::<()>(1);
    let limit = client.config.count.unwrap_or(u64::MAX);
    let duration = client.config.duration.unwrap_or(Duration::MAX);
    let mut schedule = match client.config.pace {
        Pace::Open { rate, arrivals } => Some(Schedule::new(rate, arrivals, client.config.seed)),
        Pace::Closed => None,
    };
    let mut number = 0;
    while number < limit && !*quitting.borrow() {
        let due = match &mut schedule {
            Some(schedule) => schedule.next_offset(),
            None => client.clock.now() - origin,
        };
        if due >= duration {
            break;
        }
        let at = origin + due;
        if schedule.is_some() && at > client.clock.now() {
            tokio::select! {
                () = client.clock.sleep_until(at) => {}
                _ = quitting.changed() => break,
            }
        }
        number += 1;
        client.record.scheduled();
        if schedule.is_none() {
            client.request(number, at).await;
            continue;
        }
        let (client, under_way) = (Arc::clone(&client), under_way.clone());
        tokio::spawn(async move {
            client.request(number, at).await;
            drop(under_way);
        });
    }
    let span = client.clock.now() - origin;
    drop(under_way);
    let _ = all_ended.recv().await;
    match &schedule {
        // The last request's own share of the time belongs to the schedule: ten at 10/s take one second, not 0.9.
        Some(schedule) if !*quitting.borrow() => span.max(schedule.length(number).min(duration)),
        _ => span,
    }
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
        let caller = CallerConfig {
            policy: RetryPolicy::naive(config.tries),
            timeout: config.timeout,
            marker: config.marker,
            seed: config.seed,
        };
        let caller = Caller::new(caller, pool, config.target.host.clone(), clock);
        Self { config, caller, clock, tag: fastrand::u32(..), record: Record::default() }
    }

    async fn request(&self, number: u64, due: Duration) {
        self.record.started(self.clock.now().saturating_sub(due));
        let id = format!("{:08x}-{number:06}", self.tag);
        let call = Call {
            method: self.config.method.clone(),
            path: if self.config.unique_path {
                self.config.target.numbered(number)
            } else {
                self.config.target.path.clone()
            },
            headers: HeaderMap::new(),
            body: self.config.body.clone(),
            id: HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("none")),
            deadline: self.config.deadline.then(|| Deadline::after(due, self.config.timeout)),
        };
        let outcome = self.caller.call(&call).await;
        self.record.ended(&outcome, self.clock.now().saturating_sub(due));
    }
}
