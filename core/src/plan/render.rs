//! A plan as text, for `stormdrill plan`.

use std::fmt::Write as _;
use std::time::Duration;

use super::host::{Feature, HostFacts, Presence};
use super::{LEASE, Need, Plan, PlannedFault, power};
use crate::expectation::Demand;
use crate::expectation::metric::Row;
use crate::fault::FaultKind;
use crate::fault::model::LossModel;
use crate::playbook::{Playbook, Scope};
use crate::units::{bandwidth, duration, rate, share};

/// Writes a plan for people; ends in a newline.
#[must_use]
pub fn text(plan: &Plan, facts: &HostFacts) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_all(&mut out, plan, facts);
    out
}

fn write_all(out: &mut String, plan: &Plan, facts: &HostFacts) -> std::fmt::Result {
    let playbook = &plan.playbook;
    writeln!(out, "{}", playbook.name)?;
    for line in playbook.description.iter().flat_map(|text| text.lines()) {
        writeln!(out, "  {line}")?;
    }
    phases(out, plan)?;
    observed(out, playbook, &plan.needs)?;
    if let Some(load) = &playbook.load {
        writeln!(out, "\nload\n  {} to {}, given up after {}", rate::print(load.rate), load.url, duration::print(load.timeout))?;
    }
    writeln!(out, "\nfaults")?;
    for (index, fault) in plan.faults.iter().enumerate() {
        self::fault(out, index + 1, fault)?;
    }
    if plan.faults.is_empty() {
        writeln!(out, "  none: nothing will be tested")?;
    } else {
        let lease = duration::print(LEASE);
        let spared = if plan.faults.iter().any(|fault| fault.spec.select.include_management) {
            "ARP is never selected, nor neighbour discovery and SSH where it is not said."
        } else {
            "ARP, neighbour discovery and SSH are never selected."
        };
        writeln!(out, "  {spared} If the agent dies, the kernel ends every fault")?;
        writeln!(out, "  within {lease}. No qdisc of the interface is touched.")?;
    }
    if !plan.faults.is_empty() && playbook.scope != Scope::Host {
        writeln!(out, "  The scope limits what is observed: a fault meets everyone on this host who uses the edge.")?;
    }
    if !playbook.guards.is_empty() {
        writeln!(out, "\nguards, any of which ends the drill")?;
        for guard in &playbook.guards {
            writeln!(out, "  {guard}")?;
        }
    }
    writeln!(out, "\nexpectations")?;
    for line in expectations(playbook) {
        writeln!(out, "  {line}")?;
    }
    if playbook.expect.is_empty() {
        writeln!(out, "  none: nothing will be judged")?;
    }
    let needs = power::needs(playbook);
    if !needs.is_empty() {
        writeln!(out, "\nto be decided in four drills of five")?;
        for need in needs {
            writeln!(out, "  {need}")?;
        }
    }
    for feature in &plan.obstacles {
        writeln!(out, "\nthis host cannot run it: {}", obstacle(*feature, facts))?;
    }
    Ok(())
}

fn phases(out: &mut String, plan: &Plan) -> std::fmt::Result {
    let whole = plan.timeline.last().map_or(Duration::ZERO, |phase| phase.end);
    let window = duration::print(plan.playbook.window);
    writeln!(out, "\nphases, {} in all, in windows of {window}", clock(whole))?;
    for phase in &plan.timeline {
        let (start, end) = (clock(phase.start), clock(phase.end));
        let windows = if phase.windows == 1 { "window" } else { "windows" };
        writeln!(out, "  {:<10} {start:>8} to {end:>8}, {} {windows}", phase.name.as_str(), phase.windows)?;
    }
    Ok(())
}

/// Minutes and seconds, `1:02:30` with hours; a fraction of a second is kept as it is.
fn clock(time: Duration) -> String {
    let (seconds, rest) = (time.as_secs(), time.subsec_nanos());
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = format!("{rest:09}");
    let fraction = if rest == 0 { String::new() } else { format!(".{}", fraction.trim_end_matches('0')) };
    let head = if hours == 0 { format!("{minutes}") } else { format!("{hours}:{minutes:02}") };
    format!("{head}:{seconds:02}{fraction}")
}

fn observed(out: &mut String, playbook: &Playbook, needs: &[Need]) -> std::fmt::Result {
    let scope = match &playbook.scope {
        Scope::Host => "the whole host".to_owned(),
        Scope::Cgroup(path) => format!("cgroup {path}"),
        Scope::Pid(pid) => format!("the cgroup of process {pid}"),
    };
    writeln!(out, "\nobserved: {scope}")?;
    let width = playbook.edges.iter().map(|edge| edge.name.len()).max().unwrap_or(0);
    for edge in &playbook.edges {
        let address = edge.address.map(|address| address.to_string());
        let ports = edge.ports.map(|ports| format!("port {ports}"));
        let protocol = edge.protocol.map_or("protocol by content", |protocol| protocol.as_str()).to_owned();
        let parts: Vec<String> = address.into_iter().chain(ports).chain([protocol]).collect();
        writeln!(out, "  {:<10} {:<width$}  {}", edge.role.as_str(), edge.name, parts.join(", "))?;
    }
    writeln!(out, "  needs {}", listed(needs))
}

