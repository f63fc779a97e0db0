//! Exit codes. They are called from scripts and CI jobs, so they are part of the contract.

use stormdrill_core::judge::Verdict;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0: it did what was asked; a drill passed.
    Pass,
    /// 1: a drill failed an expectation.
    Fail,
    /// 2: the environment: missing privilege, a kernel that lacks what the fault needs, or a fault that could not be removed.
    Environment,
    /// 3: the drill could not tell: inconclusive, vacuous or invalid.
    CannotTell,
    /// 4: the drill was aborted by a guard, a signal or the API; its faults are gone.
    Aborted,
    /// 64: bad usage or a bad playbook.
    Usage,
}

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::Environment => 2,
            Self::CannotTell => 3,
            Self::Aborted => 4,
            Self::Usage => 64,
        }
    }
}

impl From<Verdict> for Exit {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Pass => Self::Pass,
            Verdict::Fail => Self::Fail,
            Verdict::Inconclusive | Verdict::Vacuous | Verdict::Invalid => Self::CannotTell,
        }
    }
}
