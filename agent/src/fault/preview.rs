//! What a run would refuse of a playbook on this host, the interfaces that it would use, and what nobody can know before: found out without a
//! change and, but for other network namespaces, without a privilege. The kernel is asked for its routes, and host names are resolved.

use std::io::ErrorKind;
use std::path::Path;

use nix::errno::Errno;
use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::fault::{Backend, FaultKind, FaultSpec, Select};
use stormdrill_core::plan::host::Device;
use stormdrill_core::playbook::Playbook;

use super::distribution_file::{self, TableError};
use super::elsewhere::{ElsewhereError, Site};
use super::install::{self, InstallError};
use super::interface::{self, InterfaceError};
use super::link::Link;
use super::name::{PRIORITY_HTTP_STATUS, PRIORITY_REDIRECT};
use super::netlink::Netlink;
use super::qdisc::{self, Hooks};
use super::{host, mechanism, members};
use crate::report::log::chain;
use crate::{cgroup, host as this_host};

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What `run` refuses, exit code 2, in its words.
    pub refused: Vec<String>,
    /// What only shows when the drill starts, or to more privilege.
    pub unknown: Vec<String>,
    /// The interfaces of the faults for which they could be found out, by the faults' places in the playbook's list, from 0.
    pub devices: Vec<(usize, Vec<Device>)>,
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
    for (index, spec) in playbook.faults.iter().enumerate() {
        let number = index + 1;
        let Some(edge) = playbook.edges.iter().find(|edge| edge.name == spec.to) else { continue };
        let mut here = Findings::default();
        let devices = fault(&mut here, spec, edge, root.as_deref());
        found.devices.extend(devices.map(|devices| (index, devices)));
        let numbered = |line| format!("fault {number}: {line}");
        found.refused.extend(here.refused.into_iter().map(numbered));
        found.unknown.extend(here.unknown.into_iter().map(numbered));
    }
    found
}

fn fault(found: &mut Findings, spec: &FaultSpec, edge: &EdgeSpec, root: Option<&Path>) -> Option<Vec<Device>> {
    let select = host::resolved(&spec.select, edge);
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
    match select {
        Ok(select) => devices(found, spec, edge, &select),
        Err(error) => {
            found.refused.push(chain(&error));
            None
        }
    }
}

/// The interfaces, as the start of the drill will find them unless the routes change until then.
fn devices(found: &mut Findings, spec: &FaultSpec, edge: &EdgeSpec, select: &Select) -> Option<Vec<Device>> {
    if matches!(spec.kind, FaultKind::Refuse { .. }) {
        return None;
    }
    let named = spec.interface.as_deref();
    let there = || {
        let mut netlink = Netlink::open()?;
        let links = interface::resolve(&mut netlink, edge, select, named)?;
        let taken = links.iter().find_map(|(link, _)| taken(&mut netlink, spec, edge, link));
        let mut device = |(link, why): (Link, String)| {
            let has_hooks = qdisc::hooks(&mut netlink, link.index).ok().map(|hooks| hooks != Hooks::Absent);
            Device { name: link.name, is_loopback: link.is_loopback, has_hooks, why }
        };
        Ok::<_, InterfaceError>((links.into_iter().map(&mut device).collect(), taken))
    };
    let what = named.map_or_else(|| "which interfaces there are".to_owned(), |name| format!("whether there is an interface {name}"));
    match Site::open(spec.netns.as_ref()).and_then(|site| site.inside(there)) {
        Ok(Ok((devices, taken))) => {
            found.refused.extend(taken);
            return Some(devices);
        }
        Ok(Err(error)) if is_of_the_host(&error) => found.refused.push(chain(&error)),
        // Where not even a netlink socket is to be had.
        Ok(Err(error)) => found.unknown.push(format!("{what}: {}", chain(&error))),
        Err(error) => match (&error, &spec.netns) {
            (ElsewhereError::Open { source, .. } | ElsewhereError::Enter(source), Some(netns)) if is_of_privilege(source) => {
                found.unknown.push(format!("{what} in {netns}: to look takes entering it, which takes root"));
            }
            _ => found.refused.push(chain(&error)),
        },
    }
    None
}

/// Why the fault's places are not to be had on an interface; `None` if they are, or if it cannot be told.
fn taken(netlink: &mut Netlink, spec: &FaultSpec, edge: &EdgeSpec, link: &Link) -> Option<String> {
    let priority = match (&spec.kind, spec.without_netem()) {
        (FaultKind::HttpStatus { .. }, _) => Some(PRIORITY_HTTP_STATUS),
        // Which of two it will be shows when the kernel is tried, which takes root.
        (_, Some(Backend::EbpfDrop)) => None,
        _ => Some(PRIORITY_REDIRECT),
    };
    let mut obstacle = |hook, priority| match install::has_room(netlink, link, hook, priority) {
        Err(error @ (InstallError::NoEgressHook { .. } | InstallError::PriorityTaken { .. })) => Some(chain(&error)),
        _ => None,
    };
    mechanism::hooks_of(std::slice::from_ref(spec), edge, link.is_loopback).into_iter().find_map(|hook| {
        let also = mechanism::other_hook(spec, hook, mechanism::sight(spec, edge, hook), link.is_loopback);
        obstacle(hook, priority).or_else(|| obstacle(also?, Some(PRIORITY_HTTP_STATUS)))
    })
}

/// Whether the host has no such interface or route, rather than that nobody could look.
const fn is_of_the_host(error: &InterfaceError) -> bool {
    match error {
        InterfaceError::Unknown { .. }
        | InterfaceError::Unrouted { .. }
        | InterfaceError::NoDefaultRoute { .. }
        | InterfaceError::Medium { .. } => true,
        InterfaceError::Listeners(_) | InterfaceError::Ask(_) | InterfaceError::Netlink(_) => false,
    }
}

fn is_of_privilege(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied || error.raw_os_error() == Some(Errno::EPERM as i32)
}
