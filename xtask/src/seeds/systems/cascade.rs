//! Redis that stops or gets slow, its clients' retries, and what then becomes of MySQL.

mod databases;

use anyhow::{Context as _, Result};
use serde_json::Value;

use self::databases::{Databases, Service};
use crate::paths;
use crate::seeds::drill::{self, Moment, Outcome, Playbook};
use crate::seeds::result::{Drill, Section, Verdict};
use crate::seeds::scene::Scene;

const LOAD: [&str; 4] = ["--timeout", "3s", "--unique-path", "on"];
/// For a load that is ended when its drill is over.
const ON_AND_ON: [&str; 4] = ["--rate", "40/s", "--duration", "300s"];
/// Of the other drills. Their load begins and ends within them, so that each command of its requests is in some window: it lasts as long as the phases
/// less some time for the last.
const PHASES: ([&str; 3], &str) = (["4s", "6s", "8s"], "14s");
const SHORT: ([&str; 3], &str) = (["2s", "3s", "5s"], "6s");

/// How often Redis is stopped at most.
const TRIES: u32 = 3;
const COMMANDS: &str = "calls of INFO commandstats, and what was no command of INFO errorstats";

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let databases = Databases::new(scene)?;
    let mut section = Section::default();
    if scene.short {
        stopped(scene, &databases, &[("storm", "fail")], &mut section)?;
        return Ok(section);
    }
    if !healthy(scene, &databases, &mut section)? {
        return Ok(Section::skip("this build's probe counts no command of Redis"));
    }
    section = Section {
        versions: vec![databases::redis_version()?, databases::mysql_version()?, databases::client_versions()?],
        story: vec![
            "A small Python service reads from Redis with redis-py and, when Redis does not answer, from MariaDB with PyMySQL, whose query takes 200 ms. \
             MariaDB has `max_connections = 10`. *Storm* is a timeout of 100 ms with three retries and a database connection for every miss; *guarded* is \
             one try, a pool, and at most two requests at a time that may ask the database. The pools of Jedis and Lettuce are emulated by redis-py's: \
             their defaults differ."
                .to_owned(),
        ],
        ..section
    };
    stopped(scene, &databases, &[("storm", "fail"), ("guarded", "pass")], &mut section)?;
    pool(scene, &databases, &mut section)?;
    slow(scene, &databases, &mut section)?;
    shipped(scene, &databases, &mut section)?;
    section.advice.push(
        "**What to configure.** One try with a short timeout, a pool with a limit that fails at once, and a limit on how many requests may go to the \
         database when the cache is away; the rest is told so. MySQL then never sees more than it can take, and the drill passes."
            .to_owned(),
    );
    Ok(section)
}

/// Some requests while all is well: whether commands are counted at all, and as many as Redis counts.
fn healthy(scene: &Scene, databases: &Databases, section: &mut Section) -> Result<bool> {
    let service = databases.service(scene, &["guarded"])?;
    let playbook = Playbook::new("healthy").ingress("web", service.port).downstream("redis", databases.redis_port).untyped();
    let before = databases.counters()?;
    let outcome = playbook.phases(["1s", "4s", "1s"]).run(scene, |moment| match moment {
        Moment::Phase("fault") => scene.requests(service.port, 100, &[]).map(drop),
        _ => Ok(()),
    })?;
    let after = databases.counters()?;
    let found = outcome.all_requests("redis");
    section.count("commands of Redis, 100 requests while all is well", found, COMMANDS, after.redis - before.redis);
    Ok(found > 0)
}

