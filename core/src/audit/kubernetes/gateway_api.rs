//! Gateway API: the `retry` of an HTTPRoute's rules, whichever gateway carries it out.
//!
//! Facts: its guide and GEP-1731 (`attempts` are retries on top of the first try, of each gateway's own choice if it is not set; statuses
//! are listed; connection errors and backend requests that time out are retried besides).

use super::super::finding::{Finding, Rule};
use super::super::kind::Kind;
use super::super::layer::{Answers, Policy, Tries};
use super::super::proto;
use super::super::source::Source;
use super::super::tree::Node;

/// Adds a policy for every rule with backends.
pub(super) fn policies(source: &mut Source<'_>, manifest: &Node, out: &mut Vec<Policy>) {
    for (at, rule) in manifest.at(&["spec", "rules"]).map_or(&[][..], Node::items).iter().enumerate() {
        let Some(retry) = rule.entry("retry") else { continue };
        let place = source.place(retry.key_range.clone());
        source.about(Some(place));
        let mut policy = Policy::new(format!("{} rule {}", super::name(manifest), at + 1), place, Answers::Unknown);
        policy.retries = [Kind::Refused, Kind::ConnectTimeout, Kind::Reset].into_iter().collect();
        let mut words = vec!["connection errors".to_owned()];
        for node in retry.value.get("codes").map_or(&[][..], Node::items) {
            let Some(status) = proto::number(source, Some(node)).and_then(|status| u16::try_from(status).ok()) else { continue };
            words.push(status.to_string());
            policy.retries.add([Kind::Http(status)]);
            if (400..=499).contains(&status) && ![408, 409, 425, 429].contains(&status) {
                let place = source.place(node.range.clone());
                let finding = Finding::new(Rule::RetriesRefusals, place, format!("{status} will be the same the next time"));
                source.report(finding.label("the request is at fault, not the server").help("leave it out"));
            }
        }
        policy.words = words.join(", ");
        policy.total_timeout = proto::duration(source, rule.at(&["timeouts", "request"])).filter(|limit| !limit.is_zero());
        policy.try_timeout = proto::duration(source, rule.at(&["timeouts", "backendRequest"])).filter(|limit| !limit.is_zero());
        if policy.cuts_tries() {
            policy.retries.add([Kind::Timeout]);
        }
        policy.backoff = Some(match retry.value.get("backoff").and_then(Node::text) {
            Some(backoff) => format!("at least {backoff}"),
            None => "the gateway's own".to_owned(),
        });
        let attempts = proto::number(source, retry.value.get("attempts"));
        policy.tries = attempts.map_or(Tries::Unlimited, |retries| Tries::AtMost(retries.saturating_add(1)));
        check(source, &policy, attempts.is_none());
        out.push(policy);
    }
}

fn check(source: &mut Source<'_>, policy: &Policy, unset: bool) {
    if unset {
        source.report(
            Finding::new(Rule::UnlimitedTries, policy.place, "how often a request is tried is for each gateway to decide")
                .label("no `attempts`")
                .help("add:\n  attempts: 1"),
        );
    }
    if policy.has_retries() && policy.total_timeout.is_none() {
        source.report(
            Finding::new(Rule::NoTimeLimit, policy.place, "nothing limits all tries together")
                .label("no `timeouts` in this rule")
                .help("add to the rule:\n  timeouts: {request: 3s, backendRequest: 1s}"),
        );
    }
}
