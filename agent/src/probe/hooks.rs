//! The links that keep the programs in place.

use super::Attached;
pub(super) use crate::cgroup_link::Hook;

/// All of them.
pub(super) struct Hooks {
    pub(super) ingress: Hook,
    pub(super) egress: Hook,
    pub(super) sock_ops: Hook,
}

impl Hooks {
    pub(super) fn state(&self) -> Attached {
        Attached { ingress: self.ingress.is_live(), egress: self.egress.is_live(), sock_ops: self.sock_ops.is_live() }
    }
}
