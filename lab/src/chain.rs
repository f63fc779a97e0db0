//! A chain of layers, each of which forwards what it is asked to the next, with tries of its own.
//!
//! Layer 1 is the outermost; the last calls the downstream. Retries multiply: L layers of N tries are up to N^L calls.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

mod layer;
mod report;

pub use report::{ChainReport, LayerReport};

use crate::caller::CallerConfig;
use crate::clock::Clock;
use crate::policy::backoff::{Backoff, Shape};
use crate::policy::breaker::BreakerLimits;
use crate::policy::budget::{BudgetLimits, Counting};
use crate::policy::{Marker, Methods, RetryAfter, RetryOn, RetryPolicy};
use crate::pool::Reuse;
use crate::service::{Listening, ServiceError};
use layer::{Layer, RunningLayer};

/// How a chain's layers retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// At once, without limit, at every layer.
    Naive,
    /// At a single layer, within a budget, with Full Jitter; all other layers fail fast.
    Budgeted,
}

/// Which layers retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryLayers {
    /// Every layer.
    All,
    /// The layer of this number, from 1, the outermost.
    Only(usize),
    /// The innermost layer, nearest the failure.
    Innermost,
}

/// Whether deadlines are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadlines {
    /// The layers know of none.
    Ignored,
    /// The caller's remaining time is passed on, and no try starts after it. A layer that is told none grants this.
    PassedOn {
        /// What a request without a deadline is given.
        default: Duration,
    },
}

/// What a layer does when its own caller hangs up before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CallerGone {
    /// It closes its call and makes no further try.
    Stops,
    /// It goes on to the end, as services with a thread for each request mostly do.
    GoesOn,
}

/// The settings of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct ChainConfig {
    /// The layers' names and ports, outermost first; port 0 takes any free one. May be empty: then there is no chain.
    pub layers: Vec<(String, u16)>,
    /// The address that all layers listen on.
    pub address: IpAddr,
    /// What the last layer calls.
    pub downstream: SocketAddr,
    /// Attempts in all, of a layer that retries; at least 1.
    pub tries: u32,
    /// How the layers retry.
    pub policy: Policy,
    /// Which layers retry.
    pub retry: RetryLayers,
    /// Whether deadlines are passed on.
    pub deadlines: Deadlines,
    /// The most one try may take.
    pub timeout: Duration,
    /// The budget of a budgeted layer.
    pub budget: BudgetLimits,
    /// The waits of a budgeted layer.
    pub backoff: Backoff,
    /// Whether a naive layer waits too.
    pub naive_waits: bool,
    /// Which methods a layer retries.
    pub methods: Methods,
    /// Which answers a layer retries.
    pub on: RetryOn,
    /// Whether a layer waits for a Retry-After.
    pub retry_after: RetryAfter,
    /// The breaker of a layer that retries.
    pub breaker: Option<BreakerLimits>,
    /// What a layer does for a caller that has gone.
    pub caller_gone: CallerGone,
    /// What becomes of a layer's connections after an answer.
    pub reuse: Reuse,
    /// The markers that every layer sends.
    pub marker: Marker,
    /// The seed of the jitter.
    pub seed: u64,
}

