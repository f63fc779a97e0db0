//! Layers of three tries before a real web server, some or all of whose answers the kernel turns into 503.

use anyhow::Result;

use crate::seeds::drill::{Outcome, Playbook};
use crate::seeds::nginx::{self, Nginx};
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::Scene;

const TRIES: u64 = 3;

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let mut section = Section {
        versions: vec![nginx::version()?],
        story: vec![
            "The store is nginx and answers 200. stormdrill rewrites the status of its answers in the kernel, all or a share of them, so no code of \
             ours decides what fails. Before it stand layers of `stormdrill-lab chain`, each of which tries three times, at once."
                .to_owned(),
        ],
        ..Section::default()
    };
    all_fail(scene, &mut section)?;
    some_fail(scene, &mut section)?;
    if !scene.short {
        one_layer(scene, &mut section)?;
    }
    Ok(section)
}

/// 20 requests while every answer is a 503, through 0 to 4 layers.
fn all_fail(scene: &Scene, section: &mut Section) -> Result<()> {
    let mut table = Table::new(
        "20 requests, every answer a 503",
        &["layers of 3 tries", "calls of the store", "per request", "3^layers", "the article's"],
    );
    let mut calls = Vec::new();
    for layers in if scene.short { 3..=3 } else { 0..=4 } {
        let store = Nginx::store(scene)?;
        let chain = if layers == 0 { None } else { Some(scene.chain(layers, store.port, &["--tries", "3", "--timeout", "20s"])?) };
        let entry = chain.as_ref().map_or(store.port, |chain| chain.port);
        let limit = TRIES.pow(u32::from(layers));
        let outcome = Playbook::new(&format!("all-fail-{layers}"))
            .ingress("web", entry)
            .downstream("store", store.port)
            .phases(["1s", if layers == 4 { "6s" } else { "3s" }, "1s"])
            .fault("{http_status: {status: 503, share: 100%}, to: store}")
            .expect(&format!("store attempts max <= {limit}"))
            .run_with_requests(scene, |_| scene.requests(entry, 20, &[]).map(drop))?;
        let found = outcome.requests("store", "fault")?;
        section.count(
            format!("calls of the store, {layers} layers, whole drill"),
            outcome.all_requests("store"),
            "nginx's access log",
            store.entries()?.len() as u64,
        );
        section
            .drills
            .push(outcome.drill(format!("{layers} layers, all answers 503: no request may have more than {limit} attempts"), "pass"));
        table.row([
            layers.to_string(),
            found.to_string(),
            format!("{:.1}", found as f64 / 20.0),
            limit.to_string(),
            (20 * limit).to_string(),
        ]);
        calls.push((layers, found));
        store.stop()?;
    }
    section.tables.push(table);
    let as_claimed = calls.iter().all(|(layers, found)| *found == 20 * TRIES.pow(u32::from(*layers)));
    let list = calls.iter().map(|(_, found)| found.to_string()).collect::<Vec<_>>().join(", ");
    section.find("B2", Verdict::of(as_claimed), format!("{list} calls"));
    for (layers, found) in calls {
        let ratio = found as f64 / 20.0;
        match layers {
            1 => section.find("A12", Verdict::of(found == 60), format!("{ratio:.2}x with one layer of three tries")),
            3 => {
                section.find("A1", Verdict::of(found == 540), format!("N=2, L=3: {ratio:.1} calls a request"));
                section.find("A2", Verdict::of(ratio > 10.0), format!("{ratio:.1}x while everything fails"));
            }
            4 => section.find("B1", Verdict::of(found == 1620), format!("{ratio:.1} calls a request")),
            _ => {}
        }
    }
    if !scene.short {
        let found = four_tries(scene, section)?;
        section.find("A1", Verdict::of(found == 20 * 64), format!("N=3, L=3: {:.1} calls a request", found as f64 / 20.0));
    }
    Ok(())
}

/// Calls of the store for 20 requests through three layers of four tries.
fn four_tries(scene: &Scene, section: &mut Section) -> Result<u64> {
    let store = Nginx::store(scene)?;
    let chain = scene.chain(3, store.port, &["--tries", "4", "--timeout", "20s"])?;
    let outcome = Playbook::new("all-fail-64")
        .ingress("web", chain.port)
        .downstream("store", store.port)
        .phases(["2s", "5s", "1s"])
        .fault("{http_status: {status: 503, share: 100%}, to: store}")
        .run_with_requests(scene, |_| scene.requests(chain.port, 20, &[]).map(drop))?;
    section.count(
        "calls of the store, 3 layers of four tries, whole drill",
        outcome.all_requests("store"),
        "nginx's access log",
        store.entries()?.len() as u64,
    );
    store.stop()?;
    outcome.requests("store", "fault")
}

