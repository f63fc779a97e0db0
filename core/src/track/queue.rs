//! Who came first: the order in which the oldest of a bounded collection is let go.

use std::collections::VecDeque;

/// Keys in order of arrival. Keys whose owner has left meanwhile stay in it until they are passed over.
#[derive(Debug)]
pub(crate) struct AgeQueue<K> {
    keys: VecDeque<K>,
}

impl<K> Default for AgeQueue<K> {
    fn default() -> Self {
        Self { keys: VecDeque::new() }
    }
}

impl<K: Copy> AgeQueue<K> {
    /// Appends the newest; `live` is how many owners there are, `is_live` tells one.
    ///
    /// Absent owners are swept out when they outnumber the present ones, so that the cost stays constant on average.
    pub(crate) fn push(&mut self, key: K, live: usize, is_live: impl Fn(&K) -> bool) {
        if self.keys.len() > 2 * live + 1024 {
            self.keys.retain(is_live);
        }
        self.keys.push_back(key);
    }

    /// Takes out the oldest that is still there.
    pub(crate) fn pop_oldest(&mut self, is_live: impl Fn(&K) -> bool) -> Option<K> {
        while let Some(key) = self.keys.pop_front() {
            if is_live(&key) {
                return Some(key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_present_owner_comes_out_first() {
        let mut queue = AgeQueue::default();
        for key in 0..10 {
            queue.push(key, 10, |_| true);
        }
        assert_eq!(queue.pop_oldest(|key| *key >= 4), Some(4));
        assert_eq!(queue.pop_oldest(|key| *key >= 4), Some(5));
        assert_eq!(queue.pop_oldest(|_| false), None);
    }

    #[test]
    fn absent_owners_do_not_pile_up() {
        let mut queue = AgeQueue::default();
        for key in 0..100_000_u32 {
            queue.push(key, 1, |other| *other == key);
        }
        assert!(queue.keys.len() <= 1027, "{}", queue.keys.len());
    }
}
