//! The articles' own code: budgets, a breaker and backoffs that behave as their listings do, each beside one that does what was meant.
//!
//! The lab has small implementations of the behaviour; no line of the listings is in it.

use anyhow::Result;

use crate::seeds::drill::{Moment, Outcome, Playbook};
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::{Scene, Service};

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let mut section = Section {
        versions: vec!["the lab's services".to_owned()],
        story: vec![
            "Three of the articles print code. Each behaviour below is one that the code has and the text does not say, made again in the lab \
             (`--budget-counting`, `--breaker`, `--waits`), and an expectation that finds it."
                .to_owned(),
        ],
        ..Section::default()
    };
    budgets(scene, &mut section)?;
    exempt(scene, &mut section)?;
    breaker(scene, &mut section)?;
    waits(scene, &mut section)?;
    floor(scene, &mut section)?;
    backoff_alone(scene, &mut section)?;
    pools(scene, &mut section)?;
    layers(scene, &mut section)?;
    section.advice.push(
        "**What to configure.** A budget over a sliding window, and a wait drawn from 0 to `min(max, base·2^retry)` with `retry` from 0: their drills pass. \
         A breaker that, when its time is over, lets one probe through and no retry (`--breaker-probe one`): its drill passes. A floor \
         is to be small against the traffic of the smallest process, as the figures of claim A19 say."
            .to_owned(),
    );
    Ok(section)
}

const FAILS: &str = "{http_status: {status: 503, share: 100%}, to: store}";

struct Rig {
    store: Service,
    chain: Service,
}

impl Rig {
    fn new(scene: &Scene, layers: u16, chain: &[&str], store: &[&str]) -> Result<Self> {
        let store = scene.store(store)?;
        let chain = scene.chain(layers, store.port, chain)?;
        Ok(Self { store, chain })
    }

    fn playbook(&self, name: &str) -> Playbook {
        Playbook::new(name).ingress("web", self.chain.port).downstream("store", self.store.port).window("1s")
    }

    fn drill(&self, scene: &Scene, playbook: &Playbook, rate: &str) -> Result<Outcome> {
        let load = scene.load(self.chain.port, &["--rate", rate, "--duration", "300s", "--timeout", "5s", "--unique-path", "on"])?;
        let outcome = playbook.run_until_valid(scene)?;
        load.stop()?;
        Ok(outcome)
    }
}

/// Everything fails after a good while: what the budget lets through.
fn budgets(scene: &Scene, section: &mut Section) -> Result<()> {
    let (mut shares, mut lives) = (Vec::new(), Vec::new());
    for (what, counting, expected) in
        [("since the start, as the Python listing counts", "since-start", "fail"), ("over a sliding second", "sliding", "pass")]
    {
        let chain =
            ["--policy", "budgeted", "--tries", "2", "--budget-window", "1s", "--backoff-base", "1ms", "--budget-counting", counting];
        let rig = Rig::new(scene, 1, &chain, &[])?;
        let playbook = rig
            .playbook(&format!("budget-{counting}"))
            .phases(["30s", "6s", "4s"])
            .fault(FAILS)
            .expect("store retry ratio of first <= 15%");
        let outcome = rig.drill(scene, &playbook, "200/s")?;
        shares.push(outcome.observed(0).unwrap_or_default());
        let (asked, called) = (outcome.all_requests("web") as f64, outcome.all_requests("store") as f64);
        lives.push((called - asked) / asked.max(1.0));
        section.drills.push(outcome.drill(format!("10% budget counted {what}, after 30 s of success"), expected));
    }
    section.find(
        "C4",
        Verdict::of(shares[0] <= 0.15),
        format!(
            "after 30 s of success {:.0}% retries in 6 s of failure: it counts since its start; {:.0}% with a window",
            shares[0] * 100.0,
            shares[1] * 100.0
        ),
    );
    section.find(
        "C6",
        Verdict::of_two(shares[0] <= 0.15, lives[0] <= 0.15),
        format!("{:.0}% of the requests over the whole drill, {:.0}% during the failure", lives[0] * 100.0, shares[0] * 100.0),
    );
    Ok(())
}

