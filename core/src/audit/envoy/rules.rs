//! What is wrong with a route's retries.

use super::super::finding::{Finding, Rule};
use super::super::kind::Kind;
use super::super::layer::Policy;
use super::super::shown;
use super::super::source::Source;
use super::super::tree::{Entry, Node};
use super::cluster::Limit;

/// A share above which a budget is none: what is retried comes on top of all first tries.
const LARGE_SHARE: f64 = 30.0;
/// A number of retries at the same time that no outage is short of.
const LARGE_NUMBER: u32 = 100;

pub(super) fn check(source: &mut Source<'_>, retry: &Entry, action: &Node, policy: &Policy, limit: Option<Limit<'_>>) {
    let at = source.place(retry.key_range.clone());
    let retries_timeouts =
        ["5xx", "gateway-error", "reset"].iter().any(|word| policy.words.split([',', ' ']).any(|part| part.trim() == *word));
    match (policy.try_timeout, policy.total_timeout) {
        (Some(each), Some(total)) if each >= total => {
            let place = retry.value.get("per_try_timeout").map_or(at, |node| source.place(node.range.clone()));
            let message =
                format!("a try may take {}, the whole route {}: the limit on a try never takes effect", shown(each), shown(total));
            source.report(
                Finding::new(Rule::TryTimeoutTooLong, place, message)
                    .label("not below the route's timeout")
                    .help(format!("write less than {} divided by the tries, or raise the route's `timeout`", shown(total))),
            );
        }
        (None, _) if retries_timeouts => {
            let message = "a call that hangs is never retried: without a limit on a try, its time is the route's own";
            source.report(
                Finding::new(Rule::NeverRetries, at, message)
                    .label("no `per_try_timeout`")
                    .help("add, if hanging calls shall be retried:\n  per_try_timeout: 1s"),
            );
        }
        _ => {}
    }
    if !policy.has_retries() {
        return;
    }
    if policy.total_timeout.is_none() {
        let place = action.get("timeout").map_or(at, |node| source.place(node.range.clone()));
        let finding = Finding::new(Rule::NoTimeLimit, place, "nothing limits all tries together");
        source.report(finding.label("the route's timeout is off").help("write a deadline over all tries, as in `timeout: 3s`"));
    }
    let repeats_work = policy.retries.iter().any(|kind| kind == Kind::Reset || matches!(kind, Kind::Http(500 | 502 | 504)));
    if repeats_work {
        let message = "requests of every method are sent again after they may have been carried out";
        source.report(Finding::new(Rule::AnyMethod, at, message).label("POST as much as GET").help(
            "give the routes that write a policy of their own, which retries only what was not begun: `connect-failure,refused-stream`",
        ));
    }
    if policy.retries.contains(Kind::Http(503)) && retry.value.get("rate_limited_retry_back_off").is_none() {
        let message = "a server that asks to wait (Retry-After) is not waited for";
        source.report(
            Finding::new(Rule::RetriesOverload, at, message)
                .label("no `rate_limited_retry_back_off`")
                .help("add:\n  rate_limited_retry_back_off: {reset_headers: [{name: Retry-After, format: SECONDS}]}"),
        );
    }
    if policy.marker.is_none() {
        let message = "attempts carry no number: the upstream cannot tell a retry from a first try";
        source.report(
            Finding::new(Rule::NoMarker, at, message)
                .label("no `include_request_attempt_count`")
                .help("add to the virtual host:\n  include_request_attempt_count: true"),
        );
    }
    budget(source, retry, limit);
}

fn budget(source: &mut Source<'_>, retry: &Entry, limit: Option<Limit<'_>>) {
    match limit {
        None => {}
        Some(Limit::Static { retries, node: None }) => {
            let place = source.place(retry.key_range.clone());
            let message = format!("the cluster has no retry budget: {retries} retries at the same time, whatever the load");
            source.report(
                Finding::new(Rule::NoBudget, place, message)
                    .label("too few at much traffic, a multiple of all requests at little")
                    .help("add to the cluster:\n  circuit_breakers: {thresholds: [{retry_budget: {budget_percent: {value: 20}, min_retry_concurrency: 3}}]}"),
            );
        }
        Some(Limit::Static { retries, node: Some(node) }) if retries > LARGE_NUMBER => {
            let place = source.place(node.range.clone());
            let message = format!("{retries} retries at the same time limit nothing in an outage");
            source.report(
                Finding::new(Rule::WeakBudget, place, message)
                    .label("`max_retries`")
                    .help("write a share of the traffic instead:\n  retry_budget: {budget_percent: {value: 20}, min_retry_concurrency: 3}"),
            );
        }
        Some(Limit::Static { .. }) => {}
        Some(Limit::Budget { percent, floor, node }) => {
            let place = source.place(node.range.clone());
            if percent > LARGE_SHARE {
                let message = format!("a budget of {percent}% of all requests lets the traffic grow by {}", growth(percent));
                source.report(
                    Finding::new(Rule::WeakBudget, place, message)
                        .label("of active and pending requests")
                        .help("20% lets it grow by 25%:\n  budget_percent: {value: 20}"),
                );
            }
            let message = format!(
                "the budget counts requests at the same time: while failures are fast, {floor} concurrent retries can be many in a second"
            );
            source.report(Finding::new(Rule::BudgetFloor, place, message).label("`min_retry_concurrency`").help(
                "measured by simulation with 20%, a floor of 3 and failures of 1 ms: +188% at 10 requests a second, +52% at 100, +6% at 1000; assert the increase in a drill",
            ));
        }
    }
}

/// Retries that are a share of all requests, as growth over the first tries.
fn growth(percent: f64) -> String {
    if percent >= 100.0 {
        return "any amount".to_owned();
    }
    crate::units::share::print((percent / (100.0 - percent) * 100.0).round() / 100.0)
}

pub(super) fn hedging(source: &mut Source<'_>, nodes: [&Node; 2], policy: &Policy) {
    let Some(hedge) = nodes.into_iter().find_map(|node| node.get("hedge_policy")) else { return };
    if let Some(node) = hedge.get("hedge_on_per_try_timeout").filter(|node| node.is_true()) {
        let place = source.place(node.range.clone());
        let each = policy.try_timeout.map_or_else(|| "its limit".to_owned(), shown);
        let message = format!("a try that takes longer than {each} is not ended when the next begins: slowness alone multiplies the calls");
        source.report(
            Finding::new(Rule::Hedging, place, message)
                .label("hedging")
                .help("set `per_try_timeout` to a high percentile of the latency, and hedge only routes that read"),
        );
    }
}
