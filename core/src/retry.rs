//! Whether an attempt is a retry, and how that is known.
//!
//! Protocols turn their requests into an [`Identity`]; everything here works on that alone. Three sources of evidence
//! are asked, each on its own, and the strongest one that speaks decides: *marker*, *id*, *matched* (docs/retries.md).

pub mod fingerprint;
pub mod id;
pub mod marker;
pub mod matching;

mod pushback;

use crate::edge::EdgeId;
use crate::retry::fingerprint::{Fingerprint, join};
use crate::retry::id::{IdMemory, Ids};
use crate::retry::matching::{Candidate, Ending, Matcher, Predecessor};
use crate::retry::pushback::Pushbacks;
use crate::window::Retries;

/// How a retry was recognised, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// An attempt number on the wire.
    Marker,
    /// An identity seen before on the same edge.
    Id,
    /// The same call after an attempt that failed, or that is overdue.
    Matched,
}

impl Evidence {
    /// The word used in JSON and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Marker => "marker",
            Self::Id => "id",
            Self::Matched => "matched",
        }
    }
}

impl Retries {
    /// Counts one retry.
    pub const fn count(&mut self, evidence: Evidence) {
        match evidence {
            Evidence::Marker => self.marker += 1,
            Evidence::Id => self.id += 1,
            Evidence::Matched => self.matched += 1,
        }
    }
}

/// What one request says about itself, whatever its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identity {
    /// The attempt number on the wire, from 1.
    pub marker: Option<u32>,
    /// Identities that last over attempts.
    pub ids: Ids,
    /// What is asked of whom; `None` for a request that could not be read, which is never compared with others.
    pub print: Option<Fingerprint>,
    /// Of a request that could not be read, its message, hashed: what it asks for, whatever it asks.
    pub message: Option<u64>,
    /// It makes a connection ready (who logs in, which settings hold) and is the same on every one: it repeats nothing.
    pub is_setup: bool,
    /// What it would mean to do it twice.
    pub repeat: Repeat,
    /// How long its sender waits for it.
    pub deadline: Option<Deadline>,
    /// The trace that it belongs to, hashed.
    pub trace: Option<u64>,
}

/// What it means if a request is carried out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repeat {
    /// Nothing: it is idempotent, it carries an idempotency key, or that is not known.
    #[default]
    Harmless,
    /// Harm, unless the server had answered with an error, after which nothing was done: a statement, a command.
    HarmfulUnanswered,
    /// Harm: it is not idempotent.
    Harmful,
}

/// When a request's sender stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// So many nanoseconds after the request.
    Within(u64),
    /// At a time of the wall clock, nanoseconds since 1970.
    At(u64),
}

/// An attempt that is about to be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// Names the attempt; unique for ever.
    pub token: u64,
    /// Where it was seen.
    pub edge: EdgeId,
    /// Who sent it, as far as that is known.
    pub caller: u64,
    /// When, nanoseconds.
    pub at_ns: u64,
    /// How long an attempt must have been open on this edge before it counts as overdue, nanoseconds.
    pub overdue_ns: u64,
}

/// What an attempt was found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// The strongest evidence that it is a retry; `None` for a first attempt.
    pub evidence: Option<Evidence>,
    /// It was matched, and the attempt before it had no outcome yet.
    pub hedge: bool,
    /// What it asks for is not known, and nothing else says whether it is a retry.
    pub is_uncompared: bool,
    /// Which attempt of its logical request it is on this edge, from 1.
    pub number: u32,
    /// Of a retry: from the end of the attempt before it, nanoseconds, where that had one and is known.
    pub gap_ns: Option<u64>,
    /// Of a retry: the attempt before it was the first.
    pub is_first_gap: bool,
    /// Of a retry: what is wrong with it.
    pub faults: Faults,
    /// The attempt as it has to be given back when it ends.
    pub ticket: Option<Ticket>,
}

