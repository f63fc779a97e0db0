//! A drill of the real program: its playbook, what happens at its phases, and its result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::process::{binary, follow};
use super::result::{Drill, Line};
use super::scene::{Scene, shown};
use crate::say;

/// A playbook over one ingress edge and some downstream ones, to be filled in.
#[derive(Clone, Debug)]
pub(crate) struct Playbook {
    name: String,
    ingress: Vec<(String, u16, String)>,
    downstream: Vec<(String, String, String)>,
    pub(crate) window: String,
    /// Baseline, fault, recovery.
    pub(crate) phases: [String; 3],
    faults: Vec<String>,
    expect: Vec<String>,
}

/// What is told of a drill while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment<'a> {
    /// A phase begins.
    Phase(&'a str),
    /// A window of this phase is over; they are told in order, some time later.
    Window(&'a str),
}

/// A drill that has ended.
pub(crate) struct Outcome {
    pub(crate) json: Value,
    playbook: String,
}

impl Playbook {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ingress: Vec::new(),
            downstream: Vec::new(),
            window: "500ms".to_owned(),
            phases: ["2s", "3s", "1s"].map(str::to_owned),
            faults: Vec::new(),
            expect: Vec::new(),
        }
    }

    pub(crate) fn ingress(mut self, name: &str, port: u16) -> Self {
        self.ingress.push((name.to_owned(), port, "http".to_owned()));
        self
    }

    pub(crate) fn downstream(self, name: &str, port: u16) -> Self {
        self.downstream_range(name, port, 1)
    }

    /// So many ports from one on.
    pub(crate) fn downstream_range(mut self, name: &str, port: u16, count: u16) -> Self {
        let ports = if count == 1 { port.to_string() } else { format!("{port}-{}", port + count - 1) };
        self.downstream.push((name.to_owned(), ports, "http".to_owned()));
        self
    }

    /// Leaves it to the content what every edge speaks.
    pub(crate) fn untyped(mut self) -> Self {
        self.ingress.iter_mut().map(|edge| &mut edge.2).chain(self.downstream.iter_mut().map(|edge| &mut edge.2)).for_each(String::clear);
        self
    }

    pub(crate) fn window(mut self, window: &str) -> Self {
        window.clone_into(&mut self.window);
        self
    }

    pub(crate) fn phases(mut self, phases: [&str; 3]) -> Self {
        self.phases = phases.map(str::to_owned);
        self
    }

    pub(crate) fn fault(mut self, fault: &str) -> Self {
        self.faults.push(fault.to_owned());
        self
    }

    pub(crate) fn expect(mut self, line: &str) -> Self {
        self.expect.push(line.to_owned());
        self
    }

    fn text(&self) -> String {
        let mut text = format!("version: 1\nname: {}\nobserve:\n  ingress:\n", self.name);
        let typed = |protocol: &str| if protocol.is_empty() { String::new() } else { format!(", protocol: {protocol}") };
        for (name, port, protocol) in &self.ingress {
            text.push_str(&format!("    {name}: {{port: {port}{}}}\n", typed(protocol)));
        }
        text.push_str("  downstream:\n");
        for (name, ports, protocol) in &self.downstream {
            text.push_str(&format!("    {name}: {{address: 127.0.0.1, port: {ports}{}}}\n", typed(protocol)));
        }
        let [baseline, fault, recovery] = &self.phases;
        text.push_str(&format!("  window: {}\nphases: {{baseline: {baseline}, fault: {fault}, recovery: {recovery}}}\n", self.window));
        for (key, lines) in [("faults", &self.faults), ("expect", &self.expect)] {
            if !lines.is_empty() {
                text.push_str(&format!("{key}:\n"));
            }
            lines.iter().for_each(|line| text.push_str(&format!("  - {line}\n")));
        }
        text
    }

    /// Runs it; `each` is told of every phase and window and may make requests.
    pub(crate) fn run(&self, scene: &Scene, each: impl FnMut(Moment<'_>) -> Result<()>) -> Result<Outcome> {
        let path = scene.write(&format!("{}.yaml", self.name), &self.text())?;
        run_file(scene, &path, &self.name, &[], each)
    }

    /// Runs it under a load of its own, again if the machine held it up.
    pub(crate) fn run_until_valid(&self, scene: &Scene) -> Result<Outcome> {
        let path = scene.write(&format!("{}.yaml", self.name), &self.text())?;
        run_until_valid(scene, &path, &self.name, &[])
    }

    /// As [`run`](Self::run), again if the machine held it up: for moments that can come more than once.
    pub(crate) fn run_again(&self, scene: &Scene, mut each: impl FnMut(Moment<'_>) -> Result<()>) -> Result<Outcome> {
        let path = scene.write(&format!("{}.yaml", self.name), &self.text())?;
        until_valid(&self.name, || run_file(scene, &path, &self.name, &[], &mut each))
    }

    /// Runs it with requests of a client of their own in the baseline and in the fault phase, so that each phase has exactly these.
    pub(crate) fn run_with_requests(&self, scene: &Scene, mut client: impl FnMut(&str) -> Result<()>) -> Result<Outcome> {
        self.run(scene, |moment| match moment {
            Moment::Phase(phase @ ("baseline" | "fault")) => client(phase),
            _ => Ok(()),
        })
    }
}

/// A drill that says `invalid`, because the machine held it up, is done again at most this often.
const TRIES: u32 = 3;

/// As [`run_file`], for a drill to which it does not matter how often it is done.
pub(crate) fn run_until_valid(scene: &Scene, playbook: &Path, name: &str, set: &[(String, String)]) -> Result<Outcome> {
    until_valid(name, || run_file(scene, playbook, name, set, |_| Ok(())))
}

/// Does it again while it says `invalid`.
pub(crate) fn until_valid(name: &str, mut run: impl FnMut() -> Result<Outcome>) -> Result<Outcome> {
    for _ in 1..TRIES {
        let outcome = run()?;
        if outcome.verdict() != "invalid" {
            return Ok(outcome);
        }
        say::step(format!("{name}: invalid, so it is done again: {}", outcome.reasons()));
    }
    run()
}

/// Runs a playbook's file.
pub(crate) fn run_file(
    scene: &Scene,
    playbook: &Path,
    name: &str,
    set: &[(String, String)],
    each: impl FnMut(Moment<'_>) -> Result<()>,
) -> Result<Outcome> {
    run_in(&scene.folder, "state", playbook, name, set, each)
}

/// The same in a folder, with a state of its own below it: drills with such may go on side by side.
pub(crate) fn run_in(
    folder: &Path,
    state: &str,
    playbook: &Path,
    name: &str,
    set: &[(String, String)],
    mut each: impl FnMut(Moment<'_>) -> Result<()>,
) -> Result<Outcome> {
    let json: PathBuf = folder.join(format!("{name}.json"));
    let _ = fs::remove_file(&json);
    let mut command = Command::new(binary("stormdrill"));
    command.arg("run").arg(playbook).arg("--json").arg(&json).arg("--state-dir").arg(folder.join(state));
    for (key, value) in set {
        command.args(["--set", &format!("{key}={value}")]);
    }
    let mut said = Vec::new();
    let code = follow(&mut command, |line| {
        said.push(line.to_owned());
        let word = line.split_whitespace().next().unwrap_or_default();
        match word.strip_suffix(':') {
            Some(phase) if ["baseline", "fault", "recovery"].contains(&phase) && !line.starts_with(' ') => each(Moment::Phase(phase)),
            _ if line.starts_with("  ") && ["baseline", "fault", "recovery"].contains(&word) => each(Moment::Window(word)),
            _ => Ok(()),
        }
    })?;
    let Ok(text) = fs::read_to_string(&json) else {
        bail!("{} ended with {code:?} and left no result: {}", crate::command::show(&command), said.join(" / "));
    };
    let value = serde_json::from_str(&text).context("the drill's result is not JSON")?;
    Ok(Outcome { json: value, playbook: shown(playbook) })
}

impl Outcome {
    /// The result of a drill that was run elsewhere.
    pub(crate) fn parse(json: &str, playbook: &str) -> Result<Self> {
        let json = serde_json::from_str(json).with_context(|| format!("the drill of {playbook} left no result, but {json:?}"))?;
        Ok(Self { json, playbook: playbook.to_owned() })
    }

    fn phase(&self, edge: &str, phase: &str) -> Result<&Value> {
        let edges = self.json["edges"].as_array().context("a result without edges")?;
        let found = edges.iter().find(|one| one["name"] == edge).with_context(|| format!("the result has no edge {edge}"))?;
        Ok(&found["phases"][phase])
    }

    /// Requests on an edge in a phase.
    pub(crate) fn requests(&self, edge: &str, phase: &str) -> Result<u64> {
        self.phase(edge, phase)?["requests"].as_u64().with_context(|| format!("{edge} has no requests in {phase}"))
    }

    /// Requests on an edge in all windows, those between two phases too.
    pub(crate) fn all_requests(&self, edge: &str) -> u64 {
        self.all(edge, "/requests")
    }

    /// A count of an edge in all windows, by its JSON pointer.
    pub(crate) fn all(&self, edge: &str, pointer: &str) -> u64 {
        let windows = self.json["windows"].as_array().into_iter().flatten();
        let edges = windows.flat_map(|window| window["edges"].as_array().into_iter().flatten()).filter(|one| one["name"] == edge);
        edges.filter_map(|one| one.pointer(pointer)?.as_u64()).sum()
    }

    /// An edge's counts in each window of a phase.
    pub(crate) fn windows(&self, edge: &str, phase: &str) -> Vec<&Value> {
        let windows = self.json["windows"].as_array().into_iter().flatten().filter(|window| window["phase"] == phase);
        windows.filter_map(|window| window["edges"].as_array()?.iter().find(|one| one["name"] == edge)).collect()
    }

    /// Retries by one kind of evidence.
    pub(crate) fn evidence(&self, edge: &str, phase: &str, kind: &str) -> Result<u64> {
        self.phase(edge, phase)?["retries"][kind].as_u64().with_context(|| format!("no retries by {kind}"))
    }

    /// Answers by status on an edge in a phase.
    pub(crate) fn statuses(&self, edge: &str, phase: &str) -> Result<Vec<(String, u64)>> {
        let statuses = self.phase(edge, phase)?["status"].as_object().context("an edge without statuses")?;
        Ok(statuses.iter().filter_map(|(status, count)| Some((status.clone(), count.as_u64()?))).filter(|(_, count)| *count > 0).collect())
    }

    /// Requests that their client gave up.
    pub(crate) fn aborts(&self, edge: &str, phase: &str) -> Result<u64> {
        self.phase(edge, phase)?["failures"]["client_abort"].as_u64().context("no count of client aborts")
    }

    /// Connections that came to nothing, for whatever reason.
    pub(crate) fn unconnected(&self, edge: &str, phase: &str) -> Result<u64> {
        let reasons = self.phase(edge, phase)?["connect_failures"].as_object().context("no count of failed connects")?;
        Ok(reasons.values().filter_map(Value::as_u64).sum())
    }

    /// Connects that were refused.
    pub(crate) fn refused(&self, edge: &str, phase: &str) -> Result<u64> {
        self.phase(edge, phase)?["connect_failures"]["refused"].as_u64().context("no count of refused connects")
    }

    /// A number of an edge in a phase, by its JSON pointer.
    pub(crate) fn number(&self, edge: &str, phase: &str, pointer: &str) -> Result<f64> {
        let value = self.phase(edge, phase)?.pointer(pointer).and_then(Value::as_f64);
        value.with_context(|| format!("{edge} has no {pointer} in {phase}"))
    }

    /// Why its expectations are not simply held.
    fn reasons(&self) -> String {
        let reasons = self.json["expectations"].as_array().into_iter().flatten().filter_map(|one| one["reason"].as_str());
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// The drill's verdict.
    pub(crate) fn verdict(&self) -> &str {
        self.json["verdict"].as_str().unwrap_or("none")
    }

    /// The cascades that the report names: from which edge, to which.
    pub(crate) fn cascades(&self) -> Vec<(String, String)> {
        let found = self.json["findings"].as_array().into_iter().flatten().filter(|finding| finding["kind"] == "cascade");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        found
            .flat_map(|finding| {
                let to = text(&finding["edge"]);
                finding["caused_by"].as_array().into_iter().flatten().map(move |from| (text(from), to.clone()))
            })
            .collect()
    }

    /// What the report says of its first finding of a kind.
    pub(crate) fn finding(&self, kind: &str) -> Option<String> {
        let found = self.json["findings"].as_array()?.iter().find(|finding| finding["kind"] == kind)?;
        found["text"].as_str().map(str::to_owned)
    }

    /// The observed value of an expectation.
    pub(crate) fn observed(&self, index: usize) -> Option<f64> {
        self.json["expectations"][index]["observed"].as_f64()
    }

    /// Whether each window has the requests and the share of retries of each edge, of which some are ingress and some downstream.
    fn has_series(&self) -> bool {
        let edges = self.json["edges"].as_array().map_or(&[][..], Vec::as_slice);
        let windows = self.json["windows"].as_array().map_or(&[][..], Vec::as_slice);
        let has = |window: &Value, edge: &Value| {
            let found = window["edges"].as_array().into_iter().flatten().find(|one| one["name"] == edge["name"]);
            found.is_some_and(|one| one["requests"].is_u64() && one.get("retry_ratio").is_some())
        };
        ["ingress", "downstream"].iter().all(|role| edges.iter().any(|edge| edge["role"] == *role))
            && !windows.is_empty()
            && windows.iter().all(|window| edges.iter().all(|edge| has(window, edge)))
    }

    /// The drill for the page, with the verdict that it should have.
    pub(crate) fn drill(&self, what: impl Into<String>, expected: &str) -> Drill {
        let lines = self.json["expectations"].as_array().into_iter().flatten().map(line).collect();
        Drill {
            what: what.into(),
            playbook: self.playbook.clone(),
            expected: expected.to_owned(),
            verdict: self.verdict().to_owned(),
            lines,
            has_series: self.has_series(),
        }
    }
}

fn line(value: &Value) -> Line {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let observed = value["observed"].as_f64().map_or_else(|| "-".to_owned(), |number| show(number, &text("unit")));
    Line { text: text("text"), verdict: text("verdict"), observed, reason: text("reason") }
}

/// A number with its unit, as people write it.
fn show(number: f64, unit: &str) -> String {
    match unit {
        "ratio" | "%" | "share" => format!("{:.1}%", number * 100.0),
        "count" => format!("{number:.0}"),
        "x" => format!("{number:.2}x"),
        "windows" => format!("{number:.0} windows"),
        "s" if number < 1.0 => format!("{:.0} ms", number * 1000.0),
        "s" => format!("{number:.2} s"),
        "1" | "" => format!("{number:.3}"),
        unit => format!("{number:.3} {unit}"),
    }
}
