//! After the dependency was away: does the service come back by itself, and when?
//!
//! While every call fails or is late, one request is `a` calls. If a·λ reaches the capacity μ, the retries alone keep the dependency
//! overloaded after the trigger is gone: the state is metastable. Below, the backlog of an outage of D seconds drains in a·λ·D / (μ - a·λ).

use std::time::Duration;

/// What becomes of calls during the outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// They are kept somewhere and delivered when it ends, as TCP's retransmission and queues do.
    Deferred,
    /// They are lost.
    Dropped,
}

/// What is to be expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// Calls a second at the dependency while everything fails: a·λ.
    pub load: f64,
    /// The load in shares of the capacity; at 1 and above the state can sustain itself.
    pub utilisation: f64,
    /// Requests a second at the edge below which it heals by itself: μ / a, the hidden capacity.
    pub heals_below: f64,
    /// How it ends; `None` if no outage was given.
    pub ending: Option<Ending>,
}

/// How an outage ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ending {
    /// It recovers in this many seconds after the outage.
    Recovers {
        /// Seconds.
        after: f64,
    },
    /// Retries keep it down until the load falls below [`Outlook::heals_below`].
    Metastable,
}

/// Predicts it. `calls` is what one request becomes while everything fails, `qps` and `capacity` are above 0.
#[must_use]
pub fn outlook(calls: f64, qps: f64, capacity: f64, outage: Option<Duration>, timeout: Option<Duration>, work: Work) -> Outlook {
    let load = calls * qps;
    let ending = outage.map(|outage| ending(load, qps, capacity, outage.as_secs_f64(), timeout.map(|t| t.as_secs_f64()), work));
    Outlook { load, utilisation: load / capacity, heals_below: capacity / calls, ending }
}

fn ending(load: f64, qps: f64, capacity: f64, outage: f64, timeout: Option<f64>, work: Work) -> Ending {
    match work {
        Work::Dropped => {
            // The calls of the last timeout before the end are still being retried for one timeout more. What they queue up
            // in that time, (load - capacity) * timeout, makes calls late in turn when it takes longer than a timeout to serve.
            if load >= 2.0 * capacity { Ending::Metastable } else { Ending::Recovers { after: 0.0 } }
        }
        Work::Deferred => {
            // Nobody times out while the backlog of first tries is served within the timeout, so nobody retries.
            let patient = timeout.is_some_and(|timeout| qps < capacity && qps * outage / capacity <= timeout);
            let load = if patient { qps } else { load };
            if load >= capacity { Ending::Metastable } else { Ending::Recovers { after: load * outage / (capacity - load) } }
        }
    }
}
