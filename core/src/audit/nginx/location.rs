//! Every place that passes requests on, with the settings in force there.

use std::time::Duration;

use super::super::finding::{Finding, Rule};
use super::super::kind::{Kind, Kinds};
use super::super::layer::{Answers, Policy, Tries};
use super::super::source::Source;
use super::rules;
use super::settings::{MODULES, Setting, Settings};
use super::syntax::{Directive, Word};
use super::upstream::{self, Target};

/// nginx's default for connecting, sending and reading.
const MINUTE: Duration = Duration::from_secs(60);

/// What nginx answers when it has no answer to pass on.
const GATEWAY: Answers = Answers::Gateway { refused: 502, broken: 502, unconnected: 504, late: 504 };

/// A place that passes requests on, as the rules look at it.
pub(super) struct Passing<'a> {
    pub(super) module: &'a str,
    pub(super) settings: &'a Settings,
    pub(super) target: &'a Target,
    /// The line that passes them on.
    pub(super) directive: &'a Directive,
    /// Whether it balances connections (`stream`) or requests.
    pub(super) stream: bool,
}

pub(super) fn policies(source: &mut Source<'_>, tree: &[Directive]) -> Vec<Policy> {
    let mut found = Walk { upstreams: Vec::new(), policies: Vec::new() };
    collect(tree, &mut found.upstreams);
    let settings = Settings::default().within(tree);
    found.walk(source, tree, &settings, "", false);
    source.about(None);
    found.policies
}

/// Every group of servers, wherever it is: a file in `conf.d` has them at its top.
fn collect<'a>(directives: &'a [Directive], upstreams: &mut Vec<&'a Directive>) {
    for directive in directives {
        match directive.name() {
            "upstream" => upstreams.push(directive),
            "http" | "stream" => collect(directive.block(), upstreams),
            _ => {}
        }
    }
}

struct Walk<'a> {
    upstreams: Vec<&'a Directive>,
    policies: Vec<Policy>,
}

impl<'a> Walk<'a> {
    fn walk(&mut self, source: &mut Source<'_>, block: &'a [Directive], settings: &Settings, path: &str, stream: bool) {
        for directive in block {
            if directive.block.is_none() {
                let module = MODULES.into_iter().find(|module| directive.name().strip_prefix(module) == Some("_pass"));
                if let Some(module) = module {
                    self.passing(source, directive, module, settings, path, stream);
                }
                continue;
            }
            let inner = settings.within(directive.block());
            let (path, stream) = match directive.name() {
                "http" => (String::new(), false),
                "stream" => (String::new(), true),
                "server" => (server_name(directive), stream),
                "location" => {
                    let words: Vec<&str> = directive.arguments().iter().map(|word| word.text.as_str()).collect();
                    (format!("{path} location {}", words.join(" ")).trim().to_owned(), stream)
                }
                // Conditions (`if`, `limit_except`) are part of their location; anything else passes nothing on.
                "if" | "limit_except" => (path.to_owned(), stream),
                _ => continue,
            };
            self.walk(source, directive.block(), &inner, &path, stream);
        }
    }

