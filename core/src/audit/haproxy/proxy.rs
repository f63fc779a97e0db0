//! Backends: servers, retries and times in force.

use std::time::Duration;

use super::super::kind::{Kind, Kinds};
use super::super::layer::{Answers, Policy, Tries};
use super::super::source::Source;
use super::lines::Line;
use super::rules::{self, Found};
use super::section::Section;

/// Retries where none are set.
const RETRIES: u32 = 3;

/// What HAProxy answers when it has no answer to pass on.
const GATEWAY: Answers = Answers::Gateway { refused: 503, broken: 502, unconnected: 503, late: 504 };

/// What `all-retryable-errors` stands for.
const RETRYABLE: [&str; 9] =
    ["conn-failure", "empty-response", "junk-response", "response-timeout", "0rtt-rejected", "500", "502", "503", "504"];

/// `None` for a proxy without servers.
pub(super) fn policy(source: &mut Source<'_>, proxy: &Section, lines: &[&Line]) -> Option<Policy> {
    let servers: Vec<&Line> = lines.iter().copied().filter(|line| matches!(line.word(0), "server" | "server-template")).collect();
    if servers.is_empty() {
        return None;
    }
    let place = source.place(proxy.head.range());
    source.about(Some(place));
    // A line holds until the next of its kind; `no` takes an option back.
    let last = |words: &[&str]| lines.iter().copied().rfind(|line| line.begins(words));
    let mode = last(&["mode"]).map_or("tcp", |line| line.word(1));
    let retries_line = last(&["retries"]);
    let retries = match retries_line {
        Some(line) => number(source, line).unwrap_or(RETRIES),
        None => RETRIES,
    };
    let retry_on = last(&["retry-on"]).filter(|_| mode == "http");
    let option = |name: &str| {
        let line = lines.iter().copied().rfind(|line| line.begins(&["option", name]) || line.begins(&["no", "option", name]));
        line.filter(|line| line.word(0) == "option")
    };
    // A connection that cannot be passed on is closed.
    let answers = if mode == "http" { GATEWAY } else { Answers::Always(Kind::Reset) };
    let mut policy = Policy::new(format!("{} {}", proxy.kind, proxy.name), place, answers);
    policy.retries = kinds(retry_on);
    policy.words = retry_on.map_or_else(
        || "conn-failure".to_owned(),
        |line| line.words().iter().skip(1).map(|word| word.text.as_str()).collect::<Vec<_>>().join(" "),
    );
    if retry_on.is_none() {
        policy.words.push_str(" (the default)");
    }
    policy.tries = Tries::AtMost(retries.saturating_add(1));
    policy.try_timeout = last(&["timeout", "server"]).and_then(|line| time(source, line, 2));
    let connect = last(&["timeout", "connect"]).and_then(|line| time(source, line, 2));
    let wait = connect.map_or(Duration::from_secs(1), |connect| connect.min(Duration::from_secs(1)));
    policy.backoff = Some(format!("{} before the same server, none before another", super::super::shown(wait)));
    let spares = lines.iter().copied().find(|line| line.begins(&["http-request", "disable-l7-retry"]));
    policy.spares = spares.map(|line| {
        let condition: Vec<&str> = line.words().iter().skip(2).map(|word| word.text.as_str()).collect();
        if condition.is_empty() { "every request that was sent".to_owned() } else { format!("sent requests {}", condition.join(" ")) }
    });
    let found = Found {
        mode,
        retries_line,
        retry_on,
        ignored_retry_on: last(&["retry-on"]).filter(|_| mode != "http"),
        redispatch: option("redispatch"),
        spares,
        servers: servers.iter().filter(|server| !server.words().iter().any(|word| word.text == "disabled")).count(),
        template: servers.iter().any(|server| server.word(0) == "server-template"),
        head: &proxy.head,
    };
    rules::check(source, &found, &policy);
    Some(policy)
}

/// Kinds of failure after which a try is repeated. Words that are unknown are for [`rules`] to report.
fn kinds(retry_on: Option<&Line>) -> Kinds {
    let Some(line) = retry_on else {
        return [Kind::Refused, Kind::ConnectTimeout].into_iter().collect();
    };
    let mut kinds = Kinds::default();
    let words = line.words().iter().skip(1).map(|word| word.text.as_str());
    let words: Vec<&str> = words.flat_map(|word| if word == "all-retryable-errors" { RETRYABLE.to_vec() } else { vec![word] }).collect();
    for word in words {
        match word {
            "none" => return Kinds::default(),
            "conn-failure" => kinds.add([Kind::Refused, Kind::ConnectTimeout]),
            "empty-response" => kinds.add([Kind::Reset]),
            "response-timeout" => kinds.add([Kind::Timeout]),
            status => kinds.add(self::status(status).map(Kind::Http)),
        }
    }
    kinds
}

/// The statuses that `retry-on` takes.
pub(super) fn status(word: &str) -> Option<u16> {
    word.parse().ok().filter(|status| [401, 403, 404, 408, 421, 425, 429, 500, 501, 502, 503, 504].contains(status))
}

fn number(source: &mut Source<'_>, line: &Line) -> Option<u32> {
    let read = line.word(1).parse().ok();
    if read.is_none() {
        source.unreadable(line.range(), "a number of retries", "a whole number, as in `retries 1`");
    }
    read
}

/// HAProxy's times: a number with a unit, or milliseconds.
fn time(source: &mut Source<'_>, line: &Line, at: usize) -> Option<Duration> {
    let text = line.word(at);
    let read = match text.parse::<u32>() {
        Ok(millis) => Some(Duration::from_millis(u64::from(millis))),
        Err(_) => match text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) {
            Some(days) => Some(Duration::from_secs(u64::from(days) * 86_400)),
            None => super::super::proto::parse(text),
        },
    };
    if read.is_none() {
        source.unreadable(line.range(), "a time", "one as in `timeout server 5s`");
    }
    read
}
