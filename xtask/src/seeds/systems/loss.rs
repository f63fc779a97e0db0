//! Thirty percent loss for five minutes: which timeouts it reaches, and which it does not.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::paths;
use crate::seeds::drill::{self, Moment, Outcome};
use crate::seeds::process::{Process, binary};
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::{Scene, Service, address};

/// A service with three tries.
struct Cell {
    timeout: &'static str,
    keeps: bool,
    /// Tries of a request, from loss that was simulated elsewhere.
    predicted: f64,
    /// The verdicts that the playbook `packet-loss` may have, where chance decides between two: whether 5 points of the tries fail, or whether one
    /// request of thousands takes too long. (Of 3 s on fresh connections two tries in a row do so once in some 8000 requests: a hundredth, squared.)
    expected: &'static [&'static str],
}

/// All of them go through the same five minutes.
const CELLS: [Cell; 6] = [
    Cell { timeout: "500ms", keeps: true, predicted: 1.045, expected: &["pass", "vacuous"] },
    Cell { timeout: "1s", keeps: true, predicted: 1.015, expected: &["vacuous", "fail"] },
    Cell { timeout: "3s", keeps: true, predicted: 1.003, expected: &["vacuous"] },
    Cell { timeout: "500ms", keeps: false, predicted: 1.43, expected: &["pass"] },
    Cell { timeout: "1s", keeps: false, predicted: 1.40, expected: &["fail"] },
    Cell { timeout: "3s", keeps: false, predicted: 1.011, expected: &["vacuous", "fail"] },
];

/// Seconds of the phases. The load ends ten seconds before the drill, so that all of its requests are seen.
const PHASES: [u64; 3] = [60, 300, 40];

/// What is ready for one drill.
struct Ready {
    store: Service,
    _chain: Service,
    set: Vec<(String, String)>,
    load: Command,
    log: PathBuf,
}

/// One drill, and what its services counted.
struct Found {
    outcome: Outcome,
    asked: u64,
    called: u64,
    /// In the whole drill, by the store itself.
    counted: u64,
    unconnected: u64,
    before: f64,
}

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let mut section = Section {
        versions: vec!["the lab's services".to_owned()],
        story: vec![
            "The drill that an article proposes, as the playbook `packet-loss` has it. Six services with three tries each, which differ in their timeout and \
             in whether they keep connections, call six stores; 30% of the packets that come back are lost, for five minutes. This host's kernel has no \
             netem, so stormdrill's own classifier drops them; `latency` below is the same plane with netem. Each service has a drill of its own; all six \
             go on at once."
                .to_owned(),
            "The prediction counts tries. A try whose connection never comes about sends no request, so it is no attempt, and the store has nothing of \
             it: on fresh connections, where most of what fails is the handshake, attempts are far fewer than tries, which are attempts and connections that \
             came to nothing. A call whose client has gone by the time that it comes is an attempt, and the store need not read it."
                .to_owned(),
        ],
        ..Section::default()
    };
    let found = drills(scene, &mut section)?;
    let columns = [
        "timeout",
        "connections",
        "requests",
        "attempts",
        "a request",
        "connections that came to nothing",
        "tries a request",
        "tries predicted",
        "before the fault",
        "whole drill: attempts, and calls that the store read",
        "verdict",
    ];
    let mut table = Table::new("30% loss for 300 s, three tries", &columns);
    for (cell, one) in CELLS.iter().zip(&found) {
        table.row([
            cell.timeout.to_owned(),
            cell.kept().to_owned(),
            one.asked.to_string(),
            one.called.to_string(),
            format!("{:.3}", one.attempts()),
            one.unconnected.to_string(),
            format!("{:.3}", one.tries()),
            format!("{:.3}", cell.predicted),
            format!("{:.3}", one.before),
            format!("{}, {}", one.outcome.all_requests("store"), one.counted),
            one.outcome.verdict().to_owned(),
        ]);
    }
    section.tables.push(table);
    findings(&found, &mut section)?;
    section.advice.push(
        "**What to configure.** Whoever makes a connection for each request needs a timeout whose tries fit into what the callers wait: three tries of 1 s \
         fail this drill, since a request that fails does so after 3 s, and three of 0.5 s pass it. On connections that are kept, 30% of lost packets \
         are hardly a failure: with 0.5 s about 5% of the tries, at the edge of what counts as an effect; with 1 s so few that the drill is `vacuous`, unless one \
         request fails all the same, after 3 s; and with 3 s none, so that the drill is `vacuous` and proves nothing. With 3 s on fresh connections it proves \
         nothing either, and fails only if chance has one request in thousands wait for 3 s twice. The playbook `packet-loss` fails with 150 ms a try \
         and three tries, and passes with a budget of 10%."
            .to_owned(),
    );
    Ok(section)
}

