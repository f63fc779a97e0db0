//! application.yaml of Spring Boot: Resilience4j's retries, and the Retry filters of Spring Cloud Gateway.
//!
//! Facts: resilience4j.readme.io (three attempts in all, 500 ms between them, any exception); the page of Spring Cloud
//! Gateway's Retry filter (three retries, so four tries; 5xx and GET).

use super::finding::{Finding, Rule};
use super::kind::{Kind, Kinds};
use super::layer::{Answers, Policy, Tries};
use super::source::Source;
use super::tree::{Entry, Node};
use super::{Refused, proto, shown, yaml};

pub(super) fn read(source: &mut Source<'_>) -> Result<Vec<Policy>, Refused> {
    let documents = yaml::read(source)?;
    let mut policies = Vec::new();
    for document in &documents {
        let retry = document.at(&["resilience4j", "retry"]);
        let configs = retry.and_then(|retry| retry.get("configs"));
        for instance in retry.and_then(|retry| retry.get("instances").or_else(|| retry.get("backends"))).map_or(&[][..], Node::entries) {
            policies.push(resilience4j(source, instance, configs));
        }
        // The prefix has moved twice.
        for path in [
            &["spring", "cloud", "gateway"][..],
            &["spring", "cloud", "gateway", "server", "webflux"],
            &["spring", "cloud", "gateway", "server", "webmvc"],
        ] {
            let routes = document.at(path).and_then(|gateway| gateway.get("routes"));
            for route in routes.map_or(&[][..], Node::items) {
                gateway(source, route, &mut policies);
            }
        }
    }
    source.about(None);
    Ok(policies)
}

/// Whether a tree is one of these.
pub(super) fn looks_like(node: &Node) -> bool {
    node.at(&["resilience4j"]).is_some() || node.at(&["spring"]).is_some()
}

fn resilience4j(source: &mut Source<'_>, instance: &Entry, configs: Option<&Node>) -> Policy {
    let place = source.place(instance.key_range.clone());
    source.about(Some(place));
    // What an instance does not say, its base says, and else the configuration named `default`.
    let base = instance.value.get("baseConfig").and_then(Node::text).unwrap_or("default");
    let base = configs.and_then(|configs| configs.get(base));
    let setting = |key: &str| instance.value.get(key).or_else(|| base.and_then(|base| base.get(key)));
    let mut policy = Policy::new(format!("resilience4j {}", instance.key), place, Answers::Unknown);
    let attempts = setting("maxAttempts").or_else(|| setting("maxRetryAttempts"));
    policy.tries = Tries::AtMost(proto::number(source, attempts).unwrap_or(3).max(1));
    policy.retries = Kinds::all();
    let names = |key: &str| -> Vec<String> {
        let items = setting(key).map_or(&[][..], Node::items);
        items.iter().filter_map(Node::text).map(|name| name.rsplit('.').next().unwrap_or(name).to_owned()).collect()
    };
    let (retried, ignored) = (names("retryExceptions"), names("ignoreExceptions"));
    policy.words = if retried.is_empty() { "any exception".to_owned() } else { retried.join(" ") };
    if !ignored.is_empty() {
        policy.words.push_str(&format!(", not {}", ignored.join(" ")));
    }
    let wait = setting("waitDuration");
    let pause = match wait.and_then(Node::text).and_then(|text| text.parse::<u64>().ok()) {
        Some(millis) => std::time::Duration::from_millis(millis),
        None => proto::duration(source, wait).unwrap_or(std::time::Duration::from_millis(500)),
    };
    let is = |key: &str| setting(key).is_some_and(Node::is_true);
    let (doubled, random) = (is("enableExponentialBackoff"), is("enableRandomizedWait"));
    policy.backoff = Some(format!(
        "{}{}{}",
        shown(pause),
        if doubled { ", longer each time" } else { " each time" },
        if random { ", random" } else { ", not random" }
    ));
    policy.budget = Some("none: Resilience4j's retries have no budget".to_owned());
    if policy.has_retries() {
        if !random {
            source.report(
                Finding::new(Rule::NoJitter, place, format!("callers that failed together come back together, {} later", shown(pause)))
                    .label("no random wait")
                    .help("add:\n  enableRandomizedWait: true"),
            );
        }
        if retried.is_empty() {
            source.report(
                Finding::new(
                    Rule::MaybeCarriedOut,
                    place,
                    "every exception is retried, also after the call may have been carried out, or when the request is wrong",
                )
                .label("no `retryExceptions`")
                .help("name those that say that nothing was done:\n  retryExceptions: [java.net.ConnectException]"),
            );
        }
    }
    policy
}

