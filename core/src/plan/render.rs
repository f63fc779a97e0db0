//! A plan as text, for `stormdrill plan`.

use std::fmt::Write as _;
use std::time::Duration;

use super::host::{Feature, HostFacts, Presence};
use super::{LEASE, Need, Plan, PlannedFault, parameters, power, warnings};
use crate::expectation::Demand;
use crate::expectation::metric::Row;
use crate::playbook::{Playbook, Scope};
use crate::units::{duration, rate};

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
        writeln!(out, "  {}", crate::wording::harmless(line))?;
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
        writeln!(out, "  Never selected: {}.", spared(plan, facts))?;
        writeln!(out, "  If the agent dies, the kernel ends every fault within {lease}. No qdisc of the interface is touched.")?;
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
    let told = [warnings::foregone(playbook), warnings::due_at_once(playbook), warnings::twice(playbook)].concat();
    if !told.is_empty() {
        writeln!(out, "\ntells nothing")?;
        for line in told {
            writeln!(out, "  {line}")?;
        }
    }
    for feature in &plan.obstacles {
        writeln!(out, "\nthis host cannot run it: {}", obstacle(*feature, facts))?;
    }
    Ok(())
}

/// What no fault meets, and which faults meet it all the same because they say so.
fn spared(plan: &Plan, facts: &HostFacts) -> String {
    let ports: String = facts.spared_ports.iter().map(|port| format!(", {port}")).collect();
    let ends: Vec<String> = facts.spared_ends.iter().map(ToString::to_string).collect();
    let ends = if ends.is_empty() { String::new() } else { format!(", now with {}", ends.join(", ")) };
    let all = format!(
        "ARP; neighbour discovery and multicast listener messages; DHCP; SSH (TCP port 22{ports} and every other on which an sshd of\n  \
         this host listens); the ports of the daemon's API; the daemon's connections to etcd; the caller's own connections (SSH and API{ends})"
    );
    let bold = (1..).zip(&plan.faults).filter(|(_, fault)| fault.spec.select.include_management);
    let bold: Vec<String> = bold.map(|(number, _)| number.to_string()).collect();
    match bold.as_slice() {
        [] => all,
        [one] => format!("{all}.\n  Fault {one} includes management traffic: it spares ARP only"),
        more => format!("{all}.\n  Faults {} include management traffic: they spare ARP only", more.join(", ")),
    }
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
    writeln!(out, "  {number}. {} {}, to {}", fault.spec.kind.as_str(), parameters::asked(&fault.spec), fault.spec.to)?;
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
