//! A result as text: the verdict table, and the three series that a drill is about.

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{ContentArrangement, Table};
use stormdrill_core::edge::{EdgeId, Role};
use stormdrill_core::judge::Judgement;
use stormdrill_core::result::DrillResult;
use stormdrill_core::window::{EdgeWindow, PhaseName, Window};

use super::chart;

/// Width of tables and charts, in columns.
const WIDTH: u16 = 110;

/// The whole of it.
#[must_use]
pub fn render(result: &DrillResult) -> String {
    let mut parts = vec![heading(result)];
    if !result.judgements.is_empty() {
        parts.push(verdicts(&result.judgements));
    }
    parts.push(edges(result));
    parts.push(charts(result));
    parts.push(quality(result));
    parts.retain(|part| !part.is_empty());
    let mut text = parts.join("\n");
    text.push('\n');
    text
}

fn heading(result: &DrillResult) -> String {
    let verdict = result.verdict.map_or("no verdict", |v| v.as_str());
    let mut text = format!("{}: {}", result.playbook, verdict.to_uppercase());
    if let Some(reason) = &result.aborted {
        text.push_str(&format!(" (ended early: {reason})"));
    }
    for fault in &result.faults {
        text.push_str(&format!(
            "\nfault {} on {} by {}: {} of {} hit",
            fault.spec.kind.as_str(),
            fault.spec.to,
            fault.backend.as_str(),
            fault.counts.hit,
            fault.counts.selected
        ));
    }
    text
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(header.to_vec());
    table
}

fn verdicts(judgements: &[Judgement]) -> String {
    let mut table = table(&["verdict", "expectation", "observed", "limit", "interval", "why"]);
    for j in judgements {
        table.add_row([
            j.verdict.as_str().to_owned(),
            j.text.clone(),
            j.observed.map_or_else(|| "-".to_owned(), |v| quantity(v, j.unit)),
            j.limit.map_or_else(|| "-".to_owned(), |v| quantity(v, j.unit)),
            j.interval.map_or_else(
                || "-".to_owned(),
                |(lo, hi)| format!("{} to {}", quantity(lo, j.unit), quantity(hi, j.unit)),
            ),
            j.reason.clone().unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// A number in the unit that its judgement names.
fn quantity(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "unbounded".to_owned();
    }
    match unit {
        "ratio" => format!("{:.1}%", value * 100.0),
        "1/s" => format!("{value:.1}/s"),
        "x" => format!("{value:.3}x"),
        "s" => format!("{:.0} ms", value * 1_000.0),
        "windows" => format!("{value:.0} windows"),
        other => format!("{value:.3} {other}"),
    }
}

fn edges(result: &DrillResult) -> String {
    let mut table = table(&["edge", "phase", "requests", "per second", "retries", "success", "p50 / p99"]);
    for (index, spec) in result.edges.iter().enumerate() {
        for phase in &result.phases {
            let windows = in_phase(&result.windows, phase.name);
            let sum = Sum::of(&windows, index);
            table.add_row([
                format!("{} ({})", spec.name, spec.role.as_str()),
                phase.name.as_str().to_owned(),
                sum.requests.to_string(),
                format!("{:.1}", share(sum.requests, sum.seconds)),
                format!("{:.1}%", 100.0 * share(sum.retries, to_f64(sum.attempts))),
                format!("{:.1}%", 100.0 * (1.0 - share(sum.failures, to_f64(sum.attempts)))),
                sum.latencies(),
            ]);
        }
    }
    table.to_string()
}

fn in_phase(windows: &[Window], phase: PhaseName) -> Vec<&Window> {
    windows.iter().filter(|w| w.phase == phase).collect()
}

#[derive(Default)]
struct Sum {
    requests: u64,
    attempts: u64,
    retries: u64,
    failures: u64,
    seconds: f64,
    latency_ns: Vec<u64>,
}

impl Sum {
    fn of(windows: &[&Window], edge: usize) -> Self {
        let mut sum = Self::default();
        for window in windows {
            sum.seconds += window.seconds();
            if let Some(e) = window.edges.get(edge) {
                sum.requests += e.counts.requests;
                sum.attempts += e.attempts;
                sum.retries += e.retries.total();
                sum.failures += e.failures.values().sum::<u64>();
                sum.latency_ns.extend(&e.latency_ns);
            }
        }
        sum.latency_ns.sort_unstable();
        sum
    }

    fn latencies(&self) -> String {
        let at = |per_cent: usize| {
            let last = self.latency_ns.len().checked_sub(1)?;
            self.latency_ns.get(last * per_cent / 100).map(|ns| to_f64(*ns) / 1e6)
        };
        match (at(50), at(99)) {
            (Some(p50), Some(p99)) => format!("{p50:.1} / {p99:.1} ms"),
            _ => "-".to_owned(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown to a few digits")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}

fn share(count: u64, of: f64) -> f64 {
    if of > 0.0 { to_f64(count) / of } else { 0.0 }
}

fn charts(result: &DrillResult) -> String {
    let judged: Vec<&Window> = result.windows.iter().filter(|w| w.phase != PhaseName::Transition).collect();
    if judged.len() < 2 {
        return String::new();
    }
    let of_role = |role: Role| -> Vec<EdgeId> {
        let ids = result.edges.iter().zip(0u8..).filter(|(spec, _)| spec.role == role);
        ids.map(|(_, id)| EdgeId(id)).collect()
    };
    let (ingress, downstream) = (of_role(Role::Ingress), of_role(Role::Downstream));
    let qps = |ids: &[EdgeId]| -> Vec<f64> {
        let total = |w: &Window| ids.iter().filter_map(|id| w.edge(*id)).map(|e| e.counts.requests).sum();
        judged.iter().map(|w| share(total(w), w.seconds())).collect()
    };
    let retries = |w: &Window| {
        let sum = |f: fn(&EdgeWindow) -> u64| -> u64 { downstream.iter().filter_map(|id| w.edge(*id)).map(f).sum() };
        100.0 * share(sum(|e| e.retries.total()), to_f64(sum(|e| e.attempts)))
    };
    let (ingress_qps, downstream_qps) = (qps(&ingress), qps(&downstream));
    let ratio: Vec<f64> = judged.iter().map(|w| retries(w)).collect();
    let top = ingress_qps.iter().chain(&downstream_qps).copied().fold(0.0, f64::max);
    let phases: Vec<PhaseName> = judged.iter().map(|w| w.phase).collect();
    let mut text = String::new();
    if !ingress.is_empty() {
        text.push_str(&chart::series("ingress QPS", &ingress_qps, top, &phases));
    }
    if !downstream.is_empty() {
        text.push_str(&chart::series("downstream QPS", &downstream_qps, top, &phases));
        text.push_str(&chart::series("retry ratio %", &ratio, 100.0, &phases));
    }
    text
}

fn quality(result: &DrillResult) -> String {
    let q = &result.quality;
    let mut missing = Vec::new();
    if q.events_lost > 0 {
        missing.push(format!("{} events lost", q.events_lost));
    }
    if q.unknown_role_connections > 0 {
        missing.push(format!("{} connections of unknown role", q.unknown_role_connections));
    }
    if q.unparsed_connections > 0 {
        missing.push(format!("{} connections that no recogniser took", q.unparsed_connections));
    }
    if missing.is_empty() { String::new() } else { format!("not seen: {}", missing.join(", ")) }
}
