//! What a playbook asks to inject, and what came of it.

use std::fmt;
use std::time::Duration;

use crate::edge::{Cidr, PortRange};

pub mod model;

pub mod queue;

pub mod reach;

use model::LossModel;

/// Which way the selected packets travel, seen from this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Packets that leave.
    Egress,
    /// Packets that arrive.
    Ingress,
    /// Both ways.
    Both,
}

impl Direction {
    /// All directions.
    pub const ALL: [Self; 3] = [Self::Egress, Self::Ingress, Self::Both];

    /// Whether packets of this direction can be of the other.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self == other || self == Self::Both || other == Self::Both
    }

    /// The word used in playbooks and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
            Self::Both => "both",
        }
    }
}

/// One fault as the playbook states it.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultSpec {
    /// What is done to the selected packets or answers.
    pub kind: FaultKind,
    /// The edge that it is aimed at, by name.
    pub to: String,
    /// Packet direction; for `http_status` the direction in which the *answers* travel is worked out from the edge's role.
    pub direction: Direction,
    /// Interface name; `None` takes it from the route to the target.
    pub interface: Option<String>,
    /// The network namespace whose interfaces are meant; `None` for stormdrill's own.
    pub netns: Option<NetNs>,
    /// Which of the edge's packets, beyond the edge itself.
    pub select: Select,
    /// What netem is told beside the fault itself.
    pub tuning: Tuning,
}

impl FaultSpec {
    /// A fault on what leaves for an edge, with nothing special about it.
    #[must_use]
    pub fn new(kind: FaultKind, to: impl Into<String>) -> Self {
        Self {
            kind,
            to: to.into(),
            direction: Direction::Egress,
            interface: None,
            netns: None,
            select: Select::default(),
            tuning: Tuning::default(),
        }
    }

    /// What carries it out where there is no netem; `None` if only netem can, and for what is not done to packets.
    #[must_use]
    pub const fn without_netem(&self) -> Option<Backend> {
        // What only netem can be told must not be dropped in silence.
        let is_tuned = self.tuning.ecn || self.tuning.limit.is_some() || self.tuning.seed.is_some();
        match &self.kind {
            FaultKind::Loss { .. } | FaultKind::Partition if !is_tuned => Some(Backend::EbpfDrop),
            FaultKind::Rate(limit) if limit.is_plain() && !is_tuned => Some(Backend::Tbf),
            _ => None,
        }
    }

    /// Whether two faults select the same packets where their directions meet, so that one netem there serves both.
    #[must_use]
    pub fn selects_as(&self, other: &Self) -> bool {
        let same = (&self.to, &self.interface, &self.netns, &self.select) == (&other.to, &other.interface, &other.netns, &other.select);
        same && self.direction.meets(other.direction)
    }
}

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetNs {
    /// The one that a process is in.
    Pid(u32),
    /// The one that a container is in: its id, or the first twelve digits of it or more.
    Container(String),
    /// The one that is mounted there, as `ip netns` does below `/run/netns`.
    Path(String),
}

impl fmt::Display for NetNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "the network namespace of process {pid}"),
            Self::Container(id) => write!(f, "the network namespace of container {id}"),
            Self::Path(path) => write!(f, "the network namespace {path}"),
        }
    }
}

/// A narrower selection than the edge's own. All conditions hold together; the default adds none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Select {
    /// Networks of the edge's end, in the place of the edge's own; empty for the edge's.
    pub addresses: Vec<Cidr>,
    /// Ports of the edge's end, in the place of the edge's own; empty for the edge's.
    pub ports: Vec<PortRange>,
    /// The protocol; `None` for all.
    pub protocol: Option<Transport>,
    /// Networks that are spared, whatever includes them.
    pub exclude_addresses: Vec<Cidr>,
    /// Ports that are spared, whatever includes them.
    pub exclude_ports: Vec<PortRange>,
    /// Whether SSH, DHCP, neighbour discovery, and whom the agent is reached by and needs are selected like the rest.
    pub include_management: bool,
    /// The requests whose answers are meant; only with `http_status`.
    pub requests: Requests,
    /// Networks of the callers of an ingress edge; empty for all.
    pub peers: Vec<Cidr>,
    /// Networks of callers that are spared, whatever includes them.
    pub exclude_peers: Vec<Cidr>,
    /// Whose sockets' traffic on this host is meant; `None` for everybody's.
    pub members: Option<Members>,
    /// Share of the connections, in units of 2^-32; `None` for all.
    pub flows: Option<u64>,
    /// Host names whose addresses are selected like `addresses`; resolved when the drill is planned or run.
    pub hosts: Vec<String>,
    /// Host names whose addresses are spared like `exclude_addresses`.
    pub exclude_hosts: Vec<String>,
}

