//! One chart as SVG, drawn by plotters.
//!
//! Its colours are those of the light page. The dark page's style replaces them, colour by colour: see `style.css`.

use std::error::Error;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::lines::{Line, Span};

/// Drawn at this size; the page scales it.
const SIZE: (u32, u32) = (520, 240);

const TEXT: RGBColor = RGBColor(0x44, 0x4F, 0x5A);
const GRID: RGBColor = RGBColor(0xDD, 0xE2, 0xE7);
const FAULT: RGBColor = RGBColor(0xF9, 0xE0, 0xD8);
const CALM: RGBColor = RGBColor(0xF1, 0xF4, 0xF7);

/// The lines' colours, told apart by readers with any colour vision: M. Okabe and K. Ito.
pub(super) const COLOURS: [(u8, u8, u8); 6] =
    [(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73), (0xCC, 0x79, 0xA7), (0x56, 0xB4, 0xE9), (0xB8, 0x86, 0x0B)];

/// Shares stack to 100; above them is room for the phases' names.
const STACK_TOP: f64 = 114.0;

/// How the lines are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As lines.
    Lines,
    /// As areas, one above the other, from 0 to 100.
    Stack,
}

/// A phase and when it was.
pub(super) struct Shade<'a> {
    pub(super) name: &'a str,
    pub(super) span: Span,
}

/// The chart; an empty text if there is nothing to draw. `colours` has one index of [`COLOURS`] for each line.
pub(super) fn svg(lines: &[Line], colours: &[usize], spans: &[Span], shades: &[Shade<'_>], unit: &str, shape: Shape) -> String {
    let mut out = String::new();
    match draw(&mut out, lines, colours, spans, shades, unit, shape) {
        Ok(()) => out,
        // Writing to a String cannot fail; a chart that plotters refuses is left out, and its table stays.
        Err(_) => String::new(),
    }
}

fn draw(
    out: &mut String,
    lines: &[Line],
    colours: &[usize],
    spans: &[Span],
    shades: &[Shade<'_>],
    unit: &str,
    shape: Shape,
) -> Result<(), Box<dyn Error>> {
    let end = spans.iter().map(|span| span.end).fold(0.0, f64::max);
    if end <= 0.0 {
        return Ok(());
    }
    let top = if shape == Shape::Stack {
        STACK_TOP
    } else {
        nice(lines.iter().flat_map(|line| line.values.iter().flatten()).copied().fold(0.0, f64::max))
    };
    let root = SVGBackend::with_string(out, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(6)
        .margin_top(12)
        .margin_right(16)
        .x_label_area_size(28)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    for shade in shades {
        let colour = if shade.name == "fault" { FAULT } else { CALM };
        chart.draw_series([Rectangle::new(
            [(shade.span.start.clamp(0.0, end), 0.0), (shade.span.end.clamp(0.0, end), top)],
            colour.filled(),
        )])?;
    }
    // plotters maps to i32 and checks nothing: what lies outside of the chart is drawn at its edge.
    let inside = |(x, y): (f64, f64)| (x.clamp(0.0, end), y.clamp(0.0, top));
    let font = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(GRID)
        .x_labels(6)
        .y_labels(if shape == Shape::Stack { 3 } else { 5 })
        .label_style(font(18))
        .x_label_formatter(&|x| format!("{x:.0} s"))
        .y_label_formatter(&|y| format!("{} {unit}", label(*y, top)))
        .draw()?;
    for (line, colour) in lines.iter().zip(colours) {
        let (r, g, b) = COLOURS[colour % COLOURS.len()];
        let colour = RGBColor(r, g, b);
        for points in steps(line, spans) {
            let points = points.into_iter().map(inside);
            if shape == Shape::Stack {
                chart.draw_series(AreaSeries::new(points, 0.0, colour.filled()))?;
            } else {
                chart.draw_series(LineSeries::new(points, colour.stroke_width(if line.thin { 1 } else { 3 })))?;
            }
        }
    }
    let style = font(17).pos(Pos::new(HPos::Left, VPos::Top));
    for shade in shades {
        chart.draw_series([Text::new(shade.name.to_owned(), inside((shade.span.start + end * 0.006, top * 0.985)), &style)])?;
    }
    root.present()?;
    Ok(())
}

/// Windows that are no farther apart than this part of their length touch.
const CLOSE: f64 = 0.02;

/// The corners of a line's steps, in pieces without a gap. Windows that touch are joined.
fn steps(line: &Line, spans: &[Span]) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut before: Option<f64> = None;
    for (value, span) in line.values.iter().zip(spans) {
        let Some(value) = value else {
            before = None;
            continue;
        };
        let touches = before.is_some_and(|end| span.start - end < (span.end - span.start) * CLOSE);
        let corners = [(span.start, *value), (span.end, *value)];
        match pieces.last_mut().filter(|_| touches) {
            Some(piece) => piece.extend(corners),
            None => pieces.push(corners.to_vec()),
        }
        before = Some(span.end);
    }
    pieces
}

/// The next of 1, 2, 2.5, 5, 10 and their powers of ten that leaves room above the value for the phases' names.
fn nice(value: f64) -> f64 {
    let wanted = value * 1.12;
    if wanted <= 0.0 || !wanted.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(wanted.log10().floor());
    [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= wanted)
        .unwrap_or(10.0 * power)
}

/// As many decimals as the scale needs.
fn label(value: f64, top: f64) -> String {
    let decimals = if top >= 10.0 {
        0
    } else if top >= 1.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_on_round_numbers_above_the_value() {
        for (value, top) in [(0.0, 1.0), (100.0, 150.0), (0.9, 1.5), (3.7, 5.0), (870.0, 1000.0), (f64::NAN, 1.0)] {
            assert!((nice(value) - top).abs() < 1e-9, "{value}: {}", nice(value));
        }
    }

    #[test]
    fn windows_that_touch_are_joined_and_gaps_are_not_bridged() {
        let span = |start: f64| Span { start, end: start + 10.0 };
        let line = Line { name: String::new(), values: vec![Some(1.0), Some(2.0), None, Some(3.0), Some(4.0)], thin: false };
        let pieces = steps(&line, &[span(0.0), span(10.0), span(20.0), span(30.0), span(60.0)]);
        assert_eq!(pieces.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2, 2]);
    }
}
