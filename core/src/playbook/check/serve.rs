//! The configuration of `stormdrill serve`, from tree to values.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::super::Scope;
use super::super::fields::{self, Fields, Keys};
use super::super::node::{Entry, Node, Value};
use super::super::problem::{Code, Draft, Problems};
use super::super::serve::{Config, Etcd, EtcdUser, Limits, Observe, Tls};

const KNOWN: &[&str] = &["listen", "socket", "token_file", "tls", "state_dir", "playbooks", "observe", "retention", "limits", "etcd"];
const TOP: Keys = Keys::new("the configuration", KNOWN);
const LIMITS: Keys = Keys::new("`limits`", &["drills", "connections", "body_bytes", "requests"]);
const TLS: Keys = Keys::new("`tls`", &["cert", "key"]);
const ETCD: Keys = Keys::new("`etcd`", &["endpoints", "prefix", "ca", "cert", "key", "user", "password_file"]);

pub(in super::super) fn check(root: &Node, problems: &mut Problems<'_>) -> Option<Config> {
    let mut config = Config::default();
    if root.value == Value::Null {
        return Some(config);
    }
    let top = Fields::open(root, &root.place, TOP, problems)?;
    config.token_file = top.get("token_file").and_then(|entry| path(entry, problems));
    if let Some(entry) = top.get("listen") {
        config.listen = listen(entry, top.get("token_file").is_some(), problems);
    }
    config.tls = top.get("tls").and_then(|entry| tls(entry, problems));
    config.etcd = top.get("etcd").and_then(|entry| etcd(entry, problems));
    config.socket = top.get("socket").and_then(|entry| path(entry, problems));
    if let Some(path) = top.get("state_dir").and_then(|entry| path(entry, problems)) {
        config.state_dir = path;
    }
    config.playbooks = top.get("playbooks").and_then(|entry| path(entry, problems));
    config.observe = top.get("observe").and_then(|entry| observe(entry, problems));
    if let Some(kept) = top.get("retention").and_then(|entry| whole(entry, 1..=10_000, problems)) {
        config.retention = kept;
    }
    if let Some(entry) = top.get("limits") {
        config.limits = limits(entry, problems).unwrap_or_default();
    }
    Some(config)
}

fn listen(entry: &Entry, has_token: bool, problems: &mut Problems<'_>) -> Vec<SocketAddr> {
    let nodes = match &entry.value.value {
        Value::Scalar(_) => std::slice::from_ref(&entry.value),
        _ => fields::items(entry, problems).unwrap_or_default(),
    };
    nodes.iter().filter_map(|node| address(node, entry, has_token, problems)).collect()
}

fn address(node: &Node, entry: &Entry, has_token: bool, problems: &mut Problems<'_>) -> Option<SocketAddr> {
    let text = fields::scalar(node, &entry.key.place, "an address", problems)?;
    let Ok(address) = text.parse::<SocketAddr>() else {
        let message = format!("`listen`: `{}` is no address with a port", crate::wording::excerpt(text));
        problems.report(Draft::new(Code::BadValue, &node.place, message).advice("write it as `127.0.0.1:9464` or `\"[::1]:9464\"`"));
        return None;
    };
    // Whoever reaches the API can break the service: not without a secret from another host.
    if !address.ip().to_canonical().is_loopback() && !has_token {
        let message = format!("`{address}` is no loopback address, and there is no `token_file`");
        let draft = Draft::new(Code::Conflict, &node.place, message).label("other hosts could reach this");
        problems.report(draft.advice("add `token_file: /etc/stormdrill/token`, or listen on 127.0.0.1"));
        return None;
    }
    Some(address)
}

fn observe(entry: &Entry, problems: &mut Problems<'_>) -> Option<Observe> {
    let observed = super::observe::check(entry, problems)?;
    Some(Observe { edges: observed.edges, scope: observed.scope.unwrap_or(Scope::Host), window: observed.window?, marker: observed.marker })
}

fn limits(entry: &Entry, problems: &mut Problems<'_>) -> Option<Limits> {
    let fields = Fields::open(&entry.value, &entry.key.place, LIMITS, problems)?;
    let mut limits = Limits::default();
    for (key, range, value) in [
        ("drills", 1..=16, &mut limits.drills),
        ("connections", 8..=10_000, &mut limits.connections),
        ("body_bytes", 1024..=1024 * 1024, &mut limits.body_bytes),
        ("requests", 1..=100_000, &mut limits.requests),
    ] {
        if let Some(given) = fields.get(key).and_then(|entry| whole(entry, range, problems)) {
            *value = given;
        }
    }
    Some(limits)
}

