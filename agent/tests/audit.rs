//! `audit` and `predict` as people and CI jobs meet them: the real program, word for word, and its exit codes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

/// Exit code, standard output and standard error, run in the folder of the sample configurations without any privilege.
fn run(arguments: &str) -> (Option<i32>, String, String) {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/audit");
    let mut command = Command::new(env!("CARGO_BIN_EXE_stormdrill"));
    let output = command.args(arguments.split(' ')).current_dir(samples).env("NO_COLOR", "1").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// What a command says on stdout when it ends with this exit code and has nothing to complain about.
fn says(code: i32, arguments: &str) -> String {
    let (ended, out, err) = run(arguments);
    assert_eq!((ended, err.as_str()), (Some(code), ""), "{arguments}: {out}");
    out
}

fn complains(arguments: &str) -> String {
    let (ended, out, err) = run(arguments);
    assert_eq!((ended, out.as_str()), (Some(64), ""), "{arguments}: {err}");
    err
}

#[test]
fn a_path_through_three_layers_is_shown_with_its_product() {
    insta::assert_snapshot!(says(1, "audit --layer client=3 edge.conf orders-grpc.json"));
}

#[test]
fn haproxy_is_shown() {
    insta::assert_snapshot!(says(1, "audit haproxy.cfg"));
}

#[test]
fn envoy_is_shown() {
    insta::assert_snapshot!(says(1, "audit envoy.yaml"));
}

#[test]
fn istio_is_shown() {
    insta::assert_snapshot!(says(1, "audit istio.yaml"));
}

#[test]
fn other_manifests_are_shown() {
    insta::assert_snapshot!(says(1, "audit mesh.yaml"));
}

#[test]
fn spring_is_shown() {
    insta::assert_snapshot!(says(1, "audit application.yaml"));
}

#[test]
fn the_aws_sdks_are_shown() {
    insta::assert_snapshot!(says(1, "audit aws-config"));
}

#[test]
fn a_dump_of_nginx_has_its_includes() {
    insta::assert_snapshot!(says(0, "audit dump.conf"));
}

#[test]
fn an_audit_as_json_has_the_contracts_keys() {
    insta::assert_snapshot!(says(0, "audit traefik.yaml --layer service=2,on=503,answers=500,timeout=2s --json --fail-on never"));
}

#[test]
fn exit_codes_follow_the_severity_that_is_asked_for() {
    // A layer of one try, then a warning, then errors.
    assert_eq!(run("audit --layer service=1").0, Some(0));
    assert_eq!(run("audit traefik.yaml").0, Some(0));
    assert_eq!(run("audit dump.conf").0, Some(0));
    assert_eq!(run("audit dump.conf --fail-on warning").0, Some(1));
    assert_eq!(run("audit edge.conf").0, Some(1));
    assert_eq!(run("audit edge.conf --fail-on never").0, Some(0));
    assert_eq!(run("audit --layer service=3 --max-calls 2").0, Some(1));
    assert_eq!(run("audit --layer service=3 --max-calls 3").0, Some(0));
}

#[test]
fn the_order_on_the_command_line_is_the_order_of_the_path() {
    let layers = |arguments: &str| {
        let json = says(0, &format!("audit --json --fail-on never {arguments}"));
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let names = value["layers"].as_array().unwrap().iter().map(|layer| layer["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(layers("--layer a=1 edge.conf --layer b=1 traefik.yaml"), ["a", "edge.conf", "b", "traefik.yaml"]);
    assert_eq!(layers("edge.conf traefik.yaml --layer b=1"), ["edge.conf", "traefik.yaml", "b"]);
    assert_eq!(layers("edge.conf#/health"), ["edge.conf"]);
}

#[test]
fn what_cannot_be_audited_is_bad_usage_and_says_why() {
    for (arguments, says) in [
        ("audit", "FILE"),
        ("audit no-such-file.conf", "no-such-file.conf: No such file"),
        ("audit edge.conf no-such-file.conf", "no-such-file.conf: No such file"),
        ("audit .", "directory"),
        ("audit edge.conf#/nowhere", "location /orders"),
        ("audit edge.conf --format envoy", "edge.conf"),
        ("audit edge.conf --format apache", "nginx"),
        ("audit --layer client", "NAME=TRIES"),
        ("audit --layer client=0", "the least is 1"),
        ("audit traefik.yaml --max-calls 0", "max-calls"),
    ] {
        let err = complains(arguments);
        assert!(err.contains(says), "{arguments}: {err}");
    }
}

#[test]
fn a_prediction_is_shown() {
    insta::assert_snapshot!(says(0, "predict --tries 3,3,4 --failure 30% --qps 200 --capacity 300 --outage 10s"));
}

#[test]
fn a_prediction_with_budgets_is_shown() {
    insta::assert_snapshot!(says(
        0,
        "predict --tries 3,3 --budget none,10% --floor 1/s --qps 80/s --capacity 300/s --outage 10s --timeout 1s"
    ));
}

#[test]
fn a_prediction_as_json_has_the_contracts_keys() {
    insta::assert_snapshot!(says(
        0,
        "predict --from-audit client=3 edge.conf --failure 50%,100% --qps 100 --capacity 90 --outage 5s --json"
    ));
}

#[test]
fn time_limits_the_tries_of_calls_that_hang() {
    let out = says(0, "predict --tries 5,5 --try-timeout 1s --total-timeout 3s,2s --failure 100%");
    assert!(out.starts_with("worst case: 3 × 2 = 6 calls"), "{out}");
}

#[test]
fn what_cannot_be_predicted_is_bad_usage_and_says_why() {
    for (arguments, says) in [
        ("predict", "--tries"),
        ("predict --tries 0", "tries"),
        ("predict --tries 3 --failure 0.3", "`30%`"),
        ("predict --tries 3 --failure 130%", "too large"),
        ("predict --tries 3 --qps 0", "200/s"),
        ("predict --tries 3 --capacity 300", "--qps"),
        ("predict --tries 3,3 --budget 10%,20%,30%", "3 values for 2 layers"),
        ("predict --tries 3 --hop-loss 100%", "below 100%"),
        ("predict --tries 3 --from-audit edge.conf", "cannot be used"),
        ("predict --from-audit mesh.yaml", "no limit on its tries"),
        ("predict --from-audit nowhere.conf", "No such file"),
        ("predict --from-audit client=0", "the least is 1"),
    ] {
        let err = complains(arguments);
        assert!(err.contains(says), "{arguments}: {err}");
    }
}
