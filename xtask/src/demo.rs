//! `cargo xtask demo`: the same playbook against the same chain of services, once with naive retries and once with budgeted ones.
//!
//! It is a test as well: the naive chain has to fail the playbook and the budgeted one has to pass it.

mod child;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use child::Child;

use crate::{build, command, paths, say};

/// Requests a second of the client. Enough that 10 s of baseline tell +10% from +20%, little enough for two busy cores.
const RATE: &str = "200/s";

/// How a chain retries.
struct Variant {
    name: &'static str,
    story: &'static str,
    /// The client is a layer too.
    client: &'static [&'static str],
    chain: &'static [&'static str],
    verdict: &'static str,
    exit: i32,
}

const VARIANTS: [Variant; 2] = [
    Variant {
        name: "naive",
        story: "client, gateway and service each try three times, at once",
        client: &["--tries", "3"],
        chain: &["--policy", "naive", "--tries", "3"],
        verdict: "fail",
        exit: 1,
    },
    Variant {
        name: "budgeted",
        story: "only the service retries: at most three tries, 10% budget, full jitter, the deadline passed on",
        client: &["--tries", "1", "--deadline", "on"],
        chain: &[
            "--policy",
            "budgeted",
            "--tries",
            "3",
            "--budget",
            "10%",
            "--budget-window",
            "1s",
            "--deadline",
            "on",
            "--retry-layer",
            "service",
        ],
        verdict: "pass",
        exit: 0,
    },
];

/// The task.
pub(crate) fn run() -> Result<()> {
    build::run(&build::Options::release())?;
    let folder = paths::target().join("demo");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut wrong = Vec::new();
    for variant in &VARIANTS {
        say::step(format!("drill `{}`: {}", variant.name, variant.story));
        let found = drill(variant, &folder)?;
        if found != (Some(variant.exit), variant.verdict.to_owned()) {
            wrong.push(format!("{}: expected {} (exit {}), found {found:?}", variant.name, variant.verdict, variant.exit));
        }
    }
    if !wrong.is_empty() {
        bail!("the demo did not go as it should: {}", wrong.join("; "));
    }
    say::result("Naive retries made the store's trouble worse; one layer with a budget did not.");
    say::result(format!("The results are in {}.", folder.display()));
    Ok(())
}

/// One drill: its exit code, and the verdict in its JSON.
fn drill(variant: &Variant, folder: &Path) -> Result<(Option<i32>, String)> {
    let lab = binary("stormdrill-lab");
    let store = Child::start(Command::new(&lab).args(["store", "--listen", "127.0.0.1:0"]), "store")?;
    let mut chain = Command::new(&lab);
    chain.args(["chain", "--layers", "2", "--names", "gateway,service", "--downstream", store.address()]).args(variant.chain);
    let chain = Child::start(&mut chain, "gateway")?;
    let mut load = Command::new(&lab);
    load.args(["load", "--url", &format!("http://{}/orders", chain.address())]);
    load.args(["--rate", RATE, "--duration", "70s", "--timeout", "2s"]).args(variant.client);
    let load = Child::start_quiet(&mut load)?;

    let json = folder.join(format!("{}.json", variant.name));
    let mut run = Command::new(binary("stormdrill"));
    run.arg("run").arg(paths::workspace().join("playbooks/retry-amplification.yaml"));
    run.arg("--json").arg(&json);
    for (key, value) in [
        ("observe.ingress.web.port", chain.port()?),
        ("observe.downstream.store.port", store.port()?),
        ("observe.window", "2s"),
        ("phases.baseline", "10s"),
        ("phases.fault", "14s"),
        ("phases.recovery", "10s"),
    ] {
        run.args(["--set", &format!("{key}={value}")]);
    }
    say::step(command::show(&run));
    let status = run.status().with_context(|| format!("cannot run {}", command::show(&run)))?;
    for child in [load, chain, store] {
        child.stop()?;
    }
    let text = fs::read_to_string(&json).with_context(|| format!("the drill left no {}", json.display()))?;
    let value: serde_json::Value = serde_json::from_str(&text).context("the drill's result is not JSON")?;
    let verdict = value.get("verdict").and_then(|v| v.as_str()).unwrap_or("none").to_owned();
    Ok((status.code(), verdict))
}

fn binary(name: &str) -> PathBuf {
    paths::target().join(std::env::var("STORMDRILL_DEMO_PROFILE").unwrap_or_else(|_| "release".to_owned())).join(name)
}
