//! Routes: what is retried on each, for how long.

use std::time::Duration;

use super::super::kind::Kind;
use super::super::layer::{Policy, Tries};
use super::super::source::Source;
use super::super::tree::Node;
use super::super::{proto, retry_on};
use super::cluster::Clusters;
use super::{GATEWAY, rules};

/// A route's timeout where none is set.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);

pub(super) fn policies(source: &mut Source<'_>, configuration: &Node, host: &Node, clusters: &Clusters<'_>, out: &mut Vec<Policy>) {
    let name = |node: &Node| node.get("name").and_then(Node::text).filter(|name| !name.is_empty()).map(str::to_owned);
    let host_name = name(host).unwrap_or_else(|| "virtual host".to_owned());
    let counted = |node: &Node| node.get("include_request_attempt_count").is_some_and(Node::is_true);
    for route in host.get("routes").map_or(&[][..], Node::items) {
        // Redirects and direct responses call nobody.
        let Some(action) = route.get("route") else { continue };
        let place = source.place(route.range.clone());
        source.about(Some(place));
        let targets = targets(action);
        let to = targets.first().map_or_else(|| "a cluster named by a header".to_owned(), |target| (*target).to_owned());
        let mut policy = Policy::new(format!("{host_name} {} to {to}", matched(route)), place, GATEWAY);
        policy.marker = (counted(host) || counted(configuration)).then_some("x-envoy-attempt-count");
        let total = proto::duration(source, action.get("timeout")).unwrap_or(DEFAULT_TIMEOUT);
        policy.total_timeout = (!total.is_zero()).then_some(total);
        // The inner policy replaces the outer one whole.
        let retry = [action, host, configuration].into_iter().find_map(|node| node.entry("retry_policy"));
        if let Some(retry) = retry {
            read_policy(source, &retry.value, &mut policy);
            let hedge = [action, host].into_iter().find_map(|node| node.get("hedge_policy"));
            if hedge.and_then(|hedge| hedge.get("hedge_on_per_try_timeout")).is_some_and(Node::is_true) && policy.cuts_tries() {
                // Whatever the conditions say: the first try goes on beside the second.
                policy.retries.add([Kind::Timeout]);
            }
            let limit = targets.iter().find_map(|target| clusters.limit(source, target));
            policy.budget = limit.map(super::cluster::Limit::words).or_else(|| Some("unknown: its cluster is not in this file".to_owned()));
            rules::check(source, retry, action, &policy, limit);
        }
        rules::hedging(source, [action, host], &policy);
        out.push(policy);
    }
}

fn read_policy(source: &mut Source<'_>, retry: &Node, policy: &mut Policy) {
    let statuses: Vec<u16> = retry
        .get("retriable_status_codes")
        .map_or(&[][..], Node::items)
        .iter()
        .filter_map(|node| proto::number(source, Some(node)).and_then(|status| u16::try_from(status).ok()))
        .collect();
    let node = retry.get("retry_on");
    let conditions = retry_on::read(source, node.and_then(Node::text).unwrap_or_default(), node, &statuses);
    policy.words = conditions.words;
    let retries = proto::number(source, retry.get("num_retries")).unwrap_or(1);
    policy.tries = Tries::AtMost(retries.saturating_add(1));
    policy.try_timeout = proto::duration(source, retry.get("per_try_timeout")).filter(|limit| !limit.is_zero());
    // A try as long as the whole is never cut, and a call that ran out of the route's time is over.
    let cut = policy.cuts_tries();
    policy.retries = conditions.kinds.iter().filter(|kind| cut || *kind != Kind::Timeout).collect();
    let pause = retry.get("retry_back_off");
    let text = |key: &str| pause.and_then(|pause| pause.get(key)).and_then(Node::text).map(str::to_owned);
    let base = text("base_interval").unwrap_or_else(|| "25ms".to_owned());
    let max = text("max_interval").unwrap_or_else(|| "ten times that".to_owned());
    policy.backoff = Some(format!("a random time, from {base} on doubled each time, at most {max}"));
}

/// The clusters that a route may choose.
fn targets(action: &Node) -> Vec<&str> {
    let one = action.get("cluster").and_then(Node::text);
    let weighted = action.at(&["weighted_clusters", "clusters"]).map_or(&[][..], Node::items);
    one.into_iter().chain(weighted.iter().filter_map(|cluster| cluster.get("name").and_then(Node::text))).collect()
}

fn matched(route: &Node) -> String {
    let Some(rule) = route.get("match") else { return "every path".to_owned() };
    let of = ["prefix", "path", "path_separated_prefix", "safe_regex"].into_iter().find_map(|key| {
        let node = rule.get(key)?;
        node.text().or_else(|| node.get("regex").and_then(Node::text))
    });
    of.map_or_else(|| "a path".to_owned(), crate::wording::excerpt)
}