/// Redis is stopped for some seconds, before services of these kinds; `storm` is the first.
fn stopped(scene: &Scene, databases: &Databases, kinds: &[(&str, &str)], section: &mut Section) -> Result<()> {
    let mut found = Vec::new();
    for &(kind, expected) in kinds {
        // Again if the machine held it up, with counts of its own each time.
        let once = || -> Result<_> {
            let service = databases.service(scene, &[kind])?;
            let before = databases.counters()?;
            let outcome = drill(scene, databases, &service, &format!("redis-stopped-{kind}"), |moment| match moment {
                Moment::Phase("fault") => databases.redis.signal("STOP"),
                Moment::Phase("recovery") => databases.redis.signal("CONT"),
                _ => Ok(()),
            })?;
            Ok((outcome, service.counts()?, before, databases.counters()?))
        };
        let mut last = once()?;
        for _ in 1..TRIES {
            if last.0.verdict() == "invalid" {
                last = once()?;
            }
        }
        let (outcome, counts, before, after) = last;
        section.count(
            format!("commands of Redis, {kind}, those that it found when it went on among them"),
            outcome.all_requests("redis"),
            COMMANDS,
            after.redis - before.redis,
        );
        // Each connection sets its character set and its autocommit before it asks.
        section.count(
            format!("commands of MySQL, {kind}"),
            answered(&outcome, "mysql", "ok"),
            "Com_select and Com_set_option in MySQL's status",
            after.commands - before.commands,
        );
        section.count(
            format!("connections that were one too many, {kind}"),
            answered(&outcome, "mysql", "err:1040"),
            "Aborted_connects in MySQL's status",
            after.turned_away - before.turned_away,
        );
        let seconds = scene.choose(PHASES, SHORT).0[1];
        section.drills.push(outcome.drill(format!("Redis stopped for {}, {kind}", seconds.replace('s', " s")), expected));
        found.push((outcome, counts));
    }
    let (outcome, counts) = &found[0];
    // No fault of the drill's is aimed at it: that it gives less than before tells it from what is asked in its place.
    let cascades = outcome.cascades();
    if cascades != [("redis".to_owned(), "mysql".to_owned())] {
        section.wrong.push(format!("Redis stopped by hand is a cascade from it to MySQL, and the report finds {cascades:?}"));
    }
    let per_request = outcome.requests("redis", "fault")? as f64 / outcome.requests("web", "fault")?.max(1) as f64;
    let opened = outcome.number("redis", "fault", "/connections_opened")?;
    // Of a stopped server the kernel accepts as many connections as its queue takes: 511, and one more.
    let queue = if opened >= 512.0 { ": Redis' accept queue of 511+1 is then full, and further tries do not even connect" } else { "" };
    section.find(
        "D2",
        Verdict::of_two(per_request > 1.5, per_request > 3.5),
        format!("{per_request:.2} commands a request while Redis hangs, of at most 4; {opened:.0} connections were opened{queue}"),
    );
    section.find(
        "D4",
        Verdict::of(number(counts, "mysql_1040") > 0),
        format!(
            "{} times \"Too many connections\" (1040), {} times by `err:1040` of the drill's windows; with the guarded service {}; the report's finding: \
             \"{}\"",
            number(counts, "mysql_1040"),
            answered(outcome, "mysql", "err:1040"),
            found.get(1).map_or(0, |(_, guarded)| number(guarded, "mysql_1040")),
            outcome.finding("cascade").unwrap_or_default()
        ),
    );
    Ok(())
}

/// The storm with a pool of eight connections, Jedis' default, for a load that needs sixteen once every try takes its timeout.
fn pool(scene: &Scene, databases: &Databases, section: &mut Section) -> Result<()> {
    let service = databases.service(scene, &["storm", "8"])?;
    let outcome = drill(scene, databases, &service, "pool", |moment| match moment {
        Moment::Phase("fault") => databases.redis.signal("STOP"),
        Moment::Phase("recovery") => databases.redis.signal("CONT"),
        _ => Ok(()),
    })?;
    let counts = service.counts()?;
    let (empty, turned_away) = (number(&counts, "pool_empty"), answered(&outcome, "mysql", "err:1040"));
    section.find(
        "D3",
        Verdict::of_two(empty > 0, turned_away > 0),
        format!(
            "with a pool of 8, as Jedis has by default, {empty} requests got no connection within 100 ms, by the pool's own error, while Redis hung; what was \
             refused then was refused by MySQL ({turned_away} times)"
        ),
    );
    Ok(())
}

