//! The words of Envoy's `retry_on`, which Istio's `retryOn` takes too.
//!
//! Facts: Envoy's router filter documentation and `retry_state_impl.cc`: `5xx` and `gateway-error` count every reset as one of
//! theirs, a per-try timeout included; a breaker's overflow is never retried.

use super::finding::{Finding, Rule};
use super::kind::{self, Kind, Kinds};
use super::source::Source;
use super::tree::Node;

/// What a list of conditions means.
#[derive(Debug, Clone, Default)]
pub(super) struct Conditions {
    pub(super) kinds: Kinds,
    /// As written, with the statuses.
    pub(super) words: String,
}

/// Istio's own list, which holds where a route says nothing.
pub(super) const ISTIO_DEFAULT: &str = "connect-failure,refused-stream,unavailable,cancelled,503";

const RESETS: [Kind; 5] = [Kind::Refused, Kind::ConnectTimeout, Kind::Reset, Kind::Timeout, Kind::Rejected];

/// Reads conditions; `node` is where they stand, `statuses` are the `retriable_status_codes` beside them.
pub(super) fn read(source: &mut Source<'_>, text: &str, node: Option<&Node>, statuses: &[u16]) -> Conditions {
    let mut read = Conditions { words: text.to_owned(), ..Conditions::default() };
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let kinds: Vec<Kind> = match word {
            "5xx" => RESETS.into_iter().chain((500..=599).map(Kind::Http)).collect(),
            "gateway-error" => RESETS.into_iter().chain([502, 503, 504].map(Kind::Http)).collect(),
            "reset" => RESETS.to_vec(),
            "connect-failure" | "reset-before-request" => vec![Kind::Refused, Kind::ConnectTimeout],
            "refused-stream" => vec![Kind::Rejected],
            "retriable-4xx" => vec![Kind::Http(409)],
            "retriable-status-codes" => statuses.iter().copied().map(Kind::Http).collect(),
            "envoy-ratelimited" => vec![Kind::Http(429)],
            "retriable-headers" | "http3-post-connect-failure" => Vec::new(),
            "cancelled" | "deadline-exceeded" | "internal" | "resource-exhausted" | "unavailable" | "unknown" => {
                kind::grpc(word).map(Kind::Grpc).into_iter().collect()
            }
            _ => match word.parse::<u16>().ok().filter(|status| (100..=599).contains(status)) {
                Some(status) => vec![Kind::Http(status)],
                None => {
                    if let Some(node) = node {
                        unknown(source, node, word);
                    }
                    Vec::new()
                }
            },
        };
        read.kinds.add(kinds);
    }
    if !statuses.is_empty() {
        let listed: Vec<String> = statuses.iter().map(u16::to_string).collect();
        read.words.push_str(&format!(" [{}]", listed.join(" ")));
    }
    if let Some(node) = node {
        judge(source, &read, node);
    }
    read
}

fn unknown(source: &mut Source<'_>, node: &Node, word: &str) {
    let place = source.place(node.range.clone());
    let message = format!("`{}` is no condition that Envoy knows: it is passed over in silence", crate::wording::excerpt(word));
    let known = [
        "5xx",
        "gateway-error",
        "reset",
        "connect-failure",
        "refused-stream",
        "retriable-4xx",
        "retriable-status-codes",
        "cancelled",
        "deadline-exceeded",
        "internal",
        "resource-exhausted",
        "unavailable",
    ];
    let help = crate::wording::nearest(word, known).map_or_else(
        || "the usual one is `connect-failure,refused-stream,unavailable`".to_owned(),
        |near| format!("did you mean `{near}`?"),
    );
    source.report(Finding::new(Rule::InvalidPolicy, place, message).help(help));
}

fn judge(source: &mut Source<'_>, read: &Conditions, node: &Node) {
    let place = source.place(node.range.clone());
    let refusals: Vec<String> = read
        .kinds
        .iter()
        .filter(|kind| matches!(kind, Kind::Http(status) if (400..=499).contains(status) && ![408, 409, 425, 429].contains(status)))
        .map(|kind| kind.to_string())
        .collect();
    if !refusals.is_empty() {
        let refusals: Vec<&str> = refusals.iter().map(String::as_str).collect();
        let message = format!("{} will be the same the next time", crate::wording::listed(&refusals));
        source.report(
            Finding::new(Rule::RetriesRefusals, place, message)
                .label("the request is at fault, not the server")
                .help("retry what says that nothing was done: `connect-failure,refused-stream,unavailable`"),
        );
    }
    if read.kinds.contains(Kind::Http(429)) || read.kinds.contains(Kind::Grpc(8)) {
        let message = "answers that say that there is too much already are answered with more";
        source.report(
            Finding::new(Rule::RetriesOverload, place, message)
                .label("429 or RESOURCE_EXHAUSTED is retried")
                .help("leave it out: the server's Retry-After is waited for only where Envoy's `rate_limited_retry_back_off` is set"),
        );
    }
}
