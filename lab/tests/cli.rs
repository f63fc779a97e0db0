//! The binary as other programs use it: readiness on stderr, counts on stdout, exit codes.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;

/// A part that runs; killed when the test ends before it.
struct Part {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Part {
    fn start(line: &str) -> Self {
        let mut child = lab(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    /// The address of the next part that says that it is ready.
    fn ready(&mut self, name: &str) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], ["ready", name], "{line:?}");
        words[2].to_owned()
    }

    fn end(mut self, signal: &str) -> Value {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        assert!(self.child.wait().unwrap().success());
        assert_eq!(out.lines().count(), 1, "{out:?}");
        serde_json::from_str(&out).unwrap()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lab(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stormdrill-lab"));
    command.args(line.split_whitespace());
    command
}

fn output(line: &str) -> Output {
    lab(line).output().unwrap()
}

#[test]
fn store_chain_and_load_agree_across_processes() {
    let mut store = Part::start("store --listen 127.0.0.1:0 --fail 100%");
    let downstream = store.ready("store");
    let mut chain = Part::start(&format!("chain --layers 2 --names gateway,service --downstream {downstream}"));
    chain.ready("service");
    let entry = chain.ready("gateway");
    let load = output(&format!("load --url http://{entry}/orders --rate 0/s --count 20 --tries 3"));
    assert!(load.status.success());
    let load: Value = serde_json::from_slice(&load.stdout).unwrap();
    assert_eq!(load["scheduled"], 20);
    assert_eq!(load["attempts"], 60);
    assert_eq!(load["answers"]["503"], 20);
    let chain = chain.end("-INT");
    assert_eq!(chain["layers"][0]["name"], "gateway");
    assert_eq!(chain["layers"][1]["downstream"]["attempts"], 540);
    let store = store.end("-TERM");
    assert_eq!((&store["requests"], &store["responses"]["503"]), (&540.into(), &540.into()));
}

#[test]
fn a_rig_ends_when_its_time_is_up() {
    let rig = output("rig --layers 3 --policy budgeted --deadline on --for 1ms");
    assert!(rig.status.success());
    let ready: Vec<String> =
        String::from_utf8(rig.stderr).unwrap().lines().map(|line| line.split_whitespace().nth(1).unwrap().to_owned()).collect();
    assert_eq!(ready, ["store", "layer3", "layer2", "layer1"]);
    let report: Value = serde_json::from_slice(&rig.stdout).unwrap();
    assert_eq!(report["store"]["requests"], 0);
}

#[test]
fn wrong_values_exit_64_and_say_what_to_write() {
    for (line, hint) in [
        ("store --fail 30", "write 0.3 or 30%"),
        ("store --fail NaN", "write 0.3 or 30%"),
        ("store --delay 0.5", "write 250us, 100ms"),
        ("store --capacity 0/s", "write 200/s"),
        ("store --fail-status 200", "write 503"),
        ("store --for 5", "write 250us, 100ms"),
        ("chain --layers 17 --downstream 127.0.0.1:1", "0..=16"),
        ("chain --layers 2 --tries 0 --downstream 127.0.0.1:1", "1..=100"),
        ("chain --layers 2 --names a --downstream 127.0.0.1:1", "write one for each"),
        ("chain --layers 2 --retry-layer 3 --downstream 127.0.0.1:1", "a number from 1 to 2"),
        ("load --url https://127.0.0.1/ --rate 1/s --count 1", "write http://"),
        ("load --url http://127.0.0.1/ --rate 1/s", "--duration"),
        ("storm", "unrecognized"),
    ] {
        let output = output(line);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{line}: {text}");
        assert!(text.contains(hint), "{line}: {text}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    assert_eq!(output("--help").status.code(), Some(0));
}

#[test]
fn a_port_in_use_exits_2_and_names_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let output = output(&format!("store --listen {address}"));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with(&format!("error: failed to listen on {address} for store: ")), "{text}");
}
