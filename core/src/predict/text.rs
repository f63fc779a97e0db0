//! A prediction in words and tables of plain text.

use std::fmt::Write as _;
use std::time::Duration;

use super::outage::{Ending, Work};
use super::{Prediction, ceiling};
use crate::units;

/// The whole of it; ends in a newline.
#[must_use]
pub fn text(prediction: &Prediction) -> String {
    let mut out = String::new();
    let question = &prediction.question;
    let tries: Vec<String> = question.layers.iter().map(|layer| layer.tries.to_string()).collect();
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        out,
        "worst case: {}{} for one request, when everything fails",
        if tries.len() > 1 { format!("{} = ", tries.join(" × ")) } else { String::new() },
        calls(prediction.worst)
    );
    if prediction.ceiling < prediction.worst {
        let _ = writeln!(out, "with budgets: {} for one request, when everything fails", calls(prediction.ceiling));
    }
    layers(&mut out, prediction);
    rows(&mut out, prediction);
    outage(&mut out, prediction);
    out
}

/// Three digits that count, and no more zeros than needed.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "no limit".to_owned();
    }
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn calls(value: f64) -> String {
    let number = number(value);
    if number == "1" { "1 call".to_owned() } else { format!("{number} calls") }
}

fn percent(share: f64) -> String {
    let text = units::share::print((share * 1e6).round() / 1e6);
    if share < 1.0 && text == "100%" { "> 99.9999%".to_owned() } else { text }
}

fn layers(out: &mut String, prediction: &Prediction) {
    let question = &prediction.question;
    let Some(qps) = question.qps else { return };
    let _ = writeln!(out, "\ncalls a second when everything fails:\n  {:<24} {:>10}", "at the edge", number(qps));
    for (layer, rate) in question.layers.iter().zip(&prediction.arriving) {
        let budget = layer.budget.map_or_else(String::new, |budget| {
            let of = if budget.of == ceiling::Of::All { "all" } else { "first tries" };
            format!(", budget {} of {of}", percent(budget.share))
        });
        let _ = writeln!(out, "  {:<24} {:>10}   {} tries{budget}", format!("behind {}", layer.name), number(*rate), layer.tries);
    }
}

fn rows(out: &mut String, prediction: &Prediction) {
    let _ = writeln!(
        out,
        "\n{:>10} {:>16} {:>12} {:>12} {:>18} {:>16}",
        "failures", "calls a request", "deviation", "success", "calls a success", "calls a second"
    );
    for row in &prediction.rows {
        let rate = prediction.question.qps.map_or_else(|| "-".to_owned(), |qps| number(qps * row.calls));
        let cost = if row.cost.is_finite() { number(row.cost) } else { "-".to_owned() };
        let calls = number(row.calls);
        let deviation = row.deviation.map_or_else(|| "-".to_owned(), number);
        let _ =
            writeln!(out, "{:>10} {calls:>16} {deviation:>12} {:>12} {cost:>18} {rate:>16}", percent(row.failure), percent(row.success));
    }
}

fn outage(out: &mut String, prediction: &Prediction) {
    let (Some(outlook), Some(capacity), Some(qps)) = (prediction.outage, prediction.question.capacity, prediction.question.qps) else {
        return;
    };
    let _ = writeln!(
        out,
        "\nwhile everything fails, {} calls a second meet a capacity of {}: {}",
        number(outlook.load),
        number(capacity),
        if outlook.utilisation >= 1.0 {
            "retries alone can keep the dependency overloaded after the trigger is gone (metastable)"
        } else {
            "retries alone cannot keep it overloaded"
        }
    );
    let _ =
        writeln!(out, "it heals by itself below {} requests a second at the edge; there are {}", number(outlook.heals_below), number(qps));
    if let (Some(ending), Some(outage)) = (outlook.ending, prediction.question.outage) {
        let work = match prediction.question.work {
            Work::Deferred => "calls are kept and delivered afterwards",
            Work::Dropped => "calls are lost",
        };
        let end = match ending {
            Ending::Recovers { after } if after < 1e-3 => "it recovers at once".to_owned(),
            Ending::Recovers { after } => format!("it recovers {} later", seconds(after)),
            Ending::Metastable => format!("it does not recover until the load falls below {} a second", number(outlook.heals_below)),
        };
        let _ = writeln!(out, "after an outage of {} in which {work}: {end}", units::duration::print(outage));
    }
    if let Some(overload) = prediction.overload {
        let _ = writeln!(
            out,
            "first tries alone exceed the capacity: {} of requests can be served, at {} to {} calls for each request",
            percent(overload.served),
            number(overload.least),
            number(overload.most)
        );
    }
}

fn seconds(after: f64) -> String {
    let rounded = if after >= 10.0 { after.round() } else { (after * 10.0).round() / 10.0 };
    Duration::try_from_secs_f64(rounded).map_or_else(|_| "practically never".to_owned(), units::duration::print)
}
