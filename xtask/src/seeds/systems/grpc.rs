//! gRPC's own retries: how many, when they stop, when they go on, and what goes with a call down a chain.

use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::command;
use crate::seeds::drill::{Moment, Playbook};
use crate::seeds::process::Process;
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::rig;
use crate::seeds::scene::Scene;

/// A running service.
struct Server {
    process: Process,
    port: u16,
}

impl Server {
    fn new(scene: &Scene, next: Option<u16>) -> Result<Self> {
        let port = scene.port();
        let script = scene.write("server.py", include_str!("grpc/server.py"))?;
        let mut command = python();
        command.arg(script).arg(port.to_string()).args(next.map(|port| port.to_string()));
        let mut process = scene.start("grpc-server", &mut command)?;
        process.wait_for_port(port)?;
        Ok(Self { process, port })
    }

    fn counts(self) -> Result<Value> {
        self.process.counts()
    }
}

fn python() -> Command {
    Command::new(rig::environment().join("bin/python3"))
}

/// What a client with a service config does.
fn client(scene: &Scene, port: u16, config: &Value, steps: &Value) -> Result<Process> {
    let script = scene.write("client.py", include_str!("grpc/client.py"))?;
    let mut command = python();
    command.arg(script).args([port.to_string(), config.to_string(), steps.to_string()]);
    scene.start("grpc-client", &mut command)
}

/// The article's retry policy with so many attempts; with or without its throttling.
fn config(attempts: u32, throttled: bool) -> Value {
    let policy = json!({
        "maxAttempts": attempts, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"],
    });
    let mut config = json!({ "methodConfig": [{ "name": [{}], "retryPolicy": policy }] });
    if throttled {
        config["retryThrottling"] = json!({ "maxTokens": 10, "tokenRatio": 0.1 });
    }
    config
}

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    if !scene.short && !is_recognised(scene)? {
        return Ok(Section::skip("this build's probe counts no gRPC call"));
    }
    let version = command::capture(python().args(["-c", "import grpc; print(grpc.__version__)"]))?;
    let mut section = Section {
        versions: vec![format!("grpcio {}", version.trim())],
        story: vec![
            "A client and services of Python's gRPC. The services fail when the request says so, or while they are told to; the client has nothing but a \
             service config. gRPC writes the number of attempts before into `grpc-previous-rpc-attempts`, so each retry is told by a marker."
                .to_owned(),
        ],
        ..Section::default()
    };
    if scene.short {
        short(scene, &mut section)?;
        return Ok(section);
    }
    attempts(scene, &mut section)?;
    throttling(scene, &mut section)?;
    pushback(scene, &mut section)?;
    deadlines(scene, &mut section)?;
    verdicts(scene, &mut section)?;
    Ok(section)
}

/// Whether a few calls are counted at all.
fn is_recognised(scene: &Scene) -> Result<bool> {
    let server = Server::new(scene, None)?;
    let outcome = Playbook::new("is-recognised")
        .ingress("service", server.port)
        .downstream("store", server.port)
        .untyped()
        .phases(["1s", "3s", "1s"])
        .run(scene, |moment| match moment {
            Moment::Phase("fault") => client(scene, server.port, &config(2, false), &json!([{ "count": 3 }]))?.report().map(drop),
            _ => Ok(()),
        })?;
    Ok(outcome.all_requests("store") > 0)
}

/// Runs a client in the fault phase, and gives what it and the server counted.
fn measured(scene: &Scene, section: &mut Section, name: &str, config: &Value, steps: &Value, seconds: &str) -> Result<(Value, Value)> {
    let server = Server::new(scene, None)?;
    let mut report = Value::Null;
    let outcome =
        Playbook::new(name).ingress("service", server.port).downstream("store", server.port).untyped().phases(["1s", seconds, "1s"]).run(
            scene,
            |moment| {
                if moment == Moment::Phase("fault") {
                    report = client(scene, server.port, config, steps)?.report()?;
                }
                Ok(())
            },
        )?;
    let counts = server.counts()?;
    section.count(
        format!("attempts, {name}"),
        outcome.all_requests("store"),
        "the service's handler",
        counts["calls"].as_u64().context("no calls")?,
    );
    section.count(
        format!("retries by marker, {name}"),
        outcome.evidence("store", "fault", "marker")?,
        "grpc-previous-rpc-attempts at the service",
        counts["retries"].as_u64().context("no retries")?,
    );
    Ok((report, counts))
}

/// Four failing calls, whose retries are told by their marker.
fn short(scene: &Scene, section: &mut Section) -> Result<()> {
    let steps = json!([{ "count": 4, "wish": { "fail": true } }]);
    let (_, counts) = measured(scene, section, "short", &config(3, false), &steps, "4s")?;
    let calls = counts["calls"].as_u64().unwrap_or(0);
    section.find("A17", Verdict::of(calls == 12), format!("{calls} attempts of 4 calls with maxAttempts 3"));
    Ok(())
}

