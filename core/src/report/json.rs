//! The JSON of `run` and of `observe`. Its keys are a contract; [`RUN_SCHEMA`] changes when one of them changes its meaning.
//!
//! What is not known is `null`, never left out and never a number that stands for nothing. A written result can be read
//! back ([`read_run`]) to be rendered again.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::markup;
use crate::judge::{self, Evidence, Judgement};
use crate::plan::parameters;
use crate::result::{DataQuality, DrillResult};

pub mod connection;

pub mod edge;

pub mod finding;

pub mod retrying;

pub mod window;

use connection::ConnectionView;
use edge::Edge;
use finding::FindingView;
use window::WindowView;

/// Value of `schema` in the JSON of `run`.
pub const RUN_SCHEMA: &str = "stormdrill/run/1";

/// Value of `schema` in the JSON of `observe`.
pub const OBSERVE_SCHEMA: &str = "stormdrill/observe/1";

/// Why a text is not a result.
#[derive(Debug, Error)]
pub enum ReadError {
    /// It is not JSON, or not of this shape.
    #[error("read the result")]
    Shape(#[from] serde_json::Error),
    /// It is of another kind or version.
    #[error("schema {found:?} is not {RUN_SCHEMA:?}")]
    Schema {
        /// The schema that it names.
        found: String,
    },
}

/// A drill's JSON, indented, with a line feed at its end.
#[must_use]
pub fn run(result: &DrillResult) -> String {
    write_run(&Run::of(result))
}

/// The same of a drill whose view is at hand, or was read back.
#[must_use]
pub fn write_run(run: &Run) -> String {
    text(run)
}

/// An observation's JSON, indented, with a line feed at its end.
#[must_use]
pub fn observe(result: &DrillResult) -> String {
    text(&Observation::of(result))
}

/// Reads the JSON of a drill back.
///
/// # Errors
/// If it is not the JSON of a drill of this version.
pub fn read_run(text: &str) -> Result<Run, ReadError> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
        findings: Option<serde::de::IgnoredAny>,
    }
    let head: Head = serde_json::from_str(text)?;
    if head.schema != RUN_SCHEMA {
        return Err(ReadError::Schema { found: head.schema });
    }
    let mut run: Run = serde_json::from_str(text)?;
    if head.findings.is_none() {
        // Written by a version that did not look for any.
        run.findings = FindingView::all(&run);
    }
    Ok(run)
}

fn text(view: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(view).expect("views are plain data with text keys");
    text.push('\n');
    text
}

/// The JSON of `run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// [`RUN_SCHEMA`].
    pub schema: String,
    /// What was run, where and when.
    pub drill: Drill,
    /// The drill's verdict.
    pub verdict: Option<String>,
    /// The judgements, one for each line of `expect:`.
    pub expectations: Vec<ExpectationView>,
    /// What was shown though no expectation asks for it.
    #[serde(default)]
    pub findings: Vec<FindingView>,
    /// The guards, as they were written. Results of earlier versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guards: Option<Vec<String>>,
    /// The phases as they were.
    pub phases: Vec<PhaseView>,
    /// The faults.
    pub faults: Vec<FaultView>,
    /// The edges, by phase.
    pub edges: Vec<Edge>,
    /// The windows, those between two phases included.
    pub windows: Vec<WindowView>,
    /// What may be missing.
    pub data_quality: DataQualityView,
}

/// The JSON of `observe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Observation {
    /// [`OBSERVE_SCHEMA`].
    pub schema: String,
    /// The edges, with one phase named `all`.
    pub edges: Vec<Edge>,
    /// The connections one by one, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Vec<ConnectionView>>,
    /// How many connections are not among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_omitted: Option<u64>,
    /// What may be missing.
    pub data_quality: DataQualityView,
}

/// What was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "as in DrillResult")]
pub struct Drill {
    pub id: String,
    pub playbook: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub host: String,
    pub kernel: String,
    pub version: String,
    pub started_at: String,
    /// Why it ended early; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aborted: Option<String>,
}

/// A judgement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "as in Judgement")]
pub struct ExpectationView {
    pub text: String,
    /// The edge that the numbers are of: the one that is named, else the worst. Not there of the whole drill, and in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<String>,
    pub verdict: String,
    pub observed: Option<f64>,
    pub limit: Option<f64>,
    pub unit: String,
    /// Lower and upper end; `null` for an end that the data do not bound.
    pub interval: Option<[Option<f64>; 2]>,
    pub phase: String,
    pub windows: Vec<u32>,
    pub reason: Option<String>,
}

/// A phase as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "as in Phase")]
pub struct PhaseView {
    pub name: String,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// A fault and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "as in FaultOutcome")]
pub struct FaultView {
    pub kind: String,
    pub target: String,
    /// What was injected, in words: `503 for 30% of answers`. Results of earlier versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    pub backend: String,
    pub applied_ns: u64,
    pub removed_ns: Option<u64>,
    /// For `http_status` these two count answers, for `refuse` calls of `connect()`.
    pub packets_selected: u64,
    pub packets_hit: u64,
    /// Packets that found no room in netem's queue, which is no part of the fault; left out if there were none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub packets_overflowed: u64,
    /// Whether requests felt it.
    pub effective: bool,
}

/// What may be missing. Results of earlier versions lack some of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "as in DataQuality and Missed")]
pub struct DataQualityView {
    pub events_lost: u64,
    pub sampling: Option<f64>,
    pub unknown_role_connections: u64,
    pub unparsed_connections: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments_over_budget: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assumed_heads: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_partial: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers_unreadable: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_failed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records_malformed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpaired: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<u64>,
}

impl Run {
    /// The same with every text fit for a terminal: what would act there unseen stands as U+FFFD. Only the description keeps its lines.
    #[must_use]
    pub fn printable(&self) -> Self {
        let read = serde_json::to_value(self).map(|value| printable(value, "")).and_then(serde_json::from_value);
        read.expect("texts are exchanged for texts")
    }

