//! What a playbook would do to a host, worked out without touching one.

use std::time::Duration;

use crate::edge::{EdgeSpec, Role};
use crate::fault::{Backend, Direction, FaultKind, FaultSpec};
use crate::playbook::{Phases, Playbook};
use crate::window::PhaseName;

pub mod host;

mod notes;

mod selection;

mod power;

mod render;

pub use power::shortfalls;
pub use render::text;

use host::{Feature, HostFacts, Presence};

/// How long the kernel honours a fault that nobody renews.
pub const LEASE: Duration = Duration::from_secs(3);

/// A playbook, thought through for one host.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The playbook.
    pub playbook: Playbook,
    /// The phases, in order.
    pub timeline: Vec<PlannedPhase>,
    /// The faults, in the playbook's order.
    pub faults: Vec<PlannedFault>,
    /// What observing needs.
    pub needs: Vec<Need>,
    /// Features that are known to be missing and that nothing replaces; with any, `run` exits 2 before it changes anything.
    pub obstacles: Vec<Feature>,
}

/// One phase, as planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedPhase {
    /// Which one.
    pub name: PhaseName,
    /// From the drill's start.
    pub start: Duration,
    /// From the drill's start, exclusive.
    pub end: Duration,
    /// Whole windows in it.
    pub windows: u128,
}

/// One fault, as it would be carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFault {
    /// What the playbook asks.
    pub spec: FaultSpec,
    /// How it would be done.
    pub backend: Backend,
    /// How else, if a feature of unknown presence turns out to be missing.
    pub fallback: Option<Backend>,
    /// Which packets or answers are selected, in words.
    pub selects: String,
    /// What would be made in the kernel, in order; it is removed in reverse.
    pub steps: Vec<String>,
    /// What that needs.
    pub needs: Vec<Need>,
    /// Side effects that a reader may not expect.
    pub notes: Vec<String>,
}

/// A feature, and whether the host has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The feature.
    pub feature: Feature,
    /// As far as is known.
    pub presence: Presence,
}

/// Plans a playbook.
#[must_use]
pub fn plan(playbook: &Playbook, facts: &HostFacts) -> Plan {
    let mut faults: Vec<PlannedFault> = Vec::new();
    for spec in &playbook.faults {
        let edge = playbook.edges.iter().find(|edge| edge.name == spec.to);
        let shared = shares_netem(&faults, spec);
        // Of several on the same packets only netem can do all.
        let is_alone =
            !playbook.faults.iter().any(|other| !std::ptr::eq(other, spec) && other.kind.is_of_packets() && other.selects_as(spec));
        faults.push(fault(spec, edge, shared, is_alone, facts));
    }
    let needs = needs(&[Feature::Cgroup2, Feature::SkStorage], facts);
    let all = needs.iter().chain(faults.iter().flat_map(|fault| &fault.needs));
    let mut obstacles: Vec<Feature> = Vec::new();
    for need in all.filter(|need| need.presence == Presence::Missing) {
        if !obstacles.contains(&need.feature) {
            obstacles.push(need.feature);
        }
    }
    let timeline = timeline(playbook.phases, playbook.window);
    Plan { playbook: playbook.clone(), timeline, faults, needs, obstacles }
}

fn timeline(phases: Phases, window: Duration) -> Vec<PlannedPhase> {
    let lengths = [(PhaseName::Baseline, phases.baseline), (PhaseName::Fault, phases.fault), (PhaseName::Recovery, phases.recovery)];
    let mut start = Duration::ZERO;
    let phase = |(name, length): (PhaseName, Duration)| {
        let end = start + length;
        let windows = length.as_nanos() / window.as_nanos().max(1);
        let phase = PlannedPhase { name, start, end, windows };
        start = end;
        phase
    };
    lengths.into_iter().map(phase).collect()
}

/// Two packet faults on one selector are one netem: its parameters are set together.
fn shares_netem(before: &[PlannedFault], spec: &FaultSpec) -> Option<(usize, Direction)> {
    if !spec.kind.is_of_packets() {
        return None;
    }
    let same = |other: &PlannedFault| other.backend == Backend::Netem && other.spec.selects_as(spec);
    before.iter().position(same).and_then(|index| Some((index, before.get(index)?.spec.direction)))
}

