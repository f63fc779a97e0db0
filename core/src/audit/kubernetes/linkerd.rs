//! Linkerd: retry annotations on a Service, HTTPRoute or GRPCRoute, and the older ServiceProfile.
//!
//! Facts: Linkerd's documentation of retries and the proxy's `http/retry`: one retry where no limit is set, no body above 64 KiB;
//! a ServiceProfile retries without a count, within a budget of 20% and ten a second.

use super::super::finding::{Finding, Rule};
use super::super::kind::{self, Kind, Kinds};
use super::super::layer::{Answers, Policy, Tries};
use super::super::proto;
use super::super::source::Source;
use super::super::tree::Node;

const GATEWAY: Answers = Answers::Gateway { refused: 502, broken: 502, unconnected: 504, late: 504 };

/// Policies from annotations; `None` if there are none.
pub(super) fn annotated(source: &mut Source<'_>, manifest: &Node) -> Option<Policy> {
    let http = super::annotation(manifest, "retry.linkerd.io/http");
    let grpc = super::annotation(manifest, "retry.linkerd.io/grpc");
    let node = http.or(grpc)?;
    let place = source.place(node.range.clone());
    source.about(Some(place));
    let mut policy = Policy::new(super::name(manifest), place, GATEWAY);
    let mut words = Vec::new();
    for node in [http, grpc].into_iter().flatten() {
        let text = node.text().unwrap_or_default();
        words.push(text.to_owned());
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match condition(word) {
                Some(kinds) => policy.retries.add(kinds),
                None => source.unreadable(
                    node.range.clone(),
                    "conditions",
                    "`5xx`, `gateway-error`, a status or a range for HTTP, names such as `unavailable` for gRPC",
                ),
            }
        }
    }
    let timeout = super::annotation(manifest, "retry.linkerd.io/timeout");
    policy.try_timeout = proto::duration(source, timeout);
    if policy.try_timeout.is_some() {
        // Only the retries' own timeout is retried; `timeout.linkerd.io` ends the request.
        policy.retries.add([Kind::Timeout]);
    }
    policy.total_timeout = proto::duration(source, super::annotation(manifest, "timeout.linkerd.io/request"));
    policy.words = words.join(" ");
    let limit = proto::number(source, super::annotation(manifest, "retry.linkerd.io/limit")).unwrap_or(1);
    policy.tries = Tries::AtMost(limit.saturating_add(1));
    policy.budget = Some("none: annotations count retries, and have no budget".to_owned());
    policy.spares = Some("requests with a body above 64 KiB".to_owned());
    if policy.has_retries() {
        refusals(source, node, &policy.retries);
        if policy.retries.contains(Kind::Http(500)) {
            let message = "requests of every method are sent again after they may have been carried out";
            source.report(
                Finding::new(Rule::AnyMethod, place, message)
                    .label("POST as much as GET")
                    .help("annotate an HTTPRoute that matches only the methods that read"),
            );
        }
        if policy.total_timeout.is_none() {
            let finding = Finding::new(Rule::NoTimeLimit, place, "nothing limits all tries together");
            source.report(finding.label("no `timeout.linkerd.io/request`").help("add the annotation:\n  timeout.linkerd.io/request: 3s"));
        }
    }
    Some(policy)
}

fn condition(word: &str) -> Option<Vec<Kind>> {
    let statuses = match word {
        "5xx" => Some((500..=599).collect()),
        "gateway-error" => Some((502..=504).collect()),
        _ => super::statuses(word),
    };
    statuses
        .map(|statuses: Vec<u16>| statuses.into_iter().map(Kind::Http).collect())
        .or_else(|| kind::grpc(word).map(|code| vec![Kind::Grpc(code)]))
}

fn refusals(source: &mut Source<'_>, node: &Node, retries: &Kinds) {
    let place = source.place(node.range.clone());
    if [400, 401, 403, 404, 405, 422].into_iter().any(|status| retries.contains(Kind::Http(status))) {
        let message = "answers are retried that will be the same the next time";
        source.report(
            Finding::new(Rule::RetriesRefusals, place, message)
                .label("the request is at fault, not the server")
                .help("write `gateway-error`"),
        );
    }
    if retries.contains(Kind::Http(429)) || retries.contains(Kind::Grpc(8)) {
        let message = "answers that say that there is too much already are answered with more";
        source
            .report(Finding::new(Rule::RetriesOverload, place, message).label("429 or RESOURCE_EXHAUSTED is retried").help("leave it out"));
    }
}

/// Policies of a ServiceProfile's routes.
pub(super) fn profile(source: &mut Source<'_>, manifest: &Node, out: &mut Vec<Policy>) {
    let Some(spec) = manifest.get("spec") else { return };
    let budget = spec.get("retryBudget");
    let part =
        |key: &str, default: &'static str| budget.and_then(|budget| budget.get(key)).and_then(Node::text).unwrap_or(default).to_owned();
    let words = format!(
        "{} of the requests, and {} a second, over {}",
        part("retryRatio", "0.2"),
        part("minRetriesPerSecond", "10"),
        part("ttl", "10s")
    );
    if let Some(node) = budget.and_then(|budget| budget.get("retryRatio"))
        && node.text().and_then(|text| text.parse::<f64>().ok()).is_some_and(|ratio| ratio > 0.5)
    {
        let place = source.place(node.range.clone());
        let finding = Finding::new(Rule::WeakBudget, place, format!("retries may be {} of all requests", node.text().unwrap_or_default()));
        source.report(finding.label("`retryRatio`").help("write:\n  retryRatio: 0.2"));
    }
    for route in spec.get("routes").map_or(&[][..], Node::items) {
        let place = source.place(route.range.clone());
        source.about(Some(place));
        let name = route.get("name").and_then(Node::text).unwrap_or("a route");
        let mut policy = Policy::new(format!("{} {name}", super::name(manifest)), place, GATEWAY);
        policy.total_timeout = proto::duration(source, route.get("timeout"));
        if let Some(node) = route.get("isRetryable").filter(|node| node.is_true()) {
            policy.retries = (500..=599).map(Kind::Http).chain([Kind::Refused, Kind::ConnectTimeout, Kind::Reset]).collect();
            policy.words = "isRetryable".to_owned();
            policy.tries = Tries::Unlimited;
            policy.budget = Some(words.clone());
            let place = source.place(node.range.clone());
            source.report(
                Finding::new(
                    Rule::UnlimitedTries,
                    place,
                    "one request is tried again for as long as the budget allows: the tries are not counted",
                )
                .label("a ServiceProfile has no limit on tries")
                .help("annotate an HTTPRoute instead:\n  retry.linkerd.io/limit: \"1\""),
            );
        }
        out.push(policy);
    }
}
