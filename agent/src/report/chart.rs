//! One series over the phases, drawn with textplots.

use super::table::Width;
use stormdrill_core::report::chart::Series;
use textplots::{Chart, Plot as _, Shape};

/// Most and least columns of the plotted area; a Braille column is two dots.
const COLUMNS: usize = 72;
const LEAST_COLUMNS: usize = 16;
/// Columns that the scale takes to the right of it.
const SCALE: usize = 8;
const ROWS: u32 = 5;

/// A titled plot of one value for each window, with the phases named below it. A window without a value is drawn at zero.
#[must_use]
pub fn plot(series: &Series, top: f64, width: Width) -> String {
    let columns = usize::from(width.0).saturating_sub(SCALE).clamp(LEAST_COLUMNS, COLUMNS);
    let values: Vec<f64> = series.values.iter().map(|value| value.unwrap_or(0.0)).collect();
    let last = values.last().copied().unwrap_or(0.0);
    // A step needs its right end, so the last value is drawn once more.
    let points: Vec<(f32, f32)> =
        values.iter().chain(std::iter::once(&last)).enumerate().map(|(x, y)| (narrow_index(x), narrow(*y))).collect();
    let top = if top > 0.0 { top } else { 1.0 };
    let width = u32::try_from(columns * 2).unwrap_or(u32::MAX);
    let right = narrow_index(values.len().max(1));
    let shape = Shape::Steps(&points);
    let mut chart = Chart::new_with_y_range(width, ROWS * 4, 0.0, right, 0.0, narrow(top));
    let chart = chart.lineplot(&shape);
    chart.figures();
    let mut text = format!("{} (0 to {})\n", series.title, scale(series.title, top));
    for line in chart.frame().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push_str(&ruler(&series.phases, columns));
    text.push('\n');
    text
}

fn scale(title: &str, top: f64) -> String {
    if title.ends_with("ratio") { format!("{:.0}%", top * 100.0) } else { format!("{top:.0}/s") }
}

/// The phases' names, each under its first window.
fn ruler(phases: &[String], columns: usize) -> String {
    let mut line = vec![' '; columns];
    let mut before = None;
    for (index, phase) in phases.iter().enumerate() {
        if before.replace(phase) == Some(phase) {
            continue;
        }
        let at = index * columns / phases.len();
        for (cell, c) in line.iter_mut().skip(at).zip(format!("|{phase}").chars()) {
            *cell = c;
        }
    }
    line.into_iter().collect::<String>().trim_end().to_owned()
}

#[expect(clippy::cast_possible_truncation, reason = "drawn on a grid of a few hundred dots")]
const fn narrow(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_precision_loss, reason = "drawn on a grid of a few hundred dots")]
const fn narrow_index(value: usize) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_a_title_a_plot_and_the_phases_below() {
        let phases = ["baseline", "fault", "fault", "recovery"].map(str::to_owned).to_vec();
        let values = [100.0, 400.0, 400.0, 100.0].map(Some).to_vec();
        let text = plot(&Series { title: "downstream QPS", values, phases }, 400.0, Width(120));
        assert!(text.starts_with("downstream QPS (0 to 400/s)\n"), "{text}");
        let ruler = text.lines().last().map(str::to_owned);
        assert_eq!(ruler.as_deref(), Some("|baseline         |fault                              |recovery"));
    }

    #[test]
    fn an_empty_or_flat_series_is_drawn_too() {
        let empty = Series { title: "retry ratio", values: Vec::new(), phases: Vec::new() };
        assert!(plot(&empty, 0.0, Width(120)).contains("retry ratio"));
        let flat = Series { title: "retry ratio", values: vec![Some(0.0), None], phases: vec!["all".to_owned(); 2] };
        assert!(plot(&flat, 1.0, Width(120)).contains("|all"));
    }
}
