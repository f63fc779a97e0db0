//! Outages after which a service does not come back: whether work is deferred or dropped, and how near the load is to the edge.

use anyhow::Result;

use crate::seeds::drill::{Moment, Outcome, Playbook};
use crate::seeds::result::{Section, Table, Verdict};
use crate::seeds::scene::Scene;

/// What the store serves a second, and each try's timeout, as in the paper.
const CAPACITY: &str = "300/s";

struct Case {
    outage: Outage,
    rate: u32,
    what: &'static str,
    chain: &'static [&'static str],
    store: &'static [&'static str],
    /// The verdict that is due; none where the drill ends before the model has an answer.
    expected: &'static str,
    /// What the model predicts.
    predicted: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outage {
    /// The store is stopped (SIGSTOP): the kernel accepts for it, and all arrives when it goes on.
    Deferred,
    /// Nothing passes, on fresh connections: what was asked is lost.
    Dropped,
}

const TWO_TRIES: [&str; 4] = ["--tries", "2", "--timeout", "1s"];
const ONE_TRY: [&str; 4] = ["--tries", "1", "--timeout", "1s"];
const FRESH: [&str; 6] = ["--tries", "2", "--timeout", "1s", "--keepalive", "off"];
const DEADLINE: [&str; 8] = ["--tries", "2", "--timeout", "1s", "--deadline", "on", "--deadline-default", "1s"];

const CASES: [Case; 6] = [
    Case {
        outage: Outage::Deferred,
        rate: 100,
        what: "2 tries",
        chain: &TWO_TRIES,
        store: &[],
        expected: "pass",
        predicted: "recovers after 16 s: 200/s of 300/s",
    },
    Case {
        outage: Outage::Deferred,
        rate: 140,
        what: "2 tries",
        chain: &TWO_TRIES,
        store: &[],
        expected: "",
        predicted: "recovers after 140 s, later than the drill looks: 280/s of 300/s",
    },
    Case {
        outage: Outage::Deferred,
        rate: 200,
        what: "2 tries",
        chain: &TWO_TRIES,
        store: &[],
        expected: "fail",
        predicted: "never recovers: 400/s of 300/s",
    },
    Case {
        outage: Outage::Deferred,
        rate: 200,
        what: "1 try",
        chain: &ONE_TRY,
        store: &[],
        expected: "pass",
        predicted: "recovers after 18 s",
    },
    Case {
        outage: Outage::Deferred,
        rate: 200,
        what: "2 tries, deadline passed on, the store drops what has expired",
        chain: &DEADLINE,
        store: &["--ignore-expired", "off"],
        expected: "pass",
        predicted: "recovers",
    },
    Case {
        outage: Outage::Dropped,
        rate: 200,
        what: "2 tries, fresh connections",
        chain: &FRESH,
        store: &[],
        expected: "pass",
        predicted: "recovers at once",
    },
];

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let mut section = Section {
        versions: vec!["the lab's services".to_owned()],
        story: vec![
            format!(
                "The example of the paper that named metastable failures (Bronson and others, HotOS 2021), in the lab: a store that serves {CAPACITY} \
                 from a queue, callers that give a try 1 s and try twice, and an outage of 10 s. What decides is the product of load and tries: 150/s of \
                 load is 300/s when everything is tried twice. The paper's 280/s is so near the edge that a stall of a shared machine is outage enough; 140/s is as near to ours, and what becomes of it \
                 within 50 s is shown in the table and not asserted."
            ),
            "*Deferred* is a store that is stopped by SIGSTOP: the kernel goes on accepting connections, and when it continues it has all to do that was \
             asked of it, wanted or not. *Dropped* is a `partition`, with connections that are not kept: what was asked never arrives."
                .to_owned(),
        ],
        ..Section::default()
    };
    let columns = ["outage", "load", "callers", "by the model", "goodput before", "goodput after", "attempts a request after", "verdict"];
    let mut table = Table::new("An outage of 10 s, then 50 s", &columns);
    let (mut verdicts, mut told) = (Vec::new(), Vec::new());
    for (number, case) in CASES.iter().enumerate() {
        let mut store_arguments = vec!["--capacity", CAPACITY, "--queue", "defer"];
        store_arguments.extend(case.store);
        let store = scene.store(&store_arguments)?;
        let chain = scene.chain(1, store.port, case.chain)?;
        let load = scene
            .load(chain.port, &["--rate", &format!("{}/s", case.rate), "--duration", "300s", "--timeout", "5s", "--unique-path", "on"])?;
        let mut playbook = Playbook::new(&format!("outage-{}", number + 1))
            .ingress("web", chain.port)
            .downstream("store", store.port)
            .window("2s")
            .phases(["8s", "10s", "50s"])
            .expect("not metastable");
        if case.outage == Outage::Dropped {
            playbook = playbook.fault("{partition: true, to: store}");
        }
        let outcome = playbook.run(scene, |moment| match (case.outage, moment) {
            (Outage::Deferred, Moment::Phase("fault")) => store.process.signal("STOP"),
            (Outage::Deferred, Moment::Phase("recovery")) => store.process.signal("CONT"),
            _ => Ok(()),
        })?;
        load.stop()?;
        let (before, after) = (goodput(&outcome, "baseline"), goodput(&outcome, "recovery"));
        let attempts = last(&outcome, "store") / last(&outcome, "web").max(1.0);
        table.row([
            if case.outage == Outage::Deferred { "deferred" } else { "dropped" }.to_owned(),
            format!("{}/s", case.rate),
            case.what.to_owned(),
            case.predicted.to_owned(),
            format!("{before:.0}/s"),
            format!("{after:.0}/s"),
            format!("{attempts:.2}"),
            outcome.verdict().to_owned(),
        ]);
        let what = format!("{}, {}/s, {}", if case.outage == Outage::Deferred { "deferred" } else { "dropped" }, case.rate, case.what);
        told.push(format!("{what}: {after:.0}/s served after it of {before:.0}/s before"));
        if !case.expected.is_empty() {
            verdicts.push(outcome.verdict() == case.expected);
            section.drills.push(outcome.drill(what, case.expected));
        }
    }
    section.tables.push(table);
    let is_as_modelled = verdicts.iter().all(|right| *right);
    section.find("A3", if is_as_modelled { Verdict::Partly } else { Verdict::Refuted }, told.join("; "));
    section.advice.push(
        "**What to configure.** Keep load times tries below the capacity (one try, or a budget of 10%), or pass the deadline on and let the store drop \
         work that nobody waits for. Keep the timeout of a try above the queue that an outage leaves. The drill that never recovered then passes."
            .to_owned(),
    );
    Ok(section)
}

/// Answers of 200 a second in the last 10 s of a phase.
fn goodput(outcome: &Outcome, phase: &str) -> f64 {
    let windows = outcome.windows("web", phase);
    let last: Vec<u64> = windows.iter().rev().take(3).map(|window| window["status"]["200"].as_u64().unwrap_or(0)).collect();
    last.iter().sum::<u64>() as f64 / (last.len().max(1) as f64 * 2.0)
}

/// Requests in the last windows of the recovery.
fn last(outcome: &Outcome, edge: &str) -> f64 {
    outcome.windows(edge, "recovery").iter().rev().take(3).filter_map(|window| window["requests"].as_f64()).sum()
}
