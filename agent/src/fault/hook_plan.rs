//! What is going to be put onto one hook of one interface: decided before anything is changed.

use stormdrill_wire::fault::FaultRule;

use super::filter::Hook;
use super::link::Link;
use super::name::{PRIORITY_DROP, PRIORITY_HTTP_STATUS, PRIORITY_REDIRECT};
use super::netem::Netem;
use super::object::Program;
use super::selection::Selection;

/// What is going to be put onto one hook.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookPlan {
    pub(crate) link: Link,
    pub(crate) hook: Hook,
    pub(crate) selection: Selection,
    pub(crate) carrier: Carrier,
    /// Why this interface, for `plan`.
    pub(crate) why: String,
}

/// What carries a fault out on a hook.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Carrier {
    /// netem on an ifb.
    Netem(Netem),
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
    },
}

impl Carrier {
    pub(crate) const fn program(&self) -> Program {
        match self {
            Self::Netem(_) => Program::Select,
            Self::Drop { .. } => Program::Drop,
            Self::HttpStatus { .. } => Program::HttpStatus,
        }
    }

    pub(crate) const fn priority(&self) -> u16 {
        match self {
            Self::Netem(_) => PRIORITY_REDIRECT,
            Self::Drop { .. } => PRIORITY_DROP,
            Self::HttpStatus { .. } => PRIORITY_HTTP_STATUS,
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
            ..FaultRule::default()
        };
        match self.carrier {
            Carrier::Netem(_) => {}
            Carrier::Drop { threshold } => rule.threshold = threshold,
            Carrier::HttpStatus { threshold, status, seed } => {
                rule.threshold = threshold;
                rule.seed = seed;
                for (digit, byte) in rule.status.iter_mut().zip(status.to_string().bytes()) {
                    *digit = byte;
                }
            }
        }
        rule
    }
}
