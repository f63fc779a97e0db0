//! nginx as a gateway before services that retry too: how its tries multiply with theirs, and how it ejects its upstreams.

mod limits;

use anyhow::Result;
use serde_json::Value;

use crate::seeds::drill::{Outcome, Playbook};
use crate::seeds::nginx::{self, Nginx};
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::{Scene, Service};

/// A row of the table: the client's tries, nginx's settings, and what the article measured.
struct Row {
    client: &'static str,
    label: &'static str,
    server: &'static str,
    location: &'static str,
    calls: u64,
    statuses: &'static str,
    article: &'static str,
}

const ROWS: [Row; 6] = [
    Row { client: "1", label: "default", server: "", location: "", calls: 60, statuses: "503: 20", article: "60, {503: 20}" },
    Row { client: "3", label: "default", server: "", location: "", calls: 180, statuses: "503: 20", article: "180, {503: 20}" },
    Row {
        client: "1",
        label: "http_503, max_fails=1",
        server: "",
        location: H503,
        calls: 9,
        statuses: "502: 19, 503: 1",
        article: "9, {503: 1, 502: 19}",
    },
    Row {
        client: "1",
        label: "http_503, max_fails=0",
        server: "max_fails=0",
        location: H503,
        calls: 120,
        statuses: "503: 20",
        article: "120, {503: 20}",
    },
    Row {
        client: "3",
        label: "http_503, max_fails=0",
        server: "max_fails=0",
        location: H503,
        calls: 360,
        statuses: "503: 20",
        article: "360, {503: 20}",
    },
    Row { client: "3", label: "http_503, max_fails=1", server: "", location: H503, calls: 9, statuses: "502: 20", article: "not in it" },
];

const H503: &str = "proxy_next_upstream error timeout http_503;";

/// The gateway, two services behind it, and the store that they call.
struct Rig {
    gateway: Nginx,
    services: [Service; 2],
    store: Nginx,
}

impl Rig {
    fn new(scene: &Scene, server: &str, location: &str, tries: &str) -> Result<Self> {
        let store = Nginx::store(scene)?;
        let one = scene.chain(1, store.port, &["--tries", tries])?;
        let other = scene.chain(1, store.port, &["--tries", tries])?;
        let gateway = Nginx::gateway(scene, &[one.port, other.port], server, location)?;
        Ok(Self { gateway, services: [one, other], store })
    }

    fn playbook(&self, name: &str) -> Playbook {
        // The services' ports are neighbours, since a chain of one layer takes one port.
        Playbook::new(name)
            .ingress("web", self.gateway.port)
            .downstream_range("service", self.services[0].port, 2)
            .downstream("store", self.store.port)
            .fault("{http_status: {status: 503, share: 100%}, to: store}")
    }

    /// Calls of the store and tries of nginx, by us and by their own logs.
    fn count(&self, section: &mut Section, outcome: &Outcome, what: &str) -> Result<u64> {
        let attempts = self.gateway.entries()?.iter().map(nginx::Entry::attempts).sum();
        section.count(format!("nginx's tries, {what}"), outcome.all_requests("service"), "$upstream_status in nginx's log", attempts);
        self.store.compare_calls(section, format!("calls of the store, {what}"), outcome)?;
        outcome.requests("store", "fault")
    }

    fn stop(self) -> Result<()> {
        self.gateway.stop()?;
        for service in self.services {
            service.counts()?;
        }
        self.store.stop()
    }
}

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let mut section = Section {
        versions: vec![nginx::version()?],
        story: vec![
            "nginx stands before two services of `stormdrill-lab chain` with three tries each; both call one store, again nginx, all of whose answers \
             the kernel turns into 503. The client sends 20 requests, one after another."
                .to_owned(),
        ],
        ..Section::default()
    };
    table(scene, &mut section)?;
    if !scene.short {
        let broken = limits::methods(scene, &mut section)?;
        limits::tries(scene, &mut section, broken)?;
        verdicts(scene, &mut section)?;
    }
    Ok(section)
}

