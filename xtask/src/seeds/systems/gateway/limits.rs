//! What nginx passes on by itself: which failures, which methods, how often and for how long.

use anyhow::Result;
use serde_json::Value;

use crate::seeds::drill::Playbook;
use crate::seeds::nginx::{self, Nginx};
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::Scene;

/// A service that closes the connection instead of an answer: which methods does nginx send again?
/// Returns the tries for 20 GETs with claim A10's settings.
pub(super) fn methods(scene: &Scene, section: &mut Section) -> Result<u64> {
    let mut table = Table::new(
        "One upstream closes the connection after it has the request, the other answers",
        &["method", "proxy_next_upstream", "requests", "nginx's tries", "served"],
    );
    let mut tries = Vec::new();
    let settings = [
        ("GET", "error timeout"),
        ("POST", "error timeout"),
        ("POST", "error timeout non_idempotent"),
        ("GET", "error; proxy_next_upstream_tries 2; proxy_next_upstream_timeout 3s"),
    ];
    for (method, setting) in settings {
        let closing = Nginx::start(scene, "", "return 444;")?;
        let good = Nginx::store(scene)?;
        let gateway = Nginx::gateway(scene, &[closing.port, good.port], "max_fails=0", &format!("proxy_next_upstream {setting};"))?;
        let outcome = Playbook::new(&format!("method-{}", tries.len()))
            .ingress("web", gateway.port)
            .downstream_range("service", closing.port, 2)
            .run_with_requests(scene, |phase| {
                if phase == "fault" { scene.requests(gateway.port, 20, &["--method", method]).map(drop) } else { Ok(()) }
            })?;
        let attempts: u64 = gateway.entries()?.iter().map(nginx::Entry::attempts).sum();
        let served = gateway.entries()?.iter().filter(|entry| entry.status == "200").count();
        section.count(
            format!("nginx's tries, {method}, {setting}"),
            outcome.all_requests("service"),
            "$upstream_status in nginx's log",
            attempts,
        );
        table.row([method.to_owned(), setting.to_owned(), "20".to_owned(), attempts.to_string(), format!("{served} of 20")]);
        tries.push(attempts);
        for server in [gateway, closing, good] {
            server.stop()?;
        }
    }
    section.tables.push(table);
    if let [get, post, forced, _] = tries[..] {
        section.find(
            "A9",
            Verdict::of(get > 20 && post == 20 && forced > 20),
            format!("tries for 20 requests: GET {get}, POST {post}, POST with non_idempotent {forced}"),
        );
    }
    Ok(tries.last().copied().unwrap_or_default())
}

/// Three upstreams of which none answers: tries without a limit, with one, and the time limit.
/// `broken` are the tries for 20 GETs half of which meet a connection that breaks, with the last of these settings.
pub(super) fn tries(scene: &Scene, section: &mut Section, broken: u64) -> Result<()> {
    let mut table = Table::new(
        "Three upstreams that do not answer within 300 ms, 5 requests",
        &["limits", "nginx's tries a request", "a request took (median)"],
    );
    let mut tries = Vec::new();
    let settings = [
        ("none (the default)", ""),
        ("tries 2", "proxy_next_upstream_tries 2;"),
        ("timeout 500ms", "proxy_next_upstream_timeout 500ms;"),
        ("`error` only, tries 2, timeout 3s", "proxy_next_upstream error; proxy_next_upstream_tries 2; proxy_next_upstream_timeout 3s;"),
    ];
    for (label, setting) in settings {
        let stores = [scene.store(&["--delay", "2s"])?, scene.store(&["--delay", "2s"])?, scene.store(&["--delay", "2s"])?];
        let ports: Vec<u16> = stores.iter().map(|store| store.port).collect();
        let gateway = Nginx::gateway(scene, &ports, "max_fails=0", &format!("proxy_read_timeout 300ms; {setting}"))?;
        let mut client = Value::Null;
        let outcome = Playbook::new(&format!("limit-{}", tries.len()))
            .ingress("web", gateway.port)
            .downstream_range("service", ports[0], 3)
            .phases(["2s", "7s", "1s"])
            .run_with_requests(scene, |phase| {
                if phase == "fault" {
                    client = scene.requests(gateway.port, 5, &[])?;
                }
                Ok(())
            })?;
        let attempts: u64 = gateway.entries()?.iter().map(nginx::Entry::attempts).sum();
        section.count(format!("nginx's tries, {label}"), outcome.all_requests("service"), "$upstream_status in nginx's log", attempts);
        let took = client["failure_latency_ms"]["p50"].as_f64().unwrap_or_default();
        table.row([label.to_owned(), format!("{:.1}", attempts as f64 / 5.0), format!("{took:.0} ms")]);
        tries.push((attempts, took));
        gateway.stop()?;
    }
    section.tables.push(table);
    section.find(
        "A11",
        Verdict::of(tries[0].0 == 15 && tries[1].0 == 10),
        format!(
            "without a limit {:.0} tries for three upstreams, which are the limit; {:.0} with `tries 2`",
            tries[0].0 as f64 / 5.0,
            tries[1].0 as f64 / 5.0
        ),
    );
    let (no_timeout, breaks) = (tries[3].0 == 5, broken > 20);
    section.find(
        "A10",
        if no_timeout && !breaks { Verdict::Reproduced } else if no_timeout { Verdict::Partly } else { Verdict::Refuted },
        format!(
            "with these settings a timeout is {} ({:.0} try a request); of connections that break after the request was sent {} ({broken} tries for 20 \
             requests){}; `timeout` ends no running try: with 500 ms a request took {:.0} ms",
            if no_timeout { "not passed on, as the article wants" } else { "passed on" },
            tries[3].0 as f64 / 5.0,
            if breaks { "each is" } else { "none is" },
            if breaks { ", so it is not about connecting alone" } else { "" },
            tries[2].1
        ),
    );
    Ok(())
}