/// How many standard errors a number may be off: of eight, two a row, that one is happens as often by chance as that a single one is off by three
/// (Bonferroni).
const LIMIT: f64 = 3.6;

/// What came of one failure rate.
struct Measured {
    percent: u32,
    ratio: f64,
    served: f64,
    asked: f64,
}

/// The same layers while each answer is a 503 with probability p.
fn some_fail(scene: &Scene, section: &mut Section) -> Result<()> {
    let requests: u32 = scene.choose(1500, 100);
    let mut table = Table::new(
        &format!("{requests} requests through three layers of three tries, answers 503 with probability p"),
        &[
            "p",
            "calls a request",
            "(1-p^27)/(1-p)",
            "off by, in standard errors",
            "the article's",
            "served",
            "1-p^27",
            "off by ",
            "the article's ",
        ],
    );
    let rows = [(10, "1.11", "100.0%"), (30, "1.45", "100.0%"), (50, "2.06", "100.0%"), (90, "9.88", "92.8%")];
    let mut within = true;
    let mut measured: Vec<Measured> = Vec::new();
    for (percent, article, article_served) in rows {
        if scene.short && percent != 50 {
            continue;
        }
        let outcome = with_probability(scene, section, percent, 3, 3, requests)?;
        let (asked, called) = (outcome.requests("web", "fault")? as f64, outcome.requests("store", "fault")? as f64);
        let served = served(&outcome)?;
        let ratio = called / asked;
        let theory = Theory::of(f64::from(percent) / 100.0, 27);
        let off = (ratio - theory.mean) / (theory.deviation / asked.sqrt());
        let served_off = theory.served_off(served, asked);
        within &= off.abs() < LIMIT && served_off.abs() < LIMIT;
        measured.push(Measured { percent, ratio, served, asked });
        table.row([
            format!("{percent}%"),
            format!("{ratio:.3}"),
            format!("{:.3}", theory.mean),
            format!("{off:+.2}"),
            article.to_owned(),
            format!("{:.1}%", served * 100.0),
            format!("{:.1}%", theory.success * 100.0),
            format!("{served_off:+.2}"),
            article_served.to_owned(),
        ]);
    }
    section.tables.push(table);
    let calls = measured.iter().map(|one| format!("{:.2}", one.ratio)).collect::<Vec<_>>().join(", ");
    let successes = measured.iter().map(|one| format!("{:.1}", one.served * 100.0)).collect::<Vec<_>>().join(", ");
    section.find(
        "B3",
        Verdict::of(within),
        format!("{calls} calls; {successes}% served, of {requests} requests; {} the formulas, by three standard errors over all eight numbers together ({LIMIT} for each)", if within { "within" } else { "off" }),
    );
    if let Some(Measured { served, asked, .. }) = measured.iter().find(|one| one.percent == 30) {
        section.find("B4", Verdict::of(*served >= 1.0), format!("{:.0} of {asked:.0}", served * asked));
    }
    if let (Some(first), Some(last), false) = (measured.first(), measured.last(), scene.short) {
        section.find(
            "B14",
            Verdict::of(first.ratio < 1.2 && last.ratio > 8.0),
            format!("{:.2} calls at 10%, {:.2} at 90%", first.ratio, last.ratio),
        );
    }
    if scene.short {
        return Ok(());
    }
    let single = with_probability(scene, section, 50, 1, 4, requests)?;
    let ratio = single.requests("store", "fault")? as f64 / single.requests("web", "fault")? as f64;
    let theory = Theory::of(0.5, 4);
    let off = (ratio - theory.mean) / (theory.deviation / f64::from(requests).sqrt());
    section.find("C1", Verdict::of(off.abs() < LIMIT), format!("{ratio:.3} calls with one layer of four tries at P=50%"));
    dependent(scene, section, off)?;
    Ok(())
}

