//! Connections, and the pairing of requests with responses on them.
//!
//! HTTP/1 answers in the order of the questions, and the kernel numbers both: request n belongs to response n, whatever
//! events were lost in between. Numbers count from the start of the observation, so on a connection that was open
//! before it, the first response may belong to a request that nobody saw; its time gives it away. Redis, MySQL and PostgreSQL
//! are like HTTP/1 in this. The streams of HTTP/2 carry their numbers on the wire: see [`super::streams`].

use std::collections::HashMap;

use crate::edge::{EdgeId, Protocol, Role};
use crate::event::{ANSWERED_ERROR, Close, ConnId, Epoch, HeadPiece};
use crate::retry::Identity;
use crate::retry::fingerprint::join;
use crate::retry::marker::MarkerHeader;
use crate::status::{ErrorName, Meaning, Status};
use crate::track::answer::Answer;
use crate::track::attempt::{Attempt, Attempts};
use crate::track::books::{Books, Opening, unanswered};
use crate::track::cohort::Outcome;
use crate::track::connection::{Connection, Stray, is_after};
use crate::track::hash::ByWord;
use crate::track::head::{self, Partial};
use crate::track::queue::AgeQueue;
use crate::track::statements::Statements;
use crate::track::stats::Mismatches;
use crate::track::streams::AllStreams;
use crate::track::warm_up::WarmUps;
use crate::track::{http, mysql, postgres, redis};
use crate::window::Failure;

/// The caller on a downstream edge; one for all processes, for now.
pub(crate) const THIS_HOST: u64 = 0;

/// Errors of logins that are put together at a time, at most, and answers; nearly all come in one piece.
const REFUSALS: usize = 1024;

/// Connections with answers that wait for their end, at most: a server that is asked no more closes soon.
const HELD: usize = 4096;

/// Where and when an event happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The connection.
    pub(crate) conn: ConnId,
    /// The edge.
    pub(crate) edge: EdgeId,
    /// What is spoken on the connection.
    pub(crate) protocol: Protocol,
    /// The epoch.
    pub(crate) epoch: Epoch,
    /// The time, nanoseconds.
    pub(crate) at_ns: u64,
}

/// A response, besides its head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reply {
    /// Which one of its connection.
    pub(crate) index: u32,
    /// See [`crate::event::ProbeEventKind::ResponseHead`], here and below.
    pub(crate) status: u16,
    /// The requester had ended its side before.
    pub(crate) requester_ended: bool,
}

/// An answer after the requester had ended its side: whether anybody was there to read it shows when the connection ends.
#[derive(Debug)]
struct Held {
    attempt: Attempt,
    answer: Answer,
    at_ns: u64,
}

/// All connections that are open.
#[derive(Debug)]
pub(crate) struct Connections {
    open: HashMap<u64, Connection, ByWord>,
    by_age: AgeQueue<u64>,
    attempts: Attempts,
    pub(super) mismatches: Mismatches,
    statements: Statements,
    /// Errors of logins that have begun and not ended, by connection.
    refusals: HashMap<u64, Partial, ByWord>,
    /// Answers that have begun and not ended, by connection.
    replies: HashMap<u64, Partial, ByWord>,
    /// Answers to requesters that had ended their side, by connection.
    held: HashMap<u64, Vec<Held>, ByWord>,
    pub(crate) streams: AllStreams,
    next_token: u64,
    cap: usize,
    attempt_cap: usize,
    pub(super) marker: Option<MarkerHeader>,
    pub(super) warm_ups: WarmUps,
}

impl Connections {
    /// None yet; no more than `cap` of them, and `attempt_cap` open attempts, are held.
    #[must_use]
    pub(crate) fn new(cap: usize, attempt_cap: usize, marker: Option<MarkerHeader>) -> Self {
        Self {
            open: HashMap::default(),
            by_age: AgeQueue::default(),
            attempts: Attempts::default(),
            mismatches: Mismatches::default(),
            statements: Statements::default(),
            refusals: HashMap::default(),
            replies: HashMap::default(),
            held: HashMap::default(),
            streams: AllStreams::default(),
            next_token: 0,
            cap: cap.max(1),
            attempt_cap: attempt_cap.max(1),
            marker,
            warm_ups: WarmUps::default(),
        }
    }

    /// The connection was opened, or first seen. `caller` names who sends requests on it.
    pub(crate) fn opened(&mut self, place: Place, caller: u64, books: &mut Books) {
        self.connection(place, books).caller = caller;
    }

