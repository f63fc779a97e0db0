//! A store that has little capacity for a moment: what retries make of it.

use anyhow::Result;

use crate::seeds::drill::{Moment, Outcome, Playbook};
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::Scene;

const RATE: &str = "120/s";

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let mut section = Section {
        versions: vec!["the lab's services".to_owned()],
        story: vec![format!(
            "{RATE} go to a store of the lab. Two seconds into the fault phase it serves only 58/s for 1.5 s (`--dip 58/s`) and answers 503 to the rest. \
             The layers retry at once, as the article's do."
        )],
        ..Section::default()
    };
    let mut table = Table::new("Second by second, from the second before the dip on", &["", "", "1", "2", "3", "4", "5", "6", "7"]);
    let (mut calls, mut success, mut back) = (Vec::new(), Vec::new(), Vec::new());
    let budgeted: &[&str] = &["--policy", "budgeted", "--tries", "3", "--budget", "10%", "--budget-window", "1s", "--timeout", "5s"];
    let variants: [(&str, u16, &[&str], &str); 3] = [
        ("no layer retries", 1, &["--tries", "1", "--timeout", "5s"], "pass"),
        ("3 layers of 3 tries", 3, &["--tries", "3", "--timeout", "5s"], "fail"),
        ("3 layers, the innermost alone retries, 10% budget", 3, budgeted, "pass"),
    ];
    for (number, (what, layers, arguments, expected)) in variants.into_iter().enumerate() {
        let store = scene.store(&["--dip", "58/s", "--dip-for", "1.5s"])?;
        let chain = scene.chain(layers, store.port, arguments)?;
        let load = scene.load(chain.port, &["--rate", RATE, "--duration", "300s", "--timeout", "5s", "--unique-path", "on"])?;
        let mut windows = 0;
        let outcome = Playbook::new(&format!("dip-{}", number + 1))
            .ingress("web", chain.port)
            .downstream("store", store.port)
            .window("1s")
            .phases(["8s", "13s", "2s"])
            .expect("store amplification <= 1.2")
            .expect("store amplification <= 3 in every window")
            .run(scene, |moment| {
                if moment == Moment::Window("fault") {
                    windows += 1;
                    if windows == 1 {
                        return store.process.signal("USR1");
                    }
                }
                Ok(())
            })?;
        load.stop()?;
        section.drills.push(outcome.drill(what, expected));
        let (series, ratios) = series(&outcome);
        // The dip is where the success ratio first falls.
        let begin = ratios.iter().position(|ratio| *ratio < 0.95).unwrap_or(1).saturating_sub(1);
        let cells = |label: &str, values: Vec<String>| {
            let mut row = vec![what.to_owned(), label.to_owned()];
            row.extend(values.into_iter().skip(begin).take(7));
            row.resize(9, String::new());
            row
        };
        table.rows.push(cells("calls of the store", series.iter().map(|calls| format!("{calls:.0}")).collect()));
        table.rows.push(cells("served", ratios.iter().map(|ratio| format!("{:.0}%", ratio * 100.0)).collect()));
        calls.push(series.iter().copied().fold(0.0, f64::max));
        success.push(ratios.iter().copied().fold(1.0, f64::min));
        let bad = ratios.iter().filter(|ratio| **ratio < 0.95).count();
        back.push(bad);
    }
    section.tables.push(table);
    section.find(
        "B5",
        Verdict::of(calls[1] > 5.0 * calls[0]),
        format!("{:.0} calls in the worst second against {:.0}", calls[1], calls[0]),
    );
    section.find(
        "B6",
        Verdict::of((success[1] - success[0]).abs() < 0.15),
        format!("{:.0}% served in the worst second with retries, {:.0}% without", success[1] * 100.0, success[0] * 100.0),
    );
    section.find(
        "B7",
        Verdict::of(back[1] <= 3),
        format!("with a dip of 1.5 s, {} seconds had less than 95% served ({} without retries)", back[1], back[0]),
    );
    section.advice.push(format!(
        "**What to configure.** One layer that retries, within a budget of 10% over a sliding second: {:.0} calls in the worst second instead of {:.0}, and \
         {:.0}% served in it against {:.0}% with every layer retrying. The drill that failed then passes.",
        calls[2],
        calls[1],
        success[2] * 100.0,
        success[1] * 100.0
    ));
    Ok(section)
}

/// Calls of the store and the share served, for each second of the fault phase.
fn series(outcome: &Outcome) -> (Vec<f64>, Vec<f64>) {
    let calls = outcome.windows("store", "fault").iter().filter_map(|window| window["requests"].as_f64()).collect();
    let served = |window: &&serde_json::Value| {
        let answers: Vec<(&String, f64)> =
            window["status"].as_object().into_iter().flatten().filter_map(|(status, count)| Some((status, count.as_f64()?))).collect();
        let all: f64 = answers.iter().map(|(_, count)| count).sum();
        answers.iter().filter(|(status, _)| *status == "200").map(|(_, count)| count).sum::<f64>() / all.max(1.0)
    };
    (calls, outcome.windows("web", "fault").iter().map(served).collect())
}
