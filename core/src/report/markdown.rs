//! The report as a comment on a pull request: GitHub's Markdown, verdicts first, the numbers folded away.

use std::fmt::Write as _;

use super::json::Run;
use super::markup::cell;
use super::text::{VERDICT_HEADS, verdicts};
use super::{chart, rows};

/// The whole of it.
#[must_use]
pub fn render(run: &Run) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "## {} {}: {}\n", mark(run.verdict.as_deref()), cell(&run.drill.playbook), verdict(run));
    for line in run.drill.description.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty()) {
        let _ = writeln!(text, "{}\n", cell(line.trim()));
    }
    if let Some(reason) = &run.drill.aborted {
        let _ = writeln!(text, "**The drill ended early:** {}\n", cell(reason));
    }
    if !run.expectations.is_empty() {
        table(&mut text, &VERDICT_HEADS, verdicts(run).iter().map(|row| with_mark(row)));
    }
    for finding in &run.findings {
        let _ = writeln!(text, "> {}\n", cell(&finding.text));
    }
    if !run.faults.is_empty() {
        table(&mut text, &rows::FAULT_HEADS, rows::faults(run).iter().map(|row| row.to_vec()));
    }
    if let Some(guards) = rows::guards(run) {
        let _ = writeln!(text, "Guards: {}.\n", cell(&guards));
    }
    text.push_str("<details><summary>Traffic by edge and phase</summary>\n\n");
    table(&mut text, &rows::EDGE_HEADS, rows::edges(run).iter().map(|row| row.to_vec()));
    text.push_str(&sparklines(run));
    text.push_str("</details>\n\n");
    let unseen = rows::unseen(run);
    if !unseen.is_empty() {
        let _ = writeln!(text, "Not seen: {}.\n", unseen.join(", "));
    }
    let drill = &run.drill;
    let _ = writeln!(
        text,
        "<sub>drill {} on {} (Linux {}), {}, stormdrill {}</sub>",
        cell(&drill.id),
        cell(&drill.host),
        cell(&drill.kernel),
        cell(&drill.started_at),
        cell(&drill.version)
    );
    text
}

fn verdict(run: &Run) -> String {
    run.verdict.as_deref().unwrap_or("no verdict").to_uppercase()
}

fn mark(verdict: Option<&str>) -> &'static str {
    match verdict {
        Some("pass") => "✅",
        Some("fail") => "❌",
        _ => "⚠️",
    }
}

fn with_mark(row: &[String]) -> Vec<String> {
    let mut row = row.to_vec();
    if let Some(first) = row.first_mut() {
        *first = format!("{} {first}", mark(Some(first.as_str())));
    }
    row
}

fn table(text: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(text, "| {} |\n|{}", heads.join(" | "), "---|".repeat(heads.len()));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|text| cell(text)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text.push('\n');
}

/// The drill's three series, one character a window.
fn sparklines(run: &Run) -> String {
    let all = chart::series(run);
    let Some(first) = all.first().filter(|series| series.values.len() > 1) else {
        return String::new();
    };
    let mut text = String::from("```text\n");
    for series in &all {
        let _ = writeln!(text, "{:<15} {}", series.title, chart::sparkline(&series.values));
    }
    let _ = writeln!(text, "{:<15} {}\n```\n", "", chart::ruler(&first.phases));
    text
}
