//! The systems, one module each, in the order of the page.

mod capacity;
pub(super) mod cascade;
mod envoy;
mod gateway;
mod grpc;
mod haproxy;
mod latency;
mod layers;
mod listings;
mod loss;
mod metastable;
pub(super) mod playbooks;

use anyhow::Result;

use super::result::Section;
use super::scene::Scene;

/// Downloads the kernel that one of them boots.
pub(crate) fn prepare() -> Result<()> {
    latency::prepare()
}

/// A system and its drills.
pub(crate) struct System {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) run: fn(&Scene) -> Result<Section>,
    /// Whether it has a short form.
    pub(crate) short: bool,
}

/// All of them.
pub(crate) const ALL: &[System] = &[
    System { name: "layers", title: "Layers that all retry", run: layers::run, short: true },
    System { name: "capacity", title: "A store with little capacity for a moment", run: capacity::run, short: false },
    System { name: "nginx", title: "nginx as a gateway", run: gateway::run, short: true },
    System { name: "haproxy", title: "HAProxy", run: haproxy::run, short: true },
    System { name: "envoy", title: "Envoy and its retry budget", run: envoy::run, short: true },
    System { name: "grpc", title: "gRPC's service config", run: grpc::run, short: true },
    System { name: "cascade", title: "From Redis to MySQL", run: cascade::run, short: true },
    System { name: "metastable", title: "Outages that outlive their cause", run: metastable::run, short: false },
    System { name: "listings", title: "The articles' own code", run: listings::run, short: false },
    System { name: "loss", title: "Thirty percent loss for five minutes", run: loss::run, short: false },
    System { name: "latency", title: "A store that is slow, by netem", run: latency::run, short: false },
    System { name: "playbooks", title: "The shipped playbooks", run: playbooks::run, short: true },
];