fn fault(spec: &FaultSpec, edge: Option<&EdgeSpec>, shared: Option<(usize, Direction)>, is_alone: bool, facts: &HostFacts) -> PlannedFault {
    let (backend, fallback) = backend(spec, is_alone, facts);
    let features: &[Feature] = match backend {
        Backend::Netem => &[Feature::SchIngress, Feature::ClsBpf, Feature::ActMirred, Feature::Ifb, Feature::SchNetem],
        Backend::EbpfDrop | Backend::EbpfHttpStatus => &[Feature::SchIngress, Feature::ClsBpf],
        Backend::Tbf => &[Feature::SchIngress, Feature::ClsBpf, Feature::ActMirred, Feature::Ifb, Feature::SchTbf],
        Backend::CgroupConnect => &[Feature::Cgroup2, Feature::CgroupBpf],
    };
    let mut needs = needs(features, facts);
    // What a fallback replaces is no need.
    needs.retain(|need| fallback.is_none() || need.feature != Feature::SchNetem);
    let notes = notes::of(spec, edge, backend);
    let selects = edge.map_or_else(String::new, |edge| selection::words(spec, edge, facts));
    let steps = steps(spec, edge, backend, shared);
    PlannedFault { spec: spec.clone(), backend, fallback, selects, steps, needs, notes }
}

fn backend(spec: &FaultSpec, is_alone: bool, facts: &HostFacts) -> (Backend, Option<Backend>) {
    match spec.kind {
        FaultKind::HttpStatus { .. } => return (Backend::EbpfHttpStatus, None),
        FaultKind::Refuse { .. } => return (Backend::CgroupConnect, None),
        _ => {}
    }
    let Some(without) = spec.without_netem().filter(|_| is_alone) else { return (Backend::Netem, None) };
    let netem = facts.presence(Feature::SchNetem);
    match netem {
        Presence::Missing => (without, None),
        Presence::Unknown => (Backend::Netem, Some(without)),
        Presence::Present => (Backend::Netem, None),
    }
}

fn needs(features: &[Feature], facts: &HostFacts) -> Vec<Need> {
    features.iter().map(|feature| Need { feature: *feature, presence: facts.presence(*feature) }).collect()
}

/// In the order in which they are made: the filter comes last, so that no packet meets a half-built fault.
fn steps(spec: &FaultSpec, edge: Option<&EdgeSpec>, backend: Backend, shared: Option<(usize, Direction)>) -> Vec<String> {
    let interface = match (&spec.interface, edge) {
        (Some(name), _) => format!("interface {name}"),
        (None, _) if !spec.select.addresses.is_empty() || !spec.select.peers.is_empty() => {
            "the interfaces of the routes to what is selected".to_owned()
        }
        (None, Some(EdgeSpec { address: None, role: Role::Ingress, .. })) => "lo and the interface of the default route".to_owned(),
        (None, Some(EdgeSpec { address: None, .. }) | None) => {
            "lo if a listener here has the port, else the interface of the default route".to_owned()
        }
        (None, Some(edge)) => match edge.role {
            Role::Downstream => "the interface of the route to it".to_owned(),
            Role::Ingress => "the interface that has its address, and lo".to_owned(),
        },
    };
    let interface = spec.netns.iter().fold(interface, |interface, netns| format!("{interface} in {netns}"));
    let hooks: &[&str] = match spec.direction {
        Direction::Egress => &["egress"],
        Direction::Ingress => &["ingress"],
        Direction::Both => &["egress", "ingress"],
    };
    let filters = |action: &str| {
        let filter = |hook: &&str| format!("a leased classifier at clsact {hook} of {interface}, which {action}");
        hooks.iter().map(filter).collect::<Vec<_>>()
    };
    match (backend, shared) {
        (Backend::Netem, Some((first, its))) => {
            let mut steps = vec![format!("{} is set in the netem of fault {} as well", spec.kind.as_str(), first + 1)];
            // In the direction that the other is not in, it has one of its own.
            let own = hooks.iter().filter(|hook| its != Direction::Both && its.as_str() != **hook);
            let own: Vec<String> =
                own.map(|hook| format!("an ifb device with netem of its own for clsact {hook} of {interface}")).collect();
            if !own.is_empty() && spec.direction == Direction::Both {
                steps.extend(own);
            }
            steps
        }
        (Backend::Netem, None) => {
            let device = format!("an ifb device with netem: {} {}", spec.kind.as_str(), render::parameters(&spec.kind));
            std::iter::once(device).chain(filters("sends the selected packets through it")).collect()
        }
        (Backend::Tbf, _) => {
            let device = format!("an ifb device with tbf {}", render::parameters(&spec.kind));
            std::iter::once(device).chain(filters("sends the selected packets through it")).collect()
        }
        (Backend::CgroupConnect, _) => vec!["a leased program at connect4 and connect6 of the root cgroup".to_owned()],
        (Backend::EbpfDrop, _) => filters("drops a share of the selected packets"),
        (Backend::EbpfHttpStatus, _) => filters("rewrites the status of a share of the selected answers"),
    }
}
