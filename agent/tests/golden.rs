//! What people read, word for word: diagnostics of bad playbooks, and the plans of the shipped ones.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use stormdrill::cli;
use stormdrill::diagnostic::Style;
use stormdrill::fault::preview::Findings;
use stormdrill::playbook_file::Override;
use stormdrill_core::plan::host::{Feature, HostFacts};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Exit code, standard output and standard error of `validate`; paths relative to the repository.
fn validate(path: &Path, set: &[&str]) -> (u8, String, String) {
    let overrides: Vec<Override> = set.iter().map(|text| text.parse().unwrap()).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let paths = [path.to_owned()];
    let code = cli::validate::run(&paths, &overrides, Style::Plain, &mut out, &mut err).unwrap();
    (code, readable(&out), readable(&err))
}

fn readable(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap().replace(&format!("{}/", root().display()), "")
}

fn bad(name: &str) -> String {
    let path = root().join("agent/tests/golden/bad").join(name).with_extension("yaml");
    let (code, out, err) = validate(&path, &[]);
    assert_eq!((code, out.as_str()), (64, ""), "{err}");
    err
}

fn plan(playbook: &Path, facts: &HostFacts) -> String {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = cli::plan::run(playbook, &[], facts, &|_| Findings::default(), Style::Plain, &mut out, &mut err).unwrap();
    assert_eq!((code, readable(&err).as_str()), (0, ""));
    readable(&out)
}

#[test]
fn an_unknown_key_is_shown_with_the_nearest_known_one() {
    insta::assert_snapshot!(bad("unknown-key"));
}

#[test]
fn a_number_without_a_unit_is_shown_with_units() {
    insta::assert_snapshot!(bad("no-unit"));
}

#[test]
fn an_unknown_metric_is_shown_with_the_metrics_there_are() {
    insta::assert_snapshot!(bad("unknown-metric"));
}

#[test]
fn an_unknown_edge_is_shown_with_the_edges_there_are() {
    insta::assert_snapshot!(bad("unknown-edge"));
}

#[test]
fn several_problems_are_shown_together() {
    insta::assert_snapshot!(bad("several"));
}

#[test]
fn a_tab_is_shown_where_it_is() {
    insta::assert_snapshot!(bad("tab"));
}

#[test]
fn a_bad_override_is_shown_as_it_stands_on_the_command_line() {
    let path = root().join("playbooks/retry-amplification.yaml");
    let set = ["phases.fault=10", "faults.0.to=stroe", "faults.7.loss=3%", "obsreve.window=1s", "name.x=y"];
    let (code, _, err) = validate(&path, &set);
    assert_eq!(code, 64);
    insta::assert_snapshot!(err);
}

#[test]
fn a_playbook_that_is_good_and_tells_little_is_warned_of() {
    let path = root().join("playbooks/retry-amplification.yaml");
    let set = ["expect=[success ratio >= 0%, retry ratio <= 0%, retry ratio <= 0.0]", "guards=[web success ratio <= 100%]"];
    let (code, out, err) = validate(&path, &set);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains(": ok: "), "{out}");
    insta::assert_snapshot!(err);
}

#[test]
fn what_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("latin1.yaml");
    std::fs::write(&path, b"version: 1\nname: caf\xe9\n").unwrap();
    let (code, _, err) = validate(&path, &[]);
    assert_eq!((code, err.ends_with("latin1.yaml:2: not UTF-8 text\n")), (64, true), "{err}");
    let (code, _, err) = validate(&directory.path().join("absent.yaml"), &[]);
    assert_eq!(code, 64);
    assert!(err.contains("absent.yaml") && err.contains("No such file"), "{err}");
}

#[test]
fn a_place_in_an_endless_line_is_told_without_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("long.yaml");
    std::fs::write(&path, format!("version: 1\nfoo: {}\n", "x".repeat(100_000))).unwrap();
    let (code, _, err) = validate(&path, &[]);
    assert_eq!(code, 64);
    assert!(err.contains("long.yaml:2:1: a playbook has no key `foo`"), "{err}");
    assert!(err.len() < 4_000, "{}", err.len());
}

#[test]
fn the_shipped_playbooks_are_good_and_their_plans_known() {
    let mut playbooks: Vec<PathBuf> = std::fs::read_dir(root().join("playbooks")).unwrap().map(|entry| entry.unwrap().path()).collect();
    playbooks.sort();
    assert!(!playbooks.is_empty());
    for path in playbooks {
        let (code, out, err) = validate(&path, &[]);
        assert_eq!((code, err.as_str()), (0, ""), "nothing to warn of");
        assert!(out.contains(": ok: "), "{out}");
        let name = path.file_stem().unwrap().to_str().unwrap();
        insta::assert_snapshot!(format!("plan-{name}"), plan(&path, &HostFacts::default()));
    }
}

#[test]
fn a_plan_says_what_the_host_lacks() {
    let mut facts = HostFacts::default();
    facts.kernel = Some("6.1.0-40-cloud-amd64".to_owned());
    let facts = facts.with(Feature::SchNetem, false).with(Feature::ClsBpf, true);
    let plan = plan(&root().join("agent/tests/golden/packet-faults.yaml"), &facts);
    insta::assert_snapshot!(plan);
}

#[test]
fn a_plan_says_of_every_fault_what_it_selects_makes_and_may_surprise_with() {
    insta::assert_snapshot!(plan(&root().join("agent/tests/golden/every-fault.yaml"), &HostFacts::default()));
}

#[test]
fn the_reference_has_every_metric_and_its_example_is_good() {
    let reference = std::fs::read_to_string(root().join("docs/playbook.md")).unwrap();
    let examples: Vec<&str> = reference.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!examples.is_empty());
    for example in examples {
        assert!(stormdrill_core::playbook::parse(example).is_ok(), "{example}");
    }
    for row in stormdrill_core::expectation::metric::METRICS {
        assert!(reference.contains(&format!("`{}", row.name)), "{}", row.name);
    }
}
