//! A gRPC service config in JSON, alone or in the list that a DNS TXT record has behind `grpc_config=`.
//!
//! Facts: proposal A6 (grpc/proposal) for the policies and the cap of five attempts; gRPC's `http-grpc-status-mapping.md`.

use super::finding::{Finding, Rule};
use super::kind::{self, Kind, Kinds};
use super::layer::{Answers, Policy, Tries};
use super::source::Source;
use super::tree::{Entry, Node};
use super::{Refused, yaml};

/// More attempts are made by no client with default settings.
const CAP: u32 = 5;

/// Statuses that say that the request itself is wrong: the next answer will be the same.
const REFUSALS: [u8; 9] = [1, 3, 5, 6, 7, 9, 11, 12, 16];
/// Statuses behind which the call may have been carried out.
const DOUBTFUL: [u8; 4] = [2, 4, 13, 15];
/// RESOURCE_EXHAUSTED.
const EXHAUSTED: u8 = 8;

pub(super) fn read(source: &mut Source<'_>) -> Result<Vec<Policy>, Refused> {
    let documents = yaml::read(source)?;
    let mut policies = Vec::new();
    for config in documents.iter().flat_map(Node::items) {
        let config = config.get("serviceConfig").unwrap_or(config);
        throttling(source, config);
        for method in config.get("methodConfig").map_or(&[][..], Node::items) {
            policies.push(policy(source, config, method));
        }
    }
    source.about(None);
    Ok(policies)
}

fn policy(source: &mut Source<'_>, config: &Node, method: &Node) -> Policy {
    let place = source.place(method.range.clone());
    source.about(Some(place));
    let mut policy = Policy::new(name(method), place, Answers::Unknown);
    policy.total_timeout = super::proto::duration(source, method.get("timeout"));
    let (retry, hedging) = (method.entry("retryPolicy"), method.entry("hedgingPolicy"));
    if let (Some(retry), Some(_)) = (retry, hedging) {
        let place = source.place(retry.key_range.clone());
        let both = Finding::new(Rule::InvalidPolicy, place, "a method has a retry policy or a hedging policy, not both");
        source.report(both.label("clients refuse the whole service config").help("remove one of `retryPolicy` and `hedgingPolicy`"));
    }
    if let Some(entry) = retry.or(hedging) {
        let hedged = retry.is_none();
        let codes = statuses(source, entry, if hedged { "nonFatalStatusCodes" } else { "retryableStatusCodes" });
        policy.tries = Tries::AtMost(attempts(source, entry));
        policy.retries = kinds(&codes, hedged);
        policy.words = codes.iter().map(|code| Kind::Grpc(*code).to_string()).collect::<Vec<_>>().join(" ");
        policy.marker = Some("grpc-previous-rpc-attempts");
        policy.backoff = Some(if hedged { delay(source, entry) } else { backoff(source, entry) });
        if let Some(throttle) = config.get("retryThrottling") {
            let text = |key| throttle.get(key).and_then(Node::text).unwrap_or("?").to_owned();
            policy.budget = Some(format!("token bucket of {} with {} back for each success", text("maxTokens"), text("tokenRatio")));
        } else {
            let place = source.place(entry.key_range.clone());
            let finding = Finding::new(Rule::NoBudget, place, "retries are not throttled: in an outage every call makes all its attempts");
            source.report(
                finding
                    .label("no `retryThrottling` in this config")
                    .help("add beside `methodConfig`:\n  \"retryThrottling\": {\"maxTokens\": 10, \"tokenRatio\": 0.1}"),
            );
        }
        if policy.total_timeout.is_none() && policy.tries.retries() {
            let place = source.place(entry.key_range.clone());
            let finding =
                Finding::new(Rule::NoTimeLimit, place, "attempts go on for as long as the caller's own deadline allows, if it has one");
            source.report(
                finding.label("no `timeout` in this method config").help("add, as a deadline over all attempts:\n  \"timeout\": \"1s\""),
            );
        }
    }
    policy
}

fn name(method: &Node) -> String {
    let names: Vec<String> = method
        .get("name")
        .map_or(&[][..], Node::items)
        .iter()
        .map(|name| {
            let part = |key| name.get(key).and_then(Node::text).filter(|text| !text.is_empty());
            match (part("service"), part("method")) {
                (Some(service), Some(method)) => format!("{service}/{method}"),
                (Some(service), None) => format!("{service}/*"),
                _ => "every method".to_owned(),
            }
        })
        .collect();
    if names.is_empty() { "no method".to_owned() } else { names.join(", ") }
}

fn kinds(codes: &[u8], hedged: bool) -> Kinds {
    let mut kinds: Kinds = Kinds::all().iter().filter(|kind| kind.as_grpc().is_some_and(|code| codes.contains(&code))).collect();
    if hedged {
        // The next copy is sent after a delay, whatever became of those before.
        kinds.add([Kind::Timeout]);
    }
    kinds
}

fn attempts(source: &mut Source<'_>, policy: &Entry) -> u32 {
    let Some(node) = policy.value.get("maxAttempts") else {
        let place = source.place(policy.key_range.clone());
        source.report(
            Finding::new(Rule::InvalidPolicy, place, "`maxAttempts` is missing")
                .label("clients refuse the whole service config")
                .help("add:\n  \"maxAttempts\": 3"),
        );
        return 1;
    };
    let Some(number) = node.text().and_then(|text| text.parse::<u32>().ok()) else {
        source.unreadable(node.range.clone(), "a number of attempts", "a whole number from 2 to 5");
        return 1;
    };
    let place = source.place(node.range.clone());
    if number < 2 {
        source.report(
            Finding::new(Rule::InvalidPolicy, place, format!("`maxAttempts` of {number} is refused: it counts the first attempt"))
                .label("must be at least 2")
                .help("write 2 for one retry, or remove the policy for none"),
        );
        return 1;
    }
    if number > CAP {
        source.report(
            Finding::new(Rule::AttemptsCapped, place, format!("`maxAttempts` of {number} is treated as {CAP}"))
                .label(format!("at most {CAP}, unless the client's channel argument raises it"))
                .help(format!("write what is meant:\n  \"maxAttempts\": {CAP}")),
        );
    }
    number.min(CAP)
}

