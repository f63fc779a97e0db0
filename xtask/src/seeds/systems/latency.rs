//! A store that is slower by 200 ms, by netem, in a kernel of its own.

mod guest;

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
            "The playbook `latency`, on a Debian kernel under QEMU, since a delay needs netem and this host's kernel has none. Redis itself is not in the guest: \
             its section blocks it for 200 ms and stops it."
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
    section.advice.push(
        "**What to configure.** A try's timeout above what the store may take when it is slow, and a budget for when it is not enough."
            .to_owned(),
    );
    Ok(section)
}
