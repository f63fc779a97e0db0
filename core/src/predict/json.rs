//! The JSON of `predict`. Its keys are a contract; [`SCHEMA`] changes when one of them changes its meaning.

use serde::Serialize;

use super::ceiling::Of;
use super::outage::{Ending, Work};
use super::{Prediction, chain};

/// Value of `schema`.
pub const SCHEMA: &str = "stormdrill/predict/1";

#[derive(Debug, Serialize)]
struct View<'a> {
    schema: &'static str,
    layers: Vec<LayerView<'a>>,
    qps: Option<f64>,
    worst_calls: f64,
    ceiling_calls: Option<f64>,
    failures: Vec<Row>,
    outage: Option<OutageView>,
    overload: Option<OverloadView>,
}

#[derive(Debug, Serialize)]
struct LayerView<'a> {
    name: &'a str,
    tries: u32,
    hop_loss: f64,
    budget: Option<BudgetView>,
    qps_behind_when_all_fail: Option<f64>,
}

#[derive(Debug, Serialize)]
struct BudgetView {
    share: f64,
    of: &'static str,
    floor_per_s: f64,
}

/// `calls_per_success` is null when nothing succeeds.
#[derive(Debug, Serialize)]
struct Row {
    failure: f64,
    calls: f64,
    deviation: Option<f64>,
    success: f64,
    calls_per_success: Option<f64>,
    qps: Option<f64>,
}

#[derive(Debug, Serialize)]
struct OutageView {
    load_qps: f64,
    capacity_qps: f64,
    utilisation: f64,
    heals_below_qps: f64,
    outage_s: Option<f64>,
    work: &'static str,
    metastable: Option<bool>,
    recovers_after_s: Option<f64>,
}

#[derive(Debug, Serialize)]
struct OverloadView {
    served: f64,
    least_calls: f64,
    most_calls: f64,
}

/// The whole of it, indented, with a line feed at its end. Infinite numbers are null.
#[must_use]
pub fn json(prediction: &Prediction) -> String {
    let question = &prediction.question;
    let row = |row: &chain::Expected| Row {
        failure: row.failure,
        calls: row.calls,
        deviation: row.deviation,
        success: row.success,
        calls_per_success: Some(row.cost).filter(|cost| cost.is_finite()),
        qps: question.qps.map(|qps| qps * row.calls),
    };
    let view = View {
        schema: SCHEMA,
        layers: question
            .layers
            .iter()
            .enumerate()
            .map(|(at, layer)| LayerView {
                name: &layer.name,
                tries: layer.tries,
                hop_loss: layer.hop_loss,
                budget: layer.budget.map(|budget| BudgetView {
                    share: budget.share,
                    of: if budget.of == Of::All { "all" } else { "first" },
                    floor_per_s: budget.floor,
                }),
                qps_behind_when_all_fail: prediction.arriving.get(at).copied(),
            })
            .collect(),
        qps: question.qps,
        worst_calls: prediction.worst,
        ceiling_calls: (prediction.ceiling < prediction.worst).then_some(prediction.ceiling),
        failures: prediction.rows.iter().map(row).collect(),
        outage: outage(prediction),
        overload: prediction.overload.map(|overload| OverloadView {
            served: overload.served,
            least_calls: overload.least,
            most_calls: overload.most,
        }),
    };
    let mut text = serde_json::to_string_pretty(&view).expect("views are plain data with text keys");
    text.push('\n');
    text
}

fn outage(prediction: &Prediction) -> Option<OutageView> {
    let outlook = prediction.outage?;
    let (metastable, recovers_after_s) = match outlook.ending {
        Some(Ending::Metastable) => (Some(true), None),
        Some(Ending::Recovers { after }) => (Some(false), Some(after)),
        None => (None, None),
    };
    Some(OutageView {
        load_qps: outlook.load,
        capacity_qps: prediction.question.capacity?,
        utilisation: outlook.utilisation,
        heals_below_qps: outlook.heals_below,
        outage_s: prediction.question.outage.map(|outage| outage.as_secs_f64()),
        work: if prediction.question.work == Work::Deferred { "deferred" } else { "dropped" },
        metastable,
        recovers_after_s,
    })
}
