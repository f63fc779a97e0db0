//! The JSON contract, reading it back, and the text forms.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its drill has failed")]

use serde_json::Value;

use super::chart::{ruler, series, sparkline};
use super::json::{self, ReadError, Run};
use super::text;
use crate::expectation::{Metric, Op};
use crate::judge::tests::{Drill, limit, qps_increase_at_most, seen};
use crate::judge::{Judgement, drill_verdict};
use crate::result::{DataQuality, DrillResult};
use crate::window::{Phase, PhaseName};

pub(crate) mod cascades;
mod schema;
mod written;

fn result() -> DrillResult {
    let drill = Drill::usual(seen(300).retries(200).failures(30), seen(100));
    let judgements: Vec<Judgement> =
        [qps_increase_at_most(0.2), limit(Some("db"), Metric::FailureLatency { quantile: 0.99 }, Op::AtMost, 3.0)]
            .iter()
            .map(|expectation| drill.judge(expectation))
            .collect();
    DrillResult {
        id: "d1".to_owned(),
        playbook: "naive".to_owned(),
        description: Some("Half of the database's answers become 503".to_owned()),
        guards: vec!["success ratio < 5% for 3 windows".to_owned()],
        host: "lab".to_owned(),
        kernel: "6.1.0".to_owned(),
        version: "0.1.0".to_owned(),
        started_at: "2026-01-01T00:00:00Z".to_owned(),
        verdict: Some(drill_verdict(&judgements)),
        aborted: None,
        judgements,
        phases: drill.phases(),
        faults: drill.faults,
        edges: drill.edges,
        windows: drill.windows,
        quality: DataQuality {
            events_lost: 0,
            sampling: 1.0,
            unknown_role_connections: 0,
            unparsed_connections: 1,
            missed: Default::default(),
        },
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_keys_of_run_are_the_contract() {
    let run: Value = serde_json::from_str(&json::run(&result())).unwrap();
    let expected =
        ["schema", "drill", "verdict", "expectations", "findings", "guards", "phases", "faults", "edges", "windows", "data_quality"];
    assert_eq!(keys(&run), expected);
    assert_eq!(run["schema"], "stormdrill/run/1");
    assert_eq!(keys(&run["drill"]), ["id", "playbook", "description", "host", "kernel", "version", "started_at"]);
    assert_eq!(run["verdict"], "fail");
    let expectation = &run["expectations"][0];
    let expected = ["text", "edge", "verdict", "observed", "limit", "unit", "interval", "phase", "windows", "reason"];
    assert_eq!(keys(expectation), expected);
    assert_eq!(expectation["interval"].as_array().unwrap().len(), 2);
    assert_eq!(expectation["edge"], "db", "the line names none");
    assert_eq!(keys(&run["phases"][0]), ["name", "start_ns", "end_ns"]);
    let expected = ["kind", "target", "parameters", "backend", "applied_ns", "removed_ns", "packets_selected", "packets_hit", "effective"];
    assert_eq!(keys(&run["faults"][0]), expected);
    assert_eq!(run["faults"][0]["effective"], true);
    assert_eq!(keys(&run["edges"][0]), ["name", "role", "protocol", "matched_false_rate", "phases"]);
    assert_eq!(keys(&run["edges"][0]["phases"]), ["baseline", "fault", "recovery"]);
    let phase = &run["edges"][1]["phases"]["fault"];
    let expected = [
        "requests",
        "qps",
        "responses",
        "retries",
        "retry_ratio",
        "status",
        "failures",
        "latency_ms",
        "latency_interval_ms",
        "connections",
        "connections_opened",
        "tcp_retransmits",
        "connect_failures",
        "retrying",
    ];
    assert_eq!(keys(phase), expected);
    assert_eq!(keys(&phase["retries"]), ["marker", "id", "matched"]);
    assert_eq!(keys(&phase["latency_ms"]), ["p50", "p99"]);
    assert_eq!(keys(&phase["failures"]), ["client_abort", "hang", "no_answer", "reset", "status", "unprocessed"]);
    assert_eq!(keys(&phase["connect_failures"]), ["other", "refused", "timed_out", "turned_away"]);
    let expected = [
        "hedges",
        "replays",
        "non_idempotent",
        "nonretryable",
        "retry_after_violations",
        "late_starts",
        "orphan_ms",
        "backoff_jitter",
        "peak_to_mean",
        "gaps",
    ];
    assert_eq!(keys(&phase["retrying"]), expected);
    let expected = [
        "events_lost",
        "sampling",
        "unknown_role_connections",
        "unparsed_connections",
        "gaps",
        "segments_over_budget",
        "assumed_heads",
        "headers_partial",
        "headers_unreadable",
        "storage_failed",
        "records_malformed",
        "unpaired",
        "forgotten",
    ];
    assert_eq!(keys(&run["data_quality"]), expected);
}

#[test]
fn phases_sum_their_windows() {
    let run: Value = serde_json::from_str(&json::run(&result())).unwrap();
    let phase = &run["edges"][1]["phases"]["fault"];
    assert_eq!(phase["requests"], 1800);
    assert_eq!(phase["qps"], 30.0);
    assert_eq!(phase["retries"]["matched"], 1200);
    assert!((phase["retry_ratio"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(phase["status"]["503"], 180);
    assert_eq!(phase["failures"]["status"], 180);
    assert_eq!(phase["failures"]["hang"], 0);
    assert_eq!(phase["latency_ms"]["p99"], 5.0);
    // Two opened and one closed in each window of baseline and fault.
    assert_eq!((phase["connections"].as_u64(), phase["connections_opened"].as_u64()), (Some(12), Some(12)));
    let window = &run["windows"][6];
    assert_eq!((window["index"].as_u64(), window["phase"].as_str()), (Some(6), Some("fault")));
    assert_eq!(window["edges"][1]["requests"], 300);
}

#[test]
fn what_faults_at_the_same_time_did_is_not_told_apart() {
    let felt = |result: &DrillResult| {
        let run = json::read_run(&json::run(result)).unwrap();
        super::rows::faults(&run).iter().map(|row| row[5].clone()).collect::<Vec<String>>()
    };
    let mut two = result();
    assert_eq!(felt(&two), ["yes"]);
    two.faults.push(two.faults[0].clone());
    assert_eq!(felt(&two), ["yes, by all together", "yes, by all together"]);
    // One after the other.
    two.faults[1].applied_ns = two.faults[0].removed_ns.unwrap() + 1;
    two.faults[1].removed_ns = Some(u64::MAX);
    assert_eq!(felt(&two), ["yes", "yes"]);
}

#[test]
fn what_is_unknown_is_null() {
    let mut silent = result();
    for window in &mut silent.windows {
        window.edges = vec![crate::window::EdgeWindow::default(); 2];
    }
    silent.judgements[0].interval = Some((0.5, f64::INFINITY));
    silent.judgements[0].observed = Some(f64::NAN);
    silent.faults[0].removed_ns = None;
    let text = json::run(&silent);
    let run: Value = serde_json::from_str(&text).unwrap();
    let phase = &run["edges"][0]["phases"]["baseline"];
    assert_eq!(phase["requests"], 0);
    assert!(phase["retry_ratio"].is_null() && phase["latency_ms"]["p50"].is_null());
    assert_eq!(run["expectations"][0]["interval"], serde_json::json!([0.5, null]));
    assert!(run["expectations"][0]["observed"].is_null());
    assert!(run["faults"][0]["removed_ns"].is_null());
    assert!(json::read_run(&text).is_ok());
}

#[test]
fn an_observation_has_one_phase() {
    let mut observed = result();
    let (start_ns, end_ns) = (observed.windows[0].start_ns, observed.windows[14].end_ns);
    observed.phases = vec![Phase { name: PhaseName::All, start_ns, end_ns }];
    for window in &mut observed.windows {
        window.phase = PhaseName::All;
    }
    let view: Value = serde_json::from_str(&json::observe(&observed)).unwrap();
    assert_eq!(keys(&view), ["schema", "edges", "data_quality"]);
    assert_eq!(view["schema"], "stormdrill/observe/1");
    assert_eq!(keys(&view["edges"][0]["phases"]), ["all"]);
    assert_eq!(view["edges"][1]["phases"]["all"]["requests"], 600 + 1800 + 300);
}

#[test]
fn a_written_result_reads_back_the_same() {
    let mut result = result();
    result.aborted = Some("guard".to_owned());
    let text = json::run(&result);
    let read = json::read_run(&text).unwrap();
    assert_eq!(read, Run::of(&result));
    assert_eq!(read.drill.aborted.as_deref(), Some("guard"));
    let other = text.replace("stormdrill/run/1", "stormdrill/run/9");
    assert!(matches!(json::read_run(&other), Err(ReadError::Schema { found }) if found == "stormdrill/run/9"));
    assert!(matches!(json::read_run("{}"), Err(ReadError::Shape(_))));
}

#[test]
fn verdicts_read_as_rows() {
    let rows = text::verdicts(&Run::of(&result()));
    assert_eq!(rows.len(), 2);
    let [verdict, _, observed, limit, interval, windows, why] = &rows[0];
    assert_eq!([verdict, observed, limit, windows], ["fail", "200%", "20%", "0-11 (fault)"]);
    assert!(interval.starts_with("17") && interval.contains("% to 22"), "{interval}");
    assert!(why.contains("is above the limit"), "{why}");
}

#[test]
fn charts_show_the_storm() {
    let [ingress, downstream, retries] = series(&Run::of(&result()));
    assert_eq!(ingress.values.len(), 15);
    assert_eq!(downstream.values[7], Some(30.0));
    assert!((retries.values[7].unwrap() - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(sparkline(&downstream.values), "▃▃▃▃▃▃██████▃▃▃");
    assert_eq!(sparkline(&[None, Some(0.0), Some(1.0)]), " ▁█");
    assert_eq!(sparkline(&[]), "");
    assert_eq!(ruler(&ingress.phases), "basel fault re");
}
