//! The drills in the guest: one script that starts the services and prints the results between marks.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::paths;
use crate::seeds::drill::Outcome;
use crate::seeds::process::binary;
use crate::seeds::scene::Scene;
use crate::vm::{self, Bring, Ending, Job};

/// One service.
pub(super) struct Cell {
    pub(super) timeout: &'static str,
    pub(super) keeps: bool,
    pub(super) predicted: f64,
}

/// What the guest found.
pub(super) struct Found {
    pub(super) kernel: String,
    pub(super) loss: Outcome,
    pub(super) vacuous: Outcome,
    pub(super) slow: Outcome,
    pub(super) patient: Outcome,
}

const KERNEL: &str = "6.1";
/// Web and store of the six services, and of the two for latency.
const WEB: u16 = 18_080;
const STORE: u16 = 18_090;

/// Boots the kernel and runs all of it.
pub(super) fn run(scene: &Scene, cells: &[Cell]) -> Result<Found> {
    let kernel = vm::kernel_of_version(KERNEL, false)?;
    let script = scene.write("guest.sh", &script(cells))?;
    let loss = scene.write("loss.yaml", &loss(cells))?;
    let one = scene.write("vacuous.yaml", VACUOUS)?;
    let latency = paths::workspace().join("playbooks/latency.yaml");
    let bring = [
        (binary("stormdrill"), "/sd"),
        (binary("stormdrill-lab"), "/lab"),
        (loss, "/loss.yaml"),
        (one, "/vacuous.yaml"),
        (latency, "/latency.yaml"),
        (script, "/go.sh"),
    ];
    let job = Job {
        command: vec!["sh".into(), "/go.sh".into()],
        bring: bring.map(|(host, guest)| Bring { host, guest: guest.to_owned() }).into(),
        memory: 1024,
        timeout: Duration::from_secs(1500),
        ..Job::default()
    };
    let mut output = Vec::new();
    let ending = vm::boot(&kernel, &job, &mut |bytes| output.extend_from_slice(bytes))?;
    let text = String::from_utf8_lossy(&output).replace('\r', "");
    scene.write("guest.log", &text)?;
    if ending != Ending::Exited(0) {
        bail!("the guest did not end well; {} has what it said", scene.folder.join("guest.log").display());
    }
    let outcome = |name: &str, playbook: &str| -> Result<Outcome> {
        let (begin, end) = (format!("<<{name}"), format!(">>{name}"));
        let json =
            text.split(&begin).nth(1).and_then(|rest| rest.split(&end).next()).with_context(|| format!("the guest printed no {name}"))?;
        Outcome::parse(json, playbook)
    };
    let latency = "playbooks/latency.yaml";
    Ok(Found {
        kernel: kernel.release.clone(),
        loss: outcome("loss", "target/seeds/loss/loss.yaml")?,
        vacuous: outcome("vacuous", "target/seeds/loss/vacuous.yaml")?,
        slow: outcome("slow", latency)?,
        patient: outcome("patient", latency)?,
    })
}

/// Everything listens first; loads last longer than the drills, since the probe takes an emulated processor a while to verify.
fn script(cells: &[Cell]) -> String {
    let mut text = String::from("ip link set lo up\n");
    let mut service = |number: u16, chain: &str| {
        let (web, store) = (WEB + number, STORE + number);
        text.push_str(&format!("/lab store --listen 127.0.0.1:{store} >/dev/null 2>&1 &\n"));
        text.push_str(&format!("/lab chain --layers 1 --ports {web} --downstream 127.0.0.1:{store} {chain} >/dev/null 2>&1 &\n"));
        text.push_str(&format!(
            "/lab load --url http://127.0.0.1:{web}/orders --rate 8/s --duration 1400s --timeout 20s --unique-path on >/dev/null 2>&1 &\n"
        ));
    };
    for (number, cell) in (0..).zip(cells) {
        service(number, &format!("--tries 3 --timeout {} --keepalive {}", cell.timeout, if cell.keeps { "on" } else { "off" }));
    }
    service(8, "--tries 3 --timeout 100ms");
    service(9, "--policy budgeted --tries 3 --budget 10% --timeout 1s");
    text.push_str("sleep 5\nexport STORMDRILL_STATE_DIR=/state\n");
    let mut drill = |name: &str, file: &str, set: &str| {
        text.push_str(&format!("/sd run /{file}.yaml --json /{name}.json {set} >/dev/null 2>/{name}.err\necho \"<<{name}\"\ncat /{name}.json || cat /{name}.err\necho \">>{name}\"\n"));
    };
    let phases = |baseline: &str, fault: &str, recovery: &str| {
        format!("--set phases.baseline={baseline} --set phases.fault={fault} --set phases.recovery={recovery}")
    };
    drill("loss", "loss", "");
    drill("vacuous", "vacuous", "");
    for (name, number) in [("slow", 8), ("patient", 9)] {
        let ports = format!(
            "--set observe.ingress.web.port={} --set observe.downstream.store.port={} --set observe.window=2s",
            WEB + number,
            STORE + number
        );
        drill(name, "latency", &format!("{ports} {}", phases("20s", "24s", "16s")));
    }
    text.push_str("exit 0\n");
    text
}

fn loss(cells: &[Cell]) -> String {
    let mut text = String::from("version: 1\nname: loss-for-five-minutes\nobserve:\n  ingress:\n");
    let numbers = || (0..u16::try_from(cells.len()).unwrap_or_default()).map(|number| (number, WEB + number, STORE + number));
    numbers().for_each(|(number, web, _)| text.push_str(&format!("    web{number}: {{port: {web}, protocol: http}}\n")));
    text.push_str("  downstream:\n");
    numbers().for_each(|(number, _, store)| {
        text.push_str(&format!("    store{number}: {{address: 127.0.0.1, port: {store}, protocol: http}}\n"))
    });
    text.push_str("  window: 10s\nphases: {baseline: 60s, fault: 300s, recovery: 40s}\nfaults:\n");
    numbers().for_each(|(number, ..)| text.push_str(&format!("  - {{loss: 30%, to: store{number}, direction: ingress}}\n")));
    text.push_str("expect:\n");
    numbers().for_each(|(number, ..)| text.push_str(&format!("  - store{number} downstream QPS increase <= 20%\n")));
    text
}

/// The third cell by itself.
const VACUOUS: &str = "version: 1
name: loss-and-patience
observe:
  ingress: {web: {port: 18082, protocol: http}}
  downstream: {store: {address: 127.0.0.1, port: 18092, protocol: http}}
  window: 5s
phases: {baseline: 40s, fault: 60s, recovery: 20s}
faults:
  - {loss: 30%, to: store, direction: ingress}
expect:
  - downstream QPS increase <= 20%
  - store amplification <= 1.2
";