/// The first hundred requests of a process.
fn exempt(scene: &Scene, section: &mut Section) -> Result<()> {
    let chain = ["--policy", "budgeted", "--tries", "4", "--backoff-base", "1ms", "--budget-counting", "from-hundred"];
    let rig = Rig::new(scene, 1, &chain, &[])?;
    let playbook = rig.playbook("first-hundred").phases(["2s", "8s", "1s"]).fault(FAILS).expect("store attempts max <= 2");
    let outcome = playbook
        .run_with_requests(scene, |phase| if phase == "fault" { scene.requests(rig.chain.port, 99, &[]).map(drop) } else { Ok(()) })?;
    let calls = outcome.requests("store", "fault")?;
    section.count(
        "calls of the store, the limiter's first 99 requests",
        outcome.all_requests("store"),
        "the store's own count",
        rig.store.counts()?["requests"].as_u64().unwrap_or_default(),
    );
    section.drills.push(outcome.drill("10% limiter that exempts its first hundred requests, as the Java listing does", "fail"));
    section.find(
        "D9",
        Verdict::of(calls < 120),
        format!("99 failing requests of a new process made {calls} calls: below 100 requests nothing is limited, and nothing is counted"),
    );
    Ok(())
}

/// The breaker's count, and what it lets through when its time is over.
fn breaker(scene: &Scene, section: &mut Section) -> Result<()> {
    let chain = [
        "--policy",
        "budgeted",
        "--tries",
        "4",
        "--backoff-base",
        "1ms",
        "--budget-counting",
        "since-start",
        "--breaker",
        "5",
        "--breaker-open",
        "3s",
    ];
    let rig = Rig::new(scene, 1, &chain, &[])?;
    let playbook = rig.playbook("breaker").phases(["2s", "4s", "1s"]).fault(FAILS);
    let outcome = playbook
        .run_with_requests(scene, |phase| if phase == "fault" { scene.requests(rig.chain.port, 20, &[]).map(drop) } else { Ok(()) })?;
    let calls = outcome.requests("store", "fault")?;
    // The same, slow and under load: what comes while the first answer is on its way is let through. One probe each three seconds, and what is on its way until
    // five have failed, is a hundredth of the requests or two.
    let mut bursts = Vec::new();
    for (what, probe, expected) in
        [("as listed", "everybody", "fail"), ("with a single probe, and no retry while it is open", "one", "pass")]
    {
        let chain = chain.iter().copied().chain(["--breaker-probe", probe]).collect::<Vec<_>>();
        let rig = Rig::new(scene, 1, &chain, &["--delay", "300ms"])?;
        let playbook = rig
            .playbook(&format!("breaker-load-{probe}"))
            .window("500ms")
            .phases(["3s", "15s", "1s"])
            .fault(FAILS)
            .expect("store downstream QPS per ingress <= 0.05");
        let outcome = rig.drill(scene, &playbook, "60/s")?;
        let series: Vec<u64> = outcome.windows("store", "fault").iter().filter_map(|window| window["requests"].as_u64()).collect();
        let quiet = series.iter().position(|calls| *calls == 0).unwrap_or(series.len());
        bursts.push(series.iter().skip(quiet).copied().max().unwrap_or(0));
        let what = format!("the same under load, the store failing after 300 ms: what a breaker lets through, {what}");
        section.drills.push(outcome.drill(what, expected));
    }
    section.find(
        "C5",
        Verdict::of(calls == 5 && bursts[0] == 1),
        format!(
            "it opened after {calls} calls in two requests, since it counts attempts and refusals of the budget; when its time was over {} calls in half a second \
             went through, not one probe; {} in half a second where it lets a single one through",
            bursts[0], bursts[1]
        ),
    );
    Ok(())
}