fn gateway(source: &mut Source<'_>, route: &Node, out: &mut Vec<Policy>) {
    for filter in route.get("filters").map_or(&[][..], Node::items) {
        let short = filter.text().filter(|text| *text == "Retry" || text.starts_with("Retry="));
        if short.is_none() && filter.get("name").and_then(Node::text) != Some("Retry") {
            continue;
        }
        let place = source.place(filter.range.clone());
        source.about(Some(place));
        let id = route.get("id").and_then(Node::text).unwrap_or("a route");
        let mut policy = Policy::new(format!("route {id}"), place, Answers::Unknown);
        let args = filter.get("args");
        let setting = |key: &str| args.and_then(|args| args.get(key));
        let listed = |key: &str| -> Vec<String> {
            let items = setting(key).map_or(&[][..], Node::items).iter().filter_map(Node::text);
            items.flat_map(|text| text.split(',')).map(|word| word.trim().to_ascii_uppercase()).filter(|word| !word.is_empty()).collect()
        };
        // `Retry=3` is short for three retries.
        let short = short.and_then(|text| text.split_once('=')).and_then(|(_, count)| count.trim().parse::<u32>().ok());
        let retries = short.or_else(|| proto::number(source, setting("retries"))).unwrap_or(3);
        policy.tries = Tries::AtMost(retries.saturating_add(1));
        let statuses = listed("statuses");
        policy.retries = [Kind::Reset, Kind::Timeout, Kind::Refused, Kind::ConnectTimeout].into_iter().collect();
        policy.retries.add(statuses.iter().filter_map(|status| status_code(status)).map(Kind::Http));
        let series = listed("series");
        if (series.is_empty() && statuses.is_empty()) || series.iter().any(|series| series == "SERVER_ERROR") {
            policy.retries.add((500..=599).map(Kind::Http));
        }
        if series.iter().any(|series| series == "CLIENT_ERROR") {
            policy.retries.add((400..=499).map(Kind::Http));
        }
        let methods = listed("methods");
        policy.words = format!(
            "{} of {}",
            if statuses.is_empty() { "5xx and exceptions".to_owned() } else { statuses.join(" ") },
            if methods.is_empty() { "GET".to_owned() } else { methods.join(" ") }
        );
        policy.backoff = Some(if setting("backoff").is_some() { "as in `backoff`" } else { "none" }.to_owned());
        if methods.iter().any(|method| matches!(method.as_str(), "POST" | "PATCH")) && policy.has_retries() {
            let node = setting("methods").map_or_else(|| filter.range.clone(), |node| node.range.clone());
            let at = source.place(node);
            source.report(
                Finding::new(Rule::RepeatsWrites, at, "POST and PATCH are sent again after they may have been carried out")
                    .label("an order placed twice")
                    .help("write:\n  methods: GET"),
            );
        }
        if setting("backoff").is_none() && policy.has_retries() {
            source.report(
                Finding::new(Rule::NoJitter, place, "every retry is made at once, and all of them together")
                    .label("no `backoff`")
                    .help("add to `args`:\n  backoff: {firstBackoff: 50ms, maxBackoff: 500ms, factor: 2}"),
            );
        }
        out.push(policy);
    }
}

/// Spring's names of the statuses that are retried in practice, or a number.
fn status_code(name: &str) -> Option<u16> {
    Some(match name {
        "TOO_MANY_REQUESTS" => 429,
        "INTERNAL_SERVER_ERROR" => 500,
        "BAD_GATEWAY" => 502,
        "SERVICE_UNAVAILABLE" => 503,
        "GATEWAY_TIMEOUT" => 504,
        "REQUEST_TIMEOUT" => 408,
        "NOT_FOUND" => 404,
        _ => return name.parse().ok().filter(|status| (400..=599).contains(status)),
    })
}
