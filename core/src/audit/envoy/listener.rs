//! Listeners: whether a caller's own headers can raise the retries.

use super::super::finding::{Finding, Rule};
use super::super::source::Source;
use super::super::tree::Node;

/// Looks at every HTTP connection manager.
pub(super) fn check(source: &mut Source<'_>, document: &Node) {
    let mut managers = Vec::new();
    document.each_map(&mut |map| {
        let routed = map.entry("route_config").is_some() || map.entry("rds").is_some() || map.entry("scoped_routes").is_some();
        if routed && (map.entry("stat_prefix").is_some() || map.entry("http_filters").is_some()) {
            managers.push(map);
        }
    });
    for manager in managers {
        if manager.get("use_remote_address").is_some_and(|node| node.unwrapped().is_true()) {
            continue;
        }
        let entry = manager.entry("stat_prefix").or_else(|| manager.entry("http_filters"));
        let place = entry.map_or_else(|| source.place(manager.range.clone()), |entry| source.place(entry.key_range.clone()));
        let message = "a caller's own `x-envoy-retry-on` and `x-envoy-max-retries` are obeyed: it can ask for as many retries as it likes";
        source.report(
            Finding::new(Rule::UntrustedHeaders, place, message)
                .label("no `use_remote_address`, so every caller is taken for an internal one")
                .help("add at the edge, where callers are not trusted:\n  use_remote_address: true"),
        );
    }
}
