//! The flags of a store.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::StatusCode;

use super::Switch;
use super::values::{duration, duration_or_zero, fail_status, rate, share};
use crate::store::capacity::Queue;
use crate::store::{Dip, Expired, StoreConfig};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Store")]
pub(super) struct StoreArgs {
    /// Where the store listens; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The share of requests that fail, 0 to 1 or 0% to 100%
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = share)]
    fail: f64,
    /// The status of those failures, 400 to 599
    #[arg(long, value_name = "STATUS", default_value = "503", value_parser = fail_status)]
    fail_status: StatusCode,
    /// Requests a second that the store can serve, above 0 [default: no limit]
    #[arg(long, value_name = "N/s", value_parser = rate)]
    capacity: Option<f64>,
    /// What becomes of requests beyond --capacity: 503 at once, or a queue that is served in order, late, even for
    /// clients that are gone
    #[arg(long, value_enum, default_value = "reject")]
    queue: Queue,
    /// The wait before every answer
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration_or_zero)]
    delay: Duration,
    /// The seed of the chance failures
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// What becomes of requests whose deadline (x-envoy-expected-rq-timeout-ms or x-request-deadline) has passed. on: they
    /// are served as any other. off: they get 504 and use no capacity, on arrival and when their turn comes
    #[arg(long, value_enum, default_value = "on")]
    ignore_expired: Switch,
    /// A Retry-After of so many seconds in every answer
    #[arg(long, value_name = "SECONDS")]
    announce_retry_after: Option<u32>,
    /// At each SIGUSR1 the store serves only so many requests a second for --dip-for, and answers 503 to the rest
    #[arg(long, value_name = "N/s", default_value = "58/s", value_parser = rate)]
    dip: f64,
    /// How long that lasts
    #[arg(long, value_name = "DURATION", default_value = "1.5s", value_parser = duration)]
    dip_for: Duration,
}

impl StoreArgs {
    pub(super) fn config(&self) -> StoreConfig {
        StoreConfig {
            listen: self.listen,
            fail: self.fail,
            fail_status: self.fail_status,
            capacity: self.capacity,
            queue: self.queue,
            delay: self.delay,
            seed: self.seed,
            expired: match self.ignore_expired {
                Switch::On => Expired::Serve,
                Switch::Off => Expired::Drop,
            },
            retry_after: self.announce_retry_after,
            dip: Dip { capacity: self.dip, lasts: self.dip_for },
        }
    }
}
