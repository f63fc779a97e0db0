//! The shipped playbooks, each on a service that passes it and on one that fails it.

mod cases;

use anyhow::{Context as _, Result};

use self::cases::{CASES, Case, Service};
use crate::paths;
use crate::seeds::drill;
use crate::seeds::nginx::Nginx;
use crate::seeds::result::{Drill, Section, Table, Verdict};
use crate::seeds::scene::Scene;

/// Playbooks that are drilled elsewhere, and where.
const ELSEWHERE: [(&str, &str); 2] =
    [("latency", "needs netem: `latency` runs it in a kernel of its own"), ("redis-cascade", "needs Redis and MariaDB: `cascade` runs it")];

/// Those of the short form, by their numbers.
const SHORT: [usize; 2] = [2, 3];

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let mut section = Section {
        versions: vec!["the lab's services".to_owned()],
        story: vec![
            "One lesson each, in `playbooks/`. Each is run on a service that has learnt it and on one that has not, with shorter phases than the file \
             has (`--set phases.baseline=8s` and so on)."
                .to_owned(),
        ],
        ..Section::default()
    };
    section.tables.push(lessons()?);
    for (number, case) in CASES.iter().enumerate() {
        let wanted = scene.playbook.as_deref().is_none_or(|name| name == case.playbook);
        if wanted && (!scene.short || SHORT.contains(&number)) {
            section.drills.push(case.run(scene)?);
        }
    }
    if !scene.short && scene.playbook.is_none() {
        findings(&mut section);
    }
    Ok(section)
}

/// The drills of the shipped playbooks, one after the other: `each` is given what it was and how it ended. `only` by the playbook's name.
pub(crate) fn each(scene: &Scene, only: &[String], mut each: impl FnMut(Result<Drill>, &str)) {
    for case in CASES.iter().filter(|case| only.is_empty() || only.iter().any(|name| name == case.playbook)) {
        each(case.run(scene), &format!("{}: {}", case.playbook, case.what));
    }
}

/// The question that each file opens with.
fn lessons() -> Result<Table> {
    let mut table = Table::new("The lessons", &["playbook", "asks"]);
    let mut names: Vec<&str> = CASES.iter().map(|case| case.playbook).chain(ELSEWHERE.map(|(name, _)| name)).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let path = paths::workspace().join("playbooks").join(name).with_extension("yaml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let question = text.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']).to_owned();
        table.row([format!("`{name}`"), question]);
    }
    Ok(table)
}

