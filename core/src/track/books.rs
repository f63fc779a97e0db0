//! Where a started and an ended attempt leave their marks: retries, windows, and each edge's pace.

use crate::edge::{EdgeId, EdgeSpec, Protocol, Role};
use crate::event::{Close, Epoch};
use crate::retry::id::IdMemory;
use crate::retry::matching::{Ending, Matcher};
use crate::retry::{Identity, Recogniser, Start, Ticket};
use crate::status::Meaning;
use crate::track::TrackConfig;
use crate::track::answer::Answer;
use crate::track::attempt::Attempt;
use crate::track::cohort::{Cohorts, Outcome, Waited};
use crate::track::deadlines::{self, Deadlines, Links, NEVER};
use crate::track::gauge::Gauge;
use crate::track::roster::Roster;
use crate::window::Failure;

/// An attempt that starts, as its connection knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    /// Unique for ever.
    pub(crate) token: u64,
    /// Its edge.
    pub(crate) edge: EdgeId,
    /// Its protocol.
    pub(crate) protocol: Protocol,
    /// Who sent it.
    pub(crate) caller: u64,
    /// The epoch in which it started.
    pub(crate) epoch: Epoch,
    /// When, nanoseconds.
    pub(crate) at_ns: u64,
    /// It is counted: what may have come before it was seen.
    pub(crate) counts: bool,
}

/// What is kept of an attempt that started, until it ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    /// For the recogniser of retries.
    pub(crate) ticket: Option<Ticket>,
    /// The request that it belongs to, by name.
    pub(crate) links: Links,
    /// When its own sender stops waiting.
    pub(crate) deadline_ns: u64,
    /// It was recognised as a retry.
    pub(crate) is_retry: bool,
}

/// Everything that is kept of attempts, beyond the connections that they are on.
#[derive(Debug)]
pub(crate) struct Books {
    /// By window.
    pub(crate) cohorts: Cohorts,
    /// By identity.
    pub(crate) recogniser: Recogniser,
    /// By connection.
    pub(crate) roster: Roster,
    deadlines: Deadlines,
    has_ingress: bool,
    edges: Vec<EdgeBook>,
    overdue_ns: u64,
}

#[derive(Debug)]
struct EdgeBook {
    role: Role,
    gauge: Gauge,
    connections: u64,
}

impl Books {
    /// Empty books.
    #[must_use]
    pub(crate) fn new(edges: &[EdgeSpec], config: &TrackConfig) -> Self {
        Self {
            cohorts: Cohorts::new(edges.len(), config.max_durations),
            recogniser: Recogniser::new(
                IdMemory::new(config.max_ids, config.id_ttl_ns),
                Matcher::new(config.retry_within_ns, config.max_failures),
            ),
            roster: Roster::new(config.max_listed),
            deadlines: Deadlines::new(config.max_ids, config.id_ttl_ns, config.wall_origin_ns),
            has_ingress: edges.iter().any(|edge| edge.role == Role::Ingress),
            edges: edges.iter().map(|edge| EdgeBook { role: edge.role, gauge: Gauge::default(), connections: 0 }).collect(),
            overdue_ns: config.overdue_ns,
        }
    }

    /// The role of an edge, if there is such an edge.
    #[must_use]
    pub(crate) fn role(&self, edge: EdgeId) -> Option<Role> {
        self.edges.get(usize::from(edge.0)).map(|book| book.role)
    }

    /// An attempt starts.
    pub(crate) fn start(&mut self, opening: &Opening, identity: &Identity) -> Started {
        let p99_ns = self.edges.get(usize::from(opening.edge.0)).map_or(0, |book| book.gauge.p99_ns());
        let start = Start {
            token: opening.token,
            edge: opening.edge,
            caller: opening.caller,
            at_ns: opening.at_ns,
            overdue_ns: self.overdue_ns.max(p99_ns),
        };
        let finding = self.recogniser.judge(identity, start);
        let (links, at_ns) = (deadlines::links(identity), opening.at_ns);
        let stated_ns = self.deadlines.stated(identity, at_ns);
        let given_up_ns = match self.role(opening.edge) {
            Some(Role::Downstream) => self.deadlines.of(links, at_ns).min(stated_ns),
            _ => {
                self.deadlines.expect(links, at_ns, stated_ns);
                stated_ns
            }
        };
        let is_linked = self.has_ingress && links != [0, 0] && self.role(opening.edge) == Some(Role::Downstream);
        let waited = match (at_ns > given_up_ns, is_linked || stated_ns != NEVER) {
            (true, _) => Waited::Late,
            (false, true) => Waited::For,
            (false, false) => Waited::Unknown,
        };
        self.cohorts.start(opening, &finding, waited);
        Started { ticket: finding.ticket, links, deadline_ns: stated_ns, is_retry: finding.evidence.is_some() }
    }

