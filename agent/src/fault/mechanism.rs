//! Which mechanism carries a fault out, with what parameters, on which hooks.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::Path;

use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::fault::{Backend, Direction, FaultKind, FaultSpec};
use stormdrill_core::units::share;

use stormdrill_wire::fault::request::RequestRule;

use super::capability::{self, Capability, Finding};
use super::distribution_file;
use super::filter::Hook;
use super::hook_plan::Carrier;
use super::netem::{Draw, Netem};
use super::plane::FaultError;
use super::selection::Sight;
use super::tbf::Tbf;

/// Whether a fault and a group have a netem in common: the same packets on a hook of both.
pub(crate) fn shares_netem(specs: &[FaultSpec], new: &FaultSpec) -> bool {
    new.kind.is_of_packets() && specs.iter().any(|spec| spec.kind.is_of_packets() && spec.selects_as(new) && !is_again(spec, new))
}

/// The same kind on the same hook: one netem cannot do it twice.
fn is_again(a: &FaultSpec, b: &FaultSpec) -> bool {
    a.kind.as_str() == b.kind.as_str() && a.direction.meets(b.direction)
}

/// Whether a fault has packets on that hook.
pub(crate) const fn is_on(spec: &FaultSpec, hook: Hook) -> bool {
    match (spec.direction, hook) {
        (Direction::Both, _) | (Direction::Egress, Hook::Egress) | (Direction::Ingress, Hook::Ingress) => true,
        (Direction::Egress, Hook::Ingress) | (Direction::Ingress, Hook::Egress) => false,
    }
}

/// The mechanism for a group, tried out in a scratch namespace.
pub(crate) fn backend(specs: &[FaultSpec]) -> Result<Backend, FaultError> {
    let Some(first) = specs.first() else {
        return Err(FaultError::Panicked);
    };
    match first.kind {
        FaultKind::HttpStatus { .. } => {
            require_all(first.kind.as_str(), &CLASSIFIER)?;
            return Ok(Backend::EbpfHttpStatus);
        }
        FaultKind::Refuse { .. } => return Ok(Backend::CgroupConnect),
        _ => {}
    }
    let needs_netem = specs.iter().find(|spec| spec.without_netem().is_none());
    // Of several only netem can do all.
    let needs_netem = needs_netem.or_else(|| specs.get(1));
    if let Some(spec) = needs_netem {
        require_all(spec.kind.as_str(), &NETEM)?;
        return Ok(Backend::Netem);
    }
    if capability::all_work(&NETEM) {
        return Ok(Backend::Netem);
    }
    let backend = first.without_netem().unwrap_or(Backend::Netem);
    require_all(first.kind.as_str(), if backend == Backend::Tbf { &TBF } else { &CLASSIFIER })?;
    Ok(backend)
}

/// What an acting classifier needs: the last of the chain, which needs the others.
const CLASSIFIER: [Capability; 1] = [Capability::ClsBpf];
/// What netem on an ifb needs.
const NETEM: [Capability; 3] = [Capability::Netem, Capability::Ifb, Capability::Mirred];

/// What tbf on an ifb needs.
const TBF: [Capability; 3] = [Capability::Tbf, Capability::Ifb, Capability::Mirred];

fn require_all(fault: &'static str, capabilities: &[Capability]) -> Result<(), FaultError> {
    if capability::all_work(capabilities) {
        return Ok(());
    }
    for &capability in capabilities {
        if capability::try_one(capability).works() {
            continue;
        }
        // What is lacking may be something that it builds on, which is named instead.
        for &below in capability.builds_on() {
            require(fault, below)?;
        }
        require(fault, capability)?;
    }
    Ok(())
}

fn require(fault: &'static str, capability: Capability) -> Result<(), FaultError> {
    let module = capability.module();
    match capability::try_one(capability) {
        Finding::Works => Ok(()),
        Finding::Forbidden => Err(FaultError::Forbidden { fault }),
        Finding::Missing => {
            Err(FaultError::Missing { fault, module, kernel: capability::kernel_release(), remedy: capability::remedy(module) })
        }
        Finding::Refused(source) => Err(FaultError::Refused { fault, module, source: Box::new(source) }),
    }
}

/// The parameters for a group's mechanism.
///
/// # Errors
/// When a distribution table cannot be read.
pub(crate) fn carrier<'a>(specs: impl IntoIterator<Item = &'a FaultSpec>, backend: Backend, mtu: u32) -> Result<Carrier, FaultError> {
    let mut netem = Netem::default();
    for spec in specs {
        match (&spec.kind, backend) {
            (FaultKind::Loss { share }, Backend::EbpfDrop) => return Ok(Carrier::Drop { threshold: share::units(*share) }),
            (FaultKind::Partition, Backend::EbpfDrop) => return Ok(Carrier::Drop { threshold: share::units(1.0) }),
            (FaultKind::Rate(limit), Backend::Tbf) => {
                return Ok(Carrier::Tbf(Tbf { bytes_per_second: limit.bytes_per_second, mtu }));
            }
            (FaultKind::HttpStatus { status, share }, _) => {
                // A fresh seed: two drills do not spoil the same responses.
                let seed = RandomState::new().build_hasher().finish();
                let wanted = &spec.select.requests;
                let requests = RequestRule::new(wanted.method.as_deref(), wanted.path.as_deref());
                return Ok(Carrier::HttpStatus { threshold: share::units(*share), status: *status, seed, requests });
            }
            _ => add(&mut netem, spec)?,
        }
    }
    Ok(Carrier::Netem(Box::new(netem)))
}

