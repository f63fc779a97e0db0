//! Istio: a VirtualService's HTTP routes, and the DestinationRules of their hosts in the same file.
//!
//! Facts: `retry.go` (a route that says nothing has two retries), `destination_rule.proto` (`maxRetries` is 2^32-1 where it is not
//! set; `retryBudget`). A route has no timeout where none is set.

use super::super::finding::{Finding, Rule};
use super::super::kind::Kind;
use super::super::layer::{Policy, Tries};
use super::super::source::Source;
use super::super::tree::Node;
use super::super::{ENVOY_ANSWERS, proto, retry_on, shown};

/// Retries where none are set.
const RETRIES: u32 = 2;

pub(super) fn policies(source: &mut Source<'_>, manifest: &Node, manifests: &[&Node], out: &mut Vec<Policy>) {
    for (at, route) in manifest.at(&["spec", "http"]).map_or(&[][..], Node::items).iter().enumerate() {
        // Redirects and direct responses call nobody.
        let Some(destinations) = route.get("route") else { continue };
        let hosts: Vec<&str> = destinations.items().iter().filter_map(|target| target.at(&["destination", "host"])?.text()).collect();
        let place = source.place(route.range.clone());
        source.about(Some(place));
        let own = route.get("name").and_then(Node::text).map_or_else(|| format!("route {}", at + 1), str::to_owned);
        let to = hosts.first().copied().unwrap_or("nowhere");
        let mut policy = Policy::new(format!("{} {own} to {to}", super::name(manifest)), place, ENVOY_ANSWERS);
        // Istio switches the header on in every virtual host that it makes.
        policy.marker = Some("x-envoy-attempt-count");
        policy.total_timeout = proto::duration(source, route.get("timeout")).filter(|limit| !limit.is_zero());
        retries(source, route, &mut policy);
        let rule = hosts.iter().find_map(|host| destination_rule(manifests, host));
        budget(source, route, rule, &mut policy);
        check(source, route, &policy);
        out.push(policy);
    }
}

fn retries(source: &mut Source<'_>, route: &Node, policy: &mut Policy) {
    let retries = route.get("retries");
    let attempts = retries.and_then(|retries| proto::number(source, retries.get("attempts"))).unwrap_or(RETRIES);
    policy.tries = Tries::AtMost(attempts.saturating_add(1));
    policy.try_timeout = retries.and_then(|retries| proto::duration(source, retries.get("perTryTimeout"))).filter(|limit| !limit.is_zero());
    let written = retries.and_then(|retries| retries.get("retryOn"));
    let conditions = match written.and_then(Node::text) {
        Some(text) => retry_on::read(source, text, written, &[]),
        None => retry_on::read(source, retry_on::ISTIO_DEFAULT, None, &[]),
    };
    policy.words = if written.is_some() { conditions.words } else { format!("{} (the default)", conditions.words) };
    if attempts == 0 {
        policy.words = "attempts: 0".to_owned();
    }
    let cut = policy.cuts_tries();
    policy.retries = conditions.kinds.iter().filter(|kind| cut || *kind != Kind::Timeout).collect();
    policy.backoff = Some("a random time, from 25ms on doubled each time".to_owned());
    if retries.is_none() {
        let place = source.place(route.range.clone());
        let message = format!("{} tries that nobody wrote down", RETRIES + 1);
        source.report(
            Finding::new(Rule::DefaultRetries, place, message)
                .label("no `retries` in this route")
                .help("write how many are meant, 0 for none:\n  retries: {attempts: 0}"),
        );
    }
}

fn destination_rule<'a>(manifests: &[&'a Node], host: &str) -> Option<&'a Node> {
    let short = |host: &str| host.split('.').next().unwrap_or_default().to_owned();
    manifests.iter().copied().find(|manifest| {
        let named = manifest.at(&["spec", "host"]).and_then(Node::text);
        let kind = manifest.get("kind").and_then(Node::text);
        kind == Some("DestinationRule") && named.is_some_and(|named| named == host || short(named) == short(host))
    })
}

fn budget(source: &mut Source<'_>, route: &Node, rule: Option<&Node>, policy: &mut Policy) {
    let at = |path: &[&str]| rule.and_then(|rule| rule.at(&["spec", "trafficPolicy"])).and_then(|traffic| traffic.at(path));
    if let Some(budget) = at(&["retryBudget"]) {
        let part = |key, default: &'static str| budget.get(key).map(Node::unwrapped).and_then(Node::text).unwrap_or(default).to_owned();
        let (percent, floor) = (part("percent", "20"), part("minRetryConcurrency", "3"));
        policy.budget = Some(format!("{percent}% of active and pending requests, but {floor} at any load"));
        return;
    }
    if let Some(node) = at(&["connectionPool", "http", "maxRetries"]) {
        let most = proto::number(source, Some(node));
        policy.budget = most.map(|most| format!("{most} retries at the same time, at any load"));
        return;
    }
    let place = source.place(route.get("retries").map_or_else(|| route.range.clone(), |node| node.range.clone()));
    if policy.has_retries() {
        let (label, help) = if rule.is_some() {
            ("its DestinationRule has neither `retryBudget` nor `maxRetries`", "add to its `trafficPolicy`")
        } else {
            ("no DestinationRule for this host is in this file", "if there is none, write one whose `trafficPolicy` has")
        };
        source.report(
            Finding::new(
                Rule::NoBudget,
                place,
                "Istio sets no limit on retries at the same time: in an outage every request makes all its tries",
            )
            .label(label)
            .help(format!("{help}:\n  retryBudget: {{percent: 20, minRetryConcurrency: 3}}")),
        );
    }
}

fn check(source: &mut Source<'_>, route: &Node, policy: &Policy) {
    let retries = route.get("retries");
    if let (Some(each), Some(total)) = (policy.try_timeout, policy.total_timeout)
        && each >= total
    {
        let node = retries.and_then(|retries| retries.get("perTryTimeout")).unwrap_or(route);
        let place = source.place(node.range.clone());
        let message = format!("a try may take {}, the whole route {}: the limit on a try never takes effect", shown(each), shown(total));
        source.report(
            Finding::new(Rule::TryTimeoutTooLong, place, message)
                .label("not below the route's timeout")
                .help(format!("write less than {} divided by the tries, or raise `timeout`", shown(total))),
        );
    }
    if !policy.has_retries() {
        return;
    }
    let place = source.place(retries.map_or_else(|| route.range.clone(), |node| node.range.clone()));
    if policy.total_timeout.is_none() {
        let finding =
            Finding::new(Rule::NoTimeLimit, place, "nothing limits all tries together: Istio's routes have no timeout by themselves");
        source.report(finding.label("no `timeout` in this route").help("add to the route:\n  timeout: 3s"));
    }
    if policy.retries.contains(Kind::Reset) || policy.retries.contains(Kind::Http(500)) {
        let message = "requests of every method are sent again after they may have been carried out";
        source.report(Finding::new(Rule::AnyMethod, place, message).label("POST as much as GET").help(
            "give the routes that write (`match: [{method: {exact: POST}}]`) retries of their own:\n  retryOn: connect-failure,refused-stream",
        ));
    }
}
