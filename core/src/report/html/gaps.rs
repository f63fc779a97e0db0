//! How long each edge's retries waited: a bar for each length of pause, with its number beside it.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::judge::SHORTEST_PAUSE_NS;
use crate::report::json::Run;
use crate::report::json::edge::Edge;
use crate::report::rows::total;

/// Units that the widest bar has.
const WIDE: f64 = 1000.0;

/// The pauses of all edges that have any.
pub(super) fn all(run: &Run) -> Markup {
    let drawn: Vec<(&Edge, Vec<(String, u64)>)> =
        run.edges.iter().map(|edge| (edge, bins(edge))).filter(|(_, bins)| !bins.is_empty()).collect();
    html! {
        @if !drawn.is_empty() {
            section {
                h2 { "Pauses before retries" }
                p.meta { "From the end of each failed attempt to the retry of it. One bar alone is a fixed interval: clients that fail together then come back together." }
                div.figures { @for (edge, bins) in &drawn { (figure(edge, bins)) } }
            }
        }
    }
}

fn figure(edge: &Edge, bins: &[(String, u64)]) -> Markup {
    let most = bins.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    html! {
        figure {
            figcaption {
                strong { (edge.name) " (" (edge.role) ")" }
                @if come_at_once(edge) {
                    div.legend { "most of the retries under the fault come at once: less than 5 ms is no backoff" }
                } @else if let Some(jitter) = edge.phases.get("fault").and_then(|phase| phase.retrying.as_ref()?.backoff_jitter) {
                    div.legend { "jitter of first retries under the fault: " (format!("{jitter:.2}")) " (full jitter is 0.58, a fixed interval 0)" }
                }
            }
            table.gaps {
                thead { tr { th scope="col" { "pause" } th scope="col" { "retries" } th {} } }
                tbody {
                    @for (length, count) in bins {
                        tr {
                            td { (length) }
                            td { (count) }
                            td.wide {
                                svg.bar viewBox="0 0 1000 44" preserveAspectRatio="none" aria-hidden="true" {
                                    rect.span x="0" y="6" width=(format!("{:.1}", *count as f64 / most as f64 * WIDE)) height="32" {}
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Whether more than half of the pauses under the fault are too short to be any: how those are spread says nothing.
fn come_at_once(edge: &Edge) -> bool {
    let gaps = edge.phases.get("fault").and_then(|phase| phase.retrying.as_ref()).map_or(&[][..], |retrying| &retrying.gaps);
    let all = total(gaps.iter().map(|gap| gap.count));
    let short = total(gaps.iter().filter(|gap| gap.up_to_ms.is_some_and(|ms| ms * 1e6 <= SHORTEST_PAUSE_NS as f64)).map(|gap| gap.count));
    short > all / 2
}

/// The pauses of all phases, by length, ascending; those without an upper end last.
fn bins(edge: &Edge) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<(bool, u64), (String, u64)> = BTreeMap::new();
    for gap in edge.phases.values().filter_map(|phase| phase.retrying.as_ref()).flat_map(|retrying| &retrying.gaps) {
        let (key, name) = match gap.up_to_ms.filter(|ms| ms.is_finite() && *ms >= 0.0) {
            Some(ms) => ((false, ms.to_bits()), format!("up to {}", length(ms))),
            None => ((true, 0), "longer".to_owned()),
        };
        let entry = counts.entry(key).or_insert((name, 0));
        entry.1 = total([entry.1, gap.count]);
    }
    counts.into_values().filter(|(_, count)| *count > 0).collect()
}

fn length(ms: f64) -> String {
    if ms >= 1000.0 { format!("{} s", ms / 1000.0) } else { format!("{ms} ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_read_as_people_write_them() {
        assert_eq!([1.5, 100.0, 1500.0, 10_000.0].map(length), ["1.5 ms", "100 ms", "1.5 s", "10 s"]);
    }
}
