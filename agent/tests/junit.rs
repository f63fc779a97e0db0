//! The JUnit file before a validator: xmllint, and a schema of what CI systems read.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use stormdrill_core::report::json::{ExpectationView, Run, read_run};
use stormdrill_core::report::junit;

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/junit.xsd");

fn measured() -> Run {
    read_run(include_str!("../../core/src/report/tests/measured.json")).unwrap()
}

/// What xmllint says of a file that the schema refuses; `None` if it takes it.
fn refused(xml: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("junit.xml");
    std::fs::write(&path, xml).unwrap();
    let linted = Command::new("xmllint").args(["--noout", "--nonet", "--schema", SCHEMA]).arg(&path).output();
    let linted = linted.expect("xmllint comes with libxml2-utils: `cargo xtask setup --test`");
    (!linted.status.success()).then(|| String::from_utf8_lossy(&linted.stderr).into_owned())
}

/// A drill with one expectation of each verdict.
fn every_verdict() -> Run {
    let mut run = measured();
    let first = run.expectations[0].clone();
    let of = |verdict: &str| ExpectationView { verdict: verdict.to_owned(), ..first.clone() };
    run.expectations = ["pass", "fail", "inconclusive", "vacuous", "invalid"].map(of).to_vec();
    run
}

#[test]
fn every_kind_of_drill_is_valid() {
    assert_eq!(refused(&junit::render(&measured())), None);
    assert_eq!(refused(&junit::render(&every_verdict())), None);
    let mut aborted = every_verdict();
    aborted.drill.aborted = Some("guard `web success ratio < 20%`: 3% for 3 windows".to_owned());
    assert_eq!(refused(&junit::render(&aborted)), None);
    let mut empty = measured();
    empty.expectations.clear();
    empty.phases.clear();
    empty.drill.host.clear();
    assert_eq!(refused(&junit::render(&empty)), None);
}

#[test]
fn no_name_makes_it_invalid() {
    let mut run = every_verdict();
    let hostile = "</testcase>]]> & \"quoted\" 'too' <b> \u{0}\u{1b}[31m\u{fffe}\u{85}\u{202e} ≤";
    run.drill.playbook = hostile.to_owned();
    run.drill.host = hostile.to_owned();
    run.drill.aborted = Some(hostile.to_owned());
    for view in &mut run.expectations {
        view.text = hostile.to_owned();
        view.reason = Some(hostile.to_owned());
    }
    assert_eq!(refused(&junit::render(&run)), None);
}

#[test]
fn the_schema_refuses_what_readers_would_not_take() {
    let good = junit::render(&every_verdict());
    for (from, to) in [
        ("<failure", "<failed"),
        (" tests=\"", " number=\""),
        ("    <system-err></system-err>\n", ""),
        ("<skipped ", "<skipped reason=\"x\" "),
        (" time=\"", " time=\"-"),
        ("</testsuites>", ""),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        assert!(refused(&bad).is_some(), "{from} -> {to}");
    }
}
