//! The links that keep the programs in place, and whether they still do.
//!
//! Somebody can detach a link by force or put another program in its place, and a cgroup that is removed takes its links along. The kernel's
//! description of our descriptor tells: aya does not pass that part on.

use std::path::{Path, PathBuf};

use aya::programs::links::FdLink;

use super::Attached;

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

/// One link; it is closed with this.
pub(super) struct Hook {
    /// Where it is described, found once: a daemon has thousands of descriptors. `None` without /proc.
    description: Option<PathBuf>,
    attached: Option<Described>,
    _link: FdLink,
}

/// What tells a link apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Described {
    link: u64,
    program: u64,
    /// 0 if it holds none any more.
    cgroup: u64,
}

impl Hook {
    /// The hook of a link that was attached just now.
    pub(super) fn of(link: FdLink) -> Self {
        let id = link.info().map(|info| u64::from(info.id())).ok();
        let descriptors = std::fs::read_dir("/proc/self/fdinfo").into_iter().flatten().flatten();
        let found = descriptors.map(|entry| entry.path()).find_map(|path| {
            let described = describe(&path).filter(|described| Some(described.link) == id)?;
            Some((path, described))
        });
        let (description, attached) = found.unzip();
        Self { description, attached, _link: link }
    }

    fn is_live(&self) -> bool {
        let now = self.description.as_deref().and_then(describe);
        now.is_some_and(|now| now.cgroup != 0) && now == self.attached
    }
}

fn describe(descriptor: &Path) -> Option<Described> {
    parse(&std::fs::read_to_string(descriptor).ok()?)
}

fn parse(text: &str) -> Option<Described> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok());
    Some(Described { link: value("link_id")?, program: value("prog_id")?, cgroup: value("cgroup_id")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_told_by_its_id_its_program_and_its_cgroup() {
        let text = "pos:\t0\nflags:\t02000000\nmnt_id:\t15\nino:\t1057\nlink_type:\tcgroup\nlink_id:\t7\nprog_tag:\t0a\nprog_id:\t39\ncgroup_id:\t1\nattach_type:\t0\n";
        assert_eq!(parse(text), Some(Described { link: 7, program: 39, cgroup: 1 }));
        assert_eq!(parse("pos:\t0\n"), None);
    }
}
