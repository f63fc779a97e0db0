//! The short form of `cargo xtask seeds`: real servers, drilled, whose own counts have to be ours.
//! Run as root: `cargo xtask test --only privileged_seeds`. The long form writes docs/seeds.md.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

/// The task's program: where `cargo xtask test` says, else beside the agent's.
fn xtask() -> PathBuf {
    let folder = std::env::var_os("STORMDRILL_BIN_DIR").map(PathBuf::from);
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_stormdrill")).parent().unwrap().to_owned();
    let program = folder.unwrap_or(beside).join("xtask");
    assert!(program.is_file(), "{} is missing: `cargo build -p xtask` builds it", program.display());
    program
}

/// Ends well only if every drill had its verdict and all counts are equal; without a drill and a count it does not.
fn drill(system: &str) {
    let output = Command::new(xtask()).args(["seeds", "--short", "--no-build", "--only", system]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn layers_before_a_real_store_multiply_as_the_formula_says() {
    drill("layers");
}

#[test]
fn nginx_and_its_services_multiply_and_its_log_has_as_many_tries() {
    drill("nginx");
}

#[test]
fn envoys_retries_are_told_by_its_marker() {
    drill("envoy");
}

#[test]
fn haproxys_retries_are_those_of_its_log() {
    drill("haproxy");
}

#[test]
fn grpcs_retries_are_told_by_its_marker() {
    drill("grpc");
}

#[test]
fn redis_that_hangs_is_a_cascade_to_mysql_and_both_count_as_we_do() {
    drill("cascade");
}

#[test]
fn a_shipped_playbook_passes_one_service_and_fails_another() {
    drill("playbooks");
}
