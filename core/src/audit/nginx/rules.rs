//! What is wrong with a location.

use std::time::Duration;

use super::super::finding::{Finding, Rule};
use super::super::layer::{Policy, Tries};
use super::super::shown;
use super::super::source::Source;
use super::location::{Passing, status};

/// More servers than these are too many to visit for one request without having been asked to.
const FEW: u32 = 3;

pub(super) fn check(source: &mut Source<'_>, passing: &Passing<'_>, policy: &Policy, total: Duration) {
    if !passing.stream {
        conditions(source, passing, policy);
    }
    if !policy.has_retries() {
        return;
    }
    number_of_tries(source, passing);
    time(source, passing, policy, total);
    if let Some(range) = passing.target.keepalive.clone() {
        let place = source.place(range);
        let message = "a failure on a connection that was kept open gives the try back: there may be more tries than the limit";
        source.report(
            Finding::new(Rule::ExtraTries, place, message).label("connections are kept").help(
                "keep `keepalive_timeout` here below that of the servers, so that they do not close connections that nginx still uses",
            ),
        );
    }
}

fn conditions(source: &mut Source<'_>, passing: &Passing<'_>, policy: &Policy) {
    let Some(setting) = passing.settings.get(passing.module, "next_upstream") else { return };
    let name = format!("{}_next_upstream", passing.module);
    let without = |word: &str| {
        let kept: Vec<&str> =
            setting.arguments.iter().map(|argument| argument.text.as_str()).filter(|argument| *argument != word).collect();
        format!("write:\n  {name} {};", if kept.is_empty() { "off".to_owned() } else { kept.join(" ") })
    };
    for word in &setting.arguments {
        let place = source.place(word.range.clone());
        match (word.text.as_str(), status(&word.text)) {
            ("non_idempotent", _) => source.report(
                Finding::new(
                    Rule::RepeatsWrites,
                    place,
                    "POST, LOCK and PATCH are sent again though the first server may have carried them out",
                )
                .label("an order placed twice")
                .help(without("non_idempotent")),
            ),
            (_, Some(403 | 404)) => source.report(
                Finding::new(
                    Rule::RetriesRefusals,
                    place,
                    format!("`{}` is no failure of the server: the next one will say the same", word.text),
                )
                .label("every such answer visits the other servers")
                .help(without(&word.text)),
            ),
            (_, Some(429)) => source.report(
                Finding::new(Rule::RetriesOverload, place, "a server that answers 429 asks for less, and gets the next try at once")
                    .label("nginx does not wait for Retry-After")
                    .help(without(&word.text)),
            ),
            (_, Some(_)) if policy.tries.retries() => {
                if let Some(server) = passing.target.ejects.clone() {
                    let server = source.place(server);
                    let message = format!(
                        "`{}` counts as a failure of the server, and one failure takes it out for `fail_timeout`: once all are out, nginx answers 502 without asking any",
                        word.text
                    );
                    source.report(
                        Finding::new(Rule::EjectsOnStatus, server, message)
                            .label("`max_fails` is 1")
                            .help("a burst of such answers becomes an outage of ten seconds that shows no traffic; write `max_fails=0`, or a number above what a burst has"),
                    );
                }
            }
            _ => {}
        }
    }
    if policy.tries == Tries::AtMost(1)
        && passing.target.peers == Some(1)
        && setting.arguments.iter().any(|word| status(&word.text).is_some())
    {
        let place = source.place(setting.range.clone());
        source.report(
            Finding::new(Rule::NeverRetries, place, format!("{} has one server, so nothing is ever tried again", passing.target.name))
                .label("no effect here")
                .help("nginx passes a request to another server, never to the same one again"),
        );
    }
}

fn number_of_tries(source: &mut Source<'_>, passing: &Passing<'_>) {
    let limited = passing
        .settings
        .get(passing.module, "next_upstream_tries")
        .is_some_and(|setting| setting.arguments.first().is_some_and(|word| word.text.parse::<u32>().is_ok_and(|limit| limit > 0)));
    if limited {
        return;
    }
    let (rule, message) = match passing.target.peers {
        Some(peers) if peers <= FEW => (Rule::TriesUnset, format!("one request may visit all {peers} servers of {}", passing.target.name)),
        Some(peers) => (Rule::UnlimitedTries, format!("one request may visit all {peers} servers of {}", passing.target.name)),
        None => (Rule::UnlimitedTries, format!("one request may visit as many servers as `{}` has addresses", passing.target.name)),
    };
    let place = source.place(passing.directive.range());
    let help = format!("the default is no limit; add:\n  {}_next_upstream_tries 2;", passing.module);
    source.report(Finding::new(rule, place, message).label("no limit on tries is in force here").help(help));
}

fn time(source: &mut Source<'_>, passing: &Passing<'_>, policy: &Policy, total: Duration) {
    let Some(each) = policy.try_timeout.filter(|_| !passing.stream) else { return };
    if total.is_zero() {
        let place = source.place(passing.directive.range());
        let message = format!("each try may take {}, and nothing limits all of them together", shown(each));
        let help = format!(
            "add both, a try being shorter than the whole:\n  {module}_read_timeout 1s;\n  {module}_next_upstream_timeout 3s;",
            module = passing.module
        );
        source.report(Finding::new(Rule::NoTimeLimit, place, message).label("no limit on time is in force here").help(help));
    } else if each >= total && policy.retries.contains(super::super::kind::Kind::Timeout) {
        let setting = passing.settings.get(passing.module, "next_upstream_timeout");
        let place = source.place(setting.map_or_else(|| passing.directive.range(), |setting| setting.range.clone()));
        let message = format!("a try may take {}: the limit of {} is looked at only between tries", shown(each), shown(total));
        let help = format!("let a try end well before the whole, as in:\n  {}_read_timeout 1s;", passing.module);
        source.report(Finding::new(Rule::TryTimeoutTooLong, place, message).label("does not cut a running try").help(help));
    }
}
