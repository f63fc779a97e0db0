//! One connection: the requests on it that wait for an answer, in order.

use crate::edge::EdgeId;
use crate::status::Meaning;
use crate::track::answer::Answer;
use crate::track::attempt::{Attempt, Attempts, Slot};
use crate::track::head::Partial;

/// Responses without a request that a connection remembers.
const STRAYS: usize = 8;

/// A connection that is open. There may be a million: idle ones own no further memory.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Its edge.
    pub(crate) edge: EdgeId,
    /// Who sends requests on it.
    pub(crate) caller: u64,
    /// Number of the latest response.
    pub(crate) answered: Option<u32>,
    /// What the latest answer meant.
    pub(crate) meaning: Meaning,
    /// A request head that is not complete yet.
    pub(crate) partial: Option<Box<Partial>>,
    /// Responses to requests from before the observation.
    ahead: u32,
    /// A request was seen.
    asked: bool,
    /// Its open attempts, in order of index.
    first: Option<Slot>,
    last: Option<Slot>,
    /// Responses whose request has not come (yet).
    #[expect(clippy::box_collection, reason = "nearly no connection has any, and a pointer is a third of a vector")]
    strays: Option<Box<Vec<Stray>>>,
}

/// A response whose request is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stray {
    /// Which response of its connection.
    pub(crate) index: u32,
    /// What it is.
    pub(crate) answer: Answer,
    /// When it came, nanoseconds.
    pub(crate) at_ns: u64,
}

impl Connection {
    /// A connection on which nothing was seen yet.
    #[must_use]
    pub(crate) const fn new(edge: EdgeId, caller: u64) -> Self {
        Self {
            edge,
            caller,
            answered: None,
            meaning: Meaning::Good,
            partial: None,
            ahead: 0,
            asked: false,
            first: None,
            last: None,
            strays: None,
        }
    }

    /// The request that a response belongs to.
    #[must_use]
    pub(crate) const fn asked_by(&self, response: u32) -> u32 {
        response.wrapping_sub(self.ahead)
    }

    /// An open attempt has this index already.
    #[must_use]
    pub(crate) fn has(&self, index: u32, attempts: &Attempts) -> bool {
        let is_new = self.last.and_then(|slot| attempts.get(slot)).is_none_or(|last| is_after(index, last.index));
        !is_new && self.chain(attempts).any(|(_, attempt)| attempt.index == index)
    }

    /// Adds an open attempt, in its place by index; nearly always that is the end.
    pub(crate) fn insert(&mut self, attempt: Attempt, attempts: &mut Attempts) {
        let before = match self.last {
            Some(slot) if attempts.get(slot).is_some_and(|last| is_after(attempt.index, last.index)) => Some(slot),
            _ => {
                let earlier = |(_, other): &(Slot, &Attempt)| is_after(attempt.index, other.index);
                self.chain(attempts).take_while(earlier).last().map(|(slot, _)| slot)
            }
        };
        let next = match before {
            Some(slot) => attempts.get(slot).and_then(|attempt| attempt.next),
            None => self.first,
        };
        let slot = attempts.insert(Attempt { next, ..attempt });
        match before.and_then(|before| attempts.get_mut(before)) {
            Some(before) => before.next = Some(slot),
            None => self.first = Some(slot),
        }
        if next.is_none() {
            self.last = Some(slot);
        }
    }

    /// Takes out the first open attempt, if it is as asked.
    pub(crate) fn pop_if(&mut self, attempts: &mut Attempts, wanted: impl Fn(&Attempt) -> bool) -> Option<Attempt> {
        let slot = self.first?;
        if !attempts.get(slot).is_some_and(wanted) {
            return None;
        }
        let attempt = attempts.remove(slot)?;
        self.first = attempt.next;
        if self.first.is_none() {
            self.last = None;
        }
        Some(attempt)
    }

    /// Takes out the open attempt of an index, wherever it stands.
    pub(crate) fn take(&mut self, index: u32, attempts: &mut Attempts) -> Option<Attempt> {
        let mut before = None;
        let mut slot = self.first?;
        while attempts.get(slot)?.index != index {
            before = Some(slot);
            slot = attempts.get(slot)?.next?;
        }
        let attempt = attempts.remove(slot)?;
        match before.and_then(|before| attempts.get_mut(before)) {
            Some(before) => before.next = attempt.next,
            None => self.first = attempt.next,
        }
        if attempt.next.is_none() {
            self.last = before;
        }
        Some(attempt)
    }

    /// The indices of the open attempts above a number, ascending.
    #[must_use]
    pub(crate) fn above(&self, index: u32, attempts: &Attempts) -> Vec<u32> {
        self.chain(attempts).map(|(_, attempt)| attempt.index).filter(|&other| is_after(other, index)).collect()
    }

