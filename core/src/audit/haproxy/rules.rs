//! What is wrong with a backend.

use super::super::finding::{Finding, Rule};
use super::super::kind::Kind;
use super::super::layer::{Policy, Tries};
use super::super::source::Source;
use super::lines::Line;
use super::proxy::status;

/// A backend as the rules look at it.
pub(super) struct Found<'a> {
    pub(super) mode: &'a str,
    pub(super) retries_line: Option<&'a Line>,
    /// `retry-on`, where it has an effect.
    pub(super) retry_on: Option<&'a Line>,
    /// `retry-on`, where it has none.
    pub(super) ignored_retry_on: Option<&'a Line>,
    pub(super) redispatch: Option<&'a Line>,
    /// `http-request disable-l7-retry`.
    pub(super) spares: Option<&'a Line>,
    /// Servers that take part.
    pub(super) servers: usize,
    /// Whether there may be more, from `server-template`.
    pub(super) template: bool,
    /// The line that opens the section.
    pub(super) head: &'a Line,
}

pub(super) fn check(source: &mut Source<'_>, found: &Found<'_>, policy: &Policy) {
    if let Some(line) = found.ignored_retry_on {
        let place = source.place(line.range());
        let message = format!("`retry-on` has no effect in mode {}", found.mode);
        source
            .report(Finding::new(Rule::NeverRetries, place, message).label("only failures to connect are retried").help("add `mode http`"));
    }
    if let Some(line) = found.retry_on {
        conditions(source, line);
        layer_7(source, found, policy, line);
    }
    if !policy.has_retries() {
        return;
    }
    let retries = match policy.tries {
        Tries::AtMost(tries) => tries - 1,
        Tries::Unlimited => u32::MAX,
    };
    if found.retries_line.is_none() {
        let place = source.place(found.head.range());
        let message = format!("{retries} retries, so {} tries, that nobody wrote down", retries.saturating_add(1));
        source.report(
            Finding::new(Rule::DefaultRetries, place, message)
                .label("no `retries` is in force here")
                .help("write how many are meant:\n  retries 1"),
        );
    }
    if found.redispatch.is_none() && (found.servers > 1 || found.template) {
        let place = source.place(found.retries_line.unwrap_or(found.head).range());
        let message = "every try goes to the server that failed, though there are others";
        source.report(Finding::new(Rule::SameServer, place, message).label("no `option redispatch`").help("add:\n  option redispatch 1"));
    }
    if policy.try_timeout.is_none() {
        let place = source.place(found.head.range());
        let message = "a server that does not answer is waited for without end";
        source.report(
            Finding::new(Rule::NoTimeLimit, place, message).label("no `timeout server` is in force here").help("add:\n  timeout server 5s"),
        );
    }
}

fn conditions(source: &mut Source<'_>, line: &Line) {
    const WORDS: [&str; 7] =
        ["none", "conn-failure", "empty-response", "junk-response", "response-timeout", "0rtt-rejected", "all-retryable-errors"];
    for word in line.words().iter().skip(1) {
        let place = source.place(word.range.clone());
        match status(&word.text) {
            Some(401 | 403 | 404 | 501) => source.report(
                Finding::new(Rule::RetriesRefusals, place, format!("{} will be the same the next time", word.text))
                    .label("the request is at fault, not the server")
                    .help("leave it out"),
            ),
            Some(429) => source.report(
                Finding::new(Rule::RetriesOverload, place, "a server that answers 429 asks for less, and gets the next try at once")
                    .label("HAProxy does not wait for Retry-After")
                    .help("leave it out"),
            ),
            None if !WORDS.contains(&word.text.as_str()) => {
                let message = format!("HAProxy knows no condition `{}`", crate::wording::excerpt(&word.text));
                source.report(
                    Finding::new(Rule::InvalidPolicy, place, message)
                        .label("HAProxy will not start with it")
                        .help(format!("the conditions are {} and some statuses", crate::wording::listed(&WORDS))),
                );
            }
            _ => {}
        }
    }
}

/// HAProxy looks at no method: what it repeats after the request was sent, it repeats for POST too.
fn layer_7(source: &mut Source<'_>, found: &Found<'_>, policy: &Policy, line: &Line) {
    let sent = policy.retries.iter().any(|kind| !matches!(kind, Kind::Refused | Kind::ConnectTimeout | Kind::Http(408 | 425 | 429)));
    if sent && found.spares.is_none() && policy.tries.retries() {
        let place = source.place(line.range());
        let message = "POST is sent again after the server may have carried it out: HAProxy looks at no method";
        source.report(
            Finding::new(Rule::RepeatsWrites, place, message)
                .label("an order placed twice")
                .help("add to the proxy:\n  http-request disable-l7-retry unless METH_GET"),
        );
    }
}
