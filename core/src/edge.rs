//! An edge: one named direction of requests, with its own counters.

use std::fmt;
use std::net::IpAddr;

pub mod argument;

/// Longest name of an edge or a playbook, in characters.
pub const MAX_NAME: usize = 63;

/// The name that stands for all traffic of no edge; no edge may have it.
pub const OTHER: &str = "other";

/// Whether a text can name an edge or a playbook: `[a-z0-9-]`, not led or ended by a hyphen, 1 to 63 characters.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with('-') && !text.ends_with('-')
}

/// Which end of a connection this host's socket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Requests arrive, at a socket that was accepted.
    Ingress,
    /// Requests leave, on a socket that was connected.
    Downstream,
}

impl Role {
    /// The word used in JSON, labels and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Downstream => "downstream",
        }
    }
}

/// The application protocol of an edge, or of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// HTTP/1.0 and HTTP/1.1 in the clear.
    Http,
    /// HTTP/2 in the clear.
    Http2,
    /// gRPC over HTTP/2.
    Grpc,
    /// Redis: RESP2, RESP3 and inline commands.
    Redis,
    /// MySQL's client/server protocol, MariaDB's included.
    Mysql,
    /// PostgreSQL's frontend/backend protocol, version 3.
    Postgres,
    /// TLS, within which nothing is read.
    Tls,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 7] = [Self::Http, Self::Http2, Self::Grpc, Self::Redis, Self::Mysql, Self::Postgres, Self::Tls];

    /// The word used in playbooks, JSON and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Http2 => "http2",
            Self::Grpc => "grpc",
            Self::Redis => "redis",
            Self::Mysql => "mysql",
            Self::Postgres => "postgres",
            Self::Tls => "tls",
        }
    }

    /// Requests are streams, answered in any order.
    #[must_use]
    pub const fn has_streams(self) -> bool {
        matches!(self, Self::Http2 | Self::Grpc)
    }

    /// Answers have HTTP's status codes in the clear, so that the kernel counts them one by one.
    #[must_use]
    pub const fn has_codes(self) -> bool {
        matches!(self, Self::Http)
    }
}

/// A network prefix; an IPv4 one never matches IPv6 peers, but IPv4-mapped IPv6 peers count as IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// The network's address.
    pub address: IpAddr,
    /// Prefix length in bits, 0 to 32 or 0 to 128.
    pub prefix: u8,
}

impl Cidr {
    /// Whether every address of the other network is one of this.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let shifted = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()).checked_shr(32_u32.saturating_sub(self.prefix.into())),
            IpAddr::V6(address) => address.to_bits().checked_shr(128_u32.saturating_sub(self.prefix.into())),
        };
        self.address.is_ipv4() == other.address.is_ipv4() && self.prefix <= other.prefix && shifted(self.address) == shifted(other.address)
    }
}

impl fmt::Display for Cidr {
    /// `10.2.0.0/16`; a single host without its prefix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = if self.address.is_ipv4() { 32 } else { 128 };
        if self.prefix == bits { write!(f, "{}", self.address) } else { write!(f, "{}/{}", self.address, self.prefix) }
    }
}

/// An inclusive range of ports; a single port has both ends equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port, not below `first`.
    pub last: u16,
}

impl fmt::Display for PortRange {
    /// `8080`, or `8000-8099`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// What belongs to an edge.
///
/// Of an ingress edge, `address` and `ports` are the local ones; of a downstream edge, the peer's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeSpec {
    /// The name that the playbook or the command line gives it; unique within a drill.
    pub name: String,
    /// The end that this host is.
    pub role: Role,
    /// `None` matches every address.
    pub address: Option<Cidr>,
    /// `None` matches every port.
    pub ports: Option<PortRange>,
    /// Pinned protocol; `None` means that it is detected from the content.
    pub protocol: Option<Protocol>,
}

/// Most edges that a drill may have: as many as the kernel program has rules for.
pub const MAX_EDGES: usize = 62;

/// Position of an edge in the drill's list of edges. The kernel counts under the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(pub u8);