/// The same share of failures, all of them together: in one phase everything fails, in the one before nothing does.
fn dependent(scene: &Scene, section: &mut Section, independent: f64) -> Result<()> {
    let store = Nginx::store(scene)?;
    let chain = scene.chain(1, store.port, &["--tries", "4", "--timeout", "20s"])?;
    let outcome = Playbook::new("dependent")
        .ingress("web", chain.port)
        .downstream("store", store.port)
        .phases(["4s", "4s", "1s"])
        .fault("{http_status: {status: 503, share: 100%}, to: store}")
        .run_with_requests(scene, |_| scene.requests(chain.port, 200, &[]).map(drop))?;
    let (asked, called) = (outcome.all_requests("web"), outcome.all_requests("store"));
    section.count("calls of the store, failures all together", called, "nginx's access log", store.entries()?.len() as u64);
    let (asked, called) = (asked as f64, called as f64);
    store.stop()?;
    let theory = Theory::of(0.5, 4);
    let off = (called / asked - theory.mean) / (theory.deviation / asked.sqrt());
    section.find(
        "C2",
        Verdict::of(independent.abs() < LIMIT && off.abs() > LIMIT),
        format!(
            "four tries at P=50%: independent failures are {independent:+.1} standard errors off the formula; where half of the requests meet an outage \
             and half none, {:.2} calls a request instead of {:.3} ({off:+.1})",
            called / asked,
            theory.mean
        ),
    );
    Ok(())
}

fn with_probability(scene: &Scene, section: &mut Section, percent: u32, layers: u16, tries: u32, requests: u32) -> Result<Outcome> {
    let store = Nginx::store(scene)?;
    let chain = scene.chain(layers, store.port, &["--tries", &tries.to_string(), "--timeout", "20s"])?;
    let count = requests.to_string();
    let outcome = Playbook::new(&format!("some-fail-{percent}-{layers}x{tries}"))
        .ingress("web", chain.port)
        .downstream("store", store.port)
        .phases(["2s", scene.choose("24s", "5s"), "1s"])
        .fault(&format!("{{http_status: {{status: 503, share: {percent}%}}, to: store}}"))
        .run_with_requests(scene, |phase| {
            if phase == "fault" {
                // A schedule, so that the time it takes does not depend on the machine.
                scene.load(chain.port, &["--rate", scene.choose("75/s", "40/s"), "--count", &count, "--timeout", "10s"])?.report()?;
            }
            Ok(())
        })?;
    section.count(
        format!("calls of the store at p = {percent}%, {layers} layers of {tries} tries"),
        outcome.all_requests("store"),
        "nginx's access log",
        store.entries()?.len() as u64,
    );
    store.stop()?;
    Ok(outcome)
}

/// The share of requests of which a try was answered well: by the store's answers, since one that comes late is a hang to its client.
fn served(outcome: &Outcome) -> Result<f64> {
    let statuses = outcome.statuses("store", "fault")?;
    let good: u64 = statuses.iter().filter(|(status, _)| status == "200").map(|(_, count)| count).sum();
    Ok(good as f64 / outcome.requests("web", "fault")? as f64)
}

/// Calls of one request with up to `tries` in all, each of which fails with probability `p`.
struct Theory {
    mean: f64,
    deviation: f64,
    success: f64,
}

impl Theory {
    fn of(p: f64, tries: i32) -> Self {
        let mean = (1.0 - p.powi(tries)) / (1.0 - p);
        let square: f64 = (1..=tries).map(|k| f64::from(2 * k - 1) * p.powi(k - 1)).sum();
        Self { mean, deviation: (square - mean * mean).sqrt(), success: 1.0 - p.powi(tries) }
    }

    /// By how many standard errors the share of so many requests that were served is off. Where hardly any can fail, one is many.
    fn served_off(&self, served: f64, asked: f64) -> f64 {
        (served - self.success) / (self.success * (1.0 - self.success) / asked).sqrt().max(1e-9)
    }
}

/// What one way of retrying came to.
struct Strategy {
    /// Amplification.
    times: f64,
    /// Until the share of retries was back, if it was told.
    windows: Option<f64>,
    /// Milliseconds to the failure of a request, in the median and of 99 in 100.
    fails_in: f64,
    fails_within: f64,
}

