//! Envoy with the retry policy and the retry budget of an article: what the budget holds, and what it does not.

mod server;

use anyhow::Result;
use serde_json::Value;

use self::server::{Envoy, Settings};
use crate::seeds::drill::{Moment, Playbook, until_valid};
use crate::seeds::nginx::Nginx;
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::Scene;

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let mut section = Section {
        versions: vec![server::version()?],
        story: vec![
            "Envoy stands before the store with the article's settings: `retry_on: connect-failure,reset,retriable-status-codes` with 503, two retries, \
             0.5 s a try, backoff from 50 ms to 500 ms, and a `retry_budget` of 20% with `min_retry_concurrency: 3`. It numbers its attempts in \
             `x-envoy-attempt-count`, so each retry is told by a marker."
                .to_owned(),
        ],
        ..Section::default()
    };
    budget(scene, &mut section)?;
    if !scene.short {
        policy(scene, &mut section)?;
        timeouts(scene, &mut section)?;
        orphans(scene, &mut section)?;
        retry_after(scene, &mut section)?;
        verdicts(scene, &mut section)?;
    }
    Ok(section)
}

/// Counters of Envoy, whose differences are a drill's.
#[derive(Default)]
struct Own {
    calls: u64,
    retries: u64,
    refused: u64,
}

impl Own {
    fn of(envoy: &Envoy) -> Result<Self> {
        Ok(Self {
            calls: envoy.counter("cluster.store.upstream_rq_total")?,
            retries: envoy.counter("cluster.store.upstream_rq_retry")?,
            refused: envoy.counter("cluster.store.upstream_rq_retry_overflow")?,
        })
    }
}

/// A store that fails at once, or after half a second, at three rates.
fn budget(scene: &Scene, section: &mut Section) -> Result<()> {
    let mut table = Table::new(
        "Every answer a 503: calls of the store above one a request",
        &["it fails", "requests a second", "requests", "calls", "increase", "by simulation", "retries the budget refused"],
    );
    let cells = [
        ("at once", "10", 1.88),
        ("at once", "50", 0.93),
        ("at once", "200", 0.28),
        ("after 500 ms", "10", f64::NAN),
        ("after 500 ms", "50", 0.20),
        ("after 500 ms", "200", 0.22),
    ];
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for (number, (speed, rate, simulated)) in cells.into_iter().enumerate() {
        if scene.short && number != 1 {
            continue;
        }
        let is_slow = speed != "at once";
        let store = scene.store(if is_slow { &["--delay", "500ms"] } else { &[] })?;
        let settings = Settings { per_try: "2s", ..Settings::default() };
        let envoy = Envoy::new(scene, store.port, &settings)?;
        let playbook = Playbook::new(&format!("budget-{}", number + 1))
            .ingress("web", envoy.port)
            .downstream("store", store.port)
            .window("1s")
            .phases(scene.choose(["3s", "15s", "3s"], ["2s", "5s", "2s"]))
            .fault("{http_status: {status: 503, share: 100%}, to: store}");
        let rate_arguments = ["--rate", &format!("{rate}/s"), "--duration", "300s", "--arrivals", "poisson", "--timeout", "10s"];
        let mut before = Own::default();
        // The load is within the drill, so that Envoy's counters have nothing that the drill has not.
        let outcome = until_valid(&format!("budget-{}", number + 1), || {
            before = Own::of(&envoy)?;
            let mut load = None;
            playbook.run(scene, |moment| match moment {
                Moment::Phase("baseline") => {
                    load = Some(scene.load(envoy.port, &rate_arguments)?);
                    Ok(())
                }
                Moment::Phase("recovery") => load.take().map_or(Ok(()), |load| load.stop().map(drop)),
                _ => Ok(()),
            })
        })?;
        let after = Own::of(&envoy)?;
        let what = format!("fails {speed}, {rate}/s");
        section.count(
            format!("calls of the store, {what}"),
            outcome.all_requests("store"),
            "upstream_rq_total",
            after.calls - before.calls,
        );
        section.count(
            format!("retries, by x-envoy-attempt-count, {what}"),
            outcome.all("store", "/retries/marker"),
            "upstream_rq_retry",
            after.retries - before.retries,
        );
        let (asked, called) = (outcome.requests("web", "fault")?, outcome.requests("store", "fault")?);
        let increase = called as f64 / asked as f64 - 1.0;
        if is_slow {
            slow.push(increase)
        } else {
            fast.push(increase)
        }
        let refused = after.refused - before.refused;
        table.row([
            speed.to_owned(),
            rate.to_owned(),
            asked.to_string(),
            called.to_string(),
            format!("+{:.0}%", increase * 100.0),
            if simulated.is_nan() { "-".to_owned() } else { format!("+{:.0}%", simulated * 100.0) },
            refused.to_string(),
        ]);
    }
    section.tables.push(table);
    let list = |values: &[f64]| values.iter().map(|value| format!("+{:.0}%", value * 100.0)).collect::<Vec<_>>().join(", ");
    if !scene.short {
        // Ten a second are too few for a floor of three, however slow the failures.
        let held = |increases: &[f64]| increases.iter().skip(1).all(|increase| *increase < 0.30);
        section.find(
            "A14",
            Verdict::of_two(held(&fast), held(&slow)),
            format!(
                "at 10, 50 and 200/s {} while the store fails at once, where the floor of 3 is what counts, and {} when it fails after 500 ms",
                list(&fast),
                list(&slow)
            ),
        );
    }
    Ok(())
}

