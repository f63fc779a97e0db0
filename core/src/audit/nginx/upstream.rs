//! Groups of servers, and how many of them a request may visit.

use std::net::IpAddr;
use std::ops::Range;

use super::syntax::Directive;

/// Where requests are passed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    /// As written, shortened: `upstream backend`, `127.0.0.1:8080`.
    pub(super) name: String,
    /// Servers that one request may visit; `None` if only DNS, or a variable, knows.
    pub(super) peers: Option<u32>,
    /// A server line that a listed status would take out of the pool.
    pub(super) ejects: Option<Range<usize>>,
    /// The `keepalive` line.
    pub(super) keepalive: Option<Range<usize>>,
}

/// Finds the target of `proxy_pass` and the like.
pub(super) fn target(passed_to: &str, upstreams: &[&Directive]) -> Target {
    let rest = passed_to.split_once("://").map_or(passed_to, |(_, rest)| rest);
    let host = if rest.starts_with("unix:") { rest } else { rest.split('/').next().unwrap_or(rest) };
    // `http://backend$request_uri` names the group `backend`, `http://$backend` whatever a variable says.
    let host = host.split_once('$').map_or(host, |(name, _)| if name.is_empty() { host } else { name });
    if let Some(group) = upstreams.iter().find(|group| group.argument() == host) {
        return group_of(group);
    }
    let name = crate::wording::excerpt(host);
    let single = host.starts_with("unix:") || is_address(host);
    // A variable may name a group after all.
    Target { name, peers: single.then_some(1), ejects: None, keepalive: None }
}

fn is_address(host: &str) -> bool {
    let bare = match host.rsplit_once(':') {
        Some((address, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && (!address.contains(':') || address.ends_with(']')) => {
            address
        }
        _ => host,
    };
    bare.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok()
}

fn group_of(group: &Directive) -> Target {
    let servers: Vec<&Directive> = group.block().iter().filter(|line| line.name() == "server").collect();
    let has = |server: &Directive, word: &str| server.arguments().iter().skip(1).any(|argument| argument.text == word);
    let live: Vec<&Directive> = servers.into_iter().filter(|server| !has(server, "down")).collect();
    // A domain name counts once for each of its addresses, which only DNS knows; a host's own name has one.
    let single = |address: &str| address.starts_with("unix:") || is_address(address) || !address.contains('.');
    let known = live.iter().all(|server| !has(server, "resolve") && single(server.argument()));
    let count = u32::try_from(live.len()).unwrap_or(u32::MAX);
    let ejected_after = |server: &&&Directive| {
        let failures = server.arguments().iter().find_map(|argument| argument.text.strip_prefix("max_fails=")?.parse::<u32>().ok());
        failures.unwrap_or(1) == 1
    };
    let ejects = (count > 1).then(|| live.iter().find(ejected_after).map(|server| server.range())).flatten();
    let keepalive = group.block().iter().find(|line| line.name() == "keepalive").map(Directive::range);
    Target { name: format!("upstream {}", group.argument()), peers: known.then_some(count.max(1)), ejects, keepalive }
}

#[cfg(test)]
mod tests {
    use super::super::super::source::Source;
    use super::super::syntax;
    use super::*;

    fn peers(servers: &str) -> Option<u32> {
        let tree = syntax::parse(&Source::new(0, &format!("upstream u {{ {servers} }}"))).unwrap_or_default();
        let upstreams: Vec<&Directive> = tree.iter().collect();
        target("http://u/path", &upstreams).peers
    }

    #[test]
    fn the_peers_of_a_group_are_its_servers_with_backups_and_without_those_that_are_down() {
        assert_eq!(peers("server 10.0.0.1; server 10.0.0.2:80 backup; server 10.0.0.3 down;"), Some(2));
        assert_eq!(peers("server unix:/run/a.sock; server [::1]:80;"), Some(2));
        assert_eq!(peers("server a:80; server b:80;"), Some(2));
        assert_eq!(peers("server a.example.com;"), None);
        assert_eq!(peers("server a resolve;"), None);
    }

    #[test]
    fn an_address_is_one_peer_and_a_name_may_be_many() {
        for (target_of, peers) in [
            ("http://127.0.0.1:9000/x", Some(1)),
            ("http://[::1]:9000", Some(1)),
            ("http://unix:/run/a.sock:/x", Some(1)),
            ("http://api.example.com", None),
            ("http://$backend", None),
            ("http://10.0.0.1$request_uri", Some(1)),
            ("127.0.0.1:9000", Some(1)),
        ] {
            assert_eq!(target(target_of, &[]).peers, peers, "{target_of}");
        }
    }
}