/// A client that blocks Redis for 200 ms again and again, as KEYS * on a large one does.
fn slow(scene: &Scene, databases: &Databases, section: &mut Section) -> Result<()> {
    let service = databases.service(scene, &["guarded"])?;
    let mut blocker = None;
    let outcome = drill(scene, databases, &service, "redis-slow", |moment| {
        match moment {
            Moment::Phase("fault") => blocker = Some(databases.block(scene)?),
            Moment::Phase("recovery") => blocker = None,
            _ => {}
        }
        Ok(())
    })?;
    let median = |phase: &str| outcome.number("redis", phase, "/latency_ms/p50");
    section.find(
        "D1",
        Verdict::of(median("fault")? > 20.0 * median("baseline")?),
        format!("a command that blocks Redis for 200 ms: from {:.1} ms to {:.0} ms in the median", median("baseline")?, median("fault")?),
    );
    Ok(())
}

/// The drills of the shipped playbook alone.
pub(crate) fn of_the_playbook(scene: &Scene) -> Result<Vec<Drill>> {
    let mut section = Section::default();
    shipped(scene, &Databases::new(scene)?, &mut section)?;
    Ok(section.drills)
}

/// The shipped playbook, with a fault that needs no netem.
fn shipped(scene: &Scene, databases: &Databases, section: &mut Section) -> Result<()> {
    for (kind, expected) in [("storm", "fail"), ("guarded", "pass")] {
        let service = databases.service(scene, &[kind])?;
        let load = scene.load(service.port, &[&LOAD[..], &ON_AND_ON].concat())?;
        let set = [
            ("observe.ingress.web.port", service.port.to_string()),
            ("observe.downstream.cache.port", databases.redis_port.to_string()),
            ("observe.downstream.database.port", databases.mysql_port.to_string()),
            ("observe.window", "1s".to_owned()),
            ("phases.baseline", "5s".to_owned()),
            ("phases.fault", "8s".to_owned()),
            ("phases.recovery", "8s".to_owned()),
            ("faults.0", "{partition: true, to: cache}".to_owned()),
        ]
        .map(|(key, value)| (key.to_owned(), value));
        let file = paths::workspace().join("playbooks/redis-cascade.yaml");
        let outcome = drill::run_until_valid(scene, &file, &format!("shipped-{kind}"), &set)?;
        load.stop()?;
        service.counts()?;
        let found = outcome.cascades();
        if kind == "storm" && found.iter().all(|(from, to)| (from.as_str(), to.as_str()) != ("cache", "database")) {
            section.wrong.push(format!("the storm is a cascade from cache to database, and the report finds {found:?}"));
        }
        section.drills.push(outcome.drill(format!("redis-cascade: {kind}"), expected));
    }
    Ok(())
}

fn drill(
    scene: &Scene,
    databases: &Databases,
    service: &Service,
    name: &str,
    mut each: impl FnMut(Moment<'_>) -> Result<()>,
) -> Result<Outcome> {
    let mut load = None;
    let (phases, length) = scene.choose(PHASES, SHORT);
    // In a short time chance alone need not bring more connections together than MySQL has.
    let rate = scene.choose("40/s", "80/s");
    let outcome = Playbook::new(name)
        .ingress("web", service.port)
        .downstream("redis", databases.redis_port)
        .downstream("mysql", databases.mysql_port)
        .untyped()
        .window("1s")
        .phases(phases)
        .expect("web failure latency p99 <= 500ms")
        .expect("mysql connections opened <= 200")
        .expect("mysql connect failures <= 0")
        .expect("redis downstream QPS per ingress <= 1.3")
        .run(scene, |moment| {
            if moment == Moment::Phase("baseline") {
                load = Some(scene.load(service.port, &[&LOAD[..], &["--rate", rate, "--duration", length]].concat())?);
            }
            each(moment)
        })?;
    load.context("the drill had no baseline")?.report()?;
    Ok(outcome)
}

/// Answers of a kind in all windows.
fn answered(outcome: &Outcome, edge: &str, status: &str) -> u64 {
    let windows = ["baseline", "transition", "fault", "recovery"].into_iter().flat_map(|phase| outcome.windows(edge, phase));
    windows.filter_map(|window| window["status"][status].as_u64()).sum()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}
