//! What this kernel can do, found out by doing it in a scratch network namespace.
//!
//! Versions and configuration files are not asked: a module may be missing from a package, forbidden, or built in.

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::utsname::uname;
use stormdrill_core::edge::{EdgeSpec, Role};

use super::filter::{self, Action, Hook, Place};
use super::link;
use super::name::{NETEM_HANDLE, PRIORITY_DROP, PRIORITY_REDIRECT};
use super::netem::Netem;
use super::netlink::{Netlink, NetlinkError};
use super::object::{Object, ObjectError, Program};
use super::qdisc;
use super::selection::Selection;
use crate::netns;

/// The loopback device of a new namespace.
const LOOPBACK: u32 = 1;

/// Something that a fault may need of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Loading a traffic classifier.
    Classifier,
    /// The clsact discipline.
    Clsact,
    /// Classifiers as filters.
    ClsBpf,
    /// Redirecting packets to another device.
    Mirred,
    /// The device that netem sits on.
    Ifb,
    /// Loss, delay and their like.
    Netem,
    /// Bandwidth limits without netem.
    Tbf,
}

impl Capability {
    /// All of them, in the order in which they build on each other.
    pub const ALL: [Self; 7] = [Self::Classifier, Self::Clsact, Self::ClsBpf, Self::Mirred, Self::Ifb, Self::Netem, Self::Tbf];

    /// What must work for this to work.
    #[must_use]
    pub const fn builds_on(self) -> &'static [Self] {
        match self {
            Self::Classifier | Self::Clsact | Self::Ifb | Self::Netem | Self::Tbf => &[],
            Self::ClsBpf => &[Self::Classifier, Self::Clsact],
            Self::Mirred => &[Self::Classifier, Self::Clsact, Self::ClsBpf],
        }
    }

    /// The kernel module, or `bpf` for what the kernel itself does.
    #[must_use]
    pub const fn module(self) -> &'static str {
        match self {
            Self::Classifier => "bpf",
            Self::Clsact => "sch_ingress",
            Self::ClsBpf => "cls_bpf",
            Self::Mirred => "act_mirred",
            Self::Ifb => "ifb",
            Self::Netem => "sch_netem",
            Self::Tbf => "sch_tbf",
        }
    }
}

/// What came of trying it.
#[derive(Debug)]
pub enum Finding {
    /// It works.
    Works,
    /// The kernel does not know it: its module is not there.
    Missing,
    /// This process may not.
    Forbidden,
    /// The kernel knows it and says no.
    Refused(Refusal),
}

/// Why something that is there does not work.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The kernel refused the request.
    #[error(transparent)]
    Netlink(NetlinkError),
    /// The kernel object.
    #[error(transparent)]
    Object(ObjectError),
    /// No scratch namespace.
    #[error("make a network namespace")]
    Namespace(#[source] io::Error),
}

impl Finding {
    /// Whether it works.
    #[must_use]
    pub const fn works(&self) -> bool {
        matches!(self, Self::Works)
    }
}

/// Tries capabilities, each in a namespace of its own.
#[must_use]
pub fn try_all(capabilities: &[Capability]) -> Vec<(Capability, Finding)> {
    capabilities.iter().map(|&capability| (capability, try_one(capability))).collect()
}

/// Tries one capability in a scratch namespace.
#[must_use]
pub fn try_one(capability: Capability) -> Finding {
    match netns::in_scratch(|| attempt(capability)) {
        Ok(Ok(())) => Finding::Works,
        Ok(Err(refusal)) => judge(capability, refusal),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Finding::Forbidden,
        Err(error) => Finding::Refused(Refusal::Namespace(error)),
    }
}

fn judge(capability: Capability, refusal: Refusal) -> Finding {
    let errno = match &refusal {
        Refusal::Netlink(error) => error.errno(),
        Refusal::Namespace(error) => error.raw_os_error(),
        Refusal::Object(error) => return if is_forbidden(error) { Finding::Forbidden } else { Finding::Refused(refusal) },
    };
    match errno {
        // An unknown kind of qdisc, filter or action, and an unknown kind of device.
        Some(libc::ENOENT | libc::EOPNOTSUPP) => Finding::Missing,
        Some(libc::EPERM | libc::EACCES) => Finding::Forbidden,
        // tbf was asked without its options: it knows enough to miss them.
        Some(libc::EINVAL) if capability == Capability::Tbf => Finding::Works,
        _ => Finding::Refused(refusal),
    }
}

/// Whether an `EPERM` is at the root of it.
fn is_forbidden(error: &ObjectError) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.raw_os_error() == Some(libc::EPERM);
        }
        source = error.source();
    }
    false
}

