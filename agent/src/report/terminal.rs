//! A result as text: the verdict table, and the three series that a drill is about.
//!
//! What colours say the words say too: they are laid over the finished text, and nothing is read differently without them.

use stormdrill_core::report::chart::series;
use stormdrill_core::report::json::Run;
use stormdrill_core::report::rows;
use stormdrill_core::report::text::{VERDICT_HEADS, verdicts};

use super::chart;
use super::table::{Width, table};
use crate::diagnostic::Style;

/// The whole of it.
#[must_use]
pub fn render(run: &Run, style: Style, width: Width) -> String {
    let run = &run.printable();
    let mut parts = vec![heading(run, style)];
    if !run.expectations.is_empty() {
        let [verdict, expectation, observed, limit, interval, windows, why] = VERDICT_HEADS;
        let heads = [verdict, expectation, observed, limit, &below(interval, windows), why];
        let rows = verdicts(run).into_iter().map(|[verdict, expectation, observed, limit, interval, windows, why]| {
            [verdict, expectation, observed, limit, below(&interval, &windows), why]
        });
        parts.push(paint_verdicts(&table(&heads, rows, width), style));
    }
    parts.push(run.findings.iter().map(|finding| style.paint(&finding.text, YELLOW)).collect::<Vec<_>>().join("\n"));
    parts.push(table(&rows::EDGE_HEADS, rows::edges(run), width));
    parts.push(charts(run, width));
    parts.push(style.paint(&quality(run), YELLOW));
    parts.retain(|part| !part.is_empty());
    let mut text = parts.join("\n");
    text.push('\n');
    text
}

/// Two cells in one, since a terminal has no room for another column.
fn below(upper: &str, lower: &str) -> String {
    format!("{upper}\n{lower}")
}

fn heading(run: &Run, style: Style) -> String {
    let verdict = run.verdict.as_deref().unwrap_or("no verdict");
    let shown = style.paint(&verdict.to_uppercase(), &format!("1;{}", colour_of(verdict).unwrap_or(YELLOW)));
    let mut text = format!("\n{}: {shown}", run.drill.playbook);
    if let Some(reason) = &run.drill.aborted {
        text.push_str(&format!(" (ended early: {reason})"));
    }
    for line in run.drill.description.iter().flat_map(|text| text.lines()) {
        text.push_str(&format!("\n{line}"));
    }
    for fault in &run.faults {
        text.push_str(&format!(
            "\nfault {} by {}: {} of {} hit",
            rows::injected(fault),
            fault.backend,
            fault.packets_hit,
            fault.packets_selected
        ));
        if fault.packets_overflowed > 0 {
            text.push_str(&format!(", {} more lost for lack of room in netem's queue (raise `limit`)", fault.packets_overflowed));
        }
    }
    if let Some(guards) = rows::guards(run) {
        text.push_str(&format!("\nguards: {guards}"));
    }
    text
}

/// Parameters of ANSI's sequence for a colour.
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

fn colour_of(verdict: &str) -> Option<&'static str> {
    match verdict {
        "pass" => Some(GREEN),
        "fail" => Some(RED),
        "inconclusive" | "vacuous" | "invalid" => Some(YELLOW),
        _ => None,
    }
}

/// Colours the verdicts of a finished table, which begin its rows.
fn paint_verdicts(table: &str, style: Style) -> String {
    let painted = table.lines().map(|line| {
        let word = line.split_whitespace().next().unwrap_or_default();
        match colour_of(word) {
            Some(colour) => line.replacen(word, &style.paint(word, colour), 1),
            None => line.to_owned(),
        }
    });
    painted.collect::<Vec<_>>().join("\n")
}

/// Colours what a finished comparison ends its rows with.
pub(crate) fn paint_changes(table: &str, style: Style) -> String {
    let painted = table.lines().map(|line| {
        let trimmed = line.trim_end();
        for (word, colour) in [("better", GREEN), ("worse", RED)] {
            if let Some(before) = trimmed.strip_suffix(word) {
                return format!("{before}{}", style.paint(word, colour));
            }
        }
        line.to_owned()
    });
    painted.collect::<Vec<_>>().join("\n")
}

fn charts(run: &Run, width: Width) -> String {
    let all = series(run);
    let top_qps = all.iter().take(2).flat_map(|s| s.values.iter().flatten()).copied().fold(0.0, f64::max);
    let mut text = String::new();
    for series in &all {
        // The two rates share a scale, so that amplification can be seen.
        let top = if series.title.ends_with("QPS") { top_qps } else { 1.0 };
        if series.values.len() > 1 && series.values.iter().any(Option::is_some) {
            text.push_str(&chart::plot(series, top, width));
        }
    }
    text
}

fn quality(run: &Run) -> String {
    let unseen = rows::unseen(run);
    if unseen.is_empty() { String::new() } else { format!("not seen: {}", unseen.join(", ")) }
}
