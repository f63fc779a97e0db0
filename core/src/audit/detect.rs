//! What kind of configuration a text is, by what is in it.

use super::Format;
use super::source::Source;
use super::tree::Node;
use super::{aws, envoy, haproxy, kubernetes, nginx, spring, yaml};

/// The format, if one is recognised.
pub(super) fn format(text: &str) -> Option<Format> {
    if haproxy::looks_like(text) {
        return Some(Format::Haproxy);
    }
    if nginx::looks_like(text) {
        return Some(Format::Nginx);
    }
    if aws::looks_like(text) {
        return Some(Format::Aws);
    }
    let documents = yaml::read(&Source::new(0, text)).ok()?;
    documents.iter().find_map(of_tree)
}

fn of_tree(node: &Node) -> Option<Format> {
    let has = |key: &str| node.items().iter().any(|item| item.entry(key).is_some());
    if kubernetes::looks_like(node) {
        return Some(Format::Kubernetes);
    }
    if has("methodConfig") || has("retryThrottling") || has("serviceConfig") {
        return Some(Format::Grpc);
    }
    if envoy::looks_like(node) {
        return Some(Format::Envoy);
    }
    if spring::looks_like(node) {
        return Some(Format::Spring);
    }
    kubernetes::traefik::looks_like(node).then_some(Format::Traefik)
}
