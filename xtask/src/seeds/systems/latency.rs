//! A store that is slower by 200 ms, by netem, in a kernel of its own.

mod guest;
mod redis;

use anyhow::Result;

use crate::seeds::result::{Section, Verdict};
use crate::seeds::scene::Scene;

pub(crate) use guest::prepare;

/// The drills.
pub(crate) fn run(scene: &Scene) -> Result<Section> {
    let found = guest::run(scene)?;
    let mut section = Section {
        versions: vec![format!("Linux {} in QEMU, sch_netem", found.kernel)],
        story: vec![
            "The playbook `latency`, on a Debian kernel under QEMU, since a delay needs netem and this host's kernel has none; and the playbook `redis-cascade` \
             there, with the service, the Redis and the MariaDB of the section on Redis, at 15 requests a second."
                .to_owned(),
        ],
        ..Section::default()
    };
    section.drills.push(found.hasty.drill("latency: a store slower by 200 ms, 100 ms a try, three tries", "fail"));
    section.drills.push(found.patient.drill("latency: the same, 1 s a try, 10% budget", "pass"));
    let asked = found.hasty.requests("web", "fault")?.max(1) as f64;
    let (called, unconnected) = (found.hasty.requests("store", "fault")? as f64, found.hasty.unconnected("store", "fault")? as f64);
    section.find(
        "D2",
        Verdict::of((called + unconnected) / asked > 2.5),
        format!(
            "over HTTP, with a timeout below the delay and three tries: {:.2} tries a request, of which {unconnected:.0} for {asked:.0} requests did not get as \
             far as a connection, which netem delays too, and {called:.0} became a call",
            (called + unconnected) / asked
        ),
    );
    section.find(
        "D1",
        Verdict::of(found.patient.verdict() == "pass"),
        format!("over HTTP, a median of {:.0} ms under a delay of 200 ms", found.patient.number("web", "fault", "/latency_ms/p50")?),
    );
    let cache = redis::run(scene)?;
    let cascades = cache.storm.cascades();
    if cascades.iter().all(|(from, to)| (from.as_str(), to.as_str()) != ("cache", "database")) {
        section.wrong.push(format!("a slow Redis is a cascade from cache to database, and the report finds {cascades:?}"));
    }
    let (before, under) = (cache.storm.number("database", "baseline", "/qps")?, cache.storm.number("database", "fault", "/qps")?);
    section.find(
        "D2",
        Verdict::of(under > before + 5.0),
        format!(
            "Redis slower by 200 ms, its client giving up after 100 ms with three retries: MariaDB got {before:.1} commands a second before and {under:.1} under the \
             delay; the guarded service's {:.1}. The report's finding: \"{}\"",
            cache.guarded.number("database", "fault", "/qps")?,
            cache.storm.finding("cascade").unwrap_or_default()
        ),
    );
    section.drills.push(cache.storm.drill("redis-cascade: Redis slower by 200 ms by netem, storm", "fail"));
    section.drills.push(cache.guarded.drill("redis-cascade: the same, guarded", "pass"));
    section.advice.push(
        "**What to configure.** A try's timeout above what the store may take when it is slow, and a budget for when it is not enough."
            .to_owned(),
    );
    Ok(section)
}
