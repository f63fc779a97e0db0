//! What a playbook would do to a host, worked out without touching one.

use std::time::Duration;

use crate::edge::EdgeSpec;
use crate::fault::{Backend, FaultKind, FaultSpec};
use crate::playbook::{Phases, Playbook};
use crate::window::PhaseName;

pub mod host;

mod notes;

pub(crate) mod parameters;

mod selection;

mod steps;

mod power;

mod render;

mod warnings;

pub use power::shortfalls;
pub use render::text;
pub use warnings::{foregone, warnings};

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
    let groups = groups(&playbook.faults);
    for (index, spec) in playbook.faults.iter().enumerate() {
        let edge = playbook.edges.iter().find(|edge| edge.name == spec.to);
        let group = groups.iter().find(|group| group.contains(&index)).map_or(&[][..], Vec::as_slice);
        // Of several on the same packets only netem can do all.
        let mut fault = fault(spec, edge, group.len() < 2, facts);
        fault.steps = steps::of(&playbook.faults, index, group, edge, (fault.backend, facts.devices(index)));
        faults.push(fault);
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

/// The faults that one netem carries out, by their places in the list and in order: its parameters are set together. One in both directions
/// may join what is in one direction each.
fn groups(faults: &[FaultSpec]) -> Vec<Vec<usize>> {
    let shares = |a: &FaultSpec, b: &FaultSpec| {
        let is_again = a.kind.as_str() == b.kind.as_str();
        a.kind.is_of_packets() && b.kind.is_of_packets() && a.selects_as(b) && !is_again
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, spec) in faults.iter().enumerate() {
        let meets = |group: &Vec<usize>| group.iter().filter_map(|member| faults.get(*member)).any(|member| shares(member, spec));
        let (joined, others): (Vec<_>, Vec<_>) = groups.into_iter().partition(meets);
        let mut joined: Vec<usize> = joined.into_iter().flatten().chain([index]).collect();
        joined.sort_unstable();
        groups = others;
        groups.push(joined);
    }
    groups
}

fn fault(spec: &FaultSpec, edge: Option<&EdgeSpec>, is_alone: bool, facts: &HostFacts) -> PlannedFault {
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
    PlannedFault { spec: spec.clone(), backend, fallback, selects, steps: Vec::new(), needs, notes }
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