fn attempts(scene: &Scene, section: &mut Section) -> Result<()> {
    let mut calls = Vec::new();
    for tries in [3, 10] {
        let (_, counts) = measured(
            scene,
            section,
            &format!("max-attempts-{tries}"),
            &config(tries, false),
            &json!([{ "count": 20, "wish": { "fail": true } }]),
            if tries == 3 { "8s" } else { "40s" },
        )?;
        calls.push(counts["calls"].as_u64().unwrap_or(0) as f64 / 20.0);
    }
    section.find("A17", Verdict::of(calls == [3.0, 5.0]), format!("{:.0} attempts with maxAttempts 3, {:.0} with 10", calls[0], calls[1]));
    Ok(())
}

/// What 40 calls that all fail had of a service, from its own count of each call's attempts.
struct Outage {
    attempts: u64,
    /// The failure after which the first call had less than its three attempts.
    stopped_at: Option<u64>,
}

const FAILING: u64 = 40;

impl Outage {
    fn of(counts: &Value) -> Self {
        let mut outage = Self { attempts: 0, stopped_at: None };
        for call in 1..=FAILING {
            let attempts = attempts_of(counts, call);
            outage.attempts += attempts;
            if attempts < 3 && outage.stopped_at.is_none() {
                outage.stopped_at = Some(outage.attempts);
            }
        }
        outage
    }
}

/// How often a call reached the service.
fn attempts_of(counts: &Value, call: u64) -> u64 {
    counts["attempts"][call.to_string()].as_u64().unwrap_or(0)
}

fn throttling(scene: &Scene, section: &mut Section) -> Result<()> {
    let columns = ["retryThrottling", "successes after the outage", "attempts of 40 failing calls", "attempts of the next failing call"];
    let mut table = Table::new("maxAttempts 3; 10 tokens and 0.1 a success", &columns);
    let fail = json!({ "fail": true });
    let (mut outages, mut enough) = (Vec::new(), None);
    for successes in [50, 51, 60, 61] {
        let steps = json!([{ "count": FAILING, "wish": fail }, { "count": successes }, { "count": 1, "wish": fail }]);
        let (_, counts) = measured(scene, section, &format!("throttling-{successes}"), &config(3, true), &steps, "5s")?;
        let (outage, next) = (Outage::of(&counts), attempts_of(&counts, FAILING + successes + 1));
        table.row(["on".to_owned(), successes.to_string(), outage.attempts.to_string(), next.to_string()]);
        if next > 1 && enough.is_none() {
            enough = Some(successes);
        }
        outages.push(outage);
    }
    let steps = json!([{ "count": FAILING, "wish": fail }]);
    let (_, counts) = measured(scene, section, "not-throttled", &config(3, false), &steps, "18s")?;
    let free = Outage::of(&counts);
    table.row(["off".to_owned(), "-".to_owned(), free.attempts.to_string(), "-".to_owned()]);
    section.tables.push(table);
    let [outage, ..] = &outages[..] else { return Ok(()) };
    // Ten tokens, one for each failure: half of them are gone at the fifth.
    let stops = outages.iter().all(|outage| outage.stopped_at == Some(5));
    let stopped = outage.stopped_at.map_or("never stops".to_owned(), |failure| format!("stops at failure {failure}"));
    let by_itself = match enough {
        Some(51) => "retries go on after 51 successes".to_owned(),
        Some(more @ 52..) => {
            format!("retries go on after {more} successes, not 51: the failure itself costs a token before the tokens are looked at")
        }
        Some(fewer) => format!("retries go on after {fewer} successes already"),
        None => "after 61 successes there is no retry yet".to_owned(),
    };
    section.find(
        "A16",
        Verdict::of_two(stops, enough.is_some_and(|successes| successes > 50)),
        format!("{} attempts for 40 failing calls, {} without throttling: it {stopped}; {by_itself}", outage.attempts, free.attempts),
    );
    Ok(())
}

fn pushback(scene: &Scene, section: &mut Section) -> Result<()> {
    let mut table = Table::new("grpc-retry-pushback-ms, 5 failing calls", &["pushback", "attempts", "a call took (median)"]);
    let mut found = Vec::new();
    for wait in [400, -1] {
        let steps = json!([{ "count": 5, "wish": { "fail": true, "pushback": wait } }]);
        let (report, counts) = measured(scene, section, &format!("pushback{wait}"), &config(3, false), &steps, "8s")?;
        let took = report[0]["median_ms"].as_f64().unwrap_or(0.0);
        table.row([format!("{wait} ms"), counts["calls"].to_string(), format!("{took:.0} ms")]);
        found.push((counts["calls"].as_u64().unwrap_or(0), took));
    }
    section.tables.push(table);
    let obeyed = found[0].0 == 15 && found[0].1 >= 800.0 && found[1].0 == 5;
    section.find(
        "A8",
        Verdict::of(obeyed),
        format!("gRPC's pushback is obeyed: two waits of 400 ms make {:.0} ms, and -1 stops retries", found[0].1),
    );
    Ok(())
}

