//! Thirty percent loss for five minutes: which timeouts it reaches, and which it does not.

use anyhow::{Context as _, Result};

use crate::seeds::drill::Playbook;
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::{Scene, Service};

/// A service with three tries.
struct Cell {
    timeout: &'static str,
    keeps: bool,
    /// Tries of a request, from loss that was simulated elsewhere.
    predicted: f64,
}

/// All of them go through the same five minutes.
const CELLS: [Cell; 6] = [
    Cell { timeout: "500ms", keeps: true, predicted: 1.045 },
    Cell { timeout: "1s", keeps: true, predicted: 1.015 },
    Cell { timeout: "3s", keeps: true, predicted: 1.003 },
    Cell { timeout: "500ms", keeps: false, predicted: 1.43 },
    Cell { timeout: "1s", keeps: false, predicted: 1.40 },
    Cell { timeout: "3s", keeps: false, predicted: 1.011 },
];

/// What a cell's services counted.
struct Found {
    asked: u64,
    called: u64,
    before: f64,
}

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let mut section = Section {
        versions: vec!["the lab's services".to_owned()],
        story: vec![
            "The drill that an article proposes. Six services with three tries each, which differ in their timeout and in whether they keep connections, \
             call six stores; 30% of the packets that come back are lost, for five minutes. This host's kernel has no netem, so stormdrill's own \
             classifier drops them; `latency` below is the same plane with netem."
                .to_owned(),
            "The prediction counts tries. A try whose connection never comes about sends no request, so it is no attempt, and the store has nothing of \
             it: on fresh connections, where most of what fails is the handshake, attempts are far fewer than tries."
                .to_owned(),
        ],
        ..Section::default()
    };
    let found = drill(scene, &mut section)?;
    let columns = ["timeout", "connections", "requests", "attempts", "a request", "tries predicted", "before the fault"];
    let mut table = Table::new("30% loss for 300 s, three tries", &columns);
    for (cell, one) in CELLS.iter().zip(&found) {
        table.row([
            cell.timeout.to_owned(),
            if cell.keeps { "kept" } else { "fresh" }.to_owned(),
            one.asked.to_string(),
            one.called.to_string(),
            format!("{:.3}", one.ratio()),
            format!("{:.3}", cell.predicted),
            format!("{:.3}", one.before),
        ]);
    }
    section.tables.push(table);
    section.find(
        "A28",
        Verdict::Partly,
        format!(
            "with 30% loss {:.3}, {:.3}, {:.3} attempts a request at 0.5, 1 and 3 s on kept connections, {:.3} at 0.5 s on fresh ones: such a drill can \
             hardly fail",
            found[0].ratio(),
            found[1].ratio(),
            found[2].ratio(),
            found[3].ratio()
        ),
    );
    section.advice.push(
        "**What to configure.** Nothing passes or fails by itself here: use the timeouts and the connections that you have, and read `vacuous` as what it \
         is. What fails the playbook `packet-loss` and what passes it is drilled by `playbooks`."
            .to_owned(),
    );
    Ok(section)
}

fn drill(scene: &Scene, section: &mut Section) -> Result<Vec<Found>> {
    let mut services: Vec<Service> = Vec::new();
    let mut loads = Vec::new();
    let mut playbook = Playbook::new("loss-for-five-minutes").window("10s").phases(["60s", "300s", "40s"]);
    for (number, cell) in CELLS.iter().enumerate() {
        let store = scene.store(&[])?;
        let keepalive = if cell.keeps { "on" } else { "off" };
        let chain = scene.chain(1, store.port, &["--tries", "3", "--timeout", cell.timeout, "--keepalive", keepalive])?;
        let (web, edge) = (format!("web{number}"), format!("store{number}"));
        playbook = playbook
            .ingress(&web, chain.port)
            .downstream(&edge, store.port)
            .fault(&format!("{{loss: 30%, to: {edge}, direction: ingress}}"));
        loads.push(scene.load(chain.port, &["--rate", "15/s", "--duration", "900s", "--timeout", "20s", "--unique-path", "on"])?);
        services.extend([store, chain]);
    }
    let outcome = playbook.run(scene, |_| Ok(()))?;
    let faults = outcome.json["faults"].as_array().context("a result without faults")?;
    let total = |key: &str| faults.iter().filter_map(|fault| fault[key].as_f64()).sum::<f64>();
    let share = total("packets_hit") / total("packets_selected");
    let phases = outcome.json["phases"].as_array().context("a result without phases")?;
    let length = |phase: &serde_json::Value| (phase["end_ns"].as_f64().unwrap_or(0.0) - phase["start_ns"].as_f64().unwrap_or(0.0)) / 1e9;
    let held = phases.iter().find(|phase| phase["name"] == "fault").map_or(0.0, length);
    section.find(
        "A26",
        if (share - 0.3).abs() < 0.02 && held >= 299.0 { Verdict::Partly } else { Verdict::Refuted },
        format!(
            "{:.1}% of {:.0} packets lost for {held:.0} s, on the answers of six stores alone and not at the root of the interface: SSH and health \
             checks are left out of it",
            share * 100.0,
            total("packets_selected")
        ),
    );
    let mut found = Vec::new();
    for number in 0..CELLS.len() {
        let ratio = |phase: &str| -> Result<(u64, u64)> {
            Ok((outcome.requests(&format!("web{number}"), phase)?, outcome.requests(&format!("store{number}"), phase)?))
        };
        let ((asked, called), (asked_before, called_before)) = (ratio("fault")?, ratio("baseline")?);
        found.push(Found { asked, called, before: called_before as f64 / asked_before.max(1) as f64 });
    }
    Ok(found)
}

impl Found {
    fn ratio(&self) -> f64 {
        self.called as f64 / self.asked.max(1) as f64
    }
}
