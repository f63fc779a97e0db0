//! What is going to be put onto one hook of one interface: decided before anything is changed.

use std::path::PathBuf;
use std::time::Duration;

use stormdrill_wire::fault::FaultRule;
use stormdrill_wire::fault::http2::status_byte;
use stormdrill_wire::fault::request::RequestRule;

use super::filter::Hook;
use super::link::Link;
use super::name::{PRIORITY_DROP, PRIORITY_HTTP_STATUS, PRIORITY_REDIRECT};
use super::netem::Netem;
use super::object::Program;
use super::selection::Selection;
use super::tbf::Tbf;

/// What is going to be put onto one hook.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookPlan {
    pub(crate) link: Link,
    pub(crate) hook: Hook,
    /// The hook that the packets of the other direction pass, for what has to see both.
    pub(crate) also: Option<Hook>,
    pub(crate) selection: Selection,
    pub(crate) carrier: Carrier,
    /// The cgroup whose sockets are meant, if the selection speaks of one.
    pub(crate) cgroup: Option<PathBuf>,
    /// Why this interface, for `plan`.
    pub(crate) why: String,
}

/// What carries a fault out on a hook.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Carrier {
    /// netem on an ifb.
    Netem(Box<Netem>),
    /// tbf on an ifb.
    Tbf(Tbf),
    /// The classifier drops.
    Drop {
        /// Of 2^32 draws.
        threshold: u64,
    },
    /// The classifier rewrites.
    HttpStatus {
        /// Of 2^32 draws.
        threshold: u64,
        /// The code that is written.
        status: u16,
        /// Seed of the draws.
        seed: u64,
        /// The requests whose answers are selected.
        requests: RequestRule,
    },
}

impl Carrier {
    pub(crate) const fn program(&self) -> Program {
        match self {
            Self::Netem(_) | Self::Tbf(_) => Program::Select,
            Self::Drop { .. } => Program::Drop,
            Self::HttpStatus { .. } => Program::HttpStatus,
        }
    }

    pub(crate) const fn priority(&self) -> u16 {
        match self {
            Self::Netem(_) | Self::Tbf(_) => PRIORITY_REDIRECT,
            Self::Drop { .. } => PRIORITY_DROP,
            Self::HttpStatus { .. } => PRIORITY_HTTP_STATUS,
        }
    }
}

impl Carrier {
    /// Kind and options of the discipline that the selected packets are sent through; `None` if they are sent through none.
    pub(crate) fn discipline(&self) -> Option<(&'static str, Vec<u8>)> {
        match self {
            Self::Netem(netem) => Some(("netem", netem.options())),
            Self::Tbf(tbf) => Some(("tbf", tbf.options())),
            Self::Drop { .. } | Self::HttpStatus { .. } => None,
        }
    }

    /// How long packets may be held back, for whoever waits until they have left.
    pub(crate) fn longest(&self) -> Duration {
        match self {
            // A full queue of a slow link takes what it takes; the caller has a bound of its own.
            Self::Netem(netem) if netem.rate.is_some() => Duration::MAX,
            Self::Netem(netem) => netem.longest(),
            Self::Tbf(_) => Duration::MAX,
            Self::Drop { .. } | Self::HttpStatus { .. } => Duration::ZERO,
        }
    }
}

impl HookPlan {
    /// The kernel's rule; the ifb is entered when there is one.
    pub(crate) fn rule(&self) -> FaultRule {
        let mut rule = FaultRule {
            flags: self.selection.flags(),
            protocol: self.selection.protocol.unwrap_or(0).into(),
            link_header: self.link.link_header().unwrap_or(0),
            flow_threshold: self.selection.flows.map_or(0, |flows| flows.threshold),
            own_ports: self.selection.own_ports,
            flow_seed: self.selection.flows.map_or(0, |flows| flows.seed),
            ..FaultRule::default()
        };
        match self.carrier {
            Carrier::Netem(_) | Carrier::Tbf(_) => {}
            Carrier::Drop { threshold } => rule.threshold = threshold,
            Carrier::HttpStatus { threshold, status, seed, .. } => {
                rule.threshold = threshold;
                rule.seed = seed;
                rule.http2_status = status_byte(status).map_or(0, u32::from);
                for (digit, byte) in rule.status.iter_mut().zip(status.to_string().bytes()) {
                    *digit = byte;
                }
            }
        }
        rule
    }
}
