//! Layers in a row, with one failure at the end of it that is independent of all others.

use super::Layer;

/// What a share of failures leads to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// The share of attempts at the dependency that fail, from 0 to 1.
    pub failure: f64,
    /// Calls at the dependency for one request, on average.
    pub calls: f64,
    /// Their standard deviation; `None` with losses between layers, or where a budget cuts retries short.
    pub deviation: Option<f64>,
    /// Share of requests that succeed.
    pub success: f64,
    /// Calls for one successful request; infinite if none succeeds.
    pub cost: f64,
}

/// The most calls that one request can become: the product of the tries.
#[must_use]
pub fn worst(layers: &[Layer]) -> f64 {
    layers.iter().map(|layer| f64::from(layer.tries.max(1))).product()
}

/// Goes from the dependency outwards. A try of a layer fails when it is lost on the way (h), or else when the layer below has given up:
/// f = h + (1 - h) q. It makes t = (1 - f^n) / (1 - f) tries, or as many as its budget leaves it, and since each succeeds with 1 - f and
/// nobody tries on after a success, q' = 1 - t (1 - f), which without a budget is f^n. Calls multiply: E' = E (1 - h) t.
#[must_use]
pub fn expected(layers: &[Layer], failure: f64, qps: Option<f64>) -> Expected {
    let (mut q, mut calls, mut free) = (failure, 1.0, true);
    for layer in layers.iter().rev() {
        let tries = f64::from(layer.tries.max(1));
        let fails = layer.hop_loss + (1.0 - layer.hop_loss) * q;
        let made = tries_made(fails, tries);
        let allowed = layer.budget.map_or(f64::INFINITY, |budget| budget.tries_per_request(qps));
        calls *= (1.0 - layer.hop_loss) * made.min(allowed);
        if made > allowed {
            free = false;
            q = 1.0 - allowed * (1.0 - fails);
        } else {
            q = fails.powf(tries);
        }
        free &= layer.hop_loss == 0.0;
    }
    let success = 1.0 - q;
    let deviation = free.then(|| (second_moment(failure, worst(layers)) - calls * calls).max(0.0).sqrt());
    Expected { failure, calls, deviation, success, cost: if success > 0.0 { calls / success } else { f64::INFINITY } }
}

/// Tries until the first success, at most n: (1 - f^n) / (1 - f), and n when all fail.
fn tries_made(fails: f64, tries: f64) -> f64 {
    let rest = 1.0 - fails;
    // So near to certain failure that the quotient would be noise, the first terms of its series are exact.
    if rest * tries < 1e-6 { tries * (1.0 - rest * (tries - 1.0) / 2.0) } else { (1.0 - fails.powf(tries)) / rest }
}

/// The mean square of the calls for one request: the sum of (2k - 1) p^(k-1) for k = 1 to N.
fn second_moment(failure: f64, most: f64) -> f64 {
    let (mut sum, mut power, mut k) = (0.0, 1.0, 1.0);
    // What is left of the series is below a rounding error once the powers are; a million terms are more than any chain has.
    while k <= most.min(1e6) && power > 1e-18 {
        sum += (2.0 * k - 1.0) * power;
        power *= failure;
        k += 1.0;
    }
    sum
}
