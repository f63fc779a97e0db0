//! The JSON of `audit`. Its keys are a contract; [`SCHEMA`] changes when one of them changes its meaning.

use serde::Serialize;

use super::finding::Finding;
use super::kind::Kind;
use super::layer::{Layer, Policy, Tries};
use super::worst::{Step, Way};
use super::{Audit, Place};

/// Value of `schema`.
pub const SCHEMA: &str = "stormdrill/audit/1";

/// The whole of it, indented, with a line feed at its end. `texts` are the inputs' texts, empty for a stated layer.
#[must_use]
pub fn json(audit: &Audit, texts: &[&str]) -> String {
    let places = &mut Positions::new(texts);
    let view = AuditView {
        schema: SCHEMA,
        layers: audit.layers.iter().map(|layer| layer_view(layer, places)).collect(),
        worst_case: audit.ways.first().map(|way| worst_view(audit, way)),
        by_failure: audit
            .ways
            .iter()
            .map(|way| ByFailure { failure: way.start.to_string(), calls: way.calls.product, unlimited: way.calls.unlimited })
            .collect(),
        findings: audit.findings.iter().map(|finding| finding_view(finding, audit, places)).collect(),
    };
    let mut text = serde_json::to_string_pretty(&view).expect("views are plain data with text keys");
    text.push('\n');
    text
}

#[derive(Debug, Serialize)]
struct AuditView<'a> {
    schema: &'static str,
    layers: Vec<LayerView<'a>>,
    worst_case: Option<WorstView<'a>>,
    by_failure: Vec<ByFailure>,
    findings: Vec<FindingView<'a>>,
}

#[derive(Debug, Serialize)]
struct LayerView<'a> {
    name: &'a str,
    format: Option<&'static str>,
    routes: Vec<RouteView<'a>>,
}

#[derive(Debug, Serialize)]
struct RouteView<'a> {
    name: &'a str,
    line: Option<usize>,
    retries_on: &'a str,
    tries: Vec<TriesView>,
    try_timeout_ms: Option<f64>,
    total_timeout_ms: Option<f64>,
    pause: Option<&'a str>,
    budget: Option<&'a str>,
    spares: Option<&'a str>,
    marker: Option<&'a str>,
}

/// `tries` is null where nothing limits them.
#[derive(Debug, Serialize)]
struct TriesView {
    failure: String,
    tries: Option<u32>,
}

#[derive(Debug, Serialize)]
struct WorstView<'a> {
    failure: String,
    calls: u64,
    unlimited: bool,
    steps: Vec<StepView<'a>>,
}

#[derive(Debug, Serialize)]
struct StepView<'a> {
    layer: &'a str,
    route: &'a str,
    meets: String,
    known: bool,
    tries: Option<u32>,
}

#[derive(Debug, Serialize)]
struct ByFailure {
    failure: String,
    calls: u64,
    unlimited: bool,
}

#[derive(Debug, Serialize)]
struct FindingView<'a> {
    rule: &'static str,
    severity: &'static str,
    file: Option<&'a str>,
    line: Option<usize>,
    column: Option<usize>,
    message: &'a str,
    label: &'a str,
    help: Option<&'a str>,
}

fn layer_view<'a>(layer: &'a Layer, places: &mut Positions<'_>) -> LayerView<'a> {
    let route = |policy: &'a Policy| RouteView {
        name: &policy.name,
        line: policy.place.map(|place| places.find(place).0),
        retries_on: &policy.words,
        tries: tries_views(policy),
        try_timeout_ms: policy.try_timeout.map(|limit| limit.as_secs_f64() * 1e3),
        total_timeout_ms: policy.total_timeout.map(|limit| limit.as_secs_f64() * 1e3),
        pause: policy.backoff.as_deref(),
        budget: policy.budget.as_deref(),
        spares: policy.spares.as_deref(),
        marker: policy.marker,
    };
    LayerView { name: &layer.name, format: layer.format.map(super::Format::as_str), routes: layer.policies.iter().map(route).collect() }
}

fn tries_views(policy: &Policy) -> Vec<TriesView> {
    let mut kinds = Kind::BASE.to_vec();
    kinds.extend(policy.retries.singled_out().filter(|kind| !Kind::BASE.contains(kind)));
    kinds.into_iter().map(|kind| TriesView { failure: kind.to_string(), tries: number(policy.tries(kind)) }).collect()
}

const fn number(tries: Tries) -> Option<u32> {
    match tries {
        Tries::AtMost(tries) => Some(tries),
        Tries::Unlimited => None,
    }
}

fn worst_view<'a>(audit: &'a Audit, way: &Way) -> WorstView<'a> {
    let step = |step: &Step| StepView {
        layer: &audit.layers[step.layer].name,
        route: &audit.layers[step.layer].policies[step.policy].name,
        meets: step.meets.to_string(),
        known: step.known,
        tries: number(step.tries),
    };
    WorstView {
        failure: way.start.to_string(),
        calls: way.calls.product,
        unlimited: way.calls.unlimited,
        steps: way.steps.iter().map(step).collect(),
    }
}

fn finding_view<'a>(finding: &'a Finding, audit: &'a Audit, places: &mut Positions<'_>) -> FindingView<'a> {
    let at = finding.place.map(|place| places.find(place));
    FindingView {
        rule: finding.rule.as_str(),
        severity: finding.rule.severity().as_str(),
        file: finding.place.and_then(|place| audit.layers.get(place.input)).map(|layer| layer.name.as_str()),
        line: at.map(|(line, _)| line),
        column: at.map(|(_, column)| column),
        message: &finding.message,
        label: &finding.label,
        help: finding.help.as_deref(),
    }
}

/// Lines and columns, both from one. Places come in the order of the file, so each search goes on from the last: tens of thousands of
/// findings in one line of some megabytes are read once.
struct Positions<'a> {
    texts: &'a [&'a str],
    /// By input: how far it was read, and the line and column there.
    reached: Vec<(usize, usize, usize)>,
}

impl<'a> Positions<'a> {
    fn new(texts: &'a [&'a str]) -> Self {
        Self { texts, reached: vec![(0, 1, 1); texts.len()] }
    }

    fn find(&mut self, place: Place) -> (usize, usize) {
        let (Some(text), Some(reached)) = (self.texts.get(place.input), self.reached.get_mut(place.input)) else {
            return (1, 1);
        };
        if place.start < reached.0 {
            *reached = (0, 1, 1);
        }
        for c in text.get(reached.0..place.start).unwrap_or_default().chars() {
            *reached = if c == '\n' { (reached.0, reached.1 + 1, 1) } else { (reached.0, reached.1, reached.2 + 1) };
        }
        reached.0 = place.start;
        (reached.1, reached.2)
    }
}
