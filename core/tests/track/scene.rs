//! A tracker and short words for what happens on its connections. Times are in milliseconds.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use stormdrill_core::edge::{EdgeId, EdgeSpec, Protocol, Role};
use stormdrill_core::event::{Close, ConnId, Epoch, HeadPiece, ProbeEvent, ProbeEventKind};
use stormdrill_core::track::{TrackConfig, Tracker};
use stormdrill_core::window::{EdgeCounts, EdgeWindow, Failure, KernelWindow, PhaseName, Window};

/// The ingress edge of every scene.
pub(crate) const WEB: EdgeId = EdgeId(0);
/// The downstream edge of every scene.
pub(crate) const STORE: EdgeId = EdgeId(1);
/// Nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// A window's length in milliseconds; epoch n covers the n-th of them.
pub(crate) const WINDOW: u64 = 10_000;

pub(crate) fn edges() -> Vec<EdgeSpec> {
    let edge = |name: &str, role| EdgeSpec { name: name.into(), role, address: None, ports: None, protocol: None };
    vec![edge("web", Role::Ingress), edge("store", Role::Downstream)]
}

pub(crate) struct Scene {
    pub(crate) tracker: Tracker,
    pub(crate) edge: EdgeId,
}

impl Scene {
    pub(crate) fn on(edge: EdgeId) -> Self {
        Self::with(edge, TrackConfig::default())
    }

    pub(crate) fn with(edge: EdgeId, config: TrackConfig) -> Self {
        Self { tracker: Tracker::new(&edges(), config), edge }
    }

    pub(crate) fn tell(&mut self, event: ProbeEvent) -> &mut Self {
        self.tracker.on_event(event);
        self
    }

    pub(crate) fn open(&mut self, ms: u64, conn: u64, peer: &str) -> &mut Self {
        self.tell(opened(self.edge, ms, conn, peer))
    }

    pub(crate) fn ask(&mut self, ms: u64, conn: u64, index: u32, head: &str) -> &mut Self {
        self.tell(request(self.edge, ms, conn, index, head))
    }

    pub(crate) fn get(&mut self, ms: u64, conn: u64, index: u32, path: &str) -> &mut Self {
        self.ask(ms, conn, index, &get(path, ""))
    }

    pub(crate) fn answer(&mut self, ms: u64, conn: u64, index: u32, status: u16) -> &mut Self {
        self.tell(response(self.edge, ms, conn, index, status))
    }

    pub(crate) fn close(&mut self, ms: u64, conn: u64, how: Close) -> &mut Self {
        self.tell(event(self.edge, ms, conn, ProbeEventKind::Closed { how }))
    }

    /// The first window's part of the scene's edge, at the end of everything.
    pub(crate) fn result(&mut self) -> EdgeWindow {
        self.window(0).edges[usize::from(self.edge.0)].clone()
    }

    /// Closes an epoch's window and ends the observation.
    pub(crate) fn window(&mut self, epoch: Epoch) -> Window {
        self.end_window(epoch);
        self.tracker.flush((u64::from(epoch) + 1) * WINDOW * MS).pop().expect("the window was closed")
    }

    pub(crate) fn end_window(&mut self, epoch: Epoch) {
        self.tracker.close_window(closing(epoch));
    }
}

pub(crate) fn closing(epoch: Epoch) -> KernelWindow {
    let start_ns = u64::from(epoch) * WINDOW * MS;
    KernelWindow {
        epoch,
        phase: PhaseName::Baseline,
        start_ns,
        end_ns: start_ns + WINDOW * MS,
        counts: vec![EdgeCounts::default(), EdgeCounts { requests: 7, ..EdgeCounts::default() }],
        status: vec![BTreeMap::new(), BTreeMap::from([(200, 7)])],
        events_lost: 0,
        sampling: 1.0,
    }
}

pub(crate) fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: store\r\n{headers}\r\n")
}

pub(crate) fn event(edge: EdgeId, ms: u64, conn: u64, kind: ProbeEventKind) -> ProbeEvent {
    let epoch = Epoch::try_from(ms / WINDOW).expect("scenes are short");
    let role = Some(if edge == WEB { Role::Ingress } else { Role::Downstream });
    ProbeEvent { at_ns: ms * MS, epoch, conn: ConnId(conn), edge, role, protocol: Some(Protocol::Http), kind }
}

pub(crate) fn opened(edge: EdgeId, ms: u64, conn: u64, peer: &str) -> ProbeEvent {
    let peer: SocketAddr = peer.parse().expect("an address");
    let local = "10.0.0.1:8080".parse().expect("an address");
    event(edge, ms, conn, ProbeEventKind::Opened { local, peer })
}

pub(crate) fn whole(head: &str) -> HeadPiece {
    HeadPiece { offset: 0, bytes: head.as_bytes().to_vec(), complete: true, truncated: false }
}

pub(crate) fn request(edge: EdgeId, ms: u64, conn: u64, index: u32, head: &str) -> ProbeEvent {
    event(edge, ms, conn, ProbeEventKind::RequestHead { index, piece: whole(head) })
}

pub(crate) fn response(edge: EdgeId, ms: u64, conn: u64, index: u32, status: u16) -> ProbeEvent {
    let piece = whole(&format!("HTTP/1.1 {status} X\r\n\r\n"));
    event(edge, ms, conn, ProbeEventKind::ResponseHead { index, status, requester_ended: false, piece })
}

/// `status` as pairs.
pub(crate) fn statuses(edge: &EdgeWindow) -> Vec<(&str, u64)> {
    edge.status.iter().map(|(status, count)| (status.as_str(), *count)).collect()
}

/// `failures` as pairs.
pub(crate) fn failures(edge: &EdgeWindow) -> Vec<(Failure, u64)> {
    edge.failures.iter().map(|(failure, count)| (*failure, *count)).collect()
}

/// Retries by marker, id, matched.
pub(crate) fn retries(edge: &EdgeWindow) -> (u64, u64, u64) {
    (edge.retries.marker, edge.retries.id, edge.retries.matched)
}

/// An event of another protocol.
pub(crate) fn spoken(protocol: Protocol, event: ProbeEvent) -> ProbeEvent {
    ProbeEvent { protocol: Some(protocol), ..event }
}
