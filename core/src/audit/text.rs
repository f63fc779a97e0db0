//! An audit in words: the layers, and what one request can become. Findings are shown with their places by the agent.

use std::fmt::Write as _;

use super::finding::Severity;
use super::kind::Kind;
use super::layer::{Policy, Tries};
use super::{Audit, chain, shown};

/// More routes of a file are counted, not shown.
const MAX_ROUTES: usize = 12;

/// The layers and the worst case; ends in a newline.
#[must_use]
pub fn text(audit: &Audit) -> String {
    let mut out = String::from("layers, from the edge to the dependency:\n");
    for layer in &audit.layers {
        let what = layer.format.map_or("stated", super::Format::as_str);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "  {} ({what})", layer.name);
        let mut routes: Vec<&Policy> = layer.policies.iter().collect();
        // Stable: routes that retry first, each part in the file's order.
        routes.sort_by_key(|policy| !policy.has_retries());
        for policy in routes.iter().take(MAX_ROUTES) {
            route(&mut out, policy);
        }
        if let Some(more) = routes.len().checked_sub(MAX_ROUTES).filter(|more| *more > 0) {
            let _ = writeln!(out, "    and {more} more routes (`--json` has them all)");
        }
    }
    worst(&mut out, audit);
    let _ = writeln!(out, "{}", summary(audit));
    out
}

fn route(out: &mut String, policy: &Policy) {
    let _ = writeln!(out, "    {}", policy.name);
    let mut line = |key: &str, text: &str| {
        let _ = writeln!(out, "      {key:<8} {text}");
    };
    if !policy.has_retries() {
        let why = if policy.words.is_empty() { String::new() } else { format!(" ({})", policy.words) };
        line("tries", &format!("1, whatever fails{why}"));
    } else {
        let tries = tries_by_kind(policy);
        // Said once is enough.
        line("tries", &if tries.ends_with(&policy.words) { tries } else { format!("{tries} ({})", policy.words) });
        line("pause", policy.backoff.as_deref().unwrap_or("not said"));
        line("budget", policy.budget.as_deref().unwrap_or("none"));
        if let Some(spares) = &policy.spares {
            line("spares", spares);
        }
    }
    let each = policy.try_timeout.map(|each| format!("{} a try", shown(each)));
    let total = policy.total_timeout.map(|total| format!("{} in all", shown(total)));
    let time: Vec<String> = each.into_iter().chain(total).collect();
    if !time.is_empty() {
        line("time", &time.join(", "));
    }
}

/// "2 on refused, reset; 3 on http:503".
fn tries_by_kind(policy: &Policy) -> String {
    let mut groups: Vec<(Tries, Vec<String>)> = Vec::new();
    let mut kinds: Vec<Kind> = Kind::BASE.to_vec();
    kinds.extend(policy.retries.singled_out().filter(|kind| !Kind::BASE.contains(kind)));
    for kind in kinds.into_iter().filter(|kind| policy.retries.contains(*kind)) {
        let tries = policy.tries(kind);
        match groups.iter_mut().find(|(known, _)| *known == tries) {
            Some((_, names)) => names.push(kind.to_string()),
            None => groups.push((tries, vec![kind.to_string()])),
        }
    }
    let count = |tries: &Tries| match tries {
        Tries::AtMost(tries) => tries.to_string(),
        Tries::Unlimited => "no limit".to_owned(),
    };
    if let [(tries, names)] = groups.as_slice()
        && names.len() >= Kind::BASE.len()
    {
        return format!("{} on any failure", count(tries));
    }
    groups.iter().map(|(tries, names)| format!("{} on {}", count(tries), names.join(", "))).collect::<Vec<_>>().join("; ")
}

fn worst(out: &mut String, audit: &Audit) {
    let Some(worst) = audit.ways.first() else {
        return;
    };
    let _ = writeln!(
        out,
        "\nworst case: {}{} for one request, when the dependency fails with {}",
        if worst.steps.len() > 1 { format!("{} = ", chain::product(worst)) } else { String::new() },
        worst.calls,
        worst.start
    );
    for step in &worst.steps {
        let layer = &audit.layers[step.layer];
        let tries = match step.tries {
            Tries::AtMost(1) => "1 try".to_owned(),
            Tries::AtMost(tries) => format!("{tries} tries"),
            Tries::Unlimited => "no limit".to_owned(),
        };
        let assumed = if step.known { "" } else { " if the layer below answers so" };
        let _ = writeln!(out, "  {tries:<9} {}: {}, on {}{assumed}", layer.name, layer.policies[step.policy].name, step.meets);
    }
    // The ways are sorted by calls, so equal ones are neighbours.
    let others: Vec<String> = audit.ways[1..]
        .chunk_by(|a, b| a.calls == b.calls)
        .map(|equal| {
            let kinds: Vec<String> = equal.iter().map(|way| way.start.to_string()).collect();
            format!("{} on {}", equal[0].calls, kinds.join(", "))
        })
        .collect();
    if !others.is_empty() {
        let _ = writeln!(out, "  other failures: {}", others.join("; "));
    }
}

/// "2 errors, 1 warning".
#[must_use]
pub fn summary(audit: &Audit) -> String {
    let counts: Vec<String> = [Severity::Error, Severity::Warning, Severity::Note]
        .into_iter()
        .filter_map(|severity| {
            let count = audit.findings.iter().filter(|finding| finding.rule.severity() == severity).count();
            let plural = if count == 1 { "" } else { "s" };
            (count > 0).then(|| format!("{count} {}{plural}", severity.as_str()))
        })
        .collect();
    if counts.is_empty() { "no findings".to_owned() } else { counts.join(", ") }
}
