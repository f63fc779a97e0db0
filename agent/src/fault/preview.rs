//! What a run would refuse of a playbook on this host, and what nobody can know before: found out without a privilege, a socket or a change,
//! but for the resolving of host names.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::fault::{FaultSpec, NetNs};
use stormdrill_core::playbook::Playbook;

use super::distribution_file::{self, TableError};
use super::interface::InterfaceError;
use super::{host, members};
use crate::report::log::chain;
use crate::{cgroup, host as this_host};

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What `run` refuses, exit code 2, in its words.
    pub refused: Vec<String>,
    /// What only shows when the drill starts, or to more privilege.
    pub unknown: Vec<String>,
}

/// Looks at everything that a playbook names of this host.
#[must_use]
pub fn look(playbook: &Playbook) -> Findings {
    let mut found = Findings::default();
    let root = cgroup::mounted();
    match &root {
        Some(root) => found.refused.extend(this_host::scope_below(root, &playbook.scope).err().map(|error| chain(&error))),
        None => found.unknown.push("cgroups: no cgroup2 is mounted here, and a run would mount one, which takes root".to_owned()),
    }
    for (number, spec) in (1..).zip(&playbook.faults) {
        let Some(edge) = playbook.edges.iter().find(|edge| edge.name == spec.to) else { continue };
        let mut here = Findings::default();
        fault(&mut here, spec, edge, root.as_deref());
        let numbered = |line| format!("fault {number}: {line}");
        found.refused.extend(here.refused.into_iter().map(numbered));
        found.unknown.extend(here.unknown.into_iter().map(numbered));
    }
    found
}

fn fault(found: &mut Findings, spec: &FaultSpec, edge: &EdgeSpec, root: Option<&Path>) {
    found.refused.extend(host::resolved(&spec.select, edge).err().map(|error| chain(&error)));
    match spec.tuning.table.as_deref().map(|path| distribution_file::read(Path::new(path))) {
        Some(Err(TableError::Read { path, source })) if source.kind() == ErrorKind::PermissionDenied => {
            found.unknown.push(format!("{} may not be read by this user, and is not looked into", path.display()));
        }
        Some(Err(error)) => found.refused.push(chain(&error)),
        Some(Ok(_)) | None => {}
    }
    if let (Some(members), Some(root)) = (&spec.select.members, root) {
        found.refused.extend(members::directory_below(root, members).err().map(|error| chain(&error)));
    }
    match (&spec.netns, &spec.interface) {
        (None, None) => {}
        (None, Some(name)) => match Path::new("/sys/class/net").join(name).symlink_metadata() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound && Path::new("/sys/class/net/lo").exists() => {
                found.refused.push(chain(&InterfaceError::Unknown { name: name.clone() }));
            }
            Err(_) => found.unknown.push(format!("whether there is an interface {name}: /sys does not tell")),
        },
        (Some(netns), name) => {
            let what = name
                .as_ref()
                .map_or_else(|| "which interfaces there are".to_owned(), |name| format!("whether there is an interface {name}"));
            found.unknown.push(format!("{what} in {netns}: to look takes entering it, which takes root"));
            namespace(found, netns);
        }
    }
}

/// Whether a network namespace is there.
fn namespace(found: &mut Findings, netns: &NetNs) {
    let path = match netns {
        // Its namespaces show to few; the process to everybody.
        NetNs::Pid(pid) => PathBuf::from(format!("/proc/{pid}")),
        NetNs::Path(path) => PathBuf::from(path),
        NetNs::Container(id) => return found.refused.extend(members::process_of(id).err().map(|error| chain(&error))),
    };
    if let Err(source) = path.metadata() {
        if source.kind() == ErrorKind::NotFound {
            found.refused.push(format!("netns: open {netns}: {source}"));
        } else {
            found.unknown.push(format!("{netns} cannot be looked at by this user: {source}"));
        }
    }
}