/// What is wrong with a retry, and the one thing that excuses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent findings, each counted")]
pub struct Faults {
    /// The request may be carried out twice, with harm.
    pub is_harmful: bool,
    /// The attempt before was turned down for good.
    pub is_hopeless: bool,
    /// It came before the time that the server had asked for.
    pub is_early: bool,
    /// The attempt before was told that it was not looked at: sending it again is what the protocol wants.
    pub is_replay: bool,
}

/// An attempt in flight that later ones may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    key: u64,
    attempt: Candidate,
}

/// Judges attempts in order of time.
#[derive(Debug)]
pub struct Recogniser {
    ids: IdMemory,
    matcher: Matcher,
    pushbacks: Pushbacks,
}

impl Recogniser {
    /// Puts the two memories together.
    #[must_use]
    pub fn new(ids: IdMemory, matcher: Matcher) -> Self {
        Self { ids, matcher, pushbacks: Pushbacks::default() }
    }

    /// Judges an attempt, and remembers it for those that follow.
    pub fn judge(&mut self, identity: &Identity, start: Start) -> Finding {
        let print = identity.print.unwrap_or_default();
        let about = identity.print.or(identity.message.map(|call| Fingerprint { call, ..Fingerprint::default() }));
        let by_id = self.ids.note(start.edge, &identity.ids, about.as_ref(), start.at_ns);
        let says_first = identity.marker.is_some_and(|number| number <= 1);
        let compared = identity.print.filter(|_| !identity.is_setup);
        let key = compared.map(|print| join(join(u64::from(start.edge.0), start.caller), print.call));
        let key = key.map(|key| identity.ids.apart().map_or(key, |id| join(key, id)));
        // Retries that are known otherwise use their predecessor up, so that it explains no other; first attempts do not.
        let before = match key {
            Some(key) if !says_first => self.matcher.take_predecessor(key, print.body, start.at_ns, start.overdue_ns),
            _ => None,
        };
        let evidence = match identity.marker {
            Some(number) => (number > 1).then_some(Evidence::Marker),
            None if by_id > 1 => Some(Evidence::Id),
            None => before.map(|_| Evidence::Matched),
        };
        let chain = before.map_or(1, |before| before.number.saturating_add(1));
        let stated = by_id.max(identity.marker.unwrap_or(1));
        let number = if stated > 1 { stated } else { chain };
        let ticket = key.map(|key| {
            let attempt = Candidate { token: start.token, start_ns: start.at_ns, number, body: print.body };
            self.matcher.begin(key, attempt);
            Ticket { key, attempt }
        });
        let hedge = evidence == Some(Evidence::Matched) && before.is_some_and(|before| before.open);
        let is_uncompared = evidence.is_none() && identity.print.is_none() && identity.marker.is_none();
        let mut finding =
            Finding { evidence, hedge, is_uncompared, number, gap_ns: None, is_first_gap: false, faults: Faults::default(), ticket };
        if let Some(evidence) = evidence {
            self.look_back(&mut finding, identity, evidence, before, key, start.at_ns);
        }
        finding
    }

    /// What a retry's predecessor says about it.
    fn look_back(
        &mut self,
        finding: &mut Finding,
        identity: &Identity,
        evidence: Evidence,
        before: Option<Predecessor>,
        key: Option<u64>,
        at_ns: u64,
    ) {
        let ending = before.filter(|before| !before.open).map(|before| before.ending);
        let pushback = key.and_then(|key| self.pushbacks.take(key, at_ns));
        finding.gap_ns = ending.map(|ending| at_ns.saturating_sub(ending.end_ns));
        finding.is_first_gap = before.is_some_and(|before| before.number == 1);
        let is_replay = ending.is_some_and(|ending| ending.is_unprocessed);
        let may_have_been_done = match identity.repeat {
            Repeat::Harmless => false,
            Repeat::HarmfulUnanswered => before.is_some_and(|before| before.open || !before.ending.is_answered),
            Repeat::Harmful => true,
        };
        finding.faults = Faults {
            is_harmful: may_have_been_done && !is_replay,
            // Without a marker or an id, whoever asks again after a refusal may as well be asking anew.
            is_hopeless: evidence != Evidence::Matched && ending.is_none() && pushback.is_some_and(|pushback| pushback.is_final),
            is_early: match ending {
                Some(ending) => ending.wait_ns.is_some_and(|wait_ns| pushback::is_early(ending.end_ns, wait_ns, at_ns)),
                None => pushback.is_some_and(|pushback| pushback.is_early(at_ns)),
            },
            is_replay,
        };
    }