fn table(scene: &Scene, section: &mut Section) -> Result<()> {
    let columns = ["client's tries", "nginx", "nginx's tries", "calls of the store", "per request", "what the client got", "the article's"];
    let mut table = Table::new("20 requests, every answer of the store a 503", &columns);
    let mut calls = Vec::new();
    for (number, row) in ROWS.iter().enumerate() {
        if scene.short && ![2, 4].contains(&number) {
            continue;
        }
        let rig = Rig::new(scene, row.server, row.location, "3")?;
        let mut client = Value::Null;
        let outcome = rig
            .playbook(&format!("gateway-{}", number + 1))
            .phases(["2s", "4s", "1s"])
            .expect("store attempts max <= 3")
            .run_with_requests(scene, |phase| {
                let report = scene.requests(rig.gateway.port, 20, &["--tries", row.client])?;
                if phase == "fault" {
                    client = report;
                }
                Ok(())
            })?;
        let what = format!("client {} tries, {}", row.client, row.label);
        let called = rig.count(section, &outcome, &what)?;
        let got = statuses(&client);
        table.row([
            row.client.to_owned(),
            row.label.to_owned(),
            outcome.requests("service", "fault")?.to_string(),
            called.to_string(),
            format!("{:.2}", called as f64 / 20.0),
            format!("{{{got}}}"),
            row.article.to_owned(),
        ]);
        if number == 2 {
            let ejected = rig.gateway.complaints("no live upstreams")?;
            let made = outcome.statuses("web", "fault")?.into_iter().find(|(status, _)| status == "502").map_or(0, |(_, count)| count);
            section.count(
                "answers 502 at the gateway's edge, with no call of a service behind them",
                made,
                "\"no live upstreams\" in nginx's error log",
                ejected as u64,
            );
            section.find("B9", Verdict::of(got == row.statuses), format!("{{{got}}}; {ejected} times \"no live upstreams\" in its log"));
        }
        calls.push((called == row.calls && got == row.statuses, called));
        rig.stop()?;
    }
    section.tables.push(table);
    let list = calls.iter().map(|(_, called)| called.to_string()).collect::<Vec<_>>().join(", ");
    section.find("B8", Verdict::of(calls.iter().all(|(same, _)| *same)), format!("{list} calls (the last row is not the article's)"));
    if let Some((_, called)) = calls.get(if scene.short { 1 } else { 4 }) {
        section.find("B10", Verdict::of(*called == 360), format!("{:.1} calls a request", *called as f64 / 20.0));
    }
    Ok(())
}

/// The client's answers after all tries, as `status: count`.
fn statuses(client: &Value) -> String {
    let tries = client["downstream"]["tries"].as_u64().unwrap_or(0);
    let answers = client["answers"].as_object().cloned().unwrap_or_default();
    let list = answers.iter().map(|(status, count)| format!("{status}: {count}")).collect::<Vec<_>>().join(", ");
    if tries == 0 { "nothing".to_owned() } else { list }
}

/// The same playbook on a gateway that retries beside its services, one that ejects, and one that leaves it to the services.
fn verdicts(scene: &Scene, section: &mut Section) -> Result<()> {
    let variants = [
        ("nginx tries the other upstream on 503, both services try three times", "max_fails=0", H503, "3", "fail"),
        ("nginx ejects its upstreams on 503 (max_fails=1): no amplification, and nobody is served", "", H503, "1", "fail"),
        ("nginx tries the other upstream on 503 and ejects none (max_fails=0), services have one try", "max_fails=0", H503, "1", "fail"),
        (
            "nginx passes errors on but no 503, services have one try",
            "",
            "proxy_next_upstream error; proxy_next_upstream_tries 2;",
            "1",
            "pass",
        ),
    ];
    let mut observed = Vec::new();
    for (number, (what, server, location, tries, expected)) in variants.into_iter().enumerate() {
        let rig = Rig::new(scene, server, location, tries)?;
        let load = scene.load(rig.gateway.port, &["--rate", "100/s", "--duration", "300s", "--timeout", "2s", "--unique-path", "on"])?;
        let outcome = Playbook::new(&format!("gateway-verdict-{}", number + 1))
            .ingress("web", rig.gateway.port)
            .downstream_range("service", rig.services[0].port, 2)
            .downstream("store", rig.store.port)
            .window("1s")
            .phases(["10s", "10s", "12s"])
            .fault("{http_status: {status: 503, share: 30%}, to: store}")
            .expect("store amplification <= 1.2")
            .expect("web success ratio >= 60%")
            .expect("web success ratio recovers within 11s")
            .run_until_valid(scene)?;
        load.stop()?;
        section.drills.push(outcome.drill(what, expected));
        observed.push(outcome.observed(0).unwrap_or_default());
        rig.stop()?;
    }
    section.advice.push(format!(
        "**What to configure.** `proxy_next_upstream error; proxy_next_upstream_tries 2;` leaves answers to the services, and one of the two layers retries, \
         not both: that passes ({:.2}x). With `http_503` in the list nginx either ejects every upstream at once (`max_fails=1`) or is itself a layer that \
         retries (`max_fails=0`: {:.2}x at 30% of 503 with services of one try); neither passes this playbook. An expectation on amplification alone passes \
         while an ejected gateway serves nobody: put one on the success ratio beside it, as this playbook does.",
        observed[3], observed[2]
    ));
    Ok(())
}
