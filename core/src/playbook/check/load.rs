//! `load:`, the traffic that stormdrill makes itself.

use std::time::Duration;

use super::super::Load;
use super::super::fields::{self, Fields, Keys};
use super::super::node::Entry;
use super::super::problem::{Code, Draft, Problems};
use crate::units::{duration, rate};

const LOAD: Keys = Keys::new("`load`", &["url", "rate", "timeout"]);

/// When a request is given up, unless the playbook says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_TIMEOUT: Duration = Duration::from_mins(10);

/// Far beyond what one process can send.
const MAX_RATE: f64 = 1_000_000.0;

pub(super) fn check(entry: &Entry, problems: &mut Problems<'_>) -> Option<Load> {
    let fields = Fields::open(&entry.value, &entry.key.place, LOAD, problems)?;
    let url = fields.require("url", "url: \"http://127.0.0.1:8080/\"", problems);
    let url = url.and_then(|entry| url_of(entry, problems));
    let rate = fields.require("rate", "rate: 200/s", problems).and_then(|entry| rate_of(entry, problems));
    let timeout = match fields.get("timeout") {
        None => Some(DEFAULT_TIMEOUT),
        Some(entry) => fields::quantity(entry, duration::parse, problems)
            .and_then(|timeout| super::phases::within(entry, timeout, Duration::from_millis(1), MAX_TIMEOUT, problems)),
    };
    Some(Load { url: url?, rate: rate?, timeout: timeout? })
}

fn rate_of(entry: &Entry, problems: &mut Problems<'_>) -> Option<f64> {
    let rate = fields::quantity(entry, rate::parse, problems)?;
    if rate > 0.0 && rate <= MAX_RATE {
        return Some(rate);
    }
    let (message, write) = if rate > 0.0 {
        (format!("`rate` of {} is beyond the most, {}", rate::print(rate), rate::print(MAX_RATE)), MAX_RATE)
    } else {
        ("`rate` is zero".to_owned(), 1.0)
    };
    problems.report(Draft::new(Code::OutOfRange, &entry.value.place, message).replace(rate::print(write)));
    None
}

fn url_of(entry: &Entry, problems: &mut Problems<'_>) -> Option<String> {
    let text = fields::text(entry, problems)?;
    let place = &entry.value.place;
    let Some(rest) = text.strip_prefix("http://") else {
        let draft = Draft::new(Code::BadValue, place, "`url` does not start with `http://`");
        problems.report(match text.split_once("://") {
            Some(("https", _)) => draft.advice("the load is sent in the clear, since what is encrypted cannot be counted"),
            Some((_, rest)) => draft.replace(format!("\"http://{rest}\"")),
            None => draft.replace(format!("\"http://{text}\"")),
        });
        return None;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let odd = |c: char| c.is_whitespace() || c.is_control() || !c.is_ascii();
    let bad_port = port.is_some_and(|port| !matches!(port.parse::<u16>(), Ok(1..)));
    if host.is_empty() || host.contains('@') || bad_port || text.contains(odd) {
        let message = format!("`{}` is no URL to send load to", crate::wording::excerpt(text));
        let advice = "write `http://HOST:PORT/PATH`, in ASCII and without a user";
        problems.report(Draft::new(Code::BadValue, place, message).advice(advice).replace("\"http://127.0.0.1:8080/\""));
        return None;
    }
    Some(text.to_owned())
}