fn tls(entry: &Entry, problems: &mut Problems<'_>) -> Option<Tls> {
    let fields = Fields::open(&entry.value, &entry.key.place, TLS, problems)?;
    let cert = fields.require("cert", "cert: /etc/stormdrill/cert.pem", problems).and_then(|entry| path(entry, problems));
    let key = fields.require("key", "key: /etc/stormdrill/key.pem", problems).and_then(|entry| path(entry, problems));
    Some(Tls { cert: cert?, key: key? })
}

fn etcd(entry: &Entry, problems: &mut Problems<'_>) -> Option<Etcd> {
    let fields = Fields::open(&entry.value, &entry.key.place, ETCD, problems)?;
    let endpoints = fields.require("endpoints", "endpoints: [http://10.0.0.2:2379]", problems)?;
    let nodes = match &endpoints.value.value {
        Value::Scalar(_) => std::slice::from_ref(&endpoints.value),
        _ => fields::items(endpoints, problems)?,
    };
    let mut urls = Vec::new();
    for node in nodes {
        let url = fields::scalar(node, &endpoints.key.place, "a URL", problems)?;
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let message = format!("`endpoints`: `{}` is no URL", crate::wording::excerpt(url));
            problems.report(Draft::new(Code::BadValue, &node.place, message).advice("write it as `http://10.0.0.2:2379`"));
            return None;
        }
        urls.push(url.to_owned());
    }
    if urls.is_empty() {
        problems.report(Draft::new(Code::BadValue, &endpoints.value.place, "`endpoints` is empty"));
        return None;
    }
    let prefix = fields.get("prefix").and_then(|entry| fields::text(entry, problems)).unwrap_or(Etcd::PREFIX);
    let ca = fields.get("ca").and_then(|entry| path(entry, problems));
    let identity = pair(&fields, ("cert", "cert: /etc/stormdrill/etcd.pem"), ("key", "key: /etc/stormdrill/etcd.key"), problems);
    let identity = identity.and_then(|(cert, key)| Some(Tls { cert: path(cert, problems)?, key: path(key, problems)? }));
    let user = ("user", "user: stormdrill");
    let user = pair(&fields, user, ("password_file", "password_file: /etc/stormdrill/etcd-password"), problems);
    let user = user
        .and_then(|(name, file)| Some(EtcdUser { name: fields::text(name, problems)?.to_owned(), password_file: path(file, problems)? }));
    Some(Etcd { endpoints: urls, prefix: prefix.trim_end_matches('/').to_owned(), ca, identity, user })
}

/// Two keys, each with an example, of which one makes no sense without the other.
fn pair<'n>(
    fields: &Fields<'n>,
    one: (&'static str, &'static str),
    other: (&'static str, &'static str),
    problems: &mut Problems<'_>,
) -> Option<(&'n Entry, &'n Entry)> {
    if fields.get(one.0).is_none() && fields.get(other.0).is_none() {
        return None;
    }
    let one = fields.require(one.0, one.1, problems);
    let other = fields.require(other.0, other.1, problems);
    one.zip(other)
}

fn path(entry: &Entry, problems: &mut Problems<'_>) -> Option<PathBuf> {
    let text = fields::text(entry, problems)?;
    if text.is_empty() {
        problems.report(Draft::new(Code::BadValue, &entry.value.place, format!("`{}` is empty", entry.key.text)));
        return None;
    }
    Some(PathBuf::from(text))
}

fn whole(entry: &Entry, range: RangeInclusive<usize>, problems: &mut Problems<'_>) -> Option<usize> {
    let text = fields::text(entry, problems)?;
    let key = &entry.key.text;
    let Ok(value) = text.parse::<usize>() else {
        let message = format!("`{key}`: `{}` is no whole number", crate::wording::excerpt(text));
        problems.report(Draft::new(Code::BadValue, &entry.value.place, message));
        return None;
    };
    if !range.contains(&value) {
        let message = format!("`{key}` is {value}, and can be {} to {}", range.start(), range.end());
        problems.report(Draft::new(Code::OutOfRange, &entry.value.place, message));
        return None;
    }
    Some(value)
}
