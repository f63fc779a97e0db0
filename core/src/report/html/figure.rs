//! Charts with their legend and the table of their numbers, and the bar that shows an interval against its limit.

use maud::{Markup, PreEscaped, html};

use super::lines::{self, Line};
use super::plot::{self, COLOURS, Shade, Shape};
use crate::report::json::{ExpectationView, Run};
use crate::report::text::quantity;
use crate::wording::decimals;

/// All charts.
pub(super) fn all(run: &Run) -> Markup {
    if lines::windows(run).len() < 2 {
        return html! {};
    }
    let stacked = |role: &str| figure(run, &format!("What became of {role} requests"), "%", Shape::Stack, &lines::outcomes(run, role));
    html! {
        section {
            h2 { "Window by window" }
            div.figures {
                (figure(run, "Requests a second", "/s", Shape::Lines, &lines::qps(run)))
                (figure(run, "Retries, of downstream requests", "%", Shape::Lines, &lines::retries(run)))
                (figure(run, "Time to the answer", "ms", Shape::Lines, &lines::latency(run)))
                (stacked("ingress"))
                (stacked("downstream"))
            }
        }
    }
}

fn figure(run: &Run, title: &str, unit: &str, shape: Shape, lines: &[Line]) -> Markup {
    if lines.iter().all(|line| line.values.iter().all(Option::is_none)) {
        return html! {};
    }
    let colours = colours(lines, shape);
    let shades: Vec<Shade<'_>> =
        run.phases.iter().map(|phase| Shade { name: &phase.name, span: lines::span(run, phase.start_ns, phase.end_ns) }).collect();
    // The chart stacks the shares; the table has each one's own.
    let above = if shape == Shape::Stack { lines::stacked(lines) } else { Vec::new() };
    let drawn = if shape == Shape::Stack { &above } else { lines };
    let svg = plot::svg(drawn, &colours, &lines::spans(run), &shades, unit, shape);
    html! {
        figure {
            figcaption {
                strong { (title) }
                div.legend { @for (line, colour) in lines.iter().zip(&colours) { span { i class={ "c" (colour) @if line.thin { " thin" } } {} (line.name) } } }
            }
            (PreEscaped(svg))
            (numbers(run, lines, unit))
        }
    }
}

/// One colour for each line. A thin line takes that of the line before it; what became of requests has colours of its own,
/// the same in every chart.
fn colours(drawn: &[Line], shape: Shape) -> Vec<usize> {
    let mut next = 0;
    drawn
        .iter()
        .map(|line| {
            if shape == Shape::Stack {
                return match line.name.as_str() {
                    "2xx" | "ok" => 2,
                    "3xx" => 4,
                    "4xx" => 5,
                    lines::NO_ANSWER => 3,
                    _ => 1,
                };
            }
            if !line.thin {
                next += 1;
            }
            (next.max(1) - 1) % COLOURS.len()
        })
        .collect()
}

fn numbers(run: &Run, drawn: &[Line], unit: &str) -> Markup {
    html! {
        details {
            summary { "the numbers" }
            div.scroll tabindex="0" {
                table {
                    thead { tr { th scope="col" { "window" } th scope="col" { "phase" } @for line in drawn { th scope="col" { (line.name) } } } }
                    tbody {
                        @for (index, window) in lines::windows(run).into_iter().enumerate() {
                            tr {
                                td { (window.index) }
                                td { (window.phase) }
                                @for line in drawn {
                                    td {
                                        @if let Some(value) = line.values.get(index).copied().flatten() { (decimals(value, 1)) " " (unit) }
                                        @else { "-" }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A bar from 0 to a little beyond the farthest of limit and interval: where the interval lies, and where the limit is.
pub(super) fn interval(view: &ExpectationView) -> Markup {
    let (Some([Some(lo), Some(hi)]), Some(limit), Some(observed)) = (view.interval, view.limit, view.observed) else {
        return html! {};
    };
    let left = lo.min(limit).min(0.0);
    let right = hi.max(limit).max(observed);
    let span = (right - left) * 1.06;
    // Ends so far apart that their distance is no number are not drawn.
    if right <= left || !span.is_finite() {
        return html! {};
    }
    let at = |value: f64| (value - left) / span * 1000.0;
    let wide = (at(hi) - at(lo)).max(3.0);
    let label = format!("interval {} to {}, limit {}", quantity(lo, &view.unit), quantity(hi, &view.unit), quantity(limit, &view.unit));
    html! {
        svg.bar viewBox="0 0 1000 44" preserveAspectRatio="none" role="img" aria-label=(label) {
            rect.track x="0" y="18" width="1000" height="8" {}
            rect.span x=(format!("{:.1}", at(lo))) y="12" width=(format!("{wide:.1}")) height="20" {}
            rect.point x=(format!("{:.1}", at(observed) - 2.0)) y="8" width="5" height="28" {}
            rect.limit x=(format!("{:.1}", at(limit) - 2.0)) y="0" width="5" height="44" {}
        }
    }
}