/// A chain of three services under one deadline: each passes on what is left, or none does.
fn deadlines(scene: &Scene, section: &mut Section) -> Result<()> {
    let passed = chain(scene, section, true)?;
    let kept = chain(scene, section, false)?;
    let mean = |left: &Vec<f64>| left.iter().sum::<f64>() / left.len().max(1) as f64;
    let left: Vec<f64> = passed.iter().map(mean).collect();
    // What a service works is gone from what the next one has; gRPC rounds up by less than one in a hundred.
    let shrinks = passed.iter().all(|left| left.len() == 10) && left.windows(2).all(|pair| pair[1] < pair[0] - 150.0);
    let without: Vec<usize> = kept.iter().map(Vec::len).collect();
    section.find(
        "A23",
        Verdict::of(shrinks),
        format!(
            "of 2000 ms, {:.0}, {:.0} and {:.0} ms are left at three services that work for 200 ms each and give the next call what is left; Python \
             passes on nothing by itself: of 10 calls whose timeout no service passes on, {}, {} and {} have a deadline",
            left[0], left[1], left[2], without[0], without[1], without[2]
        ),
    );
    Ok(())
}

/// What is left of a deadline at each of three services, call by call, in milliseconds: none of a call that has no deadline.
fn chain(scene: &Scene, section: &mut Section, passes: bool) -> Result<Vec<Vec<f64>>> {
    let third = Server::new(scene, None)?;
    let second = Server::new(scene, Some(third.port))?;
    let first = Server::new(scene, Some(second.port))?;
    let steps = json!([{ "count": 10, "timeout": 2.0, "wish": { "wait_ms": 200, "keeps_deadline": !passes } }]);
    let what = if passes { "passed on" } else { "not passed on" };
    let outcome = Playbook::new(if passes { "deadline" } else { "no-deadline" })
        .ingress("first", first.port)
        .downstream("second", second.port)
        .downstream("third", third.port)
        .untyped()
        .phases(["1s", "10s", "1s"])
        .run(scene, |moment| {
            if moment == Moment::Phase("fault") {
                client(scene, first.port, &config(2, false), &steps)?.report()?;
            }
            Ok(())
        })?;
    let mut left = Vec::new();
    for (name, server) in [("first", first), ("second", second), ("third", third)] {
        let counts = server.counts()?;
        section.count(
            format!("calls of the {name} service, deadline {what}"),
            outcome.all_requests(name),
            "its handler",
            counts["calls"].as_u64().unwrap_or(0),
        );
        left.push(counts["left_ms"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect());
    }
    Ok(left)
}

/// The same playbook with three attempts and no throttling, and with the article's throttling.
fn verdicts(scene: &Scene, section: &mut Section) -> Result<()> {
    for (what, throttled, expected) in
        [("maxAttempts 3, not throttled", false, "fail"), ("maxAttempts 3, retryThrottling 10 tokens", true, "pass")]
    {
        let last = Server::new(scene, None)?;
        let first = Server::new(scene, Some(last.port))?;
        // Calls go straight to the service that fails; the ingress edge is its own side of them.
        // More than any drill needs, however slowly it starts: it ends with the drill.
        let steps = json!([{ "count": 25 * 300, "rate": 25 }]);
        let load = client(scene, last.port, &config(3, throttled), &steps)?;
        let outcome = Playbook::new(&format!("grpc-{expected}"))
            .ingress("service", last.port)
            .downstream("store", last.port)
            .untyped()
            .window("1s")
            .phases(["7s", "8s", "4s"])
            .expect("store retry ratio of first <= 20%")
            .run_again(scene, |moment| match moment {
                Moment::Phase("fault") => last.process.signal("USR1"),
                Moment::Phase("recovery") => last.process.signal("USR2"),
                _ => Ok(()),
            })?;
        drop((load, first));
        section.drills.push(outcome.drill(what, expected));
    }
    section.advice.push(
        "**What to configure.** `retryThrottling` beside every `retryPolicy`; `maxAttempts` of at most 5, since more is taken as 5; the incoming call's \
         remaining time as the timeout of the outgoing one. The drill that failed then passes."
            .to_owned(),
    );
    Ok(())
}