    fn passing(&mut self, source: &mut Source<'_>, directive: &Directive, module: &str, settings: &Settings, path: &str, stream: bool) {
        let target = upstream::target(directive.argument(), &self.upstreams);
        let place = source.place(directive.range());
        source.about(Some(place));
        let name = format!("{path} to {}", target.name).trim().to_owned();
        // A connection that cannot be passed on is closed.
        let mut policy = Policy::new(name, place, if stream { Answers::Always(Kind::Reset) } else { GATEWAY });
        let passing = Passing { module, settings, target: &target, directive, stream };
        let peers = target.peers.map_or(Tries::Unlimited, Tries::AtMost);
        policy.retries = retries(source, settings, module, stream, &mut policy.words);
        policy.tries = tries(source, settings, module).map_or(peers, |limit| peers.min(Tries::AtMost(limit)));
        policy.try_timeout = (!stream).then(|| settings.time(source, module, "read_timeout", MINUTE));
        let total = settings.time(source, module, "next_upstream_timeout", Duration::ZERO);
        // The limit is looked at between tries: the last one may still take its own time on top.
        policy.total_timeout = None;
        if !total.is_zero()
            && let Some(each) = policy.try_timeout
        {
            let begun = Tries::AtMost(super::super::layer::begun_within(each, total));
            if let Tries::AtMost(tries) = policy.tries.min(begun) {
                policy.total_timeout = each.checked_mul(tries);
            }
        }
        policy.backoff = Some("none: the next server is tried at once".to_owned());
        if policy.retries.iter().next().is_some() && !policy.words.split(' ').any(|word| word == "non_idempotent") && !stream {
            policy.spares = Some("POST, LOCK and PATCH once they were sent".to_owned());
        }
        rules::check(source, &passing, &policy, total);
        self.policies.push(policy);
    }
}

fn server_name(server: &Directive) -> String {
    let named = |name: &str| server.block().iter().find(|line| line.name() == name).map(Directive::argument);
    match (named("server_name"), named("listen")) {
        (Some(name), _) if !name.is_empty() && name != "_" => format!("server {name}"),
        (_, Some(listen)) => format!("server on {listen}"),
        _ => "server".to_owned(),
    }
}

/// The limit on tries; `None` if there is none.
pub(super) fn tries(source: &mut Source<'_>, settings: &Settings, module: &str) -> Option<u32> {
    let word = settings.get(module, "next_upstream_tries")?.arguments.first()?;
    let Ok(limit) = word.text.parse::<u32>() else {
        source.unreadable(word.range.clone(), "a number of tries", "a whole number, as in `2`");
        return None;
    };
    Some(limit).filter(|limit| *limit > 0)
}

/// The kinds of failure after which the next server is tried.
fn retries(source: &mut Source<'_>, settings: &Settings, module: &str, stream: bool, words: &mut String) -> Kinds {
    let connect = [Kind::Refused, Kind::ConnectTimeout];
    if stream {
        let off = settings.get(module, "next_upstream").is_some_and(|setting| setting.arguments.iter().any(|word| word.text == "off"));
        *words = if off { "off" } else { "failure to connect" }.to_owned();
        return if off { Kinds::default() } else { connect.into_iter().collect() };
    }
    let Some(Setting { arguments, .. }) = settings.get(module, "next_upstream") else {
        *words = "error timeout (the default)".to_owned();
        return [Kind::Refused, Kind::ConnectTimeout, Kind::Reset, Kind::Timeout].into_iter().collect();
    };
    *words = arguments.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
    let mut kinds = Kinds::default();
    for word in arguments {
        match word.text.as_str() {
            "error" => kinds.add([Kind::Refused, Kind::Reset]),
            "timeout" => kinds.add([Kind::ConnectTimeout, Kind::Timeout]),
            "off" => return Kinds::default(),
            "invalid_header" | "non_idempotent" | "updating" | "denied" | "not_found" => {}
            other => match status(other) {
                Some(status) => kinds.add([Kind::Http(status)]),
                None => unknown(source, word),
            },
        }
    }
    kinds
}

/// The status of `http_503` and the like.
pub(super) fn status(word: &str) -> Option<u16> {
    let status = word.strip_prefix("http_")?.parse().ok()?;
    [403, 404, 429, 500, 502, 503, 504].contains(&status).then_some(status)
}

fn unknown(source: &mut Source<'_>, word: &Word) {
    let place = source.place(word.range.clone());
    let message = format!("nginx knows no condition `{}`", crate::wording::excerpt(&word.text));
    source.report(
        Finding::new(Rule::InvalidPolicy, place, message)
            .label("nginx will not start with it")
            .help("the conditions are error, timeout, invalid_header, http_403, http_404, http_429, http_500, http_502, http_503, http_504, non_idempotent and off"),
    );
}
