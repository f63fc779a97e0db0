//! The command line as a script meets it: exit codes and messages, by the real program and without any privilege.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use rig::nobody::Nobody;
use rig::process::{Ended, Process};

const GOOD: &str = "\
version: 1
name: a-test
observe:
  ingress: {web: {port: 8080}}
  downstream: {store: {address: 127.0.0.1, port: 9000}}
  window: 1s
phases: {baseline: 2s, fault: 2s, recovery: 2s}
faults:
  - {http_status: {status: 503, share: 30%}, to: store}
expect:
  - downstream QPS increase ≤ 20%
";

/// Runs a command as nobody.
fn run(arguments: &[&str]) -> Ended {
    Process::start(&mut Nobody::new().command(arguments)).end()
}

/// Runs a drill of this playbook as nobody.
fn run_playbook(playbook: &str, arguments: &[&str]) -> Ended {
    let nobody = Nobody::new();
    let path = nobody.write("drill.yaml", playbook);
    let mut command = nobody.command(&["run"]);
    Process::start(command.arg(path).args(arguments)).end()
}

/// A playbook with one line replaced.
fn with(line: &str, by: &str) -> String {
    assert!(GOOD.contains(line), "{line}");
    GOOD.replace(line, by)
}

/// A bad playbook ends with 64; the message names the file and the line, and says what to write instead.
fn assert_refused(playbook: &str, line: u32, what: &str, instead: &str) {
    let ended = run_playbook(playbook, &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(64), ""), "{ended:#?}");
    assert!(ended.stderr.contains(&format!("drill.yaml:{line}:")), "no line {line}: {}", ended.stderr);
    assert!(ended.stderr.contains(what), "not said that {what}: {}", ended.stderr);
    assert!(ended.stderr.contains(instead), "no {instead:?} proposed: {}", ended.stderr);
}