fn statuses(source: &mut Source<'_>, policy: &Entry, key: &str) -> Vec<u8> {
    let mut codes = Vec::new();
    for node in policy.value.get(key).map_or(&[][..], Node::items) {
        let text = node.text().unwrap_or_default();
        let number = text.parse::<u8>().ok().filter(|code| (1..=16).contains(code));
        let Some(code) = kind::grpc(text).or(number) else {
            source.unreadable(node.range.clone(), "a gRPC status", "one as in \"UNAVAILABLE\"");
            continue;
        };
        codes.push(code);
        let place = source.place(node.range.clone());
        let name = Kind::Grpc(code).to_string().split_off("grpc:".len());
        if REFUSALS.contains(&code) {
            let finding = Finding::new(Rule::RetriesRefusals, place, format!("{name} will be the same the next time"));
            source.report(finding.label("the request is at fault, not the server").help("retry UNAVAILABLE alone"));
        } else if DOUBTFUL.contains(&code) {
            let finding = Finding::new(Rule::MaybeCarriedOut, place, format!("behind {name} the call may have been carried out"));
            source.report(
                finding.label("a retry may do it twice").help("retry it for idempotent methods only, by a method config of their own"),
            );
        } else if code == EXHAUSTED {
            let finding = Finding::new(Rule::RetriesOverload, place, format!("{name} says that there is too much already"));
            source.report(finding.label("a retry adds to it").help("leave it out, unless the server sends `grpc-retry-pushback-ms`"));
        }
    }
    if codes.is_empty() && policy.is("retryPolicy") {
        let place = source.place(policy.key_range.clone());
        let finding = Finding::new(Rule::InvalidPolicy, place, format!("`{key}` is empty"));
        source.report(finding.label("clients refuse the whole service config").help(format!("add:\n  \"{key}\": [\"UNAVAILABLE\"]")));
    }
    codes
}

fn backoff(source: &mut Source<'_>, policy: &Entry) -> String {
    let text = |key| policy.value.get(key).and_then(Node::text);
    let missing: Vec<&str> = ["initialBackoff", "maxBackoff", "backoffMultiplier"].into_iter().filter(|key| text(key).is_none()).collect();
    if !missing.is_empty() {
        let place = source.place(policy.key_range.clone());
        let what = crate::wording::listed(&missing);
        source.report(
            Finding::new(Rule::InvalidPolicy, place, format!("{what} missing"))
                .label("clients refuse the whole service config")
                .help("add:\n  \"initialBackoff\": \"0.1s\", \"maxBackoff\": \"1s\", \"backoffMultiplier\": 2"),
        );
    }
    let part = |key| text(key).unwrap_or("?");
    format!("a random time up to {}, times {} each time, at most {}", part("initialBackoff"), part("backoffMultiplier"), part("maxBackoff"))
}

fn delay(source: &mut Source<'_>, policy: &Entry) -> String {
    let place = source.place(policy.key_range.clone());
    let delay = policy.value.get("hedgingDelay").and_then(Node::text).unwrap_or("0s");
    let message = format!("copies of a call are sent {delay} apart, also when nothing failed: slowness alone multiplies the calls");
    source.report(
        Finding::new(Rule::Hedging, place, message)
            .label("hedging")
            .help("set `hedgingDelay` to a high percentile of the latency, and hedge only methods that may be carried out twice"),
    );
    format!("copies {delay} apart")
}

fn throttling(source: &mut Source<'_>, config: &Node) {
    let Some(throttle) = config.get("retryThrottling") else { return };
    for (key, wanted) in [("maxTokens", 1000.0), ("tokenRatio", f64::MAX)] {
        let Some(node) = throttle.get(key) else {
            let place = source.place(throttle.range.clone());
            let finding = Finding::new(Rule::InvalidPolicy, place, format!("`{key}` is missing"));
            source.report(finding.label("clients refuse the whole service config").help("write `\"maxTokens\": 10, \"tokenRatio\": 0.1`"));
            continue;
        };
        let number = node.text().and_then(|text| text.parse::<f64>().ok());
        if !number.is_some_and(|number| number > 0.0 && number <= wanted) {
            let place = source.place(node.range.clone());
            let finding = Finding::new(Rule::InvalidPolicy, place, format!("`{key}` is out of range"));
            source.report(finding.label("clients refuse the whole service config").help("write `\"maxTokens\": 10, \"tokenRatio\": 0.1`"));
        } else if key == "tokenRatio" && number.is_some_and(|ratio| ratio >= 0.5) {
            let ratio = number.unwrap_or(1.0);
            let place = source.place(node.range.clone());
            let share = crate::units::share::print((ratio / (1.0 + ratio) * 1000.0).round() / 1000.0);
            let finding =
                Finding::new(Rule::WeakBudget, place, format!("throttling starts only when {share} of all attempts fail for long"));
            source.report(finding.label("each success gives so much back").help("write `\"tokenRatio\": 0.1`, which throttles above 9%"));
        }
    }
}
