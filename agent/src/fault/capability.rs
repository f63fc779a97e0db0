//! What this kernel can do, found out by doing it in a scratch network namespace.
//!
//! Versions and configuration files are not asked: a module may be missing from a package, forbidden, or built in.

use std::fs;
use std::io;
use std::path::Path;

use nix::sys::utsname::uname;
use stormdrill_core::edge::{EdgeSpec, Role};

use super::filter::{self, Action, Hook, Place};
use super::journal::DEFAULT_STATE_DIR;
use super::link;
use super::name::{NETEM_HANDLE, PRIORITY_DROP, PRIORITY_REDIRECT};
use super::netem::Netem;
use super::netlink::{Netlink, NetlinkError};
use super::object::{Object, ObjectError, Program};
use super::qdisc;
use super::selection::Selection;
use crate::cgroup::{self, CgroupError};
use crate::{clock, netns};

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
    /// Programs on `connect()`, for refused connections.
    Connect,
}

impl Capability {
    /// All of them, in the order in which they build on each other.
    pub const ALL: [Self; 8] =
        [Self::Classifier, Self::Clsact, Self::ClsBpf, Self::Mirred, Self::Ifb, Self::Netem, Self::Tbf, Self::Connect];

    /// What must work for this to work.
    #[must_use]
    pub const fn builds_on(self) -> &'static [Self] {
        match self {
            Self::Classifier | Self::Clsact | Self::Ifb | Self::Netem | Self::Tbf | Self::Connect => &[],
            Self::ClsBpf => &[Self::Classifier, Self::Clsact],
            Self::Mirred => &[Self::Classifier, Self::Clsact, Self::ClsBpf],
        }
    }

    /// The kernel module, or `bpf` and `cgroup_bpf` for what the kernel itself does.
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
            Self::Connect => "cgroup_bpf",
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
    /// No group to attach to.
    #[error("make a cgroup")]
    Cgroup(#[source] io::Error),
    /// No cgroup2 at all.
    #[error(transparent)]
    NoCgroup(CgroupError),
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

/// Whether all of them work, tried together in one scratch namespace; which of them does not is for [`try_one`] to say.
pub(crate) fn all_work(capabilities: &[Capability]) -> bool {
    let works = |&capability: &Capability| attempt(capability).map_or_else(|refusal| judge(capability, refusal).works(), |()| true);
    let together = || capabilities.iter().all(works);
    netns::in_scratch(together).unwrap_or(false)
}

fn judge(capability: Capability, refusal: Refusal) -> Finding {
    let errno = match &refusal {
        Refusal::Netlink(error) => error.errno(),
        Refusal::Namespace(error) | Refusal::Cgroup(error) => error.raw_os_error(),
        Refusal::NoCgroup(CgroupError::Unsupported) => return Finding::Missing,
        Refusal::NoCgroup(CgroupError::Mount { source, .. }) => Some(*source as i32),
        Refusal::NoCgroup(_) => None,
        // A kernel without programs on groups knows no such kind of program.
        Refusal::Object(error) if capability == Capability::Connect && errno_of(error) == Some(libc::EINVAL) => return Finding::Missing,
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
    errno_of(error) == Some(libc::EPERM)
}

/// The errno at the root of it, if it was the kernel that refused.
fn errno_of(error: &ObjectError) -> Option<i32> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return io.raw_os_error();
        }
        source = error.source();
    }
    None
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
        Capability::Connect => connect(),
    }
}

/// Attaches to a group that is made for it, in which nobody is.
fn connect() -> Result<(), Refusal> {
    cgroup::with_mounted(Path::new(DEFAULT_STATE_DIR), connect_below).map_err(Refusal::NoCgroup)?
}

fn connect_below(root: &Path) -> Result<(), Refusal> {
    let group = root.join(format!("stormdrill-scratch-{}-{}", std::process::id(), clock::monotonic_ns()));
    fs::create_dir(&group).map_err(Refusal::Cgroup)?;
    let attached = fs::File::open(&group)
        .map_err(Refusal::Cgroup)
        .and_then(|group| Object::attach_to_connect(&selecting_nothing(), &group).map_err(Refusal::Object));
    let result = attached.map(drop);
    // An empty group can be removed; one that cannot is as harmless as an empty folder.
    let _ = fs::remove_dir(&group);
    result
}

/// A selection that no lease is ever granted to.
fn selecting_nothing() -> Selection {
    let nothing = EdgeSpec { name: String::new(), role: Role::Downstream, address: None, ports: None, protocol: None };
    Selection::of_edge(&nothing, Hook::Egress)
}

fn classifier(program: Program) -> Result<Object, Refusal> {
    Object::load(program, &selecting_nothing()).map_err(Refusal::Object)
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
    let system = System {
        release: kernel_release(),
        version: fs::read_to_string("/proc/version").unwrap_or_default(),
        os_release: fs::read_to_string("/etc/os-release").unwrap_or_default(),
        takes_modules: Path::new("/proc/modules").exists(),
    };
    system.remedy(module)
}

/// What tells whose kernel is running.
struct System {
    release: String,
    /// `/proc/version`, which names who built the kernel.
    version: String,
    os_release: String,
    takes_modules: bool,
}