    /// From the first phase's begin to the last one's end.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        let start = self.phases.iter().map(|phase| phase.start_ns).min().unwrap_or(0);
        let end = self.phases.iter().map(|phase| phase.end_ns).max().unwrap_or(start);
        end.saturating_sub(start) as f64 / 1e9
    }

    /// The view of a drill.
    #[must_use]
    pub fn of(result: &DrillResult) -> Self {
        let mut run = Self {
            schema: RUN_SCHEMA.to_owned(),
            drill: Drill {
                id: result.id.clone(),
                playbook: result.playbook.clone(),
                description: result.description.clone(),
                host: result.host.clone(),
                kernel: result.kernel.clone(),
                version: result.version.clone(),
                started_at: result.started_at.clone(),
                aborted: result.aborted.clone(),
            },
            verdict: result.verdict.map(|verdict| verdict.as_str().to_owned()),
            expectations: result.judgements.iter().map(ExpectationView::of).collect(),
            findings: Vec::new(),
            guards: Some(result.guards.clone()),
            phases: phases(result),
            faults: faults(result),
            edges: edge::of_result(result),
            windows: result.windows.iter().map(|window| WindowView::of(window, &result.edges)).collect(),
            data_quality: DataQualityView::of(&result.quality),
        };
        run.findings = FindingView::all(&run);
        run
    }
}

impl Observation {
    /// The view of an observation.
    #[must_use]
    pub fn of(result: &DrillResult) -> Self {
        Self {
            schema: OBSERVE_SCHEMA.to_owned(),
            edges: edge::of_result(result),
            connections: None,
            connections_omitted: None,
            data_quality: DataQualityView::of(&result.quality),
        }
    }

    /// The same with its connections.
    #[must_use]
    pub fn with_connections(self, connections: Vec<ConnectionView>, omitted: u64) -> Self {
        Self { connections: Some(connections), connections_omitted: Some(omitted), ..self }
    }

    /// Indented, with a line feed at its end.
    #[must_use]
    pub fn to_text(&self) -> String {
        text(self)
    }
}

impl ExpectationView {
    fn of(judgement: &Judgement) -> Self {
        Self {
            text: judgement.text.clone(),
            edge: judgement.edge.clone(),
            verdict: judgement.verdict.as_str().to_owned(),
            observed: judgement.observed.and_then(finite),
            limit: judgement.limit.and_then(finite),
            unit: judgement.unit.to_owned(),
            interval: judgement.interval.map(|(lo, hi)| [finite(lo), finite(hi)]),
            phase: judgement.phase.as_str().to_owned(),
            windows: judgement.windows.clone(),
            reason: judgement.reason.clone(),
        }
    }
}

impl DataQualityView {
    fn of(quality: &DataQuality) -> Self {
        Self {
            events_lost: quality.events_lost,
            sampling: finite(quality.sampling),
            unknown_role_connections: quality.unknown_role_connections,
            unparsed_connections: quality.unparsed_connections,
            gaps: Some(quality.missed.gaps),
            segments_over_budget: Some(quality.missed.segments_over_budget),
            assumed_heads: Some(quality.missed.assumed_heads),
            headers_partial: Some(quality.missed.headers_partial),
            headers_unreadable: Some(quality.missed.headers_unreadable),
            storage_failed: Some(quality.missed.storage_failed),
            records_malformed: Some(quality.missed.records_malformed),
            unpaired: Some(quality.missed.unpaired),
            forgotten: Some(quality.missed.forgotten),
        }
    }
}

fn phases(result: &DrillResult) -> Vec<PhaseView> {
    result
        .phases
        .iter()
        .map(|phase| PhaseView { name: phase.name.as_str().to_owned(), start_ns: phase.start_ns, end_ns: phase.end_ns })
        .collect()
}

fn faults(result: &DrillResult) -> Vec<FaultView> {
    let evidence = Evidence {
        edges: &result.edges,
        phases: &result.phases,
        windows: &result.windows,
        faults: &result.faults,
        load: None,
        held_up: &[],
        blind: None,
    };
    result
        .faults
        .iter()
        .map(|fault| FaultView {
            kind: fault.spec.kind.as_str().to_owned(),
            target: fault.spec.to.clone(),
            parameters: Some(parameters::asked(&fault.spec)),
            backend: fault.backend.as_str().to_owned(),
            applied_ns: fault.applied_ns,
            removed_ns: fault.removed_ns,
            packets_selected: fault.counts.selected,
            packets_hit: fault.counts.hit,
            packets_overflowed: fault.counts.overflowed,
            effective: judge::is_effective(fault, &evidence),
        })
        .collect()
}

fn printable(value: serde_json::Value, key: &str) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::String(text) if key == "description" => Value::String(text.lines().map(markup::terminal).collect::<Vec<_>>().join("\n")),
        Value::String(text) => Value::String(markup::terminal(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| printable(item, key)).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (markup::terminal(&key), printable(value, &key))).collect())
        }
        other => other,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Neither infinity nor NaN is JSON.
fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// A share of two counts; `None` of nothing.
fn ratio(part: u64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part as f64 / whole)
}
