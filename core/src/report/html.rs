//! The report as one page: no script, no network, nothing beside the file. Light or dark as the reader's system is, and
//! readable on a phone. Charts are SVG within it; under each stands the table of its numbers.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::json::finding::{CASCADE, FindingView};
use super::json::{ExpectationView, Run};
use super::text::{self, VERDICT_HEADS};
use super::{json, rows};

mod figure;

mod gaps;

mod lines;

mod plot;

const STYLE: &str = include_str!("html/style.css");

/// The whole of it.
#[must_use]
pub fn render(run: &Run) -> String {
    let run = &run.printable();
    let verdict = run.verdict.as_deref().unwrap_or("no verdict");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Whatever a name in the result may hold, nothing is fetched or run.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (run.drill.playbook) ": " (verdict) " - stormdrill" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (heading(run, verdict))
                main {
                    @if !run.expectations.is_empty() { (expectations(run)) }
                    (findings(run))
                    (figure::all(run))
                    (gaps::all(run))
                    @if !run.faults.is_empty() {
                        section { h2 { "Faults" } (table(&rows::FAULT_HEADS, &rows::faults(run))) }
                    }
                    @if let Some(guards) = &run.guards {
                        section {
                            h2 { "Guards" }
                            @if guards.is_empty() { p { "none" } }
                            @for guard in guards { p { code { (guard) } } }
                        }
                    }
                    section { h2 { "Traffic by edge and phase" } (table(&rows::EDGE_HEADS, &rows::edges(run))) }
                }
                (footing(run))
            }
        }
    };
    page.into_string()
}

fn heading(run: &Run, verdict: &str) -> Markup {
    html! {
        header {
            h1 { (run.drill.playbook) " " (badge(verdict)) }
            p.meta { (run.drill.started_at) " on " (run.drill.host) ", Linux " (run.drill.kernel) ", " (phases(run)) }
            @for line in run.drill.description.iter().flat_map(|text| text.lines()) { p { (line) } }
            @if let Some(reason) = &run.drill.aborted { p.note { strong { "Ended early: " } (reason) } }
        }
    }
}

/// `baseline 60 s, fault 300 s, recovery 120 s`.
fn phases(run: &Run) -> String {
    let spelled: Vec<String> = run
        .phases
        .iter()
        .map(|phase| format!("{} {:.0} s", phase.name, phase.end_ns.saturating_sub(phase.start_ns) as f64 / 1e9))
        .collect();
    spelled.join(", ")
}

/// A verdict is told by its word; the colour only helps.
fn badge(verdict: &str) -> Markup {
    let class = match verdict {
        "pass" | "fail" => verdict,
        _ => "open",
    };
    html! { span class={ "badge " (class) } { (verdict) } }
}

fn expectations(run: &Run) -> Markup {
    let [_, _, observed, limit, interval, windows, _] = VERDICT_HEADS;
    html! {
        section {
            h2 { "Expectations" }
            p.meta { "On each line the wide bar is the interval, the tick in it the observed value, and the long tick the limit." }
            @for view in &run.expectations { (expectation(view, [observed, limit, interval, windows])) }
        }
    }
}

fn expectation(view: &ExpectationView, heads: [&str; 4]) -> Markup {
    let [_, _, observed, limit, interval, windows, why] = text::row(view);
    html! {
        article.expectation {
            h3 { (badge(&view.verdict)) " " code { (view.text) } }
            dl {
                @for (head, value) in heads.into_iter().zip([observed, limit, interval, windows]) {
                    // A fact has no interval.
                    @if value != "-" || view.observed.is_none() { div { dt { (head) } dd { (value) } } }
                }
            }
            (figure::interval(view))
            @if !why.is_empty() { p { (why) } }
        }
    }
}

fn findings(run: &Run) -> Markup {
    html! {
        @if !run.findings.is_empty() {
            section {
                h2 { "Findings" }
                p.meta { "What was shown though no expectation asks for it. It changes no verdict." }
                @for finding in &run.findings { (finding_card(finding)) }
            }
        }
    }
}

fn finding_card(finding: &FindingView) -> Markup {
    let title = if finding.kind == CASCADE { "cascade" } else { "rise" };
    // The word stands in the badge already.
    let text = finding.text.strip_prefix("cascade: ").unwrap_or(&finding.text);
    html! {
        article.expectation.finding {
            h3 {
                (badge(title)) " "
                code { @if !finding.caused_by.is_empty() { (finding.caused_by.join(", ")) " → " } (finding.edge) }
            }
            p { (text) }
        }
    }
}

/// A table that scrolls by itself where the page is too narrow for it; its style shades the side on which there is more. The keyboard reaches it
/// too.
fn table<const N: usize>(heads: &[&str; N], rows: &[[String; N]]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

fn footing(run: &Run) -> Markup {
    let unseen = rows::unseen(run);
    html! {
        footer {
            p {
                @if unseen.is_empty() { "Nothing was missed: no event was lost, every connection was recognised." }
                @else { strong { "Not seen: " } (unseen.join(", ")) "." }
            }
            p.meta { "drill " (run.drill.id) ", stormdrill " (run.drill.version) ", " (json::RUN_SCHEMA) }
        }
    }
}
