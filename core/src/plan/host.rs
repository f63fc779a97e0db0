//! What a host can do, as far as somebody looked. The plan itself looks at nothing.

use std::net::{IpAddr, SocketAddr};

/// What is known of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostFacts {
    /// The running kernel's release, as `uname -r` prints it.
    pub kernel: Option<String>,
    known: Vec<(Feature, bool)>,
    names: Vec<(String, Vec<IpAddr>)>,
    devices: Vec<(usize, Vec<Device>)>,
    /// TCP ports that are spared beside 22: those of the host's SSH server.
    pub spared_ports: Vec<u16>,
    /// The far ends of the caller's own connections, which are spared.
    pub spared_ends: Vec<SocketAddr>,
}

impl HostFacts {
    /// Adds a fact.
    #[must_use]
    pub fn with(mut self, feature: Feature, present: bool) -> Self {
        self.known.retain(|(known, _)| *known != feature);
        self.known.push((feature, present));
        self
    }

    /// Adds what a host name stands for; nothing if it could not be resolved.
    #[must_use]
    pub fn with_name(mut self, name: &str, addresses: Vec<IpAddr>) -> Self {
        self.names.retain(|(known, _)| known != name);
        self.names.push((name.to_owned(), addresses));
        self
    }

    /// What a host name stands for; `None` if nobody asked.
    #[must_use]
    pub fn addresses(&self, name: &str) -> Option<&[IpAddr]> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, addresses)| addresses.as_slice())
    }

    /// Adds the interfaces that a fault's packets pass, by its place in the playbook's list, from 0.
    #[must_use]
    pub fn with_devices(mut self, fault: usize, devices: Vec<Device>) -> Self {
        self.devices.retain(|(known, _)| *known != fault);
        self.devices.push((fault, devices));
        self
    }

    /// The interfaces that a fault's packets pass; `None` if nobody asked the kernel for its routes.
    #[must_use]
    pub fn devices(&self, fault: usize) -> Option<&[Device]> {
        self.devices.iter().find(|(known, _)| *known == fault).map(|(_, devices)| devices.as_slice())
    }

    /// Whether the host has a feature.
    #[must_use]
    pub fn presence(&self, feature: Feature) -> Presence {
        match self.known.iter().find(|(known, _)| *known == feature) {
            Some((_, true)) => Presence::Present,
            Some((_, false)) => Presence::Missing,
            None => Presence::Unknown,
        }
    }
}

/// A network interface that a fault is put onto.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Whether it is a loopback device.
    pub is_loopback: bool,
    /// Whether it has a clsact qdisc, or another with its hooks, already; `None` if nobody could look.
    pub has_hooks: Option<bool>,
    /// Why this one: "the route to 10.2.0.0".
    pub why: String,
}

/// Whether a feature is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is, or can be loaded.
    Present,
    /// It is not.
    Missing,
    /// Nobody looked.
    Unknown,
}

impl Presence {
    /// The word shown in plans.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Missing => "missing",
            Self::Unknown => "not looked for",
        }
    }
}

/// A kernel feature that a drill may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// The unified cgroup hierarchy, where the probe is attached.
    Cgroup2,
    /// Socket storage for eBPF programs (5.2 for cgroup_skb, 5.10 supported).
    SkStorage,
    /// The clsact qdisc.
    SchIngress,
    /// eBPF classifiers for tc.
    ClsBpf,
    /// Redirection by tc.
    ActMirred,
    /// Intermediate functional block devices.
    Ifb,
    /// The network emulator.
    SchNetem,
    /// The token bucket, for a bandwidth where there is no netem.
    SchTbf,
    /// Programs on `connect()`.
    CgroupBpf,
}

impl Feature {
    /// Those that are modules of the kernel, or built into it.
    pub const MODULES: [Self; 6] = [Self::SchIngress, Self::ClsBpf, Self::ActMirred, Self::Ifb, Self::SchNetem, Self::SchTbf];

    /// The kernel's name for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cgroup2 => "cgroup2",
            Self::SkStorage => "sk_storage",
            Self::SchIngress => "sch_ingress",
            Self::ClsBpf => "cls_bpf",
            Self::ActMirred => "act_mirred",
            Self::Ifb => "ifb",
            Self::SchNetem => "sch_netem",
            Self::SchTbf => "sch_tbf",
            Self::CgroupBpf => "cgroup_bpf",
        }
    }
}
