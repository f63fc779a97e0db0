//! What a fault would make in the kernel, a line for each thing.

use super::host::Device;
use super::parameters;
use crate::edge::{EdgeSpec, Role};
use crate::fault::{Backend, Direction, FaultKind, FaultSpec, Members};
use crate::units::share;

const EGRESS: &str = "egress";
const INGRESS: &str = "ingress";

/// In the order in which they are made: the filter comes last, so that no packet meets a half-built fault.
///
/// `faults` are the playbook's, of which `group` lists those that share a netem with the one at `index`, itself included, in order. `devices`:
/// the interfaces, where the kernel was asked for them.
pub(super) fn of(
    faults: &[FaultSpec],
    index: usize,
    group: &[usize],
    edge: Option<&EdgeSpec>,
    (backend, devices): (Backend, Option<&[Device]>),
) -> Vec<String> {
    let (Some(spec), Some(edge)) = (faults.get(index), edge) else {
        return Vec::new();
    };
    if backend == Backend::CgroupConnect {
        return vec![format!("a leased program at connect4 and connect6 of {}, which refuses {} of them", whose(spec), shared(spec))];
    }
    let mut steps = Vec::new();
    for place in known(spec, devices).unwrap_or_else(|| places(spec, edge)) {
        let mut made = Vec::new();
        for hook in hooks(spec, edge, place.is_loopback) {
            let here: Vec<usize> =
                group.iter().copied().filter(|other| faults.get(*other).is_some_and(|other| is_on(other, hook))).collect();
            if let Some(first) = here.first().filter(|first| **first != index && backend == Backend::Netem) {
                made.push(format!("nothing of its own at {hook} of {place}: it is set in the netem of fault {} as well", first + 1));
                continue;
            }
            let sent = "which sends the selected packets through it";
            match backend {
                Backend::Netem => {
                    let members: Vec<&FaultSpec> = here.iter().filter_map(|member| faults.get(*member)).collect();
                    made.push(format!("an ifb device for {hook} of {place} with netem: {}", parameters::of_netem(&members)));
                    made.push(format!("a leased classifier at clsact {hook} of {place}, {sent}"));
                }
                Backend::Tbf => {
                    made.push(format!("an ifb device for {hook} of {place} with tbf: {}", parameters::asked(spec)));
                    made.push(format!("a leased classifier at clsact {hook} of {place}, {sent}"));
                }
                Backend::EbpfDrop => {
                    made.push(format!(
                        "a leased classifier at clsact {hook} of {place}, which drops {} of the selected packets",
                        shared(spec)
                    ));
                }
                Backend::EbpfHttpStatus | Backend::CgroupConnect => {
                    let what = format!("rewrites the status of {} of the selected answers", shared(spec));
                    made.push(format!("a leased classifier at clsact {hook} of {place}, which {what}"));
                }
            }
            made.extend(watcher(spec, hook, &place));
        }
        if made.iter().any(|line| line.contains("clsact")) {
            let why = place.why.iter().map(|why| format!(" ({why})")).collect::<String>();
            steps.push(match place.has_hooks {
                Some(true) => format!("filters alone on {place}{why}, which has the hooks already"),
                Some(false) => format!("a clsact qdisc on {place}{why}"),
                None => format!("a clsact qdisc on {place}{why}, unless it has one"),
            });
        }
        steps.extend(made);
    }
    steps
}

/// The filter on the other hook, for what has to see both directions.
fn watcher(spec: &FaultSpec, hook: &str, place: &Place) -> Option<String> {
    let other = if hook == EGRESS { INGRESS } else { EGRESS };
    if matches!(spec.kind, FaultKind::HttpStatus { .. }) {
        let unknown = if place.is_loopback.is_none() { "; if that is lo, one at its egress does both" } else { "" };
        let whose = if spec.select.members.is_some() { ", and of whom they are" } else { "" };
        let line =
            format!("a classifier at clsact {other} of {place}, which reads the requests{whose}, to know which answers are due{unknown}");
        return (place.is_loopback != Some(true)).then_some(line);
    }
    let line = format!("a classifier at clsact {other} of {place}, which remembers the connections on which the members send");
    (spec.select.members.is_some() && hook == INGRESS).then_some(line)
}

