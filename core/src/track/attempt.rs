//! Attempts without an outcome, in one arena: no allocation per attempt, and a chain per connection.

use crate::edge::{EdgeId, Protocol};
use crate::event::{ConnId, Epoch};
use crate::retry::Ticket;
use crate::track::deadlines::Links;
use crate::track::queue::AgeQueue;

/// A place in the arena; good only while its attempt is open.
pub(crate) type Slot = u32;

/// A request that has no outcome yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Counts attempts; unique for ever.
    pub(crate) token: u64,
    /// Its connection.
    pub(crate) conn: ConnId,
    /// Which request of its connection.
    pub(crate) index: u32,
    /// Its edge.
    pub(crate) edge: EdgeId,
    /// Its protocol.
    pub(crate) protocol: Protocol,
    /// The epoch in which it started.
    pub(crate) epoch: Epoch,
    /// It is counted in its window.
    pub(crate) counts: bool,
    /// When its head was complete, nanoseconds.
    pub(crate) start_ns: u64,
    /// For the recogniser of retries, when it ends.
    pub(crate) ticket: Option<Ticket>,
    /// The request that it belongs to, by name.
    pub(crate) links: Links,
    /// When its sender ended its side of the connection, nanoseconds: should no answer come, it was given up then.
    pub(crate) given_up_ns: Option<u64>,
    /// When its own sender stops waiting, nanoseconds.
    pub(crate) deadline_ns: u64,
    /// The next one on the same connection, in order of index.
    pub(crate) next: Option<Slot>,
}

/// The open attempts of all connections.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    slots: Vec<Option<Attempt>>,
    free: Vec<Slot>,
    by_age: AgeQueue<(Slot, u64)>,
}

impl Attempts {
    /// How many are open.
    #[must_use]
    pub(crate) const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes one in. There is no room for more than 2^32.
    pub(crate) fn insert(&mut self, attempt: Attempt) -> Slot {
        let live = self.len();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot::try_from(self.slots.len() - 1).unwrap_or(Slot::MAX)
        });
        self.slots[slot as usize] = Some(attempt);
        let slots = &self.slots;
        self.by_age.push((slot, attempt.token), live, |key| is_live(slots, *key));
        slot
    }

    /// Lets one go.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Attempt> {
        let attempt = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(attempt)
    }

    /// One of them.
    #[must_use]
    pub(crate) fn get(&self, slot: Slot) -> Option<&Attempt> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// One of them, to be changed.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Attempt> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// The one that is open for longest; it stays.
    pub(crate) fn oldest(&mut self) -> Option<Attempt> {
        let slots = &self.slots;
        let (slot, _) = self.by_age.pop_oldest(|key| is_live(slots, *key))?;
        self.get(slot).copied()
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Attempt> {
        self.slots.iter().flatten()
    }
}

fn is_live(slots: &[Option<Attempt>], (slot, token): (Slot, u64)) -> bool {
    slots.get(slot as usize).and_then(Option::as_ref).is_some_and(|attempt| attempt.token == token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(token: u64) -> Attempt {
        Attempt {
            token,
            conn: ConnId(1),
            index: 0,
            edge: EdgeId(0),
            protocol: Protocol::Http,
            epoch: 0,
            counts: true,
            start_ns: token,
            ticket: None,
            links: [0; 2],
            given_up_ns: None,
            deadline_ns: u64::MAX,
            next: None,
        }
    }

    #[test]
    fn slots_are_used_again() {
        let mut attempts = Attempts::default();
        for token in 0..1000 {
            let slot = attempts.insert(attempt(token));
            assert_eq!(slot, 0);
            assert_eq!(attempts.remove(slot).map(|attempt| attempt.token), Some(token));
            assert_eq!(attempts.remove(slot), None);
        }
        assert!(attempts.len() == 0);
    }

    #[test]
    fn the_oldest_open_one_is_found_though_its_slot_was_another_s() {
        let mut attempts = Attempts::default();
        let first = attempts.insert(attempt(1));
        attempts.insert(attempt(2));
        attempts.remove(first);
        attempts.insert(attempt(3));
        assert_eq!(attempts.oldest().map(|attempt| attempt.token), Some(2));
        assert_eq!(attempts.oldest().map(|attempt| attempt.token), Some(3));
        assert_eq!(attempts.oldest(), None);
        assert_eq!(attempts.iter().count(), 2);
    }
}