/// The wait before a single retry, from the time a request took to fail.
fn waits(scene: &Scene, section: &mut Section) -> Result<()> {
    let mut table = Table::new("One retry, base 100 ms: how long a request took to fail", &["wait", "median", "99 of 100 within"]);
    let shapes = [
        ("full", "0 to 100 ms (Full Jitter)", "pass"),
        ("doubled", "0 to 200 ms, as the Java listing has it", "fail"),
        ("from-base", "200 to 300 ms, as the Python listing has it", "fail"),
        ("fixed", "always 100 ms", "pass"),
    ];
    let mut found = Vec::new();
    for (shape, what, expected) in shapes {
        let rig = Rig::new(scene, 1, &["--tries", "2", "--waits", shape, "--backoff-base", "100ms"], &[])?;
        let playbook =
            rig.playbook(&format!("wait-{shape}")).phases(["3s", "8s", "2s"]).fault(FAILS).expect("web failure latency p99 <= 160ms");
        let outcome = rig.drill(scene, &playbook, "80/s")?;
        let of = |key: &str| outcome.number("web", "fault", key);
        let (median, most) = (of("/latency_ms/p50")?, of("/latency_ms/p99")?);
        table.row([what.to_owned(), format!("{median:.0} ms"), format!("{most:.0} ms")]);
        found.push((median, most));
        section.drills.push(outcome.drill(format!("one retry after {what}"), expected));
    }
    section.tables.push(table);
    section.find(
        "D6",
        Verdict::of((35.0..75.0).contains(&found[0].0) && found[0].1 < 160.0),
        format!("median {:.0} ms, p99 {:.0} ms from base 100 ms", found[0].0, found[0].1),
    );
    section.find(
        "D7",
        Verdict::of(found[1].1 < 160.0),
        format!("p99 {:.0} ms from base 100 ms: the first cap is twice the base, for the exponent is raised first", found[1].1),
    );
    section.find(
        "C3",
        Verdict::of(found[2].1 < 160.0),
        format!("the first wait is around {:.0} ms and never below twice the base: not 100 ms, and not from 0", found[2].0),
    );
    Ok(())
}

/// A floor of three retries in ten seconds, at two rates.
fn floor(scene: &Scene, section: &mut Section) -> Result<()> {
    let mut increases = Vec::new();
    for rate in ["1/s", "10/s"] {
        let chain = ["--policy", "budgeted", "--tries", "3", "--budget-floor", "3", "--budget-window", "10s", "--backoff-base", "1ms"];
        let rig = Rig::new(scene, 1, &chain, &[])?;
        let playbook = rig.playbook(&format!("floor-{}", increases.len())).window("5s").phases(["10s", "40s", "5s"]).fault(FAILS);
        let outcome = rig.drill(scene, &playbook, rate)?;
        increases.push(outcome.requests("store", "fault")? as f64 / outcome.requests("web", "fault")? as f64 - 1.0);
    }
    section.find(
        "A19",
        if increases[1] < 0.15 { Verdict::Partly } else { Verdict::Refuted },
        format!("everything failing: +{:.0}% at 1/s, where the floor of three in ten seconds decides, +{:.0}% at 10/s; floors add up over processes", increases[0] * 100.0, increases[1] * 100.0),
    );
    Ok(())
}

/// Four tries with Full Jitter while everything fails.
fn backoff_alone(scene: &Scene, section: &mut Section) -> Result<()> {
    let rig = Rig::new(scene, 1, &["--tries", "4", "--waits", "full", "--backoff-base", "50ms"], &[])?;
    let playbook = rig.playbook("backoff-alone").phases(["4s", "8s", "3s"]).fault(FAILS).expect("store amplification <= 1.2");
    let outcome = rig.drill(scene, &playbook, "40/s")?;
    let amplification = outcome.observed(0).unwrap_or_default();
    section.drills.push(outcome.drill("four tries, Full Jitter, no budget, everything fails", "fail"));
    section.find(
        "D13",
        Verdict::of(amplification > 3.5),
        format!("{amplification:.2}x with four tries and Full Jitter: backoff puts work off, it removes none"),
    );
    Ok(())
}

