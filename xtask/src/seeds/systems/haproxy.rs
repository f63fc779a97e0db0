//! HAProxy: what its `retries` are worth, to which server they go, and that with answers listed it sends a POST again.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::command;
use crate::seeds::drill::Playbook;
use crate::seeds::nginx::Nginx;
use crate::seeds::process::Process;
use crate::seeds::result::{Section, Table};
use crate::seeds::scene::{Scene, address};

/// A running HAProxy.
struct Haproxy {
    process: Process,
    port: u16,
    socket: PathBuf,
}

impl Haproxy {
    fn new(scene: &Scene, servers: &[u16], settings: &[&str]) -> Result<Self> {
        let port = scene.port();
        let socket = scene.folder.join(format!("{port}.sock"));
        let servers: String = servers.iter().enumerate().map(|(number, port)| format!("  server s{number} {}\n", address(*port))).collect();
        let settings: String = settings.iter().map(|line| format!("  {line}\n")).collect();
        let text = format!(
            "global\n  log stdout format raw local0\n  stats socket {} level admin\ndefaults\n  mode http\n  log global\n  log-format rc=%rc\n  timeout connect 500ms\n  timeout client 30s\n  timeout server 5s\n\
             frontend web\n  bind {}\n  default_backend store\nbackend store\n  balance roundrobin\n{settings}{servers}",
            socket.display(),
            address(port)
        );
        let config = scene.write(&format!("haproxy-{port}.cfg"), &text)?;
        let mut process = scene.start("haproxy", Command::new(command::require("haproxy")?).arg("-db").arg("-f").arg(config))?;
        process.wait_for_port(port)?;
        Ok(Self { process, port, socket })
    }

    /// A column of the backend's own statistics.
    fn statistic(&self, column: &str) -> Result<u64> {
        let mut socket = UnixStream::connect(&self.socket).context("HAProxy's socket")?;
        socket.write_all(b"show stat\n").context("HAProxy's socket")?;
        let mut text = String::new();
        socket.read_to_string(&mut text).context("HAProxy's socket")?;
        let index = text
            .lines()
            .next()
            .and_then(|head| head.split(',').position(|name| name == column))
            .with_context(|| format!("no column {column}"))?;
        let row = text.lines().find(|line| line.starts_with("store,BACKEND,")).context("no row of the backend")?;
        row.split(',').nth(index).and_then(|cell| cell.parse().ok()).with_context(|| format!("no number in {column}"))
    }
}

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let version = command::capture(Command::new(command::require("haproxy")?).arg("-v"))?;
    let mut section = Section {
        versions: vec![version.lines().next().unwrap_or_default().split(" 20").next().unwrap_or_default().replace(" version", "")],
        story: vec![
            "HAProxy stands before nginx. None of the articles speaks of it; it is here because its defaults differ from nginx's: three retries, for \
             connections that fail, and none for answers."
                .to_owned(),
        ],
        ..Section::default()
    };
    answers(scene, &mut section)?;
    if scene.short {
        return Ok(section);
    }
    refused(scene, &mut section)?;
    verdicts(scene, &mut section)?;
    Ok(section)
}

const L7: [&str; 2] = ["retries 3", "retry-on 503"];
const SPARING: [&str; 3] = ["retries 1", "retry-on 503", "http-request disable-l7-retry if METH_POST"];

fn answers(scene: &Scene, section: &mut Section) -> Result<()> {
    let columns = ["settings", "method", "calls of the store", "per request", "retries in HAProxy's log", "its statistic wretr"];
    let mut table = Table::new("20 requests, every answer of the store a 503", &columns);
    let settings: [(&str, &[&str], &str); 3] =
        [("default (retries 3)", &[], "GET"), ("retry-on 503", &L7, "GET"), ("retry-on 503", &L7, "POST")];
    let mut calls = Vec::new();
    for (number, (label, settings, method)) in settings.into_iter().enumerate() {
        if scene.short && number != 1 {
            continue;
        }
        let store = Nginx::store(scene)?;
        let haproxy = Haproxy::new(scene, &[store.port], settings)?;
        let outcome = Playbook::new(&format!("answers-{number}"))
            .ingress("web", haproxy.port)
            .downstream("store", store.port)
            .fault("{http_status: {status: 503, share: 100%}, to: store}")
            .run_with_requests(scene, |_| scene.requests(haproxy.port, 20, &["--method", method, "--body", "x"]).map(drop))?;
        let called = outcome.requests("store", "fault")?;
        let counted = haproxy.statistic("wretr")?;
        let retried: u64 =
            haproxy.process.stop()?.lines().filter_map(|line| line.strip_prefix("rc=")?.trim_start_matches('+').parse::<u64>().ok()).sum();
        let what = format!("{label}, {method}");
        store.compare_calls(section, format!("calls of the store, {what}"), &outcome)?;
        section.count(
            format!("retries, {what}"),
            outcome.all_requests("store") - outcome.all_requests("web"),
            "%rc in HAProxy's log",
            retried,
        );
        table.row([
            label.to_owned(),
            method.to_owned(),
            called.to_string(),
            format!("{:.1}", called as f64 / 20.0),
            retried.to_string(),
            counted.to_string(),
        ]);
        calls.push(called);
    }
    section.tables.push(table);
    let [_, calls, posts] = calls[..] else { return Ok(()) };
    section.story.push(format!(
        "With `retry-on 503` each request that fails is {:.0} calls, and HAProxy looks at no method: {} calls for 20 POSTs. Its statistic `wretr` counts each such retry twice; its log and the store's agree \
         with us.",
        calls as f64 / 20.0,
        posts
    ));
    Ok(())
}