    /// A request's head, or a piece of it.
    pub(crate) fn request(&mut self, place: Place, index: u32, piece: &HeadPiece, books: &mut Books) {
        let partial = self.connection(place, books).partial.take();
        let known = match partial {
            Some(partial) if partial.index == index => Some(partial),
            // The next request has begun, so the head before it did end, only not before our eyes.
            Some(partial) => {
                self.begin(place, &partial, books);
                None
            }
            None => None,
        };
        if known.is_none()
            && let Some(bytes) = head::in_one(piece)
        {
            self.start(place, index, bytes, books);
            return;
        }
        let partial = match known {
            Some(mut partial) => {
                partial.add(place.at_ns, place.epoch, piece);
                partial
            }
            None => Box::new(Partial::new(index, place.at_ns, place.epoch, piece)),
        };
        if piece.complete {
            self.begin(place, &partial, books);
        } else {
            self.connection(place, books).partial = Some(partial);
        }
    }

    /// A response's head, or a piece of it.
    pub(crate) fn response(&mut self, place: Place, reply: Reply, piece: &HeadPiece, books: &mut Books) {
        let Reply { index, status, requester_ended } = reply;
        // A head that was cut may bring no further piece.
        let is_last = piece.complete || piece.truncated;
        let Some(connection) = self.open.get_mut(&place.conn.0) else {
            self.mismatches.unpaired_responses += u64::from(is_last);
            return;
        };
        if connection.answered == Some(index) {
            return;
        }
        if !is_last {
            self.part_of_reply(place, index, piece);
            return;
        }
        let begun = self.replies.remove(&place.conn.0).filter(|begun| piece.offset != 0 && begun.index == index);
        let begun = begun.map(|mut begun| {
            begun.add(place.at_ns, place.epoch, piece);
            begun
        });
        let bytes = begun.as_ref().map_or(piece.bytes.as_slice(), Partial::bytes);
        if connection.answered.is_none_or(|latest| is_after(index, latest)) {
            connection.answered = Some(index);
        }
        let answer = match place.protocol {
            Protocol::Redis => redis::answer(status, bytes),
            Protocol::Mysql => mysql::answer(status, bytes, place.conn, index, &mut self.statements),
            Protocol::Postgres => postgres::answer(status, bytes, connection.meaning),
            _ => http::answer(status, bytes),
        };
        connection.meaning = answer.meaning;
        let request = connection.asked_by(index);
        let begun = connection.partial.take_if(|partial| !is_after(partial.index, request));
        if let Some(partial) = begun {
            self.begin(place, &partial, books);
        }
        let Some(connection) = self.open.get_mut(&place.conn.0) else { return };
        while let Some(attempt) = connection.pop_if(&mut self.attempts, |attempt| !is_after(attempt.index, request)) {
            if attempt.index == request {
                if requester_ended && (self.held.len() < HELD || self.held.contains_key(&place.conn.0)) {
                    self.held.entry(place.conn.0).or_default().push(Held { attempt, answer, at_ns: place.at_ns });
                } else {
                    books.end(&attempt, Outcome::Answered(answer), place.at_ns);
                }
                return;
            }
            // A later request was answered, so this one was too.
            self.mismatches.unseen_outcomes += 1;
            books.end(&attempt, Outcome::Unseen, place.at_ns);
        }
        self.mismatches.unpaired_responses += 1;
        connection.stray(Stray { index, answer, at_ns: place.at_ns });
    }

    /// A piece of an answer of which more is to come: an error's name may be cut by a segment's border.
    fn part_of_reply(&mut self, place: Place, index: u32, piece: &HeadPiece) {
        let Place { conn, at_ns, epoch, .. } = place;
        let room = self.replies.len() < REFUSALS;
        match self.replies.get_mut(&conn.0) {
            Some(begun) if piece.offset != 0 && begun.index == index => begun.add(at_ns, epoch, piece),
            Some(begun) => *begun = Partial::new(index, at_ns, epoch, piece),
            None if room => {
                self.replies.insert(conn.0, Partial::new(index, at_ns, epoch, piece));
            }
            None => {}
        }
    }

    /// The connection goes on as HTTP/2, with a request of HTTP/1 as its first stream.
    pub(crate) fn upgraded(&mut self, place: Place, index: u32, books: &mut Books) {
        const STREAM: u32 = 1;
        if let Some(partial) = self.connection(place, books).partial.take() {
            self.begin(place, &partial, books);
        }
        let Some(request) = self.open.get(&place.conn.0).map(|connection| connection.asked_by(index)) else { return };
        if let Some(attempt) = self.leave_one(place.conn, request) {
            self.wait(Attempt { index: STREAM, protocol: Protocol::Http2, ..attempt });
        }
    }

