//! The flags of a chain.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::Switch;
use super::values::{Ports, duration, duration_or_zero, ports, share};
use crate::chain::{CallerGone, ChainConfig, Deadlines, Policy, RetryLayers};
use crate::policy::backoff::{Backoff, Shape};
use crate::policy::breaker::{BreakerLimits, Probing};
use crate::policy::budget::{BudgetLimits, Counting};
use crate::policy::{Marker, Methods, RetryAfter, RetryOn};
use crate::pool::Reuse;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Chain")]
pub(super) struct ChainArgs {
    /// How many layers, 0 to 16; layer 1 is the outermost, and with 0 there is no chain
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=16))]
    layers: u16,
    /// Attempts in all of a layer that retries, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    tries: u32,
    /// naive: every layer retries at once and without limit. budgeted: one layer retries, within --budget, with Full
    /// Jitter, and all others fail fast
    #[arg(long, value_enum, default_value = "naive")]
    policy: Policy,
    /// The layers that retry: a layer's name or number, or `all` [default: all if naive, the innermost if budgeted]
    #[arg(long, value_name = "LAYER")]
    retry_layer: Option<String>,
    /// Whether layers pass on the caller's remaining time and start no try after it
    #[arg(long, value_enum, default_value = "off")]
    deadline: Switch,
    /// With --deadline on: the time given to a request that arrives without a deadline
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = duration)]
    deadline_default: Duration,
    /// The most one try may take, the connect included
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    timeout: Duration,
    /// Budgeted: retries per request over --budget-window, 0 to 1 or 0% to 100%
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share)]
    budget: f64,
    /// Budgeted: retries in --budget-window that are allowed however few requests there are
    #[arg(long, value_name = "N", default_value_t = 3)]
    budget_floor: u64,
    /// Budgeted: the time over which the budget holds, 100ms to 10s; what quiet time has earned may be spent at once
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    budget_window: Duration,
    /// Budgeted: the first retry waits from 0 to this, each further one from 0 to twice as much
    #[arg(long, value_name = "DURATION", default_value = "20ms", value_parser = duration_or_zero)]
    backoff_base: Duration,
    /// Budgeted: the longest wait
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration_or_zero)]
    backoff_max: Duration,
    /// How waits are drawn; given, naive layers wait as well [default: full if budgeted]
    #[arg(long, value_name = "SHAPE", value_enum)]
    waits: Option<Shape>,
    /// Budgeted: over what the budget counts
    #[arg(long, value_enum, default_value = "sliding")]
    budget_counting: Counting,
    /// A breaker before each layer that retries: it opens after this many failed attempts in a row [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    breaker: Option<u32>,
    /// How long the breaker stays open
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    breaker_open: Duration,
    /// Whom it lets through then; with `one`, nothing is tried again while it is open, and what a budget refuses is no failure
    #[arg(long, value_enum, default_value = "everybody")]
    breaker_probe: Probing,
    /// Which methods are retried
    #[arg(long, value_enum, default_value = "all")]
    methods: Methods,
    /// Which answers are retried: 5xx and 429, or every error
    #[arg(long, value_enum, default_value = "failures")]
    retry_on: RetryOn,
    /// Whether a retry waits for as long as the answer's Retry-After says
    #[arg(long, value_enum, default_value = "ignored")]
    retry_after: RetryAfter,
    /// What a layer does when its caller has hung up
    #[arg(long, value_enum, default_value = "stops")]
    caller_gone: CallerGone,
    /// Whether connections are used again
    #[arg(long, value_enum, default_value = "on")]
    keepalive: Switch,
    /// The headers by which the callee can tell a retry
    #[arg(long, value_enum, default_value = "id")]
    marker: Marker,
    /// The layers' names, outermost first [default: layer1,layer2,…]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    names: Vec<String>,
    /// The first layer's port, the others follow; or one port per layer, outermost first; 0 takes free ones
    #[arg(long, value_name = "PORT[,…]", default_value = "0", value_parser = ports)]
    ports: Ports,
    /// The address that all layers listen on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    address: IpAddr,
    /// The seed of the jitter
    #[arg(long, value_name = "N", default_value_t = 1)]
    chain_seed: u64,
}

/// Flags that do not go together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChainArgsError {
    #[error("--names has {given} names for {layers} layers: write one for each, or leave it out")]
    Names { given: usize, layers: usize },
    #[error("--ports has {given} ports for {layers} layers: write one for each, or the first only")]
    Ports { given: usize, layers: usize },
    #[error("--ports {first} leaves no port for layer {layer}: write a lower one")]
    PortsEnd { first: u16, layer: usize },
    #[error("--retry-layer {given:?} is no layer: write all, a number from 1 to {layers}, or one of: {names}")]
    RetryLayer { given: String, layers: usize, names: String },
}

