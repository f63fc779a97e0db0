//! ingress-nginx: annotations of an Ingress.
//!
//! Facts: its ConfigMap's documentation: `error timeout`, three tries, no time limit, 60 s to read where nothing else is set.

use std::time::Duration;

use super::super::finding::{Finding, Rule};
use super::super::kind::{Kind, Kinds};
use super::super::layer::{Answers, Policy, Tries, begun_within};
use super::super::source::Source;
use super::super::tree::Node;
use super::super::{proto, shown};

const TRIES: u32 = 3;
const READ: Duration = Duration::from_secs(60);
const GATEWAY: Answers = Answers::Gateway { refused: 502, broken: 502, unconnected: 504, late: 504 };

/// `None` for an Ingress that another controller carries out.
pub(super) fn policy(source: &mut Source<'_>, manifest: &Node) -> Option<Policy> {
    let class = manifest.at(&["spec", "ingressClassName"]).or_else(|| super::annotation(manifest, "kubernetes.io/ingress.class"));
    let annotations = manifest.at(&["metadata", "annotations"]).map_or(&[][..], Node::entries);
    let ours = annotations.iter().any(|entry| entry.key.starts_with("nginx.ingress.kubernetes.io/"));
    if !ours && class.and_then(Node::text) != Some("nginx") {
        return None;
    }
    let place = source.place(manifest.range.clone());
    source.about(Some(place));
    let setting = |name: &str| super::annotation(manifest, &format!("nginx.ingress.kubernetes.io/{name}"));
    let mut policy = Policy::new(format!("ingress {}", super::name(manifest)), place, GATEWAY);
    let conditions = setting("proxy-next-upstream");
    policy.words = conditions.and_then(Node::text).map_or_else(|| "error timeout (the default)".to_owned(), str::to_owned);
    policy.retries = kinds(&policy.words);
    let tries = proto::number(source, setting("proxy-next-upstream-tries")).unwrap_or(TRIES);
    policy.tries = if tries == 0 { Tries::Unlimited } else { Tries::AtMost(tries) };
    let seconds =
        |source: &mut Source<'_>, name: &str| proto::number(source, setting(name)).map(|seconds| Duration::from_secs(u64::from(seconds)));
    let each = seconds(source, "proxy-read-timeout").unwrap_or(READ);
    let total = seconds(source, "proxy-next-upstream-timeout").filter(|total| !total.is_zero());
    policy.try_timeout = Some(each);
    if let (Some(total), Tries::AtMost(_)) = (total, policy.tries)
        && let Tries::AtMost(begun) = policy.tries.min(Tries::AtMost(begun_within(each, total)))
    {
        // The limit is looked at between tries only.
        policy.total_timeout = each.checked_mul(begun);
    }
    policy.backoff = Some("none: the next endpoint is tried at once".to_owned());
    check(source, &policy, conditions, total.is_some());
    Some(policy)
}

fn kinds(words: &str) -> Kinds {
    let mut kinds = Kinds::default();
    for word in words.split_whitespace() {
        match word {
            "error" => kinds.add([Kind::Refused, Kind::Reset]),
            "timeout" => kinds.add([Kind::ConnectTimeout, Kind::Timeout]),
            "off" => return Kinds::default(),
            _ => kinds.add(word.strip_prefix("http_").and_then(|status| status.parse().ok()).map(Kind::Http)),
        }
    }
    kinds
}

fn check(source: &mut Source<'_>, policy: &Policy, conditions: Option<&Node>, limited: bool) {
    if !policy.has_retries() {
        return;
    }
    let place = conditions.map_or(policy.place, |node| Some(source.place(node.range.clone())));
    let has = |word: &str| policy.words.split_whitespace().any(|part| part == word);
    if has("non_idempotent") {
        let message = "POST, LOCK and PATCH are sent again though the first endpoint may have carried them out";
        source.report(Finding::new(Rule::RepeatsWrites, place, message).label("an order placed twice").help("leave out `non_idempotent`"));
    }
    if has("http_403") || has("http_404") {
        let message = "403 and 404 are no failures of the server: the next one will say the same";
        source.report(
            Finding::new(Rule::RetriesRefusals, place, message).label("every such answer visits other endpoints").help("leave it out"),
        );
    }
    if has("http_429") {
        let message = "a server that answers 429 asks for less, and gets the next try at once";
        source
            .report(Finding::new(Rule::RetriesOverload, place, message).label("nginx does not wait for Retry-After").help("leave it out"));
    }
    if policy.tries == Tries::Unlimited {
        let message = "one request may visit every endpoint of the service";
        source.report(
            Finding::new(Rule::UnlimitedTries, policy.place, message)
                .label("`proxy-next-upstream-tries` is 0, no limit")
                .help("write:\n  nginx.ingress.kubernetes.io/proxy-next-upstream-tries: \"2\""),
        );
    }
    if !limited {
        let each = policy.try_timeout.map_or_else(String::new, shown);
        let message = format!("each try may take {each}, and nothing limits all of them together");
        source.report(
            Finding::new(Rule::NoTimeLimit, policy.place, message)
                .label("no `proxy-next-upstream-timeout`")
                .help("add both, a try being shorter than the whole:\n  nginx.ingress.kubernetes.io/proxy-read-timeout: \"1\"\n  nginx.ingress.kubernetes.io/proxy-next-upstream-timeout: \"3\""),
        );
    }
}