    /// The server does not let the client in: the error, or a piece of it.
    pub(crate) fn turned_away(&mut self, place: Place, piece: &HeadPiece, books: &mut Books) {
        let Place { conn, edge, protocol, epoch, at_ns } = place;
        let of = |bytes: &[u8]| match protocol {
            Protocol::Redis => redis::answer(ANSWERED_ERROR, bytes).status,
            Protocol::Postgres => postgres::answer(ANSWERED_ERROR, bytes, Meaning::Good).status,
            _ => mysql::error(bytes).map_or(Status::Error(ErrorName::OTHER), |answer| answer.status),
        };
        let status = if let Some(bytes) = head::in_one(piece) {
            of(bytes)
        } else {
            if piece.offset == 0 {
                // What was told before belonged to a message that was no error.
                self.refusals.remove(&conn.0);
            }
            if let Some(partial) = self.refusals.get_mut(&conn.0) {
                partial.add(at_ns, epoch, piece);
            } else if self.refusals.len() < REFUSALS {
                self.refusals.insert(conn.0, Partial::new(0, at_ns, epoch, piece));
            }
            if !piece.complete {
                return;
            }
            of(self.refusals.remove(&conn.0).as_ref().map_or(&[], Partial::bytes))
        };
        books.cohorts.turned_away(epoch, edge, status);
    }

    /// The connection ended.
    pub(crate) fn closed(&mut self, place: Place, how: Close, books: &mut Books) {
        self.begin_streams(place.conn, books);
        let Some(connection) = self.open.get_mut(&place.conn.0) else { return };
        let edge = connection.edge;
        let requester_reset = books.role(edge).is_some_and(|role| match role {
            Role::Ingress => how == Close::PeerReset,
            Role::Downstream => how == Close::LocalReset,
        });
        if requester_reset {
            for Held { attempt, at_ns, .. } in self.held.remove(&place.conn.0).unwrap_or_default() {
                books.end(&attempt, Outcome::Failed(Failure::ClientAbort), at_ns);
            }
        }
        if let Some(partial) = connection.partial.take() {
            if partial.may_lack_its_end() {
                self.begin(place, &partial, books);
            } else {
                self.mismatches.unfinished_heads += 1;
            }
        }
        let outcome = books.role(edge).map_or(Outcome::Unseen, |role| Outcome::Failed(unanswered(role, how)));
        self.leave(place.conn, outcome, place.at_ns, books);
    }

    /// The requester has ended its side: of what is not answered in the end, it is known when it was given up.
    pub(crate) fn asks_no_more(&mut self, place: Place) {
        if let Some(connection) = self.open.get(&place.conn.0) {
            connection.give_up(&mut self.attempts, place.at_ns);
        }
    }

