//! Traefik's retry middleware, in a Middleware manifest or in a dynamic configuration file.
//!
//! Facts: its documentation and `retry.go`: a retry is made only while nothing was written to the backend, unless `status` names
//! answers to retry; the loop makes `attempts` tries in all. `initialInterval` of 0 is no pause.

use super::super::finding::{Finding, Rule};
use super::super::kind::Kind;
use super::super::layer::{Answers, Policy, Tries};
use super::super::source::Source;
use super::super::tree::{Entry, Node};
use super::super::{Refused, proto, yaml};

const GATEWAY: Answers = Answers::Gateway { refused: 502, broken: 502, unconnected: 504, late: 504 };

/// A Middleware manifest; `None` if it is another middleware.
pub(super) fn manifest(source: &mut Source<'_>, manifest: &Node) -> Option<Policy> {
    let retry = manifest.get("spec")?.entry("retry")?;
    Some(middleware(source, &super::name(manifest), retry))
}

/// A dynamic configuration file.
pub(in super::super) fn read(source: &mut Source<'_>) -> Result<Vec<Policy>, Refused> {
    let documents = yaml::read(source)?;
    let mut policies = Vec::new();
    for document in &documents {
        for named in document.at(&["http", "middlewares"]).map_or(&[][..], Node::entries) {
            if let Some(retry) = named.value.entry("retry") {
                policies.push(middleware(source, &named.key, retry));
            }
        }
    }
    source.about(None);
    Ok(policies)
}

/// Whether a tree is a dynamic configuration.
pub(in super::super) fn looks_like(node: &Node) -> bool {
    node.at(&["http", "middlewares"]).is_some() || (node.at(&["http", "routers"]).is_some() && node.at(&["http", "services"]).is_some())
}

/// Without `status`, what never reached the backend; newer versions also retry statuses, and POST if they are told to.
fn conditions(source: &mut Source<'_>, retry: &Entry, policy: &mut Policy) {
    let is = |key: &str| retry.value.get(key).is_some_and(Node::is_true);
    let mut words = Vec::new();
    if !is("disableRetryOnNetworkError") {
        policy.retries.add([Kind::Refused, Kind::ConnectTimeout]);
        words.push("no connection to the backend".to_owned());
    }
    for node in retry.value.get("status").map_or(&[][..], Node::items) {
        let text = node.text().unwrap_or_default();
        match super::statuses(text) {
            Some(statuses) => {
                words.push(text.to_owned());
                if (400..=407).any(|status| statuses.contains(&status)) {
                    let place = source.place(node.range.clone());
                    let finding = Finding::new(Rule::RetriesRefusals, place, format!("{text} will be the same the next time"));
                    source.report(finding.label("the request is at fault, not the server").help("leave it out"));
                }
                policy.retries.add(statuses.into_iter().map(Kind::Http));
            }
            None => source.unreadable(node.range.clone(), "statuses", "one as in `503`, or a range as in `502-504`"),
        }
    }
    policy.total_timeout = proto::duration(source, retry.value.get("timeout"));
    policy.words = words.join(", ");
    if let Some(node) = retry.value.get("retryNonIdempotentMethod").filter(|node| node.is_true()) {
        let place = source.place(node.range.clone());
        source.report(
            Finding::new(Rule::RepeatsWrites, place, "POST and PATCH are sent again after they may have been carried out")
                .label("an order placed twice")
                .help("write:\n  retryNonIdempotentMethod: false"),
        );
    } else if retry.value.get("status").is_some() {
        policy.spares = Some("methods that are not idempotent".to_owned());
    }
}

fn middleware(source: &mut Source<'_>, name: &str, retry: &Entry) -> Policy {
    let place = source.place(retry.key_range.clone());
    source.about(Some(place));
    let mut policy = Policy::new(format!("middleware {name}"), place, GATEWAY);
    let attempts = proto::number(source, retry.value.get("attempts")).unwrap_or(1).max(1);
    policy.tries = Tries::AtMost(attempts);
    conditions(source, retry, &mut policy);
    let interval = retry.value.get("initialInterval");
    let millis = interval.and_then(Node::text).and_then(|text| text.parse::<u64>().ok());
    let pause = match millis {
        Some(millis) => Some(std::time::Duration::from_millis(millis)),
        None => proto::duration(source, interval),
    };
    policy.backoff = Some(match pause.filter(|pause| !pause.is_zero()) {
        Some(pause) => format!("a random time, from {} on", super::super::shown(pause)),
        None => "none".to_owned(),
    });
    if policy.has_retries() && pause.is_none_or(|pause| pause.is_zero()) {
        source.report(
            Finding::new(Rule::NoJitter, place, "every retry is made at once, and all of them together")
                .label("no `initialInterval`")
                .help("add:\n  initialInterval: 100ms"),
        );
    }
    policy
}
