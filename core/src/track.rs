//! From probe events to windows: pairs requests with responses, recognises retries, attributes all to the window of the
//! attempt's start.
//!
//! Counts come from the kernel and are exact. What is found out here from events is as complete as the events are; what
//! did not fit, was let go, or came too late is counted in [`TrackStats`], so that silence is never mistaken for zero.
//! All memory is bounded by [`TrackConfig`].

pub mod ledger;

pub mod stats;

mod order;

mod head;

pub mod http;

mod answer;

mod heading;

mod statements;

mod warm_up;

pub mod burst;

pub mod redis;

pub mod mysql;

pub mod postgres;

mod sql;

mod streams;

mod deadlines;

mod attempt;

mod connection;

mod pairing;

mod books;

pub mod roster;

mod cohort;

mod gauge;

mod sample;

pub(crate) mod aged;

mod queue;

pub(crate) mod hash;

use std::net::SocketAddr;

use crate::edge::{EdgeId, EdgeSpec, Protocol, Role};
use crate::event::{Epoch, ProbeEvent, ProbeEventKind};
use crate::retry::fingerprint;
use crate::retry::marker::MarkerHeader;
use crate::track::books::Books;
use crate::track::order::Order;
use crate::track::pairing::{Connections, Place, Reply, THIS_HOST};
use crate::track::roster::Listed;
use crate::track::stats::TrackStats;
use crate::window::{KernelWindow, Window};

/// Limits in time and memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackConfig {
    /// How long events wait for older ones, nanoseconds.
    pub hold_ns: u64,
    /// How long after its end a window waits for outcomes, nanoseconds.
    pub horizon_ns: u64,
    /// An attempt that is open for this long when its window becomes final hangs, nanoseconds.
    pub hang_after_ns: u64,
    /// How long an identity is remembered after it was last seen, nanoseconds.
    pub id_ttl_ns: u64,
    /// How long after a failure the same call is taken for its retry, nanoseconds.
    pub retry_within_ns: u64,
    /// The least time after which an open attempt may count as overdue, nanoseconds.
    pub overdue_ns: u64,
    /// The header of the user's own that carries an attempt number.
    pub marker: Option<MarkerHeader>,
    /// What the wall clock showed at nanosecond 0 of the events' clock, nanoseconds since 1970; without it, absolute deadlines
    /// are not understood.
    pub wall_origin_ns: Option<u64>,
    /// Connections that are listed one by one; 0 lists none.
    pub max_listed: usize,
    /// Events held back.
    pub max_held: usize,
    /// Connections.
    pub max_connections: usize,
    /// Attempts without an outcome.
    pub max_attempts: usize,
    /// Identities.
    pub max_ids: usize,
    /// Failed attempts that may yet be retried.
    pub max_failures: usize,
    /// Durations of each kind kept for an edge and window; of more, a fair sample is kept.
    pub max_durations: usize,
}

impl Default for TrackConfig {
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Self {
            hold_ns: 50 * MS,
            horizon_ns: 5_000 * MS,
            hang_after_ns: 5_000 * MS,
            id_ttl_ns: 60_000 * MS,
            retry_within_ns: 2_000 * MS,
            overdue_ns: 50 * MS,
            marker: None,
            wall_origin_ns: None,
            max_listed: 0,
            max_held: 1 << 18,
            // Just below the size at which the table would double to more than a hundred megabytes.
            max_connections: 900_000,
            max_attempts: 1 << 18,
            max_ids: 1 << 18,
            max_failures: 1 << 16,
            max_durations: 1 << 16,
        }
    }
}

/// Follows the requests of all edges.
#[derive(Debug)]
pub struct Tracker {
    config: TrackConfig,
    order: Order,
    /// Room for events that are let through; empty between calls.
    ripe: Vec<ProbeEvent>,
    connections: Connections,
    books: Books,
    /// Windows that became final while events were dealt with.
    finalised: Vec<Window>,
    events: u64,
    unknown_role: u64,
    misplaced: u64,
}

impl Tracker {
    /// Nothing was seen yet. Events name the edges by their position in `edges`.
    #[must_use]
    pub fn new(edges: &[EdgeSpec], config: TrackConfig) -> Self {
        Self {
            order: Order::new(config.hold_ns, config.max_held),
            ripe: Vec::new(),
            connections: Connections::new(config.max_connections, config.max_attempts, config.marker.clone()),
            books: Books::new(edges, &config),
            finalised: Vec::new(),
            events: 0,
            unknown_role: 0,
            misplaced: 0,
            config,
        }
    }

    /// Takes in one event. Events may come out of order by less than [`TrackConfig::hold_ns`].
    pub fn on_event(&mut self, event: ProbeEvent) {
        self.events += 1;
        match event.role {
            None => self.unknown_role += 1,
            Some(role) if self.books.role(event.edge) != Some(role) => self.misplaced += 1,
            Some(_) => {
                if self.order.push(event) {
                    self.catch_up();
                }
            }
        }
    }

    /// Events were lost: compression that builds on them cannot be followed any more.
    pub fn on_loss(&mut self) {
        self.connections.streams.forget();
    }

    /// From `at_ns` on, identities are told that were not told before: what they did before is not known. Until that cannot matter any more, attempts are
    /// followed and not counted.
    pub fn warm_up(&mut self, at_ns: u64) {
        self.connections.warm_ups.begin(at_ns, at_ns.saturating_add(self.config.retry_within_ns));
    }

    /// The kernel closed a window. Windows are closed in the order of their epochs.
    pub fn close_window(&mut self, window: KernelWindow) {
        self.books.cohorts.close(window);
    }

