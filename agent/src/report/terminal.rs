//! A result as text: the verdict table, and the three series that a drill is about.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table};
use stormdrill_core::report::chart::series;
use stormdrill_core::report::json::Run;
use stormdrill_core::report::rows;
use stormdrill_core::report::text::{VERDICT_HEADS, verdicts};

use super::chart;

/// Width of the tables, in columns.
const WIDTH: u16 = 120;

/// The whole of it.
#[must_use]
pub fn render(run: &Run) -> String {
    let mut parts = vec![heading(run)];
    if !run.expectations.is_empty() {
        parts.push(table(&VERDICT_HEADS, verdicts(run)));
    }
    parts.push(run.findings.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("\n"));
    parts.push(table(&rows::EDGE_HEADS, rows::edges(run)));
    parts.push(charts(run));
    parts.push(quality(run));
    parts.retain(|part| !part.is_empty());
    let mut text = parts.join("\n");
    text.push('\n');
    text
}

fn heading(run: &Run) -> String {
    let verdict = run.verdict.as_deref().unwrap_or("no verdict");
    let mut text = format!("\n{}: {}", run.drill.playbook, verdict.to_uppercase());
    if let Some(reason) = &run.drill.aborted {
        text.push_str(&format!(" (ended early: {reason})"));
    }
    for fault in &run.faults {
        text.push_str(&format!(
            "\nfault {} on {} by {}: {} of {} hit",
            fault.kind, fault.target, fault.backend, fault.packets_hit, fault.packets_selected
        ));
        if fault.packets_overflowed > 0 {
            text.push_str(&format!(", {} more lost for lack of room in netem's queue (raise `limit`)", fault.packets_overflowed));
        }
    }
    text
}

/// A table as wide as the widest terminal that it is meant for.
pub(crate) fn table<const N: usize>(heads: &[&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(heads.to_vec());
    for row in rows {
        table.add_row(row.to_vec());
    }
    table.to_string()
}

fn charts(run: &Run) -> String {
    let all = series(run);
    let top_qps = all.iter().take(2).flat_map(|s| s.values.iter().flatten()).copied().fold(0.0, f64::max);
    let mut text = String::new();
    for series in &all {
        // The two rates share a scale, so that amplification can be seen.
        let top = if series.title.ends_with("QPS") { top_qps } else { 1.0 };
        if series.values.len() > 1 && series.values.iter().any(Option::is_some) {
            text.push_str(&chart::plot(series, top));
        }
    }
    text
}

fn quality(run: &Run) -> String {
    let unseen = rows::unseen(run);
    if unseen.is_empty() { String::new() } else { format!("not seen: {}", unseen.join(", ")) }
}
