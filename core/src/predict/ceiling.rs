//! Budgets: what retries can come to when everything fails.

use super::Layer;

/// A limit on a layer's retries as a share of its traffic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// The share, from 0 to below 1 if it is of all requests, 0 or more if it is of first tries.
    pub share: f64,
    /// What it is a share of.
    pub of: Of,
    /// Retries a second that are allowed at any load, 0 or more.
    pub floor: f64,
}

/// The denominator of a budget. Twenty percent of all requests are 25% on top of the first tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// First tries and retries together (the SRE book's, Envoy's).
    All,
    /// First tries (Linkerd's, Finagle's, tower's).
    First,
}

impl Budget {
    /// Retries for one first try: r = share / (1 - share) if the share is of all requests.
    #[must_use]
    pub fn retries_per_first(&self) -> f64 {
        match self.of {
            Of::First => self.share,
            Of::All if self.share >= 1.0 => f64::INFINITY,
            Of::All => self.share / (1.0 - self.share),
        }
    }

    /// Tries for one request that the budget allows on average. The floor is spread over the requests at the edge: no layer has fewer.
    pub(super) fn tries_per_request(&self, qps: Option<f64>) -> f64 {
        1.0 + self.retries_per_first() + qps.filter(|qps| *qps > 0.0).map_or(0.0, |qps| self.floor / qps)
    }
}

/// Calls a second behind each layer when everything fails, from the edge on. Empty without a rate.
#[must_use]
pub fn arriving(layers: &[Layer], qps: Option<f64>) -> Vec<f64> {
    let Some(mut rate) = qps else {
        return Vec::new();
    };
    layers
        .iter()
        .map(|layer| {
            rate = behind(layer, rate);
            rate
        })
        .collect()
}

/// Calls at the dependency for one request when everything fails: the product of (1 + r), and the floors on top, where that is less than
/// the tries allow.
#[must_use]
pub fn calls(layers: &[Layer], qps: Option<f64>) -> f64 {
    match (qps.filter(|qps| *qps > 0.0), arriving(layers, qps).last()) {
        (Some(qps), Some(last)) => last / qps,
        _ => layers
            .iter()
            .fold(1.0, |rate, layer| behind(&Layer { budget: layer.budget.map(|b| Budget { floor: 0.0, ..b }), ..layer.clone() }, rate)),
    }
}

fn behind(layer: &Layer, rate: f64) -> f64 {
    let by_tries = rate * f64::from(layer.tries.max(1));
    layer.budget.map_or(by_tries, |budget| by_tries.min(rate * (1.0 + budget.retries_per_first()) + budget.floor))
}
