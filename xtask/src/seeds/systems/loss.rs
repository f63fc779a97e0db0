//! Thirty percent loss for five minutes, by netem, in a kernel of its own: which timeouts it reaches, and which it does not.

mod guest;

use anyhow::{Context as _, Result};

use self::guest::Cell;
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::Scene;

/// Timeout, whether connections are kept, and the amplification of three tries that was predicted from simulated loss.
const CELLS: [Cell; 6] = [
    Cell { timeout: "500ms", keeps: true, predicted: 1.045 },
    Cell { timeout: "1s", keeps: true, predicted: 1.015 },
    Cell { timeout: "3s", keeps: true, predicted: 1.003 },
    Cell { timeout: "500ms", keeps: false, predicted: 1.43 },
    Cell { timeout: "1s", keeps: false, predicted: 1.40 },
    Cell { timeout: "3s", keeps: false, predicted: 1.011 },
];

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let found = guest::run(scene, &CELLS)?;
    let mut section = Section {
        versions: vec![format!("Linux {} in QEMU, sch_netem", found.kernel)],
        story: vec![
            "The drill that an article proposes, on a kernel of its own since this host's has no netem. Six services with three tries each, which differ \
             in their timeout and in whether they keep connections, call six stores; 30% of the packets that come back are lost, for five minutes."
                .to_owned(),
            "The prediction counts tries. A try whose connection never comes about sends no request, so it is no attempt, and the store has nothing of \
             it: on fresh connections, where most of what fails is the handshake, attempts are far fewer than tries."
                .to_owned(),
        ],
        ..Section::default()
    };
    let columns =
        ["timeout", "connections", "requests", "attempts", "a request", "tries predicted", "without the fault", "QPS increase <= 20%"];
    let mut table = Table::new("30% loss for 300 s, three tries", &columns);
    let mut ratios = Vec::new();
    for (number, cell) in CELLS.iter().enumerate() {
        let ratio = |phase: &str| -> Result<(u64, u64, f64)> {
            let (asked, called) =
                (found.loss.requests(&format!("web{number}"), phase)?, found.loss.requests(&format!("store{number}"), phase)?);
            Ok((asked, called, called as f64 / asked as f64))
        };
        let (asked, called, in_fault) = ratio("fault")?;
        let verdict = found.loss.json["expectations"][number]["verdict"].as_str().context("an expectation without a verdict")?;
        table.row([
            cell.timeout.to_owned(),
            if cell.keeps { "kept" } else { "fresh" }.to_owned(),
            asked.to_string(),
            called.to_string(),
            format!("{in_fault:.3}"),
            format!("{:.3}", cell.predicted),
            format!("{:.3}", ratio("baseline")?.2),
            verdict.to_owned(),
        ]);
        ratios.push(in_fault);
    }
    section.tables.push(table);
    let faults = found.loss.json["faults"].as_array().context("a result without faults")?;
    let total = |key: &str| faults.iter().filter_map(|fault| fault[key].as_f64()).sum::<f64>();
    let share = total("packets_hit") / total("packets_selected");
    let held = found.loss.json["phases"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|phase| phase["name"] == "fault")
        .map_or(0.0, |phase| (phase["end_ns"].as_f64().unwrap_or(0.0) - phase["start_ns"].as_f64().unwrap_or(0.0)) / 1e9);
    section.find(
        "A26",
        Verdict::of((share - 0.3).abs() < 0.02 && held >= 299.0),
        format!(
            "{:.1}% of the selected packets lost, by netem, for {held:.0} s, with the interface's own qdisc left as it was",
            share * 100.0
        ),
    );
    section.find(
        "A28",
        Verdict::Partly,
        format!(
            "with 3 s and kept connections {:.3} attempts a request: the drill cannot fail, and its verdict is {}; with 0.5 s {:.3} on kept connections and {:.3} on fresh ones",
            ratios[2],
            found.vacuous.verdict(),
            ratios[0],
            ratios[3]
        ),
    );
    section.drills.push(found.vacuous.drill("30% loss, timeout 3 s, connections kept: proves nothing, and says so", "vacuous"));
    section.drills.push(found.slow.drill("latency: a store slower by 200 ms, 100 ms a try, three tries", "fail"));
    section.drills.push(found.patient.drill("latency: the same, 1 s a try, 10% budget", "pass"));
    section.find(
        "D1",
        Verdict::of(found.patient.verdict() == "pass"),
        format!("for HTTP: a median of {:.0} ms under a delay of 200 ms", found.patient.number("web", "fault", "/latency_ms/p50")?),
    );
    section.advice.push(
        "**What to configure.** Nothing passes or fails by itself here: say which timeouts and which connections you have, and read `vacuous` as what it \
         is. With a budget of 10% the line of 20% holds for every one of these timeouts."
            .to_owned(),
    );
    Ok(section)
}