fn attempt(capability: Capability) -> Result<(), Refusal> {
    let mut netlink = Netlink::open().map_err(Refusal::Netlink)?;
    let netlink = &mut netlink;
    match capability {
        Capability::Classifier => classifier(Program::Select).map(drop),
        Capability::Clsact => qdisc::add_clsact(netlink, LOOPBACK).map_err(Refusal::Netlink),
        Capability::ClsBpf => filter(netlink, Program::Drop, Action::Direct),
        Capability::Mirred => filter(netlink, Program::Select, Action::Redirect(LOOPBACK)),
        Capability::Ifb => link::add_ifb(netlink, "sd-scratch").map(drop).map_err(Refusal::Netlink),
        Capability::Netem => {
            qdisc::add_root(netlink, LOOPBACK, NETEM_HANDLE, "netem", &Netem::default().options()).map_err(Refusal::Netlink)
        }
        Capability::Tbf => qdisc::add_root(netlink, LOOPBACK, NETEM_HANDLE, "tbf", &[]).map_err(Refusal::Netlink),
    }
}

fn classifier(program: Program) -> Result<Object, Refusal> {
    let nothing = EdgeSpec { name: String::new(), role: Role::Downstream, address: None, ports: None, protocol: None };
    Object::load(program, &Selection::of_edge(&nothing, Hook::Egress)).map_err(Refusal::Object)
}

fn filter(netlink: &mut Netlink, program: Program, action: Action) -> Result<(), Refusal> {
    let object = classifier(program)?;
    qdisc::add_clsact(netlink, LOOPBACK).map_err(Refusal::Netlink)?;
    let priority = if action == Action::Direct { PRIORITY_DROP } else { PRIORITY_REDIRECT };
    let place = Place { interface: LOOPBACK, hook: Hook::Egress, priority, handle: 1 };
    let program = object.program().map_err(Refusal::Object)?;
    filter::add(netlink, place, "stormdrill-scratch", program, action).map_err(Refusal::Netlink)
}

/// The running kernel's release, `uname -r`.
#[must_use]
pub fn kernel_release() -> String {
    uname().map_or_else(|_| "unknown".to_owned(), |names| names.release().to_string_lossy().into_owned())
}

/// What to install so that the *running* kernel gets a module; reads after "…: ".
#[must_use]
pub fn remedy(module: &str) -> String {
    remedy_for(module, &kernel_release(), &fs::read_to_string("/etc/os-release").unwrap_or_default(), Path::new("/proc/modules").exists())
}

fn remedy_for(module: &str, release: &str, os_release: &str, takes_modules: bool) -> String {
    let option = match module {
        "sch_netem" => "CONFIG_NET_SCH_NETEM",
        "sch_tbf" => "CONFIG_NET_SCH_TBF",
        "sch_ingress" => "CONFIG_NET_SCH_INGRESS",
        "cls_bpf" => "CONFIG_NET_CLS_BPF",
        "act_mirred" => "CONFIG_NET_ACT_MIRRED",
        "ifb" => "CONFIG_IFB",
        _ => "it",
    };
    let distributions: Vec<&str> = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches('"').split(' '))
        .collect();
    let is = |name| distributions.contains(&name);
    let package = if is("ubuntu") {
        format!("linux-modules-extra-{release}")
    } else if is("debian") {
        format!("linux-image-{release}")
    } else if is("fedora") || is("rhel") || is("centos") {
        format!("kernel-modules-extra-{release}")
    } else {
        format!("the package with the extra modules of kernel {release}")
    };
    if takes_modules {
        format!("install {package} and load it with `modprobe {module}`")
    } else {
        format!("kernel {release} loads no modules; boot one that has {module} ({option}), such as that of package {package}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_is_the_running_kernels() {
        let release = "6.1.0-49-cloud-amd64";
        assert_eq!(
            remedy_for("sch_netem", release, "NAME=\"Debian GNU/Linux\"\nID=debian\n", true),
            "install linux-image-6.1.0-49-cloud-amd64 and load it with `modprobe sch_netem`"
        );
        assert_eq!(
            remedy_for("sch_netem", "6.8.0-40-generic", "ID=ubuntu\nID_LIKE=debian\n", true),
            "install linux-modules-extra-6.8.0-40-generic and load it with `modprobe sch_netem`"
        );
        assert!(
            remedy_for("ifb", "5.14.0-1.el9", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", true)
                .contains("kernel-modules-extra-5.14.0-1.el9")
        );
    }

    #[test]
    fn a_kernel_without_modules_is_told_apart() {
        let text = remedy_for("sch_netem", "6.18.1", "ID=debian\n", false);
        assert!(
            text.contains("loads no modules") && text.contains("CONFIG_NET_SCH_NETEM") && text.contains("linux-image-6.18.1"),
            "{text}"
        );
    }
}
