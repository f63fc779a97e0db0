//! The series that a drill is about, window by window, and their one-line form.

use super::json::Run;
use super::json::window::EdgeWindowView;

/// A value for each window.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What it shows.
    pub title: &'static str,
    /// One value a window; `None` where there is none.
    pub values: Vec<Option<f64>>,
    /// The phase of each window.
    pub phases: Vec<String>,
}

/// Ingress QPS, downstream QPS and the retry ratio on downstream edges, all edges of a role together. Windows between two
/// phases are left out.
#[must_use]
pub fn series(run: &Run) -> [Series; 3] {
    let of_role = |role: &str| -> Vec<&str> { run.edges.iter().filter(|edge| edge.role == role).map(|edge| edge.name.as_str()).collect() };
    let (ingress, downstream) = (of_role("ingress"), of_role("downstream"));
    let windows = || run.windows.iter().filter(|window| window.phase != "transition");
    let phases: Vec<String> = windows().map(|window| window.phase.clone()).collect();
    let series = |title, of: &dyn Fn(&[EdgeWindowView]) -> Option<f64>| Series {
        title,
        values: windows().map(|window| of(&window.edges)).collect(),
        phases: phases.clone(),
    };
    [
        series("ingress QPS", &|edges| qps(edges, &ingress)),
        series("downstream QPS", &|edges| qps(edges, &downstream)),
        series("retry ratio", &|edges| retry_ratio(edges, &downstream)),
    ]
}

fn qps(edges: &[EdgeWindowView], names: &[&str]) -> Option<f64> {
    edges.iter().filter(|edge| names.contains(&edge.name.as_str())).map(|edge| edge.qps).sum()
}

/// Weighed by requests.
fn retry_ratio(edges: &[EdgeWindowView], names: &[&str]) -> Option<f64> {
    let (mut retries, mut requests) = (0.0, 0.0);
    for edge in edges.iter().filter(|edge| names.contains(&edge.name.as_str())) {
        if let Some(ratio) = edge.retry_ratio {
            retries += ratio * edge.requests as f64;
            requests += edge.requests as f64;
        }
    }
    (requests > 0.0).then(|| retries / requests)
}

/// Bars for the values, from 0 to their largest; a space where there is none.
#[must_use]
pub fn sparkline(values: &[Option<f64>]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let top = values.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |value: f64| {
        let steps = [0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875];
        let level = steps.iter().filter(|step| top > 0.0 && value / top > **step).count();
        BARS.get(level).copied().unwrap_or('█')
    };
    values.iter().map(|value| value.map_or(' ', bar)).collect()
}

/// The phases' names, each below its first window; a name that has no room is cut short.
#[must_use]
pub fn ruler(phases: &[String]) -> String {
    let mut line = String::new();
    for (index, phase) in phases.iter().enumerate() {
        if index > 0 && phases.get(index - 1) == Some(phase) {
            continue;
        }
        let width = phases.iter().skip(index).take_while(|next| *next == phase).count();
        let name: String = phase.chars().take(width.saturating_sub(1).max(1)).collect();
        line.push_str(&format!("{name:<width$}"));
    }
    line.trim_end().to_owned()
}