    /// An attempt ends.
    pub(crate) fn end(&mut self, attempt: &Attempt, outcome: Outcome, at_ns: u64) {
        let orphan_ns = self.leave_behind(attempt, outcome, at_ns);
        self.cohorts.end(attempt, outcome, at_ns, orphan_ns);
        if let Some(ticket) = &attempt.ticket {
            match outcome {
                Outcome::Answered(Answer { meaning: Meaning::Failed, wait_ns, .. }) => {
                    self.recogniser.fail(ticket, Ending { end_ns: at_ns, is_answered: true, is_unprocessed: false, wait_ns });
                }
                Outcome::Failed(failure) => {
                    let is_unprocessed = failure == Failure::Unprocessed;
                    self.recogniser.fail(ticket, Ending { is_unprocessed, ..Ending::silent(at_ns) });
                }
                Outcome::Answered(Answer { meaning: Meaning::TurnedDown, .. }) => self.recogniser.turn_down(ticket, at_ns),
                Outcome::Answered(_) | Outcome::Unseen => self.recogniser.succeed(ticket),
            }
        }
        if let Outcome::Answered(_) = outcome
            && let Some(book) = self.edges.get_mut(usize::from(attempt.edge.0))
        {
            book.gauge.answered(at_ns.saturating_sub(attempt.start_ns));
        }
    }

    /// Takes note of a caller that hung up, and gives the time for which the attempt went on after nobody waited any more.
    fn leave_behind(&mut self, attempt: &Attempt, outcome: Outcome, at_ns: u64) -> u64 {
        let mut given_up_ns = attempt.deadline_ns;
        match (self.role(attempt.edge), outcome) {
            (Some(Role::Ingress), Outcome::Failed(Failure::ClientAbort)) => self.deadlines.hung_up(attempt.links, at_ns),
            (Some(Role::Ingress), Outcome::Answered(_)) => self.deadlines.answered(attempt.links, at_ns),
            (Some(Role::Downstream), _) => given_up_ns = given_up_ns.min(self.deadlines.of(attempt.links, at_ns)),
            _ => {}
        }
        if given_up_ns == NEVER || outcome == Outcome::Unseen { 0 } else { at_ns.saturating_sub(given_up_ns.max(attempt.start_ns)) }
    }

    /// A connection came or went.
    pub(crate) fn connections(&mut self, edge: EdgeId) -> Option<&mut u64> {
        self.edges.get_mut(usize::from(edge.0)).map(|book| &mut book.connections)
    }

    /// Connections of an edge that are open now.
    #[must_use]
    pub(crate) fn open_connections(&self, edge: EdgeId) -> u64 {
        self.edges.get(usize::from(edge.0)).map_or(0, |book| book.connections)
    }
}

/// What an ended connection means for the attempts on it that have no answer.
///
/// The requester is this host on a downstream edge, the peer on an ingress edge. Its hanging up is a client's abort,
/// gentle or not; the server's is a failure of the server.
#[must_use]
pub(crate) const fn unanswered(role: Role, how: Close) -> Failure {
    match (role, how) {
        (Role::Downstream, Close::Local | Close::LocalReset) | (Role::Ingress, Close::Peer | Close::PeerReset) => Failure::ClientAbort,
        (Role::Downstream, Close::Peer) | (Role::Ingress, Close::Local) => Failure::NoAnswer,
        (Role::Downstream, Close::PeerReset) | (Role::Ingress, Close::LocalReset) => Failure::Reset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_that_hung_up_decides_what_failed() {
        let cases = [
            (Role::Downstream, Close::Peer, Failure::NoAnswer),
            (Role::Downstream, Close::PeerReset, Failure::Reset),
            (Role::Downstream, Close::Local, Failure::ClientAbort),
            (Role::Downstream, Close::LocalReset, Failure::ClientAbort),
            (Role::Ingress, Close::Peer, Failure::ClientAbort),
            (Role::Ingress, Close::PeerReset, Failure::ClientAbort),
            (Role::Ingress, Close::Local, Failure::NoAnswer),
            (Role::Ingress, Close::LocalReset, Failure::Reset),
        ];
        for (role, how, failure) in cases {
            assert_eq!(unanswered(role, how), failure, "{role:?} {how:?}");
        }
    }
}