#[test]
fn a_good_playbook_without_root_is_the_environments_fault_and_says_what_is_missing() {
    let netem = with("{http_status: {status: 503, share: 30%}, to: store}", "{loss: 30%, to: store}");
    let none = with("faults:\n  - {http_status: {status: 503, share: 30%}, to: store}\n", "");
    for (playbook, capability) in [(GOOD, "CAP_NET_ADMIN"), (&netem, "CAP_NET_ADMIN"), (&none, "CAP_BPF")] {
        let ended = run_playbook(playbook, &[]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:#?}");
        assert!(ended.stderr.contains("root") && ended.stderr.contains(capability), "{ended:#?}");
    }
    let ended = run(&["observe", "--ingress", "web=:8080", "--for", "1s"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:#?}");
    assert!(ended.stderr.contains("root"), "{ended:#?}");
    assert_eq!(run(&["doctor"]).code, Some(2));
}

#[test]
fn an_unknown_key_is_bad_usage() {
    assert_refused(&with("expect:", "expcet:"), 10, "no key `expcet`", "did you mean `expect`?");
}

#[test]
fn a_delay_without_a_unit_is_bad_usage() {
    let playbook = with("{http_status: {status: 503, share: 30%}, to: store}", "{delay: 0.5, to: store}");
    assert_refused(&playbook, 9, "`0.5` has no unit", "{delay: 0.5s, to: store}");
}

#[test]
fn a_metric_that_does_not_exist_is_bad_usage() {
    let playbook = with("downstream QPS increase ≤ 20%", "downstream calls increase ≤ 20%");
    assert_refused(&playbook, 11, "no metric", "downstream QPS");
}

#[test]
fn an_edge_that_does_not_exist_is_bad_usage_wherever_it_is_named() {
    assert_refused(&with("to: store", "to: stroe"), 9, "no edge `stroe`", "did you mean `store`?");
    let playbook = with("downstream QPS increase ≤ 20%", "stroe amplification <= 1.2");
    assert_refused(&playbook, 11, "no edge `stroe`", "store amplification <= 1.2");
}

#[test]
fn all_problems_are_told_at_once_and_before_a_missing_privilege() {
    let playbook = with("expect:", "expcet:").replace("to: store", "to: stroe");
    let ended = run_playbook(&playbook, &[]);
    assert_eq!(ended.code, Some(64));
    assert!(ended.stderr.contains("expcet") && ended.stderr.contains("stroe"), "{ended:#?}");
}

#[test]
fn a_bad_override_is_shown_at_its_place_on_the_command_line() {
    for (set, what) in [
        ("observe.nothing.here=1", "nothing"),
        ("phases.fault=10", "`10` has no unit"),
        ("expect.7=retry ratio <= 5%", "expect"),
        ("no-equals-sign", "path=value"),
    ] {
        let ended = run_playbook(GOOD, &["--set", set]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(64), ""), "{set}: {ended:#?}");
        assert!(ended.stderr.contains("--set") && ended.stderr.contains(what), "{set}: {ended:#?}");
    }
}

#[test]
fn a_good_override_is_checked_with_the_file_and_not_before_it() {
    let playbook = with("share: 30%", "share: 130%");
    assert_eq!(run_playbook(&playbook, &[]).code, Some(64));
    // What is left is the missing privilege.
    assert_eq!(run_playbook(&playbook, &["--set", "faults.0.http_status.share=30%"]).code, Some(2));
}

#[test]
fn a_playbook_that_cannot_be_read_is_bad_usage_and_named() {
    for command in ["run", "validate", "plan"] {
        let ended = run(&[command, "no/such/playbook.yaml"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(64), ""), "{command}: {ended:#?}");
        assert!(ended.stderr.contains("no/such/playbook.yaml") && ended.stderr.contains("No such file"), "{command}: {ended:#?}");
    }
    assert_eq!(run(&["run", "/"]).code, Some(64));
}

#[test]
fn observe_says_what_an_edge_looks_like() {
    for (arguments, what) in [
        (vec!["observe"], "--ingress web=:8080"),
        (vec!["observe", "--downstream", "127.0.0.1:9000"], "NAME=ADDRESS:PORT"),
        (vec!["observe", "--downstream", "store=127.0.0.1"], "no port"),
        (vec!["observe", "--ingress", "web=:8080/gopher"], "`mysql`"),
        (vec!["observe", "--ingress", "web=:8080", "--ingress", "web=:8081"], "a name of its own"),
        (vec!["observe", "--ingress", "web=:8080", "--for", "5"], "`5s`"),
    ] {
        let ended = run(&arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(64), ""), "{arguments:?}: {ended:#?}");
        assert!(ended.stderr.contains(what), "{arguments:?}: {ended:#?}");
    }
}

#[test]
fn nonsense_is_bad_usage_and_help_is_not() {
    for arguments in [vec![], vec!["bogus"], vec!["run"], vec!["run", "a.yaml", "--no-such-flag"], vec!["validate"]] {
        assert_eq!(run(&arguments).code, Some(64), "{arguments:?}");
    }
    for arguments in [["--help"], ["--version"]] {
        let ended = run(&arguments);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        assert!(ended.stdout.contains("stormdrill"));
    }
}

#[test]
fn validate_and_plan_need_no_privilege() {
    let nobody = Nobody::new();
    let path = nobody.write("drill.yaml", GOOD);
    let path = path.to_str().unwrap();
    let validated = Process::start(&mut nobody.command(&["validate", path])).end();
    assert_eq!((validated.code, validated.stderr.as_str()), (Some(0), ""), "{validated:#?}");
    let planned = Process::start(&mut nobody.command(&["plan", path])).end();
    assert_eq!((planned.code, planned.stderr.as_str()), (Some(0), ""), "{planned:#?}");
    assert!(planned.stdout.contains("http_status") && planned.stdout.contains("store"), "{planned:#?}");
}

#[test]
fn a_plan_refuses_what_a_run_would_and_says_what_only_the_start_can_tell() {
    let nobody = Nobody::new();
    let plan = |fault: &str| {
        let path =
            nobody.write("drill.yaml", &with("{http_status: {status: 503, share: 30%}, to: store}", &format!("{{{fault}, to: store}}")));
        Process::start(&mut nobody.command(&["plan", path.to_str().unwrap()])).end()
    };
    for (fault, refusal) in [
        ("loss: 1%, interface: eth99", "fault 1: there is no interface eth99"),
        ("loss: 1%, select: {addresses: nobody.invalid}", "fault 1: select: resolve nobody.invalid: "),
        ("delay: {time: 2ms, jitter: 1ms, table: /nowhere/x.dist}", "fault 1: read the distribution table /nowhere/x.dist: No such file"),
        ("loss: 1%, select: {container: 0123456789ab}", "fault 1: select: no cgroup of a running container has the id 0123456789ab"),
        ("delay: {time: 2ms, jitter: 1ms, table: /dev/zero}", "fault 1: read the distribution table /dev/zero: it is no regular file"),
        ("loss: 1%, netns: {path: /run/netns/nowhere}", "fault 1: netns: open the network namespace /run/netns/nowhere: No such file"),
        ("loss: 1%, netns: {container: 0123456789ab}", "fault 1: netns: no cgroup of a running container has the id 0123456789ab"),
        ("loss: 1%, netns: {path: /etc/passwd}", "fault 1: netns: /etc/passwd is no network namespace"),
        ("loss: 1%, netns: {path: /proc/self/ns/mnt}", "fault 1: netns: /proc/self/ns/mnt is no network namespace"),
    ] {
        let planned = plan(fault);
        assert_eq!(planned.code, Some(2), "{fault}: {planned:#?}");
        assert!(
            planned.stderr.starts_with("error: this host cannot run it: ") && planned.stderr.contains(refusal),
            "{fault}: {planned:#?}"
        );
        assert!(planned.stdout.contains("Never selected: ARP"), "{fault}: {planned:#?}");
    }
    let elsewhere = plan("loss: 1%, netns: {pid: 1}, interface: eth7");
    assert_eq!((elsewhere.code, elsewhere.stderr.as_str()), (Some(0), ""), "{elsewhere:#?}");
    let unknown = "\nnot known before the start\n  fault 1: whether there is an interface eth7 in the network namespace of process 1: ";
    assert!(elsewhere.stdout.contains(unknown), "{elsewhere:#?}");
    // The interface is the kernel's answer, and so is the reason.
    let here = plan("loss: 1%, direction: both");
    // Whether somebody has put a clsact there is this host's affair.
    assert!(here.stdout.contains(" on lo (the route to 127.0.0.1)"), "{here:#?}");
}

/// A drill's result, as measured on a lab.
const RESULT: &str = include_str!("../../core/src/report/tests/measured.json");

#[test]
fn a_past_result_is_shown_in_every_format_without_any_privilege() {
    let nobody = Nobody::new();
    let path = nobody.write("result.json", RESULT);
    let path = path.to_str().unwrap();
    for (format, start) in
        [("text", "\nretry-amplification: FAIL"), ("json", "{"), ("junit", "<?xml"), ("markdown", "## "), ("html", "<!DOCTYPE html>")]
    {
        let ended = Process::start(&mut nobody.command(&["report", path, "--format", format])).end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{format}: {ended:#?}");
        assert!(ended.stdout.starts_with(start), "{format}: {}", ended.stdout);
        assert!(ended.stdout.contains("retry-amplification"), "{format}");
    }
    let shown = Process::start(&mut nobody.command(&["report", path])).end();
    assert!(shown.stdout.contains("45.12%") && shown.stdout.contains("34.43% to 56.7%"), "{}", shown.stdout);
    let again = Process::start(&mut nobody.command(&["report", path, "--format", "json"])).end();
    assert_eq!(again.stdout, RESULT);
}

#[test]
fn results_are_compared_and_what_is_no_result_is_bad_usage() {
    let nobody = Nobody::new();
    let before = nobody.write("before.json", RESULT);
    let after = nobody.write(
        "after.json",
        &RESULT.replacen("\"verdict\": \"fail\",\n      \"observed\"", "\"verdict\": \"pass\",\n      \"observed\"", 1),
    );
    let (before, after) = (before.to_str().unwrap(), after.to_str().unwrap());
    let compared = Process::start(&mut nobody.command(&["compare", before, after])).end();
    assert_eq!((compared.code, compared.stderr.as_str()), (Some(0), ""), "{compared:#?}");
    let line = compared.stdout.lines().find(|line| line.contains("downstream QPS increase")).unwrap();
    assert!(line.contains("better"), "{}", compared.stdout);
    let other = nobody.write("other.json", "{\"schema\": \"stormdrill/observe/1\"}");
    let other = other.to_str().unwrap();
    for arguments in
        [vec!["report", other], vec!["compare", before, other], vec!["report", "no/such.json"], vec!["report", before, "--format", "pdf"]]
    {
        let ended = Process::start(&mut nobody.command(&arguments)).end();
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(64), ""), "{arguments:?}: {ended:#?}");
        assert!(ended.stderr.contains("observe/1") || ended.stderr.contains("No such file") || ended.stderr.contains("pdf"), "{ended:#?}");
    }
}

#[test]
fn colours_are_for_terminals_and_for_whoever_asks() {
    let nobody = Nobody::new();
    let path = nobody.write("result.json", RESULT);
    let path = path.to_str().unwrap();
    let show = |arguments: &[&str]| Process::start(&mut nobody.command(arguments)).end();
    let plain = show(&["report", path]);
    assert!(!plain.stdout.contains('\x1b'), "a pipe is no terminal: {}", plain.stdout);
    let coloured = show(&["report", path, "--color", "always"]);
    assert!(coloured.stdout.contains("\x1b[1;31mFAIL\x1b[0m") && coloured.stdout.contains("\x1b[31mfail\x1b[0m"), "{}", coloured.stdout);
    let without: String =
        coloured.stdout.split('\x1b').map(|part| part.strip_prefix('[').map_or(part, |rest| rest.split_once('m').unwrap().1)).collect();
    assert_eq!(without, plain.stdout, "colours change nothing else");
    assert_eq!(show(&["--color", "never", "report", path]).stdout, plain.stdout);
    let compared = show(&["compare", path, path, "--color", "always"]);
    assert_eq!(compared.code, Some(0));
    assert_eq!(show(&["report", path, "--color", "always", "--output", "-"]).stdout, plain.stdout, "files have none");
}
