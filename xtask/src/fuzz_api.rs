//! `cargo xtask fuzz-api`: schemathesis against a running daemon, by its own OpenAPI document. No answer may be a 5xx or of a status or shape that
//! the document does not have, and the daemon has to end in good order.
//!
//! All of it happens in a network namespace of its own: drills that begin by chance disturb nobody. Needs root.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{bpf, build, command, paths, say, setup};

/// From PyPI, in an environment of its own.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// What is checked of each answer.
const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance";

/// Folder, daemon, schemathesis, seconds.
const SCRIPT: &str = r#"
ip link set lo up
"$1" --state-dir "$0/run" serve --config "$0/serve.yaml" 2> "$0/daemon.log" & daemon=$!
"$2" run http://127.0.0.1:9464/openapi.json --wait-for-schema 60 --request-timeout 20 --max-time "$3" --max-examples 100000 \
    --continue-on-failure --checks "$4" --suppress-health-check all --generation-database none --no-color > "$0/report.txt" 2>&1
found=$?
kill -TERM $daemon
wait $daemon || { echo "the daemon ended with $?"; tail -20 "$0/daemon.log"; exit 1; }
exit $found
"#;

/// Options of the task.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How long to go on, in minutes.
    #[arg(long, default_value_t = 10)]
    minutes: u32,
}

/// The task.
pub(crate) fn run(options: &Options) -> Result<()> {
    if !setup::is_root()? {
        bail!("this needs root: the daemon observes");
    }
    bpf::ensure_fresh(None)?;
    build::run(&build::Options::debug())?;
    let program = schemathesis()?;
    let folder = paths::target().join("fuzz-api");
    // What an earlier run left would be found by this one.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("playbooks")).with_context(|| format!("cannot make {}", folder.display()))?;
    // The document's own example and names that are found by chance, so that drills do begin and end.
    for name in ["retry-amplification", "0", "a"] {
        fs::write(folder.join(format!("playbooks/{name}.yaml")), playbook(name))?;
    }
    let config = format!(
        "state_dir: {0}/state\nplaybooks: {0}/playbooks\nretention: 50\nlimits: {{requests: 100000}}\nobserve: {{ingress: {{api: {{port: 9464}}}}, window: 1s}}\n",
        folder.display()
    );
    fs::write(folder.join("serve.yaml"), config)?;
    say::step(format!("schemathesis for {} minutes", options.minutes));
    let mut command = Command::new("unshare");
    command
        .current_dir(&folder)
        .args(["--net", "sh", "-c", SCRIPT])
        .arg(&folder)
        .arg(paths::target().join("debug/stormdrill"))
        .arg(program);
    command.arg((60 * options.minutes).to_string()).arg(CHECKS);
    let ended = command.status().context("cannot run unshare")?;
    let report = fs::read_to_string(folder.join("report.txt")).unwrap_or_default();
    say::step(report.lines().rev().take(25).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n"));
    if !ended.success() {
        bail!("something was found: see {}", folder.join("report.txt").display());
    }
    say::result("No 5xx, and nothing that is not documented.");
    Ok(())
}

fn playbook(name: &str) -> String {
    format!(
        "version: 1\nname: {name}\nobserve: {{downstream: {{store: {{address: 127.0.0.1, port: 9}}}}, window: 1s}}\n\
         phases: {{baseline: 1s, fault: 2s, recovery: 1s}}\nfaults: [{{http_status: {{status: 503, share: 50%}}, to: store}}]\n"
    )
}

fn schemathesis() -> Result<PathBuf> {
    let environment = paths::target().join("tools/schemathesis");
    let program = environment.join("bin/schemathesis");
    if !program.exists() {
        say::step(format!("installing {SCHEMATHESIS}"));
        command::run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
        command::run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", SCHEMATHESIS]))?;
    }
    Ok(program)
}