/// Exactly 40 requests: attempts, retries and limits by Envoy's own counters.
fn policy(scene: &Scene, section: &mut Section) -> Result<()> {
    let store = Nginx::store(scene)?;
    let settings = Settings { budget: "", ..Settings::default() };
    let envoy = Envoy::new(scene, store.port, &settings)?;
    let mut client = Value::Null;
    let outcome = Playbook::new("policy")
        .ingress("web", envoy.port)
        .downstream("store", store.port)
        .phases(["2s", "12s", "1s"])
        .fault("{http_status: {status: 503, share: 100%}, to: store}")
        .expect("store attempts max <= 3")
        .run_with_requests(scene, |phase| {
            let report = scene.requests(envoy.port, 40, &[])?;
            if phase == "fault" {
                client = report;
            }
            Ok(())
        })?;
    let retries = outcome.evidence("store", "fault", "marker")?;
    store.compare_calls(section, "calls of the store, 80 requests of which 40 fail", &outcome)?;
    section.count("the same", outcome.all_requests("store"), "upstream_rq_total", envoy.counter("cluster.store.upstream_rq_total")?);
    section.count("retries, by x-envoy-attempt-count", retries, "upstream_rq_retry", envoy.counter("cluster.store.upstream_rq_retry")?);
    section.count(
        "requests whose tries were used up",
        outcome.requests("web", "fault")?,
        "upstream_rq_retry_limit_exceeded",
        envoy.counter("cluster.store.upstream_rq_retry_limit_exceeded")?,
    );
    let called = outcome.requests("store", "fault")?;
    // Two waits, drawn from 0 to 50 and from 0 to 150 ms. Their median says so on a machine that stands still now and then; the longest does not.
    let usual = client["failure_latency_ms"]["p50"].as_f64().unwrap_or_default();
    section.find(
        "A15",
        Verdict::of(called == 120 && (50.0..200.0).contains(&usual)),
        format!("{called} calls for 40 requests; with both waits they failed after {usual:.0} ms in the median, where draws up to 50 and 150 ms make 100"),
    );
    section.drills.push(outcome.drill("two retries: no request may have more than three attempts", "pass"));
    Ok(())
}

