//! The verdict table as rows of text; whoever prints it draws the lines.

use super::json::{ExpectationView, Run};
/// Values are written as in reasons.
pub(crate) use crate::judge::quantity;

/// Column heads of [`verdicts`].
pub const VERDICT_HEADS: [&str; 7] = ["verdict", "expectation", "observed", "limit", "90% interval", "windows", "why"];

/// One row for each expectation, in the order of [`VERDICT_HEADS`].
#[must_use]
pub fn verdicts(run: &Run) -> Vec<[String; 7]> {
    run.expectations.iter().map(row).collect()
}

pub(super) fn row(view: &ExpectationView) -> [String; 7] {
    let spelled = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| quantity(value, &view.unit));
    let interval = match view.interval {
        Some([lo, Some(hi)]) => format!("{} to {}", spelled(lo), quantity(hi, &view.unit)),
        Some([lo, None]) => format!("{} or more", spelled(lo)),
        None => "-".to_owned(),
    };
    [
        view.verdict.clone(),
        view.text.clone(),
        spelled(view.observed),
        spelled(view.limit),
        interval,
        format!("{} ({})", ranges(&view.windows), view.phase),
        view.reason.clone().unwrap_or_default(),
    ]
}

/// `1-4, 6`: consecutive numbers drawn together.
fn ranges(numbers: &[u32]) -> String {
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match spans.last_mut() {
            Some((_, end)) if end.checked_add(1) == Some(number) => *end = number,
            _ => spans.push((number, number)),
        }
    }
    if spans.is_empty() {
        return "none".to_owned();
    }
    let spelled = spans.iter().map(|(start, end)| if start == end { start.to_string() } else { format!("{start}-{end}") });
    spelled.collect::<Vec<_>>().join(", ")
}
