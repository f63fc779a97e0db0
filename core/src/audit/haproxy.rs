//! haproxy.cfg.
//!
//! Facts: HAProxy's configuration manual (`retries`, `retry-on`, `option redispatch`, `http-request disable-l7-retry`) and
//! `defaults.h` for the three retries that there are by default.

use super::Refused;
use super::layer::Policy;
use super::source::Source;

mod lines;

mod section;

mod proxy;

mod rules;

/// Reads every proxy that has servers.
pub(super) fn read(source: &mut Source<'_>) -> Result<Vec<Policy>, Refused> {
    let lines = lines::read(source)?;
    let sections = section::read(source, lines)?;
    let mut policies = Vec::new();
    for proxy in sections.iter().filter(|section| matches!(section.kind.as_str(), "backend" | "listen")) {
        let in_force = section::in_force(proxy, &sections);
        policies.extend(proxy::policy(source, proxy, &in_force));
    }
    source.about(None);
    Ok(policies)
}

/// Whether a text is HAProxy's: a line of its own for a section, and neither braces nor colons behind it.
pub(super) fn looks_like(text: &str) -> bool {
    let starts = |line: &str, word: &str| {
        line.strip_prefix(word).is_some_and(|rest| rest.is_empty() || (rest.starts_with([' ', '\t']) && !rest.contains(['{', '=', ';'])))
    };
    let found: Vec<&str> = ["global", "defaults", "frontend", "backend", "listen"]
        .into_iter()
        .filter(|word| text.lines().any(|line| starts(line.trim_end(), word)))
        .collect();
    found.iter().any(|word| matches!(*word, "backend" | "listen" | "defaults"))
}
