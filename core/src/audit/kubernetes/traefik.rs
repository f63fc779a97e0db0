//! Traefik's retry middleware, in a Middleware manifest or in a dynamic configuration file.
//!
//! Facts: its documentation and `retry.go`: a retry is made only while nothing was written to the backend, whatever the
//! status of an answer; the loop makes `attempts` tries in all. `initialInterval` of 0 is no pause.

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

fn middleware(source: &mut Source<'_>, name: &str, retry: &Entry) -> Policy {
    let place = source.place(retry.key_range.clone());
    source.about(Some(place));
    let mut policy = Policy::new(format!("middleware {name}"), place, GATEWAY);
    let attempts = proto::number(source, retry.value.get("attempts")).unwrap_or(1).max(1);
    policy.tries = Tries::AtMost(attempts);
    policy.retries = [Kind::Refused, Kind::ConnectTimeout].into_iter().collect();
    policy.words = "no connection to the backend".to_owned();
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
