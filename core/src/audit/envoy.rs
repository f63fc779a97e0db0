//! Envoy: a bootstrap, a listener or route file, or a `config_dump`, in YAML or JSON.
//!
//! Route configurations and clusters are found wherever they are in the tree: a dump wraps them in messages that differ by
//! version. Facts: the API's `route_components.proto` and `circuit_breaker.proto`, the router filter's documentation, and
//! `resource_manager_impl.h` for what a budget counts.

use super::layer::{Answers, Policy};
use super::source::Source;
use super::tree::Node;
use super::{Refused, yaml};

mod cluster;

mod route;

mod rules;

mod listener;

use cluster::Clusters;

/// What Envoy answers when it has no answer to pass on.
pub(super) const GATEWAY: Answers = Answers::Gateway { refused: 503, broken: 503, unconnected: 503, late: 504 };

/// Reads every route of every virtual host.
pub(super) fn read(source: &mut Source<'_>) -> Result<Vec<Policy>, Refused> {
    let documents = yaml::read(source)?;
    let clusters = Clusters::find(&documents);
    let mut policies = Vec::new();
    for document in &documents {
        let mut hosts = Vec::new();
        document.each_map(&mut |map| {
            if let Some(list) = map.entry("virtual_hosts") {
                hosts.push((map, &list.value));
            }
        });
        for (configuration, list) in hosts {
            for host in list.items() {
                route::policies(source, configuration, host, &clusters, &mut policies);
            }
        }
        source.about(None);
        listener::check(source, document);
    }
    Ok(policies)
}

/// Whether a tree is Envoy's.
pub(super) fn looks_like(node: &Node) -> bool {
    const KNOWN: [&str; 6] = ["static_resources", "dynamic_resources", "configs", "virtual_hosts", "filter_chains", "route_config"];
    // A discovery response has its route configurations further down.
    let mut routes = false;
    node.each_map(&mut |map| routes |= map.entry("virtual_hosts").is_some());
    routes || KNOWN.iter().any(|key| node.items().iter().any(|item| item.entry(key).is_some()))
}