    /// The open attempts, in no order.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter()
    }

    /// What did not fit together.
    #[must_use]
    pub(crate) const fn mismatches(&self) -> Mismatches {
        self.mismatches
    }

    /// A request whose head was put together.
    fn begin(&mut self, place: Place, partial: &Partial, books: &mut Books) {
        let place = Place { at_ns: partial.at_ns, epoch: partial.epoch, ..place };
        self.start(place, partial.index, partial.bytes(), books);
    }

    /// A request is on its way: an attempt starts.
    fn start(&mut self, place: Place, index: u32, bytes: &[u8], books: &mut Books) {
        if self.open.get(&place.conn.0).is_some_and(|connection| connection.has(index, &self.attempts)) {
            self.mismatches.repeated_requests += 1;
            return;
        }
        let identity = match place.protocol {
            Protocol::Redis => redis::identity(bytes),
            Protocol::Mysql => mysql::identity(bytes, place.conn, index, &mut self.statements),
            Protocol::Postgres => postgres::identity(bytes, place.conn, &mut self.statements),
            _ => http::identity(bytes, self.marker.as_ref()),
        };
        let attempt = self.attempt(place, index, &identity.unwrap_or_default(), books);
        let Some(connection) = self.open.get_mut(&place.conn.0) else { return };
        if let Some(stray) = connection.ask(index, place.at_ns) {
            self.mismatches.unpaired_responses = self.mismatches.unpaired_responses.saturating_sub(1);
            books.end(&attempt, Outcome::Answered(stray.answer), stray.at_ns);
        } else {
            connection.insert(attempt, &mut self.attempts);
        }
    }

    /// An attempt starts; it is on no connection's list yet.
    pub(super) fn attempt(&mut self, place: Place, index: u32, identity: &Identity, books: &mut Books) -> Attempt {
        if self.attempts.len() >= self.attempt_cap {
            self.evict_attempt(place.at_ns, books);
        }
        self.mismatches.unread_heads += u64::from(identity.print.is_none());
        self.next_token += 1;
        let token = self.next_token;
        let connection = self.connection(place, books);
        let (edge, caller) = (connection.edge, connection.caller);
        let Place { conn, protocol, epoch, at_ns, .. } = place;
        let counts = !self.warm_ups.covers(protocol, at_ns);
        let started = books.start(&Opening { token, edge, protocol, caller, epoch, at_ns, counts }, identity);
        books.roster.asked(conn, protocol, index, started.is_retry);
        Attempt {
            token,
            conn,
            index,
            edge,
            protocol,
            epoch,
            counts,
            start_ns: at_ns,
            ticket: started.ticket,
            links: started.links,
            given_up_ns: None,
            deadline_ns: started.deadline_ns,
            next: None,
        }
    }

    /// An attempt that has no outcome yet joins its connection.
    pub(super) fn wait(&mut self, attempt: Attempt) {
        if let Some(connection) = self.open.get_mut(&attempt.conn.0) {
            connection.insert(attempt, &mut self.attempts);
        }
    }

    /// The attempt of an index leaves its connection, if it is open.
    pub(super) fn leave_one(&mut self, conn: ConnId, index: u32) -> Option<Attempt> {
        self.open.get_mut(&conn.0)?.take(index, &mut self.attempts)
    }

    /// The open attempts of a connection above an index.
    pub(super) fn above(&self, conn: ConnId, index: u32) -> Vec<u32> {
        self.open.get(&conn.0).map(|connection| connection.above(index, &self.attempts)).unwrap_or_default()
    }

    /// The connection of an event; a new one if its opening was not seen.
    pub(super) fn connection(&mut self, place: Place, books: &mut Books) -> &mut Connection {
        if !self.open.contains_key(&place.conn.0) {
            if self.open.len() >= self.cap {
                let open = &self.open;
                if let Some(oldest) = self.by_age.pop_oldest(|id| open.contains_key(id)) {
                    self.mismatches.evicted_connections += 1;
                    self.leave(ConnId(oldest), Outcome::Unseen, place.at_ns, books);
                }
            }
            let open = &self.open;
            self.by_age.push(place.conn.0, open.len(), |id| open.contains_key(id));
            if let Some(count) = books.connections(place.edge) {
                *count += 1;
            }
            books.roster.opened(place.conn, place.edge, None, place.at_ns);
        }
        let role = books.role(place.edge);
        self.open.entry(place.conn.0).or_insert_with(|| Connection::new(place.edge, unknown_caller(role, place.conn)))
    }

    /// The connection goes, and each attempt on it ends as told.
    fn leave(&mut self, conn: ConnId, outcome: Outcome, at_ns: u64, books: &mut Books) {
        self.streams.remove(conn);
        self.refusals.remove(&conn.0);
        self.replies.remove(&conn.0);
        for Held { attempt, answer, at_ns } in self.held.remove(&conn.0).unwrap_or_default() {
            books.end(&attempt, Outcome::Answered(answer), at_ns);
        }
        let Some(mut connection) = self.open.remove(&conn.0) else { return };
        if let Some(count) = books.connections(connection.edge) {
            *count = count.saturating_sub(1);
        }
        while let Some(attempt) = connection.pop_if(&mut self.attempts, |_| true) {
            books.end(&attempt, outcome, at_ns);
        }
    }

    /// Lets the oldest open attempt go, and those that were asked before it on its connection.
    fn evict_attempt(&mut self, at_ns: u64, books: &mut Books) {
        let Some(oldest) = self.attempts.oldest() else { return };
        let Some(connection) = self.open.get_mut(&oldest.conn.0) else { return };
        while let Some(attempt) = connection.pop_if(&mut self.attempts, |_| true) {
            self.mismatches.evicted_attempts += 1;
            books.end(&attempt, Outcome::Unseen, at_ns);
            if attempt.token == oldest.token {
                return;
            }
        }
    }
}

/// Who sends the requests of a connection whose opening was not seen: on a downstream edge this host in any case, on an
/// ingress edge someone who is taken for nobody else.
const fn unknown_caller(role: Option<Role>, conn: ConnId) -> u64 {
    match role {
        Some(Role::Downstream) => THIS_HOST,
        _ => join(u64::MAX, conn.0),
    }
}