/// A store that takes 2 s: per-try timeouts below and above the total.
fn timeouts(scene: &Scene, section: &mut Section) -> Result<()> {
    let columns = ["per-try timeout", "route timeout", "attempts a request", "answered", "a request took (median)"];
    let mut table = Table::new("A store that takes 2 s, 5 requests", &columns);
    let mut found = Vec::new();
    for (number, (per_try, total)) in [("0.5s", "3s"), ("3s", "1s")].into_iter().enumerate() {
        let store = scene.store(&["--delay", "2s"])?;
        let envoy = Envoy::new(scene, store.port, &Settings { budget: "", per_try, total, ..Settings::default() })?;
        let mut client = Value::Null;
        let outcome = Playbook::new(&format!("timeout-{number}"))
            .ingress("web", envoy.port)
            .downstream("store", store.port)
            .phases(["2s", "12s", "3s"])
            .run_with_requests(scene, |phase| {
                if phase == "fault" {
                    client = scene.requests(envoy.port, 5, &[])?;
                }
                Ok(())
            })?;
        section.count(
            format!("attempts, {per_try} a try of {total}"),
            outcome.all_requests("store"),
            "upstream_rq_total",
            envoy.counter("cluster.store.upstream_rq_total")?,
        );
        section.count(
            format!("attempts that were given up, {per_try} a try of {total}"),
            outcome.aborts("store", "fault")?,
            "upstream_rq_per_try_timeout and upstream_rq_timeout",
            envoy.counter("cluster.store.upstream_rq_per_try_timeout")? + envoy.counter("cluster.store.upstream_rq_timeout")?,
        );
        let attempts = outcome.requests("store", "fault")? as f64 / 5.0;
        let took = client["failure_latency_ms"]["p50"].as_f64().unwrap_or_default();
        table.row([
            per_try.to_owned(),
            total.to_owned(),
            format!("{attempts:.1}"),
            client["answers"].to_string().replace('"', ""),
            format!("{took:.0} ms"),
        ]);
        found.push((attempts, took));
    }
    section.tables.push(table);
    section.find(
        "A25",
        Verdict::of(found[0].0 > 2.9 && found[1].0 < 1.1),
        format!("{:.0} attempts with 0.5 s a try of 3 s, {:.0} with 3 s of 1 s", found[0].0, found[1].0),
    );
    Ok(())
}

/// Envoy gives up after 3 s; the service behind it works on until its own store has answered, after 5 s.
fn orphans(scene: &Scene, section: &mut Section) -> Result<()> {
    const REQUESTS: u32 = 3;
    let store = scene.store(&["--delay", "5s"])?;
    let service = scene.chain(1, store.port, &["--tries", "1", "--timeout", "10s", "--caller-gone", "goes-on"])?;
    let envoy = Envoy::new(scene, service.port, &Settings { budget: "", per_try: "10s", total: "3s", ..Settings::default() })?;
    let outcome = Playbook::new("orphans")
        // The service's own incoming requests, whose id Envoy makes: by it the store's are known to be for them.
        .ingress("service", service.port)
        .downstream("store", store.port)
        .phases(["2s", "14s", "1s"])
        .expect("store orphan work <= 100ms")
        .run_with_requests(scene, |phase| if phase == "fault" { scene.requests(envoy.port, REQUESTS, &[]).map(drop) } else { Ok(()) })?;
    let each = outcome.number("store", "fault", "/retrying/orphan_ms")? / f64::from(REQUESTS) / 1000.0;
    section.find(
        "A22",
        Verdict::of((each - 2.0).abs() < 0.3),
        format!("Envoy with a timeout of 3 s before a service that works for 5 s: {each:.2} s of each are worked for nobody"),
    );
    section.drills.push(outcome.drill("Envoy gives up after 3 s, the service works for 5 s", "fail"));
    Ok(())
}