/// Adds one fault to a netem.
fn add(netem: &mut Netem, spec: &FaultSpec) -> Result<(), FaultError> {
    match &spec.kind {
        FaultKind::Loss { share } => netem.loss = *share,
        FaultKind::Partition => netem.loss = 1.0,
        FaultKind::LossModel(model) => netem.model = Some(*model),
        FaultKind::Duplicate { share, correlation } => netem.duplicate = Draw { share: *share, correlation: *correlation },
        FaultKind::Corrupt { share, correlation } => netem.corrupt = Draw { share: *share, correlation: *correlation },
        FaultKind::Reorder { share, correlation, gap } => {
            netem.reorder = Draw { share: *share, correlation: *correlation };
            netem.gap = *gap;
        }
        FaultKind::Rate(limit) => netem.rate = Some(*limit),
        FaultKind::Delay { time, jitter, distribution } => {
            netem.delay = *time;
            netem.jitter = *jitter;
            netem.distribution = *distribution;
        }
        FaultKind::HttpStatus { .. } | FaultKind::Refuse { .. } => {}
    }
    let tuning = &spec.tuning;
    netem.ecn |= tuning.ecn;
    // The larger queue serves both faults. Two seeds that differ were refused, and a loss beside a partition.
    netem.limit = netem.limit.max(tuning.limit);
    netem.seed = tuning.seed.or(netem.seed);
    netem.slot = tuning.slot.or(netem.slot);
    if tuning.jitter_correlation > 0.0 {
        netem.jitter_correlation = tuning.jitter_correlation;
    }
    if let Some(path) = &tuning.table {
        netem.table = Some(distribution_file::read(Path::new(path))?);
    }
    Ok(())
}

/// The hooks that a group's packets pass on an interface.
pub(crate) fn hooks_of(specs: &[FaultSpec], edge: &EdgeSpec, is_loopback: bool) -> Vec<Hook> {
    if let [spec] = specs {
        return hooks_of_one(spec, edge, is_loopback);
    }
    [Hook::Egress, Hook::Ingress].into_iter().filter(|hook| specs.iter().any(|spec| is_on(spec, *hook))).collect()
}

fn hooks_of_one(spec: &FaultSpec, edge: &EdgeSpec, is_loopback: bool) -> Vec<Hook> {
    match (&spec.kind, spec.direction) {
        // Answers come in from a peer elsewhere. From a server on this host they go out: of loopback, or to its caller.
        (FaultKind::HttpStatus { .. }, _) if edge.role == Role::Downstream && !is_loopback => vec![Hook::Ingress],
        (FaultKind::HttpStatus { .. }, _) | (_, Direction::Egress) => vec![Hook::Egress],
        (_, Direction::Ingress) => vec![Hook::Ingress],
        (_, Direction::Both) => vec![Hook::Egress, Hook::Ingress],
    }
}

/// The hook of the other direction, if it has to be seen too: the requests to the answers, or the packets that a cgroup's sockets send on the
/// connections on which they receive. Of loopback all packets leave.
pub(crate) fn other_hook(spec: &FaultSpec, hook: Hook, sight: Option<Sight>, is_loopback: bool) -> Option<Hook> {
    match (&spec.kind, hook) {
        (FaultKind::HttpStatus { .. }, Hook::Egress) if !is_loopback => Some(Hook::Ingress),
        (FaultKind::HttpStatus { .. }, Hook::Ingress) => Some(Hook::Egress),
        (FaultKind::HttpStatus { .. }, _) => None,
        _ => (sight == Some(Sight::Answered)).then_some(Hook::Egress),
    }
}

/// Where the sockets of this host are seen that a fault's packets belong to.
pub(crate) fn sight(spec: &FaultSpec, edge: &EdgeSpec, hook: Hook) -> Option<Sight> {
    spec.select.members.as_ref()?;
    Some(match (&spec.kind, edge.role, hook) {
        // The answers are sent by the service, or to it.
        (FaultKind::HttpStatus { .. }, Role::Downstream, _) | (_, _, Hook::Ingress) => Sight::Answered,
        (_, _, Hook::Egress) => Sight::Sent,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stormdrill_core::fault::{Distribution, RateLimit, Slot, Spacing, Tuning, queue};

    use super::*;

    #[test]
    fn the_plans_limit_is_the_one_that_netem_gets() {
        let delay =
            FaultKind::Delay { time: Duration::from_millis(100), jitter: Duration::from_millis(20), distribution: Distribution::Normal };
        let rate = FaultKind::Rate(RateLimit { bytes_per_second: 1_250_000, overhead: 0, cell_size: 0, cell_overhead: 0 });
        let slot = Slot { every: Spacing::Between(Duration::from_millis(5), Duration::from_millis(50)), packets: 3, bytes: 0 };
        let spec = |kind: &FaultKind, tuning| FaultSpec { tuning, ..FaultSpec::new(kind.clone(), "store") };
        let plain = Tuning::default();
        for specs in [
            vec![spec(&FaultKind::Partition, plain.clone())],
            vec![spec(&delay, plain.clone())],
            vec![spec(&delay, Tuning { slot: Some(slot), ..plain.clone() }), spec(&rate, plain.clone())],
            vec![spec(&delay, Tuning { limit: Some(7), ..plain.clone() }), spec(&rate, Tuning { limit: Some(9), ..plain })],
        ] {
            let planned = queue::limit_of(&specs.iter().collect::<Vec<_>>());
            match carrier(&specs, Backend::Netem, 1500) {
                Ok(Carrier::Netem(netem)) => assert_eq!(netem.queue_limit(), planned, "{specs:?}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
