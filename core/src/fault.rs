//! What a playbook asks to inject, and what came of it.

use std::time::Duration;

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
}

/// The kinds of fault.
#[derive(Debug, Clone, PartialEq)]
pub enum FaultKind {
    /// A share of packets is lost, each decided on its own.
    Loss {
        /// Share of packets, 0 to 1.
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
            Self::Loss { .. } => "loss",
            Self::Delay { .. } => "delay",
            Self::HttpStatus { .. } => "http_status",
        }
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
}

impl Backend {
    /// The word used in JSON and `plan`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Netem => "netem",
            Self::EbpfDrop => "ebpf-drop",
            Self::EbpfHttpStatus => "ebpf-http-status",
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