/// A store that says when to come again.
fn retry_after(scene: &Scene, section: &mut Section) -> Result<()> {
    let columns = ["rate_limited_retry_back_off", "calls for 5 requests", "a request took (median)"];
    let mut table = Table::new("503 with `Retry-After: 1`", &columns);
    let mut took = Vec::new();
    for (number, obeys) in [false, true].into_iter().enumerate() {
        let store = Nginx::start(scene, "", "add_header Retry-After 1 always; return 200 \"ok\\n\";")?;
        let envoy = Envoy::new(scene, store.port, &Settings { budget: "", obeys_retry_after: obeys, total: "20s", ..Settings::default() })?;
        let mut client = Value::Null;
        let outcome = Playbook::new(&format!("retry-after-{number}"))
            .ingress("web", envoy.port)
            .downstream("store", store.port)
            .phases(["2s", if obeys { "18s" } else { "3s" }, "1s"])
            .fault("{http_status: {status: 503, share: 100%}, to: store}")
            .run_with_requests(scene, |phase| {
                if phase == "fault" {
                    client = scene.requests(envoy.port, 5, &[])?;
                }
                Ok(())
            })?;
        let what = if obeys { "Retry-After obeyed" } else { "Retry-After not read" };
        store.compare_calls(section, format!("calls of the store, {what}"), &outcome)?;
        section.count(
            format!("retries, by x-envoy-attempt-count, {what}"),
            outcome.all("store", "/retries/marker"),
            "upstream_rq_retry",
            envoy.counter("cluster.store.upstream_rq_retry")?,
        );
        let median = client["failure_latency_ms"]["p50"].as_f64().unwrap_or_default();
        table.row([
            if obeys { "Retry-After" } else { "not set (the default)" }.to_owned(),
            outcome.requests("store", "fault")?.to_string(),
            format!("{median:.0} ms"),
        ]);
        took.push(median);
    }
    section.tables.push(table);
    section.find(
        "A8",
        if took[0] < 1000.0 && took[1] >= 2000.0 { Verdict::Partly } else { Verdict::Refuted },
        format!(
            "Envoy obeys Retry-After: 1 only if told to: two retries within {:.0} ms by default, {:.0} ms with rate_limited_retry_back_off",
            took[0], took[1]
        ),
    );
    Ok(())
}

/// The article's acceptance line on the article's settings, and on ones that keep it.
fn verdicts(scene: &Scene, section: &mut Section) -> Result<()> {
    let variants = [
        ("the article's budget, 50 requests a second, failing at once", Settings::default(), "fail"),
        (
            "`min_retry_concurrency: 1`, backoff from 500 ms",
            Settings { budget: "budget_percent: {value: 20.0}, min_retry_concurrency: 1", base: "0.5s", max: "1s", ..Settings::default() },
            "pass",
        ),
    ];
    let mut increases = Vec::new();
    for (what, settings, expected) in variants {
        let store = Nginx::store(scene)?;
        let envoy = Envoy::new(scene, store.port, &settings)?;
        let load = scene.load(envoy.port, &["--rate", "50/s", "--duration", "300s", "--timeout", "5s"])?;
        let outcome = Playbook::new(&format!("envoy-{expected}"))
            .ingress("web", envoy.port)
            .downstream("store", store.port)
            .window("1s")
            .phases(["15s", "20s", "6s"])
            .fault("{http_status: {status: 503, share: 100%}, to: store}")
            .expect("downstream QPS increase <= 20%")
            .expect("store amplification <= 1.2")
            .expect("retry ratio recovers within 2 windows")
            .run_until_valid(scene)?;
        load.stop()?;
        increases.push(outcome.observed(0).unwrap_or_default());
        section.drills.push(outcome.drill(what, expected));
    }
    section.find(
        "A28",
        Verdict::of_two(increases[0] <= 0.2, increases[1] <= 0.2),
        format!(
            "the article's Envoy settings fail its own line of 20% at 50/s (+{:.0}%); a floor of 1 and a longer backoff keep it (+{:.0}%)",
            increases[0] * 100.0,
            increases[1] * 100.0
        ),
    );
    section.advice.push(
        "**What to configure.** A `retry_budget` counts retries that are *under way*, backoff included, and not retries a second. Whatever fails quickly \
         leaves few requests active, so the floor decides: it lets about `min_retry_concurrency` divided by the mean backoff through each second. Set \
         `min_retry_concurrency: 1` (or 0) and a `base_interval` long enough that this is below 20% of the rate of one Envoy worker; set \
         `rate_limited_retry_back_off` with `Retry-After`; and keep `per_try_timeout` below the route's `timeout`. The drill then passes."
            .to_owned(),
    );
    Ok(())
}
