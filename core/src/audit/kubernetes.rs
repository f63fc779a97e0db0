//! Kubernetes manifests, as many as a file has: Istio's VirtualService and DestinationRule, Linkerd's annotations and ServiceProfile,
//! ingress-nginx's annotations, Gateway API's HTTPRoute, Traefik's Middleware.

use super::layer::Policy;
use super::source::Source;
use super::tree::Node;
use super::{Refused, yaml};

mod istio;

mod linkerd;

mod gateway_api;

mod ingress_nginx;

pub(super) mod traefik;

/// Reads every manifest that says something about retries.
pub(super) fn read(source: &mut Source<'_>) -> Result<Vec<Policy>, Refused> {
    let documents = yaml::read(source)?;
    // `kubectl get -o yaml` wraps manifests in a list.
    let manifests: Vec<&Node> = documents.iter().flat_map(|node| node.get("items").map_or_else(|| node.items(), Node::items)).collect();
    let mut policies = Vec::new();
    for manifest in &manifests {
        source.about(None);
        match manifest.get("kind").and_then(Node::text).unwrap_or_default() {
            "VirtualService" => istio::policies(source, manifest, &manifests, &mut policies),
            "Ingress" => policies.extend(ingress_nginx::policy(source, manifest)),
            "ServiceProfile" => linkerd::profile(source, manifest, &mut policies),
            "Service" | "HTTPRoute" | "GRPCRoute" => {
                policies.extend(linkerd::annotated(source, manifest));
                gateway_api::policies(source, manifest, &mut policies);
            }
            "Middleware" => policies.extend(traefik::manifest(source, manifest)),
            _ => {}
        }
    }
    source.about(None);
    Ok(policies)
}

/// Whether a tree is a manifest.
pub(super) fn looks_like(node: &Node) -> bool {
    node.items().iter().any(|item| item.entry("apiVersion").is_some() && item.entry("kind").is_some())
}

/// `namespace/name`, or the name alone.
fn name(manifest: &Node) -> String {
    let part = |key| manifest.at(&["metadata", key]).and_then(Node::text);
    match (part("namespace"), part("name")) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (_, name) => name.unwrap_or("unnamed").to_owned(),
    }
}

/// An annotation by its name.
fn annotation<'a>(manifest: &'a Node, name: &str) -> Option<&'a Node> {
    manifest.at(&["metadata", "annotations"])?.entries().iter().find(|entry| entry.key == name).map(|entry| &entry.value)
}

/// The statuses of `503` or `502-504`.
fn statuses(text: &str) -> Option<Vec<u16>> {
    let status = |text: &str| text.trim().parse::<u16>().ok().filter(|status| (100..=599).contains(status));
    let (from, to) = match text.split_once('-') {
        Some((from, to)) => (status(from)?, status(to)?),
        None => (status(text)?, status(text)?),
    };
    (from <= to).then(|| (from..=to).collect())
}