/// A store that stops answering, at a rate at which its kernel can still accept for it: each try that times out costs a connection.
fn pools(scene: &Scene, section: &mut Section) -> Result<()> {
    let mut opened = Vec::new();
    for (what, tries, expected) in [("three tries of 200 ms", "3", "fail"), ("one try of 200 ms", "1", "pass")] {
        let rig = Rig::new(scene, 1, &["--tries", tries, "--timeout", "200ms"], &[])?;
        let playbook = rig
            .playbook(&format!("pool-{tries}"))
            .phases(["3s", "6s", "3s"])
            .expect("store connections opened <= 60")
            .expect("web failure latency p99 <= 500ms");
        let load = scene.load(rig.chain.port, &["--rate", "6/s", "--duration", "300s", "--timeout", "5s"])?;
        let outcome = playbook.run(scene, |moment| match moment {
            Moment::Phase("fault") => rig.store.process.signal("STOP"),
            Moment::Phase("recovery") => rig.store.process.signal("CONT"),
            _ => Ok(()),
        })?;
        load.stop()?;
        opened.push(outcome.number("store", "fault", "/connections_opened")?);
        section.drills.push(outcome.drill(format!("the store hangs for 6 s, {what}"), expected));
    }
    section.find(
        "C12",
        Verdict::of(opened[0] > 2.0 * opened[1]),
        format!(
            "{:.0} connections opened in 6 s with three tries, {:.0} with one: each try that times out costs one",
            opened[0], opened[1]
        ),
    );
    Ok(())
}

/// The innermost layer or the outermost: where one layer retries, and how early the share of retries shows.
fn layers(scene: &Scene, section: &mut Section) -> Result<()> {
    let mut amplified = Vec::new();
    let (mut first, mut before): (Option<f64>, Option<f64>) = (None, None);
    for layer in ["3", "1"] {
        let rig = Rig::new(scene, 3, &["--tries", "3", "--retry-layer", layer], &[])?;
        let playbook = Playbook::new(&format!("retry-layer-{layer}"))
            .ingress("web", rig.chain.port)
            .downstream("second", rig.chain.port + 1)
            .downstream("store", rig.store.port)
            .window("1s")
            .phases(["3s", "6s", "2s"])
            .fault("{http_status: {status: 503, share: 30%}, to: store}")
            .expect("layers retrying <= 1");
        let outcome = rig.drill(scene, &playbook, "80/s")?;
        let ratio = |edge: &str| -> Result<f64> { Ok(outcome.requests(edge, "fault")? as f64 / outcome.requests("web", "fault")? as f64) };
        amplified.push((ratio("second")?, ratio("store")?));
        before = before.or_else(|| outcome.number("store", "baseline", "/retry_ratio").ok());
        first = first.or_else(|| outcome.windows("store", "fault").first().and_then(|window| window["retry_ratio"].as_f64()));
    }
    let [(inner_second, inner_store), (outer_second, outer_store)] = amplified[..] else { return Ok(()) };
    section.find(
        "C10",
        Verdict::of_two(outer_store < 1.2 * inner_store, outer_second < 1.1 * inner_second),
        format!("three tries in the outermost layer call the store as often ({outer_store:.2} a request) as three in the innermost ({inner_store:.2}), and the layers between more often ({outer_second:.2} against {inner_second:.2}); article A says the opposite. One layer is what counts"),
    );
    if let (Some(first), Some(before)) = (first, before) {
        section.find(
            "C11",
            Verdict::of(first > 0.1 && before < 0.02),
            format!("{:.0}% in the first second of the fault, {:.0}% in the baseline", first * 100.0, before * 100.0),
        );
    }
    Ok(())
}
