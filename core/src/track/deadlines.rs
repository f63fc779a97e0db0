//! Who still waits for what: incoming requests by their id and trace, so that attempts made on their behalf can be seen to
//! begin, or to go on, after nobody waits any more.

use crate::retry::id::IdKind;
use crate::retry::{Deadline, Identity};
use crate::track::aged::AgedMap;

/// Names by which the requests of one call chain know each other; 0 is none.
pub(crate) type Links = [u64; 2];

/// Nobody is known to give up.
pub(crate) const NEVER: u64 = u64::MAX;

/// How much later than the caller's hanging up an attempt may begin and still be on time: hanging up is seen here before the
/// service can see it.
const NOTICE_NS: u64 = 5_000_000;

/// The names in a request.
#[must_use]
pub(crate) fn links(identity: &Identity) -> Links {
    let request = identity.ids.iter().find(|(kind, _)| *kind == IdKind::RequestId).map_or(0, |(_, id)| id);
    [request, identity.trace.unwrap_or(0)]
}

/// When the callers of incoming requests gave up, or will.
#[derive(Debug)]
pub(crate) struct Deadlines {
    gives_up: AgedMap<u64>,
    wall_origin_ns: Option<u64>,
}

impl Deadlines {
    /// Remembers up to `cap` names for `ttl_ns` each.
    #[must_use]
    pub(crate) fn new(cap: usize, ttl_ns: u64, wall_origin_ns: Option<u64>) -> Self {
        Self { gives_up: AgedMap::new(cap, ttl_ns), wall_origin_ns }
    }

    /// When the sender of a request stops waiting for it, by its own word.
    #[must_use]
    pub(crate) fn stated(&self, identity: &Identity, at_ns: u64) -> u64 {
        match identity.deadline {
            None => NEVER,
            Some(Deadline::Within(ns)) => at_ns.saturating_add(ns),
            // A deadline before the host was up is long past.
            Some(Deadline::At(unix_ns)) => self.wall_origin_ns.map_or(NEVER, |origin_ns| unix_ns.saturating_sub(origin_ns)),
        }
    }

    /// A request came in whose caller gives up at that time.
    pub(crate) fn expect(&mut self, links: Links, at_ns: u64, gives_up_ns: u64) {
        if gives_up_ns == NEVER {
            // The caller may have given up on an earlier attempt of the same request: this one is waited for.
            self.answered(links, at_ns);
            return;
        }
        for link in links.into_iter().filter(|link| *link != 0) {
            self.gives_up.update(link, at_ns, |_| gives_up_ns);
        }
    }

    /// Its caller hung up.
    pub(crate) fn hung_up(&mut self, links: Links, at_ns: u64) {
        let noticed_ns = at_ns.saturating_add(NOTICE_NS);
        for link in links.into_iter().filter(|link| *link != 0) {
            self.gives_up.update(link, at_ns, |known| known.unwrap_or(NEVER).min(noticed_ns));
        }
    }

    /// It was answered: whatever is done in its name from now on is done for somebody else.
    pub(crate) fn answered(&mut self, links: Links, at_ns: u64) {
        for link in links.into_iter().filter(|link| *link != 0) {
            self.gives_up.take(link, at_ns);
        }
    }

    /// When those in whose name an attempt is made give up; [`NEVER`] if that is not known.
    #[must_use]
    pub(crate) fn of(&self, links: Links, at_ns: u64) -> u64 {
        let known = links.into_iter().filter(|link| *link != 0).filter_map(|link| self.gives_up.get(link, at_ns));
        known.min().unwrap_or(NEVER)
    }
}