    /// The windows that became final, in order: all of their attempts have an outcome, or the horizon has passed.
    ///
    /// To be called when the ring has been read: with no event for ten holds, the clock alone lets the last ones
    /// through. What a window holds depends on when things happened, never on when this is called.
    pub fn finalised(&mut self, now_ns: u64) -> Vec<Window> {
        self.order.tick(now_ns);
        self.catch_up();
        let released_ns = self.order.released_ns();
        self.pass_horizons(released_ns);
        // Some events of the window's last moments may be stamped a little after its end.
        let settled_ns = released_ns.saturating_sub(self.config.hold_ns);
        self.connections.begin_waiting(settled_ns, &mut self.books);
        while self.books.cohorts.oldest_closed().is_some_and(|(window, open)| open == 0 && window.end_ns <= settled_ns) {
            self.finalise_oldest(now_ns);
        }
        std::mem::take(&mut self.finalised)
    }

    /// Windows from an epoch on that may not be final yet, but hold all that they will of the edges that are `needed` (by [`EdgeId`]): another
    /// edge's attempts are still open. Of other edges they hold only what the kernel counted. In order, up to the first that must be waited for;
    /// [`Self::finalised`] gives each of them later. To be called after it.
    #[must_use]
    pub fn ahead(&self, from: Epoch, needed: &[bool]) -> Vec<Window> {
        self.books.cohorts.ahead(from, needed, self.order.released_ns().saturating_sub(self.config.hold_ns))
    }

    /// Every window that was closed has become final: there is nothing left to wait for.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.books.cohorts.oldest_closed().is_none()
    }

    /// All windows that were closed, as they stand: the end of the observation.
    pub fn flush(&mut self, now_ns: u64) -> Vec<Window> {
        for event in self.order.all() {
            self.apply(event);
        }
        self.connections.begin_waiting(u64::MAX, &mut self.books);
        self.pass_horizons(now_ns);
        while !self.books.cohorts.is_idle() {
            self.finalise_oldest(now_ns);
        }
        std::mem::take(&mut self.finalised)
    }

    /// Every window that was closed is final: there is nothing left to wait for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.books.cohorts.is_idle() && self.finalised.is_empty()
    }

    /// Connections of an edge that are open, as far as events were dealt with.
    #[must_use]
    pub fn open_connections(&self, edge: EdgeId) -> u64 {
        self.books.open_connections(edge)
    }

    /// The connections one by one, as far as they are listed, and how many are not.
    #[must_use]
    pub fn connections(&self) -> (Vec<Listed>, u64) {
        self.books.roster.all()
    }

    /// What was not seen, placed or kept, so far.
    #[must_use]
    pub const fn stats(&self) -> TrackStats {
        TrackStats {
            events: self.events,
            late_events: self.order.late(),
            unknown_role: self.unknown_role,
            misplaced: self.misplaced,
            mismatches: self.connections.mismatches(),
            misfits: self.books.cohorts.misfits(),
            evicted_ids: self.books.recogniser.ids().evicted(),
            evicted_failures: self.books.recogniser.matcher().evicted(),
        }
    }

    /// Makes the windows final whose horizon lies before `now_ns`.
    fn pass_horizons(&mut self, now_ns: u64) {
        while let Some((window, _)) = self.books.cohorts.oldest_closed() {
            let horizon_ns = window.end_ns.saturating_add(self.config.horizon_ns);
            if horizon_ns > now_ns {
                break;
            }
            self.finalise_oldest(horizon_ns);
        }
    }

    fn finalise_oldest(&mut self, at_ns: u64) {
        let window = self.books.cohorts.finalise(self.connections.attempts(), at_ns, self.config.hang_after_ns);
        self.finalised.extend(window);
    }

    fn catch_up(&mut self) {
        let mut ripe = std::mem::take(&mut self.ripe);
        self.order.ripe(&mut ripe);
        for event in ripe.drain(..) {
            self.apply(event);
        }
        self.ripe = ripe;
    }

    fn apply(&mut self, event: ProbeEvent) {
        self.pass_horizons(event.at_ns);
        self.connections.begin_waiting(event.at_ns.saturating_sub(self.config.hold_ns), &mut self.books);
        let protocol = event.protocol.unwrap_or(Protocol::Http);
        let place = Place { conn: event.conn, edge: event.edge, protocol, epoch: event.epoch, at_ns: event.at_ns };
        let books = &mut self.books;
        match event.kind {
            ProbeEventKind::Opened { local, peer } => {
                books.roster.opened(event.conn, event.edge, Some((local, peer)), event.at_ns);
                self.connections.opened(place, caller(event.role, peer), books);
            }
            ProbeEventKind::ConnectFailed { reason, .. } => {
                books.cohorts.connect_failed(event.epoch, event.edge, reason);
            }
            ProbeEventKind::Upgraded { index } => self.connections.upgraded(place, index, books),
            ProbeEventKind::TurnedAway { piece } => self.connections.turned_away(place, &piece, books),
            ProbeEventKind::RequestHead { index, piece } => self.connections.request(place, index, &piece, books),
            ProbeEventKind::ResponseHead { index, status, requester_ended, piece } => {
                self.connections.response(place, Reply { index, status, requester_ended }, &piece, books);
            }
            ProbeEventKind::AsksNoMore => self.connections.asks_no_more(place),
            ProbeEventKind::Closed { how } => {
                self.connections.closed(place, how, books);
                self.books.roster.closed(event.conn, event.at_ns);
            }
            ProbeEventKind::Stream(event) => self.connections.stream(place, event, books),
        }
    }
}

/// Who sends the requests of a connection: on an ingress edge the peer's host, on a downstream edge this host.
fn caller(role: Option<Role>, peer: SocketAddr) -> u64 {
    match role {
        Some(Role::Ingress) => fingerprint::of_bytes(peer.ip().to_canonical().to_string().as_bytes()),
        _ => THIS_HOST,
    }
}