/// What the pairs of drills say about the claims.
fn findings(section: &mut Section) {
    let drills = section.drills.clone();
    let pair = |name: &str| -> (bool, [String; 2]) {
        let of = |expected: &str| drills.iter().find(|drill| drill.what.starts_with(&format!("{name}:")) && drill.expected == expected);
        let observed =
            |expected: &str| of(expected).and_then(|drill| drill.lines.first()).map_or("-".to_owned(), |line| line.observed.clone());
        let is_right = ["fail", "pass"].into_iter().all(|expected| of(expected).is_some_and(|drill| drill.verdict == expected));
        (is_right, [observed("fail"), observed("pass")])
    };
    if let Some(drill) = drills.iter().find(|drill| drill.what.starts_with("gateway-ejection:") && drill.expected == "fail")
        && let [amplification, success, ..] = &drill.lines[..]
    {
        section.find(
            "A29",
            Verdict::of(amplification.verdict == "pass" && success.verdict == "fail"),
            format!(
                "gateway-ejection: an amplification of {} {}es while {} are served, which {}s",
                amplification.observed, amplification.verdict, success.observed, success.verdict
            ),
        );
    }
    let complete = drills.iter().filter(|drill| drill.has_series).count();
    section.find(
        "A27",
        Verdict::of(complete == drills.len()),
        format!("{complete} of {} results have the three series, window by window", drills.len()),
    );
    let losses: Vec<String> = drills
        .iter()
        .filter(|drill| drill.what.starts_with("packet-loss:"))
        .map(|drill| format!("{}: {}", drill.what.trim_start_matches("packet-loss: "), drill.verdict))
        .collect();
    section.find("A28", Verdict::Partly, format!("its line on 30% of packets lost: {}", losses.join(", ")));
    let (right, [bad, good]) = pair("non-idempotent-retries");
    for id in ["A6", "C9"] {
        section.find(
            id,
            Verdict::of(right),
            format!("POSTs sent again without a key: {bad} where every method is retried, {good} where idempotent ones are"),
        );
    }
    let (right, [bad, good]) = pair("nonretryable");
    section.find(
        "A7",
        if right { Verdict::Partly } else { Verdict::Refuted },
        format!(
            "retries of a 404: {bad} by a client that retries every error, {good} by one that does not; the other statuses were not run"
        ),
    );
    let (right, [bad, good]) = pair("retry-after");
    section.find(
        "A8",
        Verdict::of(right),
        format!("retries before the time that was asked for: {bad} where the header is not read, {good} where it is"),
    );
    let (right, [bad, good]) = pair("backoff-jitter");
    for id in ["A18", "D5"] {
        section.find(
            id,
            Verdict::of(right),
            format!("spread of the pauses (deviation over mean): {bad} for a fixed interval, {good} for Full Jitter"),
        );
    }
    let (right, [bad, good]) = pair("deadline");
    for (id, text) in [("A21", ""), ("A24", ", in `X-Request-Deadline` and `x-envoy-expected-rq-timeout-ms`")] {
        section.find(
            id,
            Verdict::of(right),
            format!("tries begun after the caller's deadline: {bad} without it, {good} where it is passed on{text}"),
        );
    }
}

impl Case {
    fn run(&self, scene: &Scene) -> Result<Drill> {
        match self.service {
            Service::Chain(layers, chain, store) => {
                let store = scene.store(store)?;
                let chain = scene.chain(layers, store.port, chain)?;
                self.drill(scene, chain.port, &store.port.to_string())
            }
            Service::Gateway(location) => {
                let store = Nginx::store(scene)?;
                let services = [scene.chain(1, store.port, &["--tries", "1"])?, scene.chain(1, store.port, &["--tries", "1"])?];
                let gateway = Nginx::gateway(scene, &[services[0].port, services[1].port], "", location)?;
                self.drill(scene, gateway.port, &store.port.to_string())
            }
        }
    }

    fn drill(&self, scene: &Scene, web: u16, store: &str) -> Result<Drill> {
        let mut arguments = vec!["--rate", self.rate, "--duration", "300s", "--unique-path", "on"];
        arguments.extend(self.client);
        let load = scene.load(web, &arguments)?;
        let mut set: Vec<(String, String)> = [
            ("observe.ingress.web.port", web.to_string().as_str()),
            ("observe.downstream.store.port", store),
            ("observe.window", self.window),
            ("phases.baseline", scene.choose(self.phases[0], "5s")),
            ("phases.fault", scene.choose(self.phases[1], "5s")),
            ("phases.recovery", scene.choose(self.phases[2], "4s")),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        set.extend(self.set.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let file = paths::workspace().join("playbooks").join(self.playbook).with_extension("yaml");
        let outcome = drill::run_until_valid(scene, &file, &format!("{}-{}", self.playbook, self.expected), &set)?;
        load.stop()?;
        Ok(outcome.drill(format!("{}: {}", self.playbook, self.what), self.expected))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use super::*;

    #[test]
    fn every_shipped_playbook_has_a_service_that_passes_it_and_one_that_fails_it() {
        let folder = std::fs::read_dir(paths::workspace().join("playbooks")).unwrap();
        let names: Vec<String> = folder.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect();
        for name in names.iter().filter(|name| ELSEWHERE.iter().all(|(other, _)| other != name)) {
            for expected in ["pass", "fail"] {
                assert!(
                    CASES.iter().any(|case| case.playbook == name && case.expected == expected),
                    "{name} has no drill that should {expected}"
                );
            }
        }
        assert!(CASES.iter().all(|case| names.iter().any(|name| name == case.playbook)));
    }
}