impl Select {
    /// All host names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().chain(&self.exclude_hosts).map(String::as_str)
    }
}

/// A group of processes of this host. Those that they start belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// A cgroup with its descendants: a path below the cgroup2 root.
    Cgroup(String),
    /// A container: its id, or the first twelve digits of it or more.
    Container(String),
    /// The cgroup that a process is in.
    Pid(u32),
}

/// Codes that can be written over an HTTP/2 answer's: those that are one byte on the wire, of answers that may have a body.
pub const HTTP2_STATUSES: [u16; 5] = [200, 206, 400, 404, 500];

/// HTTP/1 requests by their first line. The default is all requests, of HTTP/2 too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Requests {
    /// The method, at most seven letters.
    pub method: Option<String>,
    /// What the target begins with, at most 64 bytes.
    pub path: Option<String>,
}

impl Requests {
    /// Whether all requests are meant.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.method.is_none() && self.path.is_none()
    }
}

/// A protocol above IP that a fault can be limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP (IPv4's).
    Icmp,
    /// ICMPv6.
    Icmpv6,
}

impl Transport {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Tcp, Self::Udp, Self::Icmp, Self::Icmpv6];

    /// The word used in playbooks.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
            Self::Icmpv6 => "icmpv6",
        }
    }

    /// Its IP protocol number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Icmp => 1,
            Self::Icmpv6 => 58,
        }
    }

    /// Whether its packets have ports.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp)
    }
}

/// netem's settings that are no fault by themselves. The default leaves all of them to netem or to be worked out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    /// Packets that the queue holds; `None` works it out.
    pub limit: Option<u32>,
    /// Seed of netem's draws; kernels before 6.6 draw as they like.
    pub seed: Option<u64>,
    /// Mark packets that can be marked instead of losing them.
    pub ecn: bool,
    /// How much a jitter resembles the one before, 0 to 1.
    pub jitter_correlation: f64,
    /// Path of a table of the jitter's distribution, as iproute2 has them.
    pub table: Option<String>,
    /// Packets leave in bursts.
    pub slot: Option<Slot>,
}

/// Packets wait for a slot and leave together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Time between slots.
    pub every: Spacing,
    /// Packets of a slot; 0 for no bound.
    pub packets: u32,
    /// Bytes of a slot; 0 for no bound.
    pub bytes: u32,
}

/// The time from one slot to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    /// Any from the first to the second.
    Between(Duration, Duration),
    /// Around a middle.
    Around {
        /// The middle.
        time: Duration,
        /// The spread around it, at most [`Spacing::MOST_JITTER`].
        jitter: Duration,
        /// Its shape; not [`Distribution::Uniform`], which is [`Spacing::Between`].
        distribution: Distribution,
    },
}

impl Spacing {
    /// Most spread that the kernel takes, whose numbers for it have 32 bits.
    pub const MOST_JITTER: Duration = Duration::from_secs(2);

    /// The longest that is to be expected.
    #[must_use]
    pub fn longest(self) -> Duration {
        match self {
            Self::Between(_, most) => most,
            Self::Around { time, jitter, .. } => time.saturating_add(jitter.saturating_mul(4)),
        }
    }
}

/// The kinds of fault.
#[derive(Debug, Clone, PartialEq)]
pub enum FaultKind {
    /// A share of packets is lost, each decided on its own.
    Loss {
        /// Share of packets, 0 to 1.
        share: f64,
    },
    /// Packets are lost by a model with memory, in bursts.
    LossModel(LossModel),
    /// A share of packets is sent twice.
    Duplicate {
        /// Share of packets, 0 to 1.
        share: f64,
        /// How much each draw resembles the one before, 0 to 1; it changes how many are hit.
        correlation: f64,
    },
    /// A share of packets gets one bit flipped.
    Corrupt {
        /// Share of packets, 0 to 1.
        share: f64,
        /// As for `Duplicate`.
        correlation: f64,
    },
    /// A share of packets is sent at once, before those that a delay holds back.
    Reorder {
        /// Share of packets, 0 to 1.
        share: f64,
        /// As for `Duplicate`.
        correlation: f64,
        /// Only each so-many-th packet is drawn for; at least 1.
        gap: u32,
    },
    /// A bandwidth limit.
    Rate(RateLimit),
    /// Nothing passes.
    Partition,
    /// A share of `connect()` calls fails.
    Refuse {
        /// Share of calls, 0 to 1.
        share: f64,
    },
    /// Packets are held back.
    Delay {
        /// Mean delay.
        time: Duration,
        /// Spread around it; zero for none.
        jitter: Duration,
        /// How the spread is distributed.
        distribution: Distribution,
    },
    /// A share of plaintext HTTP answers gets another status code, in flight.
    HttpStatus {
        /// The code written over the real one, 200 to 599.
        status: u16,
        /// Share of answers, 0 to 1.
        share: f64,
    },
}