fn findings(found: &[Found], section: &mut Section) -> Result<()> {
    let (mut hit, mut selected, mut held) = (0.0, 0.0, f64::INFINITY);
    for one in found {
        let faults = one.outcome.json["faults"].as_array().context("a result without faults")?;
        let total = |key: &str| faults.iter().filter_map(|fault| fault[key].as_f64()).sum::<f64>();
        hit += total("packets_hit");
        selected += total("packets_selected");
        let phases = one.outcome.json["phases"].as_array().context("a result without phases")?;
        let length =
            |phase: &serde_json::Value| (phase["end_ns"].as_f64().unwrap_or(0.0) - phase["start_ns"].as_f64().unwrap_or(0.0)) / 1e9;
        held = held.min(phases.iter().find(|phase| phase["name"] == "fault").map_or(0.0, length));
    }
    let share = hit / selected;
    section.find(
        "A26",
        if (share - 0.3).abs() < 0.02 && held >= 299.0 { Verdict::Partly } else { Verdict::Refuted },
        format!(
            "{:.1}% of {selected:.0} packets lost for {held:.0} s, on the answers of six stores alone and not at the root of the interface: SSH and health \
             checks are left out of it",
            share * 100.0
        ),
    );
    let list = |keeps: bool, each: &dyn Fn(&Found) -> String| {
        CELLS.iter().zip(found).filter(|(cell, _)| cell.keeps == keeps).map(|(_, one)| each(one)).collect::<Vec<_>>().join(", ")
    };
    section.find(
        "A28",
        Verdict::Partly,
        format!(
            "with 30% loss {} attempts a request at 0.5, 1 and 3 s on kept connections, {} on fresh ones ({} tries): as a verdict {} and {}",
            list(true, &|one| format!("{:.3}", one.attempts())),
            list(false, &|one| format!("{:.3}", one.attempts())),
            list(false, &|one| format!("{:.3}", one.tries())),
            list(true, &|one| one.outcome.verdict().to_owned()),
            list(false, &|one| one.outcome.verdict().to_owned()),
        ),
    );
    Ok(())
}

/// All six side by side.
fn drills(scene: &Scene, section: &mut Section) -> Result<Vec<Found>> {
    let ready = CELLS.iter().map(|cell| cell.prepare(scene)).collect::<Result<Vec<_>>>()?;
    let (folder, file) = (&scene.folder, &paths::workspace().join("playbooks/packet-loss.yaml"));
    let outcomes = std::thread::scope(|scope| {
        let one = move |(number, ready): (usize, Ready)| {
            let mut load = ready.load;
            let mut running = None;
            let outcome = drill::run_in(folder, &format!("state-{number}"), file, &format!("loss-{number}"), &ready.set, |moment| {
                if moment == Moment::Phase("baseline") {
                    running = Some(Process::start(&mut load, &ready.log)?);
                }
                Ok(())
            })?;
            running.context("the drill had no baseline")?.report()?;
            Ok((outcome, ready.store))
        };
        let threads: Vec<_> = ready.into_iter().enumerate().map(|cell| scope.spawn(move || one(cell))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a drill panicked"))));
        ended.collect::<Result<Vec<(Outcome, Service)>>>()
    })?;
    let mut found = Vec::new();
    for (cell, (outcome, store)) in CELLS.iter().zip(outcomes) {
        let name = format!("{} a try, connections {}", cell.timeout, cell.kept());
        let counted = store.counts()?["requests"].as_u64().context("the store's counts have no requests")?;
        let expected = cell.expected.iter().find(|expected| **expected == outcome.verdict()).unwrap_or(&cell.expected[0]);
        section.drills.push(outcome.drill(name, expected));
        let of = |phase: &str| -> Result<(u64, u64)> { Ok((outcome.requests("web", phase)?, outcome.requests("store", phase)?)) };
        let ((asked, called), (asked_before, called_before)) = (of("fault")?, of("baseline")?);
        let unconnected = outcome.unconnected("store", "fault")?;
        let before = called_before as f64 / asked_before.max(1) as f64;
        found.push(Found { asked, called, counted, unconnected, before, outcome });
    }
    Ok(found)
}

impl Cell {
    const fn kept(&self) -> &'static str {
        if self.keeps { "kept" } else { "fresh" }
    }

    fn prepare(&self, scene: &Scene) -> Result<Ready> {
        let store = scene.store(&[])?;
        let keepalive = if self.keeps { "on" } else { "off" };
        let chain = scene.chain(1, store.port, &["--tries", "3", "--timeout", self.timeout, "--keepalive", keepalive])?;
        let [baseline, fault, recovery] = PHASES;
        let set = [
            ("observe.ingress.web.port", chain.port.to_string()),
            ("observe.downstream.store.port", store.port.to_string()),
            ("phases.baseline", format!("{baseline}s")),
            ("phases.fault", format!("{fault}s")),
            ("phases.recovery", format!("{recovery}s")),
            // The article's netem is on the store's host, and hits what leaves it.
            ("faults.0", "{loss: 30%, to: store, direction: ingress}".to_owned()),
        ];
        let mut load = Command::new(binary("stormdrill-lab"));
        load.args([
            "load",
            "--url",
            &format!("http://{}/orders", address(chain.port)),
            "--rate",
            "15/s",
            "--timeout",
            "20s",
            "--unique-path",
            "on",
        ]);
        load.args(["--duration", &format!("{}s", baseline + fault + recovery - 10)]);
        let log = scene.log("load");
        Ok(Ready { store, _chain: chain, set: set.map(|(key, value)| (key.to_owned(), value)).into(), load, log })
    }
}

impl Found {
    fn attempts(&self) -> f64 {
        self.called as f64 / self.asked.max(1) as f64
    }

    fn tries(&self) -> f64 {
        (self.called + self.unconnected) as f64 / self.asked.max(1) as f64
    }
}