impl ChainConfig {
    /// A naive chain of `layers` layers of three tries, on free ports of 127.0.0.1, before `downstream`.
    #[must_use]
    pub fn naive(layers: usize, downstream: SocketAddr) -> Self {
        Self {
            layers: (1..=layers).map(|number| (format!("layer{number}"), 0)).collect(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            downstream,
            tries: 3,
            policy: Policy::Naive,
            retry: RetryLayers::All,
            deadlines: Deadlines::Ignored,
            timeout: Duration::from_secs(1),
            budget: BudgetLimits { share: 0.1, floor: 3, window: Duration::from_secs(10), counting: Counting::Sliding },
            backoff: Backoff { base: Duration::from_millis(20), max: Duration::from_secs(1), shape: Shape::Full },
            naive_waits: false,
            methods: Methods::All,
            on: RetryOn::Failures,
            retry_after: RetryAfter::Ignored,
            breaker: None,
            caller_gone: CallerGone::Stops,
            reuse: Reuse::KeepAlive,
            marker: Marker::Id,
            seed: 1,
        }
    }

    /// The same with retries at the innermost layer only, a 10% budget, Full Jitter and deadlines passed on.
    #[must_use]
    pub fn budgeted(layers: usize, downstream: SocketAddr) -> Self {
        Self {
            policy: Policy::Budgeted,
            retry: RetryLayers::Innermost,
            deadlines: Deadlines::PassedOn { default: Duration::from_secs(3) },
            ..Self::naive(layers, downstream)
        }
    }

    /// The policy of layer `number`, from 1.
    #[must_use]
    pub fn policy_of(&self, number: usize) -> RetryPolicy {
        let retries = match self.retry {
            RetryLayers::All => true,
            RetryLayers::Only(chosen) => number == chosen,
            RetryLayers::Innermost => number == self.layers.len(),
        };
        if !retries {
            return RetryPolicy::fail_fast();
        }
        let waits = self.policy == Policy::Budgeted || self.naive_waits;
        RetryPolicy {
            tries: self.tries,
            backoff: waits.then_some(self.backoff),
            budget: (self.policy == Policy::Budgeted).then_some(self.budget),
            methods: self.methods,
            on: self.on,
            retry_after: self.retry_after,
            breaker: self.breaker,
        }
    }
}

/// A chain that is listening.
#[derive(Debug)]
pub struct RunningChain {
    /// Outermost first.
    layers: Vec<RunningLayer>,
    downstream: SocketAddr,
}

impl RunningChain {
    /// Starts all layers, the innermost first, so that a layer that listens has somebody to call.
    ///
    /// # Errors
    /// [`ServiceError::Listen`] when an address cannot be had; the layers that had started are ended.
    pub async fn start(config: &ChainConfig) -> Result<Self, ServiceError> {
        let clock = Clock::start();
        let mut layers = Vec::with_capacity(config.layers.len());
        let mut next = config.downstream;
        for (index, (name, port)) in config.layers.iter().enumerate().rev() {
            let caller = CallerConfig {
                policy: config.policy_of(index + 1),
                timeout: config.timeout,
                marker: config.marker,
                // Layers draw different jitter, each the same in every run.
                seed: config.seed.wrapping_add(index as u64),
            };
            let layer = Layer::new(name, next, caller, config, clock);
            let layer = RunningLayer::start(layer, SocketAddr::new(config.address, *port)).await?;
            next = layer.listening().address();
            layers.insert(0, layer);
        }
        Ok(Self { layers, downstream: config.downstream })
    }

    /// Where the chain is called: layer 1, or the downstream itself if there is no layer.
    #[must_use]
    pub fn entry(&self) -> SocketAddr {
        self.layers.first().map_or(self.downstream, |layer| layer.listening().address())
    }

    /// The services that listen, outermost first.
    pub fn listening(&self) -> impl DoubleEndedIterator<Item = &Listening> {
        self.layers.iter().map(RunningLayer::listening)
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> ChainReport {
        ChainReport::new(self.layers.iter().map(RunningLayer::report).collect())
    }

    /// Ends the layers, the outermost first, each with up to `drain` for requests under way, and tells what they did.
    pub async fn stop(self, drain: Duration) -> ChainReport {
        let mut reports = Vec::with_capacity(self.layers.len());
        for layer in self.layers {
            reports.push(layer.stop(drain).await);
        }
        ChainReport::new(reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWNSTREAM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

    fn tries(config: &ChainConfig) -> Vec<u32> {
        (1..=config.layers.len()).map(|number| config.policy_of(number).tries).collect()
    }

    #[test]
    fn naive_layers_all_retry_and_budgeted_ones_only_nearest_the_failure() {
        assert_eq!(tries(&ChainConfig::naive(3, DOWNSTREAM)), [3, 3, 3]);
        assert_eq!(tries(&ChainConfig::budgeted(3, DOWNSTREAM)), [1, 1, 3]);
    }

    #[test]
    fn the_retrying_layer_can_be_chosen() {
        let outermost = ChainConfig { retry: RetryLayers::Only(1), ..ChainConfig::budgeted(3, DOWNSTREAM) };
        assert_eq!(tries(&outermost), [3, 1, 1]);
        assert!(outermost.policy_of(1).budget.is_some());
        let all = ChainConfig { retry: RetryLayers::All, ..ChainConfig::budgeted(2, DOWNSTREAM) };
        assert_eq!(tries(&all), [3, 3]);
    }
}