impl FaultKind {
    /// The playbook key, as it appears in JSON and metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Loss { .. } | Self::LossModel(_) => "loss",
            Self::Duplicate { .. } => "duplicate",
            Self::Corrupt { .. } => "corrupt",
            Self::Reorder { .. } => "reorder",
            Self::Rate(_) => "rate",
            Self::Partition => "partition",
            Self::Refuse { .. } => "refuse",
            Self::Delay { .. } => "delay",
            Self::HttpStatus { .. } => "http_status",
        }
    }
}

impl FaultKind {
    /// Whether it acts on packets as such, by netem where there is one.
    #[must_use]
    pub const fn is_of_packets(&self) -> bool {
        !matches!(self, Self::HttpStatus { .. } | Self::Refuse { .. })
    }
}

/// How many bytes a second pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Bytes a second, above zero.
    pub bytes_per_second: u64,
    /// Bytes that each packet counts more, or less, than it has.
    pub overhead: i32,
    /// Size of a cell that packets are rounded up to, as on ATM; 0 for none.
    pub cell_size: u32,
    /// Bytes that each cell counts more, or less.
    pub cell_overhead: i32,
}

impl RateLimit {
    /// Whether packets count as many bytes as they have.
    #[must_use]
    pub const fn is_plain(&self) -> bool {
        self.overhead == 0 && self.cell_size == 0 && self.cell_overhead == 0
    }
}

/// Shape of a delay's jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribution {
    /// Every value within the jitter is as likely.
    #[default]
    Uniform,
    /// The bell curve.
    Normal,
    /// A heavy tail.
    Pareto,
    /// The mean of normal and Pareto.
    ParetoNormal,
}

impl Distribution {
    /// All distributions.
    pub const ALL: [Self; 4] = [Self::Uniform, Self::Normal, Self::Pareto, Self::ParetoNormal];

    /// The word used in playbooks, as tc spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Pareto => "pareto",
            Self::ParetoNormal => "paretonormal",
        }
    }
}

/// The mechanism that carries a fault out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// sch_netem on an ifb device behind the leased classifier.
    Netem,
    /// A leased eBPF classifier that drops.
    EbpfDrop,
    /// A leased eBPF classifier that rewrites the status digits.
    EbpfHttpStatus,
    /// sch_tbf on an ifb device behind the leased classifier.
    Tbf,
    /// A leased eBPF program on the cgroup's connect().
    CgroupConnect,
}

impl Backend {
    /// The word used in JSON and `plan`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Netem => "netem",
            Self::EbpfDrop => "ebpf-drop",
            Self::EbpfHttpStatus => "ebpf-http-status",
            Self::Tbf => "tbf",
            Self::CgroupConnect => "cgroup-connect",
        }
    }
}

/// What the kernel counted for one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounts {
    /// Packets (for `http_status`: answers) that matched the selection while the lease ran.
    pub selected: u64,
    /// Of those, the ones that were dropped, delayed or rewritten.
    pub hit: u64,
    /// Of those selected, the ones that found no room in netem's queue: lost, but not by the fault.
    pub overflowed: u64,
}

/// A fault that was carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultOutcome {
    /// What was asked.
    pub spec: FaultSpec,
    /// How it was done.
    pub backend: Backend,
    /// When the kernel acknowledged it, nanoseconds of the monotonic clock.
    pub applied_ns: u64,
    /// When its removal was acknowledged; `None` if it could not be removed.
    pub removed_ns: Option<u64>,
    /// Totals at removal.
    pub counts: FaultCounts,
}