/// The cgroup whose `connect()` is met.
fn whose(spec: &FaultSpec) -> String {
    match &spec.select.members {
        None => "the root cgroup".to_owned(),
        Some(Members::Cgroup(path)) => format!("the cgroup {path}"),
        Some(Members::Container(id)) => format!("the cgroup of container {id}"),
        Some(Members::Pid(pid)) => format!("the cgroup of process {pid}"),
    }
}

/// How much is hit by what the classifier draws for itself.
fn shared(spec: &FaultSpec) -> String {
    match spec.kind {
        FaultKind::Loss { share } | FaultKind::Refuse { share } | FaultKind::HttpStatus { share, .. } => share::print(share),
        _ => "100%".to_owned(),
    }
}

fn is_on(spec: &FaultSpec, hook: &str) -> bool {
    spec.direction == Direction::Both || spec.direction.as_str() == hook
}

/// The hooks that act, of an interface that is loopback or is not.
fn hooks(spec: &FaultSpec, edge: &EdgeSpec, is_loopback: Option<bool>) -> Vec<&'static str> {
    match (&spec.kind, spec.direction) {
        (FaultKind::HttpStatus { .. }, _) if edge.role == Role::Downstream && is_loopback != Some(true) => vec![INGRESS],
        (FaultKind::HttpStatus { .. }, _) | (_, Direction::Egress) => vec![EGRESS],
        (_, Direction::Ingress) => vec![INGRESS],
        (_, Direction::Both) => vec![EGRESS, INGRESS],
    }
}

/// An interface, as far as it is known.
struct Place {
    words: String,
    is_loopback: Option<bool>,
    has_hooks: Option<bool>,
    /// Why this one, if the kernel was asked.
    why: Option<String>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

/// The words for an interface in the fault's namespace.
fn in_its_namespace(words: &str, spec: &FaultSpec) -> String {
    spec.netns.iter().fold(words.to_owned(), |words, netns| format!("{words} in {netns}"))
}

/// The interfaces that the kernel named.
fn known(spec: &FaultSpec, devices: Option<&[Device]>) -> Option<Vec<Place>> {
    let place = |device: &Device| Place {
        words: in_its_namespace(&device.name, spec),
        is_loopback: Some(device.is_loopback),
        has_hooks: device.has_hooks,
        why: Some(device.why.clone()),
    };
    devices.map(|devices| devices.iter().map(place).collect())
}

/// The interfaces as far as they are known without asking the kernel.
fn places(spec: &FaultSpec, edge: &EdgeSpec) -> Vec<Place> {
    let place = |words: &str, is_loopback| Place { words: in_its_namespace(words, spec), is_loopback, has_hooks: None, why: None };
    let loopback = || place("lo", Some(true));
    let select = &spec.select;
    if let Some(name) = &spec.interface {
        return vec![place(&format!("interface {name}"), Some(name == "lo"))];
    }
    if !select.addresses.is_empty() || !select.hosts.is_empty() || !select.peers.is_empty() {
        return vec![place("the interfaces of the routes to what is selected", None)];
    }
    match (edge.address, edge.role) {
        (Some(network), _) if network.address.to_canonical().is_loopback() => vec![loopback()],
        (Some(_), Role::Downstream) => vec![place("the interface of the route to it", None)],
        (Some(_), Role::Ingress) => vec![loopback(), place("the interface that has its address", Some(false))],
        (None, Role::Ingress) => vec![loopback(), place("the interface of the default route", Some(false))],
        (None, Role::Downstream) => vec![place("lo if a listener here has the port, else the interface of the default route", None)],
    }
}
