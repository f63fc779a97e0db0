//! The model without any traffic: what tries, failures, budgets and capacity lead to, by formula.
//!
//! Formulas and their sources are in `docs/predict.md`. The model assumes that attempts at the dependency fail
//! independently; real attempts do not (a server that is down is down for the retry too), which is why there are drills.

use std::time::Duration;

pub mod chain;

pub mod ceiling;

pub mod outage;

pub mod overload;

pub mod text;

pub mod json;

use ceiling::Budget;
use outage::Work;

/// One layer that retries.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Its name in output.
    pub name: String,
    /// Tries, the first included; at least 1.
    pub tries: u32,
    /// Share of its tries that are lost before they reach the next layer, from 0 to below 1.
    pub hop_loss: f64,
    /// What limits its retries beside their number.
    pub budget: Option<Budget>,
}

/// What is to be predicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The layers, from the edge to the one at the dependency; at least one.
    pub layers: Vec<Layer>,
    /// Shares of attempts at the dependency that fail, each from 0 to 1.
    pub failures: Vec<f64>,
    /// Requests a second at the edge, above 0.
    pub qps: Option<f64>,
    /// Calls a second that the dependency can serve, above 0.
    pub capacity: Option<f64>,
    /// How long the dependency is away.
    pub outage: Option<Duration>,
    /// When a caller gives a call up.
    pub timeout: Option<Duration>,
    /// What becomes of calls during the outage.
    pub work: Work,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// What was asked.
    pub question: Question,
    /// One for each share of failures, in the order given.
    pub rows: Vec<chain::Expected>,
    /// Calls at the dependency for one request when everything fails, with no budget.
    pub worst: f64,
    /// The same with the budgets; equal to `worst` without any.
    pub ceiling: f64,
    /// Calls a second that arrive behind each layer when everything fails, the last one at the dependency. Empty without `qps`.
    pub arriving: Vec<f64>,
    /// What the dependency's capacity makes of it; `None` without `qps` and `capacity`.
    pub outage: Option<outage::Outlook>,
    /// What happens when first tries alone exceed the capacity; `None` if they do not.
    pub overload: Option<overload::Overload>,
}

/// Answers a question. Numbers out of their ranges are moved to the nearest end of the range.
#[must_use]
pub fn predict(question: Question) -> Prediction {
    let layers = &question.layers;
    let worst = chain::worst(layers);
    // Floors weigh the more the less traffic there is; without a rate they weigh nothing.
    let arriving = ceiling::arriving(layers, question.qps);
    let ceiling = ceiling::calls(layers, question.qps);
    let row = |failure: &f64| {
        let row = chain::expected(layers, failure.clamp(0.0, 1.0), question.qps);
        // The floors are spread more exactly there.
        chain::Expected { calls: row.calls.min(ceiling), ..row }
    };
    let rows = question.failures.iter().map(row).collect();
    let (outage, overload) = match (question.qps, question.capacity) {
        (Some(qps), Some(capacity)) if qps > 0.0 && capacity > 0.0 => (
            Some(outage::outlook(ceiling, qps, capacity, question.outage, question.timeout, question.work)),
            (qps > capacity).then(|| overload::overload(worst, qps, capacity)),
        ),
        _ => (None, None),
    };
    Prediction { rows, worst, ceiling, arriving, outage, overload, question }
}

#[cfg(test)]
mod tests;