/// The same playbook on three layers that all retry, on three of which only the innermost does, and on such with a budget.
fn one_layer(scene: &Scene, section: &mut Section) -> Result<()> {
    // The naive layers make 27 calls of each request, which a shared machine has to bear.
    let variants: [(&str, &[&str], &str, &str); 3] = [
        ("three layers, each with three tries", &["--tries", "3"], "20/s", "fail"),
        ("only the innermost layer retries, three tries, no budget", &["--tries", "3", "--retry-layer", "3"], "60/s", "fail"),
        (
            "only the innermost layer retries, 10% budget, full jitter",
            &["--policy", "budgeted", "--tries", "3", "--budget", "10%", "--budget-window", "1s"],
            "80/s",
            "pass",
        ),
    ];
    let mut ran: Vec<Strategy> = Vec::new();
    for (number, (what, arguments, rate, expected)) in variants.into_iter().enumerate() {
        let store = Nginx::store(scene)?;
        let chain = scene.chain(3, store.port, arguments)?;
        let load = scene.load(chain.port, &["--rate", rate, "--duration", "300s", "--timeout", "2s"])?;
        let outcome = Playbook::new(&format!("one-layer-{}", number + 1))
            .ingress("web", chain.port)
            .downstream("store", store.port)
            .window("1s")
            .phases(["12s", "15s", "6s"])
            .fault("{http_status: {status: 503, share: 100%}, to: store}")
            .expect("downstream QPS increase <= 20%")
            .expect("store amplification <= 1.2")
            .expect("retry ratio recovers within 2 windows")
            .expect("web failure latency p99 <= 1s")
            .run_until_valid(scene)?;
        load.stop()?;
        let observed = |index| outcome.observed(index).unwrap_or_default();
        let fails_in = outcome.number("web", "fault", "/latency_ms/p50").unwrap_or_default();
        ran.push(Strategy { times: observed(1), windows: outcome.observed(2), fails_in, fails_within: observed(3) * 1000.0 });
        section.drills.push(outcome.drill(what, expected));
        store.stop()?;
    }
    if let [naive, one, budgeted] = &ran[..] {
        section.find(
            "A5",
            Verdict::of(one.times < 0.2 * naive.times && one.times <= 3.1),
            format!(
                "{:.1}x with every layer retrying, {:.2}x with the innermost alone: its own three tries; {:.2}x is what a 10% budget makes of those",
                naive.times, one.times, budgeted.times
            ),
        );
        section.find(
            "A13",
            Verdict::of(budgeted.times <= 1.2),
            format!("{:.3}x under a 10% budget while everything fails, against {:.2}x without", budgeted.times, one.times),
        );
        section.find(
            "A20",
            Verdict::of(budgeted.fails_in < 100.0),
            format!("a request fails in {:.1} ms (median) once the budget is spent", budgeted.fails_in),
        );
        section.find(
            "D8",
            Verdict::of(budgeted.times <= 1.2),
            format!("a 10% budget of ours, over a sliding second in place of the minute, refuses at once: {:.3}x", budgeted.times),
        );
        let told = |windows: Option<f64>| {
            windows.map_or("a number of windows that its drill could not tell".to_owned(), |windows| format!("{windows:.0}"))
        };
        let (less, sooner) = (budgeted.times < naive.times, budgeted.windows <= naive.windows || naive.windows.is_none());
        let word = |wins: bool| if wins { "better" } else { "no better" };
        section.find(
            "C8",
            // Backlog and breaker are not in it, so no more than a part of the claim is shown.
            if less { Verdict::Partly } else { Verdict::Refuted },
            format!(
                "jittered backoff and a budget against plain retries in three layers: {:.2}x against {:.1}x of traffic ({}), the share of retries back after {} \
                 against {} ({}), 99 of 100 failures told within {:.0} against {:.0} ms ({}); \
                 backlog and breaker are not in it",
                budgeted.times,
                naive.times,
                word(less),
                told(budgeted.windows),
                told(naive.windows),
                word(budgeted.windows.is_some() && sooner),
                budgeted.fails_within,
                naive.fails_within,
                if budgeted.fails_within < naive.fails_within { "better" } else { "no better: where the store fails at once, backoff keeps the client waiting" }
            ),
        );
    }
    section.advice.push(
        "**What to configure.** One layer retries, the one that calls the store (`--retry-layer`); it has a budget of 10% over a sliding second, at most \
         three tries and Full Jitter; the others have one try. The drill that failed then passes."
            .to_owned(),
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_known_values_come_out() {
        let theory = Theory::of(0.9, 27);
        assert!((theory.mean - 9.418_503).abs() < 1e-6 && (theory.success - 0.941_850).abs() < 1e-6);
        assert!((Theory::of(0.5, 4).mean - 1.875).abs() < 1e-12);
        // Two tries, the first of which fails half the time: 1 or 2 calls alike.
        assert!((Theory::of(0.5, 2).deviation - 0.5).abs() < 1e-12);
    }

    #[test]
    fn too_few_served_are_off_as_too_many_calls_are() {
        // 1400 of 1500 is 1.4 standard errors below 94.2%; 1360 is 8.7.
        let theory = Theory::of(0.9, 27);
        assert!(theory.served_off(1400.0 / 1500.0, 1500.0).abs() < LIMIT);
        assert!(theory.served_off(1360.0 / 1500.0, 1500.0) < -LIMIT);
        // At 10% none fails in any number of runs.
        let calm = Theory::of(0.1, 27);
        assert!(calm.served_off(1.0, 1500.0).abs() < LIMIT && calm.served_off(1499.0 / 1500.0, 1500.0) < -LIMIT);
    }
}
