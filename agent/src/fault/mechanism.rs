//! Which mechanism carries a fault out, with what parameters, on which hooks.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::fault::{Backend, Direction, FaultKind, FaultSpec};

use super::capability::{self, Capability, Finding};
use super::filter::Hook;
use super::hook_plan::Carrier;
use super::netem::Netem;
use super::plane::FaultError;
use super::selection::threshold;

/// Whether a fault belongs into the netem of others: the same packets, and none of its kind yet.
pub(crate) fn shares_netem(specs: &[FaultSpec], new: &FaultSpec) -> bool {
    let is_netem = |spec: &FaultSpec| !matches!(spec.kind, FaultKind::HttpStatus { .. });
    is_netem(new)
        && specs.iter().all(|spec| {
            is_netem(spec)
                && spec.to == new.to
                && spec.direction == new.direction
                && spec.interface == new.interface
                && spec.kind.as_str() != new.kind.as_str()
        })
}

/// The mechanism for a group, tried out in a scratch namespace.
pub(crate) fn backend(specs: &[FaultSpec]) -> Result<Backend, FaultError> {
    let needs_netem = specs.iter().find(|spec| matches!(spec.kind, FaultKind::Delay { .. }));
    let fault = needs_netem.or(specs.first()).map_or("fault", |spec| spec.kind.as_str());
    if needs_netem.is_some() {
        require_all(fault, &NETEM)?;
        return Ok(Backend::Netem);
    }
    if specs.iter().any(|spec| matches!(spec.kind, FaultKind::HttpStatus { .. })) {
        require_all(fault, &CLASSIFIER)?;
        return Ok(Backend::EbpfHttpStatus);
    }
    if NETEM.into_iter().all(|capability| capability::try_one(capability).works()) {
        return Ok(Backend::Netem);
    }
    require_all(fault, &CLASSIFIER)?;
    Ok(Backend::EbpfDrop)
}

/// What an acting classifier needs: the last of the chain, which needs the others.
const CLASSIFIER: [Capability; 1] = [Capability::ClsBpf];
/// What netem on an ifb needs.
const NETEM: [Capability; 3] = [Capability::Netem, Capability::Ifb, Capability::Mirred];

fn require_all(fault: &'static str, capabilities: &[Capability]) -> Result<(), FaultError> {
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
pub(crate) fn carrier(specs: &[FaultSpec], backend: Backend) -> Carrier {
    let mut netem = Netem::default();
    for spec in specs {
        match spec.kind {
            FaultKind::Loss { share } if backend == Backend::EbpfDrop => return Carrier::Drop { threshold: threshold(share) },
            FaultKind::Loss { share } => netem.loss = share,
            FaultKind::Delay { time, jitter, distribution } => {
                netem.delay = time;
                netem.jitter = jitter;
                netem.distribution = distribution;
            }
            FaultKind::HttpStatus { status, share } => {
                // A fresh seed: two drills do not spoil the same responses.
                let seed = RandomState::new().build_hasher().finish();
                return Carrier::HttpStatus { threshold: threshold(share), status, seed };
            }
        }
    }
    Carrier::Netem(netem)
}

/// The hooks that a fault's packets pass on an interface.
pub(crate) fn hooks_of(spec: &FaultSpec, edge: &EdgeSpec, is_loopback: bool) -> Vec<Hook> {
    match (&spec.kind, spec.direction) {
        // Answers come in from a peer elsewhere. From a server on this host they go out: of loopback, or to its caller.
        (FaultKind::HttpStatus { .. }, _) if edge.role == Role::Downstream && !is_loopback => vec![Hook::Ingress],
        (FaultKind::HttpStatus { .. }, _) | (_, Direction::Egress) => vec![Hook::Egress],
        (_, Direction::Ingress) => vec![Hook::Ingress],
        (_, Direction::Both) => vec![Hook::Egress, Hook::Ingress],
    }
}