impl ChainArgs {
    pub(super) fn config(&self, downstream: SocketAddr) -> Result<ChainConfig, ChainArgsError> {
        let names = self.names()?;
        let retry = self.retry(&names)?;
        Ok(ChainConfig {
            layers: names.into_iter().zip(self.ports()?).collect(),
            address: self.address,
            downstream,
            tries: self.tries,
            policy: self.policy,
            retry,
            deadlines: match self.deadline {
                Switch::On => Deadlines::PassedOn { default: self.deadline_default },
                Switch::Off => Deadlines::Ignored,
            },
            timeout: self.timeout,
            budget: BudgetLimits {
                share: self.budget,
                floor: self.budget_floor,
                window: self.budget_window,
                counting: self.budget_counting,
            },
            backoff: Backoff { base: self.backoff_base, max: self.backoff_max, shape: self.waits.unwrap_or(Shape::Full) },
            naive_waits: self.waits.is_some(),
            methods: self.methods,
            on: self.retry_on,
            retry_after: self.retry_after,
            breaker: self.breaker.map(|failures| BreakerLimits { failures, open: self.breaker_open, probing: self.breaker_probe }),
            caller_gone: self.caller_gone,
            reuse: match self.keepalive {
                Switch::On => Reuse::KeepAlive,
                Switch::Off => Reuse::Close,
            },
            marker: self.marker,
            seed: self.chain_seed,
        })
    }

    fn names(&self) -> Result<Vec<String>, ChainArgsError> {
        let layers = usize::from(self.layers);
        match self.names.len() {
            0 => Ok((1..=layers).map(|number| format!("layer{number}")).collect()),
            given if given == layers => Ok(self.names.clone()),
            given => Err(ChainArgsError::Names { given, layers }),
        }
    }

    fn ports(&self) -> Result<Vec<u16>, ChainArgsError> {
        let layers = usize::from(self.layers);
        match &self.ports {
            Ports::From(0) => Ok(vec![0; layers]),
            Ports::From(first) => (0..self.layers)
                .map(|n| first.checked_add(n).ok_or(ChainArgsError::PortsEnd { first: *first, layer: usize::from(n) + 1 }))
                .collect(),
            Ports::Each(ports) if ports.len() == layers => Ok(ports.clone()),
            Ports::Each(ports) => Err(ChainArgsError::Ports { given: ports.len(), layers }),
        }
    }

    fn retry(&self, names: &[String]) -> Result<RetryLayers, ChainArgsError> {
        let Some(given) = &self.retry_layer else {
            return Ok(match self.policy {
                Policy::Naive => RetryLayers::All,
                Policy::Budgeted => RetryLayers::Innermost,
            });
        };
        if given == "all" {
            return Ok(RetryLayers::All);
        }
        let named = names.iter().position(|name| name == given).map(|index| index + 1);
        let numbered = given.parse().ok().filter(|number| (1..=names.len()).contains(number));
        named.or(numbered).map(RetryLayers::Only).ok_or_else(|| ChainArgsError::RetryLayer {
            given: given.clone(),
            layers: names.len(),
            names: names.join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        chain: ChainArgs,
    }

    fn config(line: &str) -> Result<ChainConfig, ChainArgsError> {
        let words = std::iter::once("chain").chain(line.split_whitespace());
        Only::try_parse_from(words).unwrap().chain.config(SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    #[test]
    fn ports_follow_the_first_or_are_listed() {
        let ports = |line| config(line).unwrap().layers.into_iter().map(|(_, port)| port).collect::<Vec<_>>();
        assert_eq!(ports("--layers 3"), [0, 0, 0]);
        assert_eq!(ports("--layers 3 --ports 9001"), [9001, 9002, 9003]);
        assert_eq!(ports("--layers 2 --ports 9001,8000"), [9001, 8000]);
        let short = config("--layers 3 --ports 9001,8000").unwrap_err();
        assert_eq!(short, ChainArgsError::Ports { given: 2, layers: 3 });
        let end = config("--layers 2 --ports 65535").unwrap_err();
        assert_eq!(end, ChainArgsError::PortsEnd { first: 65535, layer: 2 });
    }

    #[test]
    fn the_retrying_layer_is_named_numbered_or_all() {
        let retry = |line| config(line).map(|config| config.retry);
        assert_eq!(retry("--layers 2"), Ok(RetryLayers::All));
        assert_eq!(retry("--layers 2 --policy budgeted"), Ok(RetryLayers::Innermost));
        assert_eq!(retry("--layers 2 --retry-layer 1"), Ok(RetryLayers::Only(1)));
        assert_eq!(retry("--layers 2 --retry-layer layer2"), Ok(RetryLayers::Only(2)));
        assert_eq!(retry("--layers 2 --names gateway,service --retry-layer gateway"), Ok(RetryLayers::Only(1)));
        assert_eq!(retry("--layers 2 --policy budgeted --retry-layer all"), Ok(RetryLayers::All));
        let error = retry("--layers 2 --retry-layer 3").unwrap_err().to_string();
        assert_eq!(error, "--retry-layer \"3\" is no layer: write all, a number from 1 to 2, or one of: layer1, layer2");
    }
}