/// One of two servers refuses connections.
fn refused(scene: &Scene, section: &mut Section) -> Result<()> {
    let mut table = Table::new(
        "One of two servers refuses connections, 6 requests in turn",
        &[
            "settings",
            "connects refused",
            "retries (wretr)",
            "redispatched (wredis)",
            "given up (econ)",
            "answers",
            "a request took (median, longest)",
        ],
    );
    for (number, (label, settings)) in
        [("default", &["no option redispatch"][..]), ("option redispatch", &["option redispatch"][..])].into_iter().enumerate()
    {
        let store = Nginx::store(scene)?;
        let closed = scene.port();
        let haproxy = Haproxy::new(scene, &[closed, store.port], settings)?;
        let mut client = Value::Null;
        let outcome = Playbook::new(&format!("refused-{number}"))
            .ingress("web", haproxy.port)
            .downstream("closed", closed)
            .downstream("store", store.port)
            .phases(["2s", "12s", "1s"])
            .run_with_requests(scene, |phase| {
                if phase == "fault" {
                    client = scene.requests(haproxy.port, 6, &["--keepalive", "off"])?;
                }
                Ok(())
            })?;
        let (retried, moved, given_up) = (haproxy.statistic("wretr")?, haproxy.statistic("wredis")?, haproxy.statistic("econ")?);
        let refused = outcome.refused("closed", "fault")?;
        // A connect is done again, goes to the other server, or is the request's last.
        section.count(
            format!("connects refused, {label}"),
            refused,
            "wretr, wredis and econ of HAProxy's statistics",
            retried + moved + given_up,
        );
        store.compare_calls(section, format!("calls of the server that listens, {label}"), &outcome)?;
        let took = |key: &str| client["latency_ms"][key].as_f64().unwrap_or_default();
        table.row([
            label.to_owned(),
            refused.to_string(),
            retried.to_string(),
            moved.to_string(),
            given_up.to_string(),
            client["answers"].to_string().replace('"', ""),
            format!("{:.0} ms, {:.0} ms", took("p50"), took("max")),
        ]);
        haproxy.process.stop()?;
    }
    section.tables.push(table);
    Ok(())
}

fn verdicts(scene: &Scene, section: &mut Section) -> Result<()> {
    let posts: &[&str] = &["--method", "POST", "--body", "x"];
    let variants: [(&str, &[&str], &[&str], &str); 4] = [
        ("retry-on 503, retries 3", &L7, &[], "fail"),
        ("retry-on 503, retries 1, GET", &SPARING, &[], "fail"),
        ("the same with `disable-l7-retry if METH_POST`, POST", &SPARING, posts, "pass"),
        ("retries for connections alone: the default", &["retries 3"], &[], "pass"),
    ];
    let mut observed = Vec::new();
    for (number, (what, settings, client, expected)) in variants.into_iter().enumerate() {
        let store = Nginx::store(scene)?;
        let haproxy = Haproxy::new(scene, &[store.port], settings)?;
        let mut arguments = vec!["--rate", "100/s", "--duration", "300s", "--timeout", "2s"];
        arguments.extend(client);
        let load = scene.load(haproxy.port, &arguments)?;
        let outcome = Playbook::new(&format!("haproxy-{}", number + 1))
            .ingress("web", haproxy.port)
            .downstream("store", store.port)
            .window("1s")
            .phases(["8s", "8s", "4s"])
            .fault("{http_status: {status: 503, share: 30%}, to: store}")
            .expect("store amplification <= 1.2")
            .expect("web success ratio >= 60%")
            .run_until_valid(scene)?;
        load.stop()?;
        observed.push(outcome.observed(0).unwrap_or_default());
        section.drills.push(outcome.drill(what, expected));
    }
    section.advice.push(format!(
        "**What to configure.** `retries` for connections alone, without `retry-on`: that passes ({:.2}x), and `option redispatch` costs no request its \
         answer. `retry-on` with statuses multiplies with the services' own retries: with one retry 30% of 503 are still {:.2}x, which fails. Where it has to \
         be, `http-request disable-l7-retry if METH_POST` keeps POSTs out of it ({:.2}x).",
        observed[3], observed[1], observed[2]
    ));
    Ok(())
}