impl System {
    fn remedy(&self, module: &str) -> String {
        let option = option(module);
        let release = &self.release;
        let Some(package) = self.package() else {
            let how = if self.takes_modules { "" } else { " and loads no modules" };
            return format!(
                "kernel {release} is none of this system's distribution{how}: build it with {option}, or boot the distribution's own kernel"
            );
        };
        if self.takes_modules {
            format!("install {package} and load it with `modprobe {module}`")
        } else {
            format!("kernel {release} loads no modules; boot one that has {module} ({option})")
        }
    }

    /// The package that carries this kernel's modules, or the rest of them; `None` if no distribution built the kernel.
    fn package(&self) -> Option<String> {
        let distributions: Vec<&str> = self
            .os_release
            .lines()
            .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
            .flat_map(|value| value.trim_matches('"').split(' '))
            .collect();
        let release = &self.release;
        // The first brackets hold who built it, as user@host. The second, the compiler, names a distribution for anybody's kernel.
        let builder = self.version.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(builder, _)| builder);
        let is = |name, built_by: &str| distributions.contains(&name) && builder.starts_with(built_by);
        if is("ubuntu", "buildd@") {
            Some(format!("linux-modules-extra-{release}"))
        } else if is("debian", "debian-kernel@") {
            Some(format!("linux-image-{release}"))
        } else if ["fedora", "rhel", "centos"].into_iter().any(|name| is(name, "mockbuild@")) {
            Some(format!("kernel-modules-extra-{release}"))
        } else if !["ubuntu", "debian", "fedora", "rhel", "centos"].iter().any(|name| distributions.contains(name)) {
            // It cannot be told here.
            Some(format!("the package with the extra modules of kernel {release}"))
        } else {
            None
        }
    }
}

/// The kernel's own switch for it.
const fn option(module: &str) -> &'static str {
    match module.as_bytes() {
        b"sch_netem" => "CONFIG_NET_SCH_NETEM",
        b"sch_tbf" => "CONFIG_NET_SCH_TBF",
        b"sch_ingress" => "CONFIG_NET_SCH_INGRESS",
        b"cls_bpf" => "CONFIG_NET_CLS_BPF",
        b"act_mirred" => "CONFIG_NET_ACT_MIRRED",
        b"ifb" => "CONFIG_IFB",
        b"cgroup_bpf" => "CONFIG_CGROUP_BPF",
        b"bpf" => "CONFIG_BPF_SYSCALL",
        _ => "it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(release: &str, builder: &str, os_release: &str) -> System {
        System {
            release: release.to_owned(),
            version: format!("Linux version {release} ({builder}) (gcc (Debian 12.2.0-14) 12.2.0) #1 SMP\n"),
            os_release: os_release.to_owned(),
            takes_modules: true,
        }
    }

    const DEBIAN: &str = "NAME=\"Debian GNU/Linux\"\nID=debian\n";

    #[test]
    fn the_package_is_the_running_kernels() {
        let debian = system("6.1.0-49-cloud-amd64", "debian-kernel@lists.debian.org", DEBIAN);
        assert_eq!(debian.remedy("sch_netem"), "install linux-image-6.1.0-49-cloud-amd64 and load it with `modprobe sch_netem`");
        let ubuntu = system("6.8.0-40-generic", "buildd@lcy02-amd64-078", "ID=ubuntu\nID_LIKE=debian\n");
        assert_eq!(ubuntu.remedy("sch_netem"), "install linux-modules-extra-6.8.0-40-generic and load it with `modprobe sch_netem`");
        let rocky = system("5.14.0-1.el9", "mockbuild@iad1-prod-build001", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n");
        assert!(rocky.remedy("ifb").contains("kernel-modules-extra-5.14.0-1.el9"));
    }

    #[test]
    fn a_kernel_that_no_distribution_built_is_said_to_be_one_and_no_package_is_named() {
        let custom = system("6.18.44-fc-v669", "builder@sandboxing", DEBIAN);
        let text = custom.remedy("sch_netem");
        assert!(
            text.contains("6.18.44-fc-v669 is none of") && text.contains("CONFIG_NET_SCH_NETEM") && !text.contains("linux-image"),
            "{text}"
        );
    }

    #[test]
    fn a_kernel_without_modules_is_told_apart() {
        let mut kernel = system("6.1.0-49-cloud-amd64", "debian-kernel@lists.debian.org", DEBIAN);
        kernel.takes_modules = false;
        let text = kernel.remedy("sch_netem");
        assert!(text.contains("loads no modules") && text.contains("CONFIG_NET_SCH_NETEM"), "{text}");
    }

    #[test]
    fn a_missing_module_a_missing_privilege_and_a_refused_parameter_are_three_things() {
        let refusal = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            Refusal::Netlink(NetlinkError::Refused { operation: "add netem".to_owned(), explanation: Some("no".to_owned()), source })
        };
        assert!(matches!(judge(Capability::Netem, refusal(libc::ENOENT)), Finding::Missing));
        assert!(matches!(judge(Capability::Ifb, refusal(libc::EOPNOTSUPP)), Finding::Missing));
        assert!(matches!(judge(Capability::Netem, refusal(libc::EPERM)), Finding::Forbidden));
        assert!(matches!(judge(Capability::Netem, refusal(libc::EINVAL)), Finding::Refused(_)));
        assert!(matches!(judge(Capability::Connect, Refusal::NoCgroup(CgroupError::Unsupported)), Finding::Missing));
        assert!(matches!(judge(Capability::Connect, Refusal::Cgroup(io::Error::from_raw_os_error(libc::EACCES))), Finding::Forbidden));
    }
}
