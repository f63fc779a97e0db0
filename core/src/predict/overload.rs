//! When the first tries alone are more than the dependency can serve.

/// What comes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overload {
    /// Share of requests that can be served: μ / λ.
    pub served: f64,
    /// Fewest calls for one request: those that are served succeed at the first try.
    pub least: f64,
    /// Most calls for one request: chance alone decides which calls are served.
    pub most: f64,
}

/// Predicts it: (1 - c)·N + c·k calls for one request, where c is the share served and k the mean tries of a served one.
///
/// `worst` is N, the most calls of a request; `qps` is above `capacity`, which is above 0. With immediate retries k lies between 1 and
/// what it is when every call has the same chance: that chance follows from 1 - (1 - s)^N = c, and the calls are c / s.
#[must_use]
pub fn overload(worst: f64, qps: f64, capacity: f64) -> Overload {
    let served = (capacity / qps).min(1.0);
    let least = calls(served, worst, 1.0);
    let chance = 1.0 - (1.0 - served).powf(1.0 / worst);
    let most = if chance > 0.0 { served / chance } else { worst };
    Overload { served, least, most: most.max(least) }
}

/// Calls for one request when a share is served after a mean number of tries.
#[must_use]
pub fn calls(served: f64, worst: f64, tries_of_served: f64) -> f64 {
    (1.0 - served) * worst + served * tries_of_served
}