    /// Remembers a response whose request was not seen.
    pub(crate) fn stray(&mut self, stray: Stray) {
        let strays = self.strays.get_or_insert_default();
        if strays.len() == STRAYS {
            strays.remove(0);
        }
        strays.push(stray);
    }

    /// A request started: the answer to it, if that came before.
    ///
    /// With the first request, responses that are older and yet numbered as if they answered it or later ones show how
    /// many requests were under way when the observation began.
    pub(crate) fn ask(&mut self, index: u32, start_ns: u64) -> Option<Stray> {
        let is_first = !std::mem::replace(&mut self.asked, true);
        let strays = self.strays.as_mut()?;
        if is_first {
            let older = |stray: &&Stray| stray.at_ns < start_ns && !is_after(index, stray.index);
            self.ahead = u32::try_from(strays.iter().filter(older).count()).unwrap_or(0);
        }
        let wanted = index.wrapping_add(self.ahead);
        let at = strays.iter().position(|stray| stray.index == wanted && stray.at_ns >= start_ns)?;
        let stray = strays.remove(at);
        if strays.is_empty() {
            self.strays = None;
        }
        Some(stray)
    }

    /// Notes of all that is open that its sender may wait no more.
    pub(crate) fn give_up(&self, attempts: &mut Attempts, at_ns: u64) {
        let mut next = self.first;
        while let Some(attempt) = next.and_then(|slot| attempts.get_mut(slot)) {
            attempt.given_up_ns.get_or_insert(at_ns);
            next = attempt.next;
        }
    }

    fn chain<'a>(&self, attempts: &'a Attempts) -> impl Iterator<Item = (Slot, &'a Attempt)> {
        let at = |slot: Option<Slot>| slot.and_then(|slot| attempts.get(slot).map(|attempt| (slot, attempt)));
        std::iter::successors(at(self.first), move |(_, attempt)| at(attempt.next))
    }
}

/// Whether one number comes after another; they wrap, so the shorter way round counts.
#[must_use]
pub(crate) const fn is_after(index: u32, other: u32) -> bool {
    let distance = index.wrapping_sub(other);
    distance != 0 && distance < 1 << 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::edge::Protocol;
    use crate::event::ConnId;

    fn attempt(index: u32) -> Attempt {
        Attempt {
            token: u64::from(index),
            conn: ConnId(1),
            index,
            edge: EdgeId(0),
            protocol: Protocol::Http,
            epoch: 0,
            counts: true,
            start_ns: 0,
            ticket: None,
            links: [0; 2],
            given_up_ns: None,
            deadline_ns: u64::MAX,
            next: None,
        }
    }

    #[test]
    fn numbers_wrap() {
        assert!(is_after(1, 0));
        assert!(!is_after(0, 0));
        assert!(!is_after(0, 1));
        assert!(is_after(0, u32::MAX));
        assert!(!is_after(u32::MAX, 0));
    }

    #[test]
    fn a_million_idle_connections_fit_into_a_hundred_megabytes() {
        assert!(size_of::<Connection>() <= 72, "{}", size_of::<Connection>());
    }

    proptest! {
        #[test]
        fn attempts_leave_from_anywhere(order in Just((0..12_u32).collect::<Vec<_>>()).prop_shuffle()) {
            let (mut connection, mut attempts) = (Connection::new(EdgeId(0), 0), Attempts::default());
            (0..12).for_each(|index| connection.insert(attempt(index), &mut attempts));
            for (left, index) in (0..12).rev().zip(order) {
                prop_assert_eq!(connection.take(index, &mut attempts).map(|attempt| attempt.index), Some(index));
                prop_assert_eq!(connection.take(index, &mut attempts), None);
                prop_assert_eq!(connection.chain(&attempts).count(), left);
            }
            prop_assert_eq!((connection.first, connection.last), (None, None));
            connection.insert(attempt(5), &mut attempts);
            prop_assert!(connection.has(5, &attempts));
        }

        #[test]
        fn attempts_leave_in_order_of_index_however_they_came(
            start: u32,
            order in Just((0..20_u32).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let (mut connection, mut attempts) = (Connection::new(EdgeId(0), 0), Attempts::default());
            for offset in order {
                prop_assert!(!connection.has(start.wrapping_add(offset), &attempts));
                connection.insert(attempt(start.wrapping_add(offset)), &mut attempts);
                prop_assert!(connection.has(start.wrapping_add(offset), &attempts));
            }
            for offset in 0..20 {
                let popped = connection.pop_if(&mut attempts, |_| true).map(|attempt| attempt.index);
                prop_assert_eq!(popped, Some(start.wrapping_add(offset)));
            }
            prop_assert!(attempts.len() == 0);
            prop_assert_eq!(connection.last, None);
        }
    }
}
