//! The connections one by one: who speaks with whom, since when, and how often was asked. Kept only for whoever wants it.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::edge::{EdgeId, Protocol};
use crate::event::ConnId;
use crate::track::hash::ByWord;

/// One connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// The kernel's socket cookie.
    pub conn: ConnId,
    /// Its edge.
    pub edge: EdgeId,
    /// What was spoken last.
    pub protocol: Option<Protocol>,
    /// This host's end, and the peer's.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// When it was opened, or first seen; nanoseconds.
    pub since_ns: u64,
    /// When it ended, if it did.
    pub closed_ns: Option<u64>,
    /// Attempts on it. Of those that were left out at its end nothing is known.
    pub requests: u64,
    /// The retries among them.
    pub retries: u64,
}

/// The connections, up to a number of them.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    listed: HashMap<u64, Listed, ByWord>,
    cap: usize,
    omitted: u64,
}

impl Roster {
    /// Lists up to `cap` connections. Where there are more, those that ended make room.
    #[must_use]
    pub(crate) fn new(cap: usize) -> Self {
        Self { cap, ..Self::default() }
    }

    /// A connection was opened, or first seen.
    pub(crate) fn opened(&mut self, conn: ConnId, edge: EdgeId, ends: Option<(SocketAddr, SocketAddr)>, at_ns: u64) {
        if self.cap == 0 {
            return;
        }
        if let Some(known) = self.listed.get_mut(&conn.0) {
            known.ends = known.ends.or(ends);
            return;
        }
        if self.listed.len() >= self.cap {
            let before = self.listed.len();
            self.listed.retain(|_, listed| listed.closed_ns.is_none());
            self.omitted += (before - self.listed.len()) as u64;
        }
        if self.listed.len() >= self.cap {
            self.omitted += 1;
            return;
        }
        let new = Listed { conn, edge, protocol: None, ends, since_ns: at_ns, closed_ns: None, requests: 0, retries: 0 };
        self.listed.insert(conn.0, new);
    }

    /// Request `index` started on it. All but HTTP/2's are numbered, so that those before it are known, whether they were told or not.
    pub(crate) fn asked(&mut self, conn: ConnId, protocol: Protocol, index: u32, is_retry: bool) {
        if let Some(listed) = self.listed.get_mut(&conn.0) {
            listed.protocol = Some(protocol);
            listed.requests += 1;
            if !matches!(protocol, Protocol::Http2 | Protocol::Grpc) {
                listed.requests = listed.requests.max(u64::from(index) + 1);
            }
            listed.retries += u64::from(is_retry);
        }
    }

    /// It ended.
    pub(crate) fn closed(&mut self, conn: ConnId, at_ns: u64) {
        if let Some(listed) = self.listed.get_mut(&conn.0) {
            listed.closed_ns = Some(at_ns);
        }
    }

    /// All that are listed, by edge and age, and how many are not.
    #[must_use]
    pub(crate) fn all(&self) -> (Vec<Listed>, u64) {
        let mut all: Vec<Listed> = self.listed.values().copied().collect();
        all.sort_unstable_by_key(|listed| (listed.edge, listed.since_ns, listed.conn));
        (all, self.omitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_listed_with_what_was_asked_on_them() {
        let mut roster = Roster::new(10);
        let ends = "10.0.0.1:1".parse().ok().zip("10.0.0.2:2".parse().ok());
        roster.opened(ConnId(7), EdgeId(1), None, 5);
        roster.opened(ConnId(7), EdgeId(1), ends, 9);
        roster.asked(ConnId(7), Protocol::Redis, 0, false);
        roster.asked(ConnId(7), Protocol::Redis, 4, true);
        roster.asked(ConnId(8), Protocol::Redis, 0, true);
        roster.closed(ConnId(7), 20);
        let expected = Listed {
            conn: ConnId(7),
            edge: EdgeId(1),
            protocol: Some(Protocol::Redis),
            ends,
            since_ns: 5,
            closed_ns: Some(20),
            requests: 5,
            retries: 1,
        };
        assert_eq!(roster.all(), (vec![expected], 0));
    }

    #[test]
    fn what_ended_makes_room_and_what_is_left_out_is_counted() {
        let mut roster = Roster::new(3);
        (0..3).for_each(|conn| roster.opened(ConnId(conn), EdgeId(0), None, conn));
        roster.closed(ConnId(1), 3);
        (3..5).for_each(|conn| roster.opened(ConnId(conn), EdgeId(0), None, conn));
        let (all, omitted) = roster.all();
        assert_eq!(all.iter().map(|listed| listed.conn.0).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(omitted, 2);
        let mut none = Roster::new(0);
        none.opened(ConnId(1), EdgeId(0), None, 0);
        assert_eq!(none.all(), (vec![], 0));
    }
}
