//! The flags of a load.

use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;

use super::Switch;
use super::values::{duration, rate_or_zero};
use crate::load::schedule::Arrivals;
use crate::load::{LoadConfig, Pace, Target};
use crate::policy::Marker;
use crate::pool::Reuse;

#[derive(Debug, clap::Args)]
pub(super) struct LoadArgs {
    /// Whom to call; plain HTTP only
    #[arg(long, value_name = "http://HOST:PORT/PATH")]
    pub(super) url: String,
    /// Requests a second, up to 1000000/s; 0/s sends one after another
    #[arg(long, value_name = "N/s", value_parser = rate_or_zero)]
    rate: f64,
    /// How long to start requests; needed unless there is a --count
    #[arg(long, value_name = "DURATION", value_parser = duration, required_unless_present = "count")]
    duration: Option<Duration>,
    /// End after this many requests, at least 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// The most one try may take
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration)]
    timeout: Duration,
    /// The most connections in use at once; a request beyond that waits, within its timeout
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Attempts in all, 1 to 100; retried at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    tries: u32,
    /// Whether connections are used again
    #[arg(long, value_enum, default_value = "on")]
    keepalive: Switch,
    /// The headers by which the callee can tell a retry
    #[arg(long, value_enum, default_value = "id")]
    marker: Marker,
    /// How requests are spaced
    #[arg(long, value_enum, default_value = "uniform")]
    arrivals: Arrivals,
    /// The seed of --arrivals poisson
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Whether --timeout is announced as the whole request's deadline, which then also ends its tries
    #[arg(long, value_enum, default_value = "off")]
    deadline: Switch,
    /// Whether `n=K` is appended to each request's query, K from 1
    #[arg(long, value_enum, default_value = "off")]
    unique_path: Switch,
    /// The method
    #[arg(long, default_value = "GET")]
    method: Method,
    /// The body
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    body: String,
}

impl LoadArgs {
    pub(super) fn config(&self, target: Target) -> LoadConfig {
        let pace = if self.rate > 0.0 { Pace::Open { rate: self.rate, arrivals: self.arrivals } } else { Pace::Closed };
        LoadConfig {
            target,
            method: self.method.clone(),
            body: Bytes::from(self.body.clone()),
            unique_path: self.unique_path == Switch::On,
            pace,
            count: self.count,
            duration: self.duration,
            timeout: self.timeout,
            tries: self.tries,
            deadline: self.deadline == Switch::On,
            connections: self.connections,
            reuse: match self.keepalive {
                Switch::On => Reuse::KeepAlive,
                Switch::Off => Reuse::Close,
            },
            marker: self.marker,
            seed: self.seed,
        }
    }
}