fn fault(out: &mut String, number: usize, fault: &PlannedFault) -> std::fmt::Result {
    writeln!(out, "  {number}. {} {}, to {}", fault.spec.kind.as_str(), parameters(&fault.spec.kind), fault.spec.to)?;
    let fallback = fault.fallback.map(|backend| format!(", or {} if the kernel lacks sch_netem", backend.as_str()));
    writeln!(out, "     by       {}{}", fault.backend.as_str(), fallback.unwrap_or_default())?;
    writeln!(out, "     selects  {}", fault.selects)?;
    for step in &fault.steps {
        writeln!(out, "     makes    {step}")?;
    }
    writeln!(out, "     needs    {}", listed(&fault.needs))?;
    for note in &fault.notes {
        writeln!(out, "     note     {note}")?;
    }
    Ok(())
}

fn listed(needs: &[Need]) -> String {
    // What nobody looked for needs no remark in a plan that was made without looking.
    let word = |need: &Need| match need.presence {
        Presence::Unknown => need.feature.as_str().to_owned(),
        presence => format!("{} ({})", need.feature.as_str(), presence.as_str()),
    };
    needs.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The parameters of a fault: "30%", "100ms, jitter 20ms (normal)", "503 for 30% of answers".
pub(super) fn parameters(kind: &FaultKind) -> String {
    match kind {
        FaultKind::Loss { share } => share::print(*share),
        FaultKind::Delay { time, jitter, .. } if jitter.is_zero() => duration::print(*time),
        FaultKind::Delay { time, jitter, distribution } => {
            format!("{}, jitter {} ({})", duration::print(*time), duration::print(*jitter), distribution.as_str())
        }
        FaultKind::LossModel(LossModel::Gemodel(model)) => format!(
            "gemodel p {}, r {}, h {}, k {}",
            share::print(model.p),
            share::print(model.r),
            share::print(model.h),
            share::print(model.k)
        ),
        FaultKind::LossModel(LossModel::State(model)) => format!(
            "state p13 {}, p31 {}, p32 {}, p23 {}, p14 {}",
            share::print(model.p13),
            share::print(model.p31),
            share::print(model.p32),
            share::print(model.p23),
            share::print(model.p14)
        ),
        FaultKind::Duplicate { share, correlation } | FaultKind::Corrupt { share, correlation } => drawn(*share, *correlation),
        FaultKind::Reorder { share, correlation, gap } => {
            let gap = if *gap > 1 { format!(", gap {gap}") } else { String::new() };
            format!("{}{gap}", drawn(*share, *correlation))
        }
        FaultKind::Rate(limit) => {
            let mut text = bandwidth::print(limit.bytes_per_second);
            for (word, value) in [("overhead", limit.overhead), ("cell overhead", limit.cell_overhead)] {
                if value != 0 {
                    text = format!("{text}, {word} {value}");
                }
            }
            if limit.cell_size == 0 { text } else { format!("{text}, cells of {}", limit.cell_size) }
        }
        FaultKind::Partition => "100%".to_owned(),
        FaultKind::Refuse { share } => format!("{} of connections", share::print(*share)),
        FaultKind::HttpStatus { status, share } => {
            format!("{status} for {} of answers", share::print(*share))
        }
    }
}

fn drawn(share: f64, correlation: f64) -> String {
    if correlation == 0.0 { share::print(share) } else { format!("{}, correlation {}", share::print(share), share::print(correlation)) }
}

/// Each expectation with what its short form leaves out.
fn expectations(playbook: &Playbook) -> Vec<String> {
    let lines: Vec<String> = playbook.expect.iter().map(ToString::to_string).collect();
    let width = lines.iter().map(|line| line.len()).max().unwrap_or(0);
    let each = playbook.expect.iter().zip(&lines);
    each.map(|(expectation, line)| {
        let roles = Row::of(expectation.metric).roles;
        let edges = playbook.edges.iter().filter(|edge| match &expectation.edge {
            Some(name) => edge.name == *name,
            None => roles.contains(&edge.role),
        });
        let edges: Vec<&str> = edges.map(|edge| edge.name.as_str()).collect();
        let when = match expectation.demand {
            Demand::Limit { increase: true, phase, .. } => format!("{} against baseline", phase.as_str()),
            Demand::Limit { phase, .. } => phase.as_str().to_owned(),
            Demand::Recovers { .. } => "recovery".to_owned(),
        };
        format!("{line:<width$}  on {}, in {when}", edges.join(", "))
    })
    .collect()
}

fn obstacle(feature: Feature, facts: &HostFacts) -> String {
    let name = feature.as_str();
    let Some(kernel) = &facts.kernel else {
        return format!("the kernel has no {name}");
    };
    match feature {
        Feature::Cgroup2 => format!("kernel {kernel} has no cgroup2"),
        _ => {
            format!("kernel {kernel} has no {name}; `stormdrill doctor` names the package that has")
        }
    }
}
