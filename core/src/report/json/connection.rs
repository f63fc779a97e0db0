//! Connections in JSON, one by one.

use serde::{Deserialize, Serialize};

use crate::edge::EdgeSpec;
use crate::track::roster::Listed;

/// One connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConnectionView {
    /// Its edge's name.
    pub edge: String,
    /// `ingress` or `downstream`.
    pub role: String,
    /// What was spoken on it; `null` if that was not recognised.
    pub protocol: Option<String>,
    /// This host's address and port; `null` if its opening was not seen.
    pub local: Option<String>,
    /// The peer's.
    pub peer: Option<String>,
    /// It has not ended.
    pub open: bool,
    /// Seconds since it was opened, or first seen, until it ended or now.
    pub age_s: f64,
    /// Attempts on it.
    pub requests: u64,
    /// The retries among them.
    pub retries: u64,
    /// Segments that TCP sent again, over its whole life; `null` once it has ended, or if its network namespace cannot be entered.
    pub tcp_retransmits: Option<u64>,
    /// Smoothed round-trip time, milliseconds; `null` as above.
    pub rtt_ms: Option<f64>,
}

/// What the kernel knows of an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kernel {
    /// Segments sent again.
    pub retransmits: u64,
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u64,
}

impl ConnectionView {
    /// The view of a connection at `now_ns`; `None` if its edge is none of these.
    #[must_use]
    pub fn of(listed: &Listed, kernel: Option<Kernel>, edges: &[EdgeSpec], now_ns: u64) -> Option<Self> {
        let spec = edges.get(usize::from(listed.edge.0))?;
        let kernel = kernel.filter(|_| listed.closed_ns.is_none());
        Some(Self {
            edge: spec.name.clone(),
            role: spec.role.as_str().to_owned(),
            protocol: listed.protocol.or(spec.protocol).map(|protocol| protocol.as_str().to_owned()),
            local: listed.ends.map(|(local, _)| local.to_string()),
            peer: listed.ends.map(|(_, peer)| peer.to_string()),
            open: listed.closed_ns.is_none(),
            age_s: listed.closed_ns.unwrap_or(now_ns).saturating_sub(listed.since_ns) as f64 / 1e9,
            requests: listed.requests,
            retries: listed.retries,
            tcp_retransmits: kernel.map(|kernel| kernel.retransmits),
            rtt_ms: kernel.map(|kernel| kernel.rtt_us as f64 / 1e3),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::{EdgeId, Protocol, Role};
    use crate::event::ConnId;

    #[test]
    fn what_has_ended_has_no_round_trip_time() {
        let edges = [EdgeSpec { name: "cache".to_owned(), role: Role::Downstream, address: None, ports: None, protocol: None }];
        let open = Listed {
            conn: ConnId(1),
            edge: EdgeId(0),
            protocol: Some(Protocol::Redis),
            ends: None,
            since_ns: 1_000_000_000,
            closed_ns: None,
            requests: 2,
            retries: 1,
        };
        let kernel = Some(Kernel { retransmits: 3, rtt_us: 1500 });
        let view = ConnectionView::of(&open, kernel, &edges, 3_500_000_000).expect("the edge is known");
        assert_eq!((view.open, view.age_s, view.tcp_retransmits, view.rtt_ms), (true, 2.5, Some(3), Some(1.5)));
        let closed = Listed { closed_ns: Some(2_000_000_000), ..open };
        let view = ConnectionView::of(&closed, kernel, &edges, 3_500_000_000).expect("the edge is known");
        assert_eq!((view.open, view.age_s, view.tcp_retransmits, view.rtt_ms), (false, 1.0, None, None));
        assert_eq!(ConnectionView::of(&Listed { edge: EdgeId(9), ..open }, None, &edges, 0), None);
    }
}