    /// The attempt was turned down for good at `end_ns`.
    pub fn turn_down(&mut self, ticket: &Ticket, end_ns: u64) {
        self.pushbacks.turned_down(ticket.key, end_ns);
        self.succeed(ticket);
    }

    /// The attempt ended well, or how it ended was not seen.
    pub fn succeed(&mut self, ticket: &Ticket) {
        self.matcher.succeed(ticket.key, ticket.attempt.token);
    }

    /// The attempt failed.
    pub fn fail(&mut self, ticket: &Ticket, ending: Ending) {
        if let Some(wait_ns) = ending.wait_ns {
            self.pushbacks.asked_to_wait(ticket.key, ending.end_ns, wait_ns);
        }
        self.matcher.fail(ticket.key, ticket.attempt, ending);
    }

    /// The memory of identities.
    #[must_use]
    pub const fn ids(&self) -> &IdMemory {
        &self.ids
    }

    /// The memory of failures.
    #[must_use]
    pub const fn matcher(&self) -> &Matcher {
        &self.matcher
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::fingerprint::BodyPrefix;
    use crate::retry::id::IdKind;

    const MS: u64 = 1_000_000;

    fn recogniser() -> Recogniser {
        Recogniser::new(IdMemory::new(1000, 60_000 * MS), Matcher::new(2000 * MS, 1000))
    }

    fn identity(marker: Option<u32>, id: Option<&str>) -> Identity {
        let mut ids = Ids::default();
        if let Some(id) = id {
            ids.push(IdKind::RequestId, id.as_bytes());
        }
        Identity { marker, ids, print: Some(Fingerprint { target: 5, call: 6, body: BodyPrefix::default() }), ..Identity::default() }
    }

    fn start(token: u64) -> Start {
        Start { token, edge: EdgeId(0), caller: 0, at_ns: token * MS, overdue_ns: 1000 * MS }
    }

    /// Judges a failing attempt and then another one.
    fn after_failure(first: Identity, second: Identity) -> Finding {
        let mut recogniser = recogniser();
        let finding = recogniser.judge(&first, start(1));
        let ticket = finding.ticket.expect("it has a fingerprint");
        recogniser.fail(&ticket, Ending::silent(2 * MS));
        recogniser.judge(&second, start(3))
    }

    #[test]
    fn each_retry_counts_under_its_strongest_evidence() {
        let cases =
            [(Some(2), Some("r"), Some(Evidence::Marker)), (Some(2), None, Some(Evidence::Marker)), (None, Some("r"), Some(Evidence::Id))];
        for (marker, id, expected) in cases {
            let finding = after_failure(identity(None, Some("r")), identity(marker, id));
            assert_eq!(finding.evidence, expected, "{marker:?} {id:?}");
        }
        assert_eq!(after_failure(identity(None, None), identity(None, None)).evidence, Some(Evidence::Matched));
    }

    #[test]
    fn requests_with_different_ids_are_no_retries_of_each_other() {
        let finding = after_failure(identity(None, Some("r")), identity(None, Some("other")));
        assert_eq!((finding.evidence, finding.number), (None, 1));
        assert_eq!(after_failure(identity(None, Some("r")), identity(None, None)).evidence, None);
    }

    #[test]
    fn a_new_span_for_each_attempt_does_not_hide_a_retry() {
        let with_span = |span: &str| {
            let mut ids = Ids::default();
            ids.push(IdKind::Span, span.as_bytes());
            Identity { ids, ..identity(None, None) }
        };
        assert_eq!(after_failure(with_span("a"), with_span("b")).evidence, Some(Evidence::Matched));
    }

    #[test]
    fn a_marker_that_says_first_beats_all_other_evidence() {
        let finding = after_failure(identity(Some(1), Some("r")), identity(Some(1), Some("r")));
        assert_eq!(finding.evidence, None);
        assert_eq!(finding.number, 2, "though it is the second attempt of this logical request here");
    }

    #[test]
    fn a_first_attempt_leaves_the_failure_before_it_to_the_true_retry() {
        let mut recogniser = recogniser();
        let ticket = recogniser.judge(&identity(None, None), start(1)).ticket.expect("fingerprint");
        recogniser.fail(&ticket, Ending::silent(2 * MS));
        assert_eq!(recogniser.judge(&identity(Some(1), None), start(3)).evidence, None);
        assert_eq!(recogniser.judge(&identity(None, None), start(4)).evidence, Some(Evidence::Matched));
    }

    #[test]
    fn a_marked_retry_uses_the_failure_before_it_up() {
        let mut recogniser = recogniser();
        let ticket = recogniser.judge(&identity(Some(1), None), start(1)).ticket.expect("fingerprint");
        recogniser.fail(&ticket, Ending::silent(2 * MS));
        assert_eq!(recogniser.judge(&identity(Some(2), None), start(3)).evidence, Some(Evidence::Marker));
        assert_eq!(recogniser.judge(&identity(None, None), start(4)).evidence, None);
    }

    #[test]
    fn the_number_is_the_ids_count_or_the_markers_or_the_chains() {
        assert_eq!(after_failure(identity(None, None), identity(Some(7), None)).number, 7);
        assert_eq!(after_failure(identity(None, Some("r")), identity(None, Some("r"))).number, 2);
        assert_eq!(after_failure(identity(None, None), identity(None, None)).number, 2);
    }

    #[test]
    fn an_unreadable_request_is_compared_with_nothing() {
        let mut recogniser = recogniser();
        for token in 1..10 {
            let finding = recogniser.judge(&Identity::default(), start(token));
            assert_eq!((finding.evidence, finding.number), (None, 1));
            assert!(finding.ticket.is_none() && finding.is_uncompared);
        }
    }

    #[test]
    fn an_unreadable_requests_own_id_says_nothing_without_its_message_and_a_calls_id_does() {
        let unread = |kind: IdKind, message: Option<u64>| {
            let mut ids = Ids::default();
            ids.push(kind, b"r");
            Identity { ids, message, ..Identity::default() }
        };
        let second = |first: Identity, second: Identity| {
            let mut recogniser = recogniser();
            recogniser.judge(&first, start(1));
            recogniser.judge(&second, start(2)).evidence
        };
        let caller = |message| unread(IdKind::RequestId, message);
        assert_eq!(second(caller(None), caller(None)), None, "one request may lead to many calls");
        assert_eq!(second(caller(Some(1)), caller(Some(2))), None);
        assert_eq!(second(caller(Some(1)), caller(Some(1))), Some(Evidence::Id));
        let call = unread(IdKind::IdempotencyKey, None);
        assert_eq!(second(call, call), Some(Evidence::Id));
        let mut recogniser = recogniser();
        let marked = Identity { marker: Some(1), ..Identity::default() };
        assert!(!recogniser.judge(&marked, start(1)).is_uncompared, "a marker says that it is the first");
        assert!(!recogniser.judge(&identity(None, None), start(2)).is_uncompared);
    }

    #[test]
    fn callers_and_edges_are_kept_apart() {
        for (edge, caller, expected) in [(0, 0, Some(Evidence::Matched)), (1, 0, None), (0, 9, None)] {
            let mut recogniser = recogniser();
            let ticket = recogniser.judge(&identity(None, None), start(1)).ticket.expect("fingerprint");
            recogniser.fail(&ticket, Ending::silent(2 * MS));
            let second = Start { edge: EdgeId(edge), caller, ..start(3) };
            assert_eq!(recogniser.judge(&identity(None, None), second).evidence, expected, "{edge} {caller}");
        }
    }
}
