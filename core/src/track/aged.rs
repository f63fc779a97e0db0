//! A map that forgets its oldest entries: bounded in number and in age, at constant cost.
//!
//! Two generations instead of a queue: entries that are touched move to the young one; when that is full or old
//! enough, the old one is dropped as a whole. Between half and all of the cap is in use once it was reached.

use std::collections::HashMap;

use crate::track::hash::ByWord;

/// Keys are hashes already.
#[derive(Debug)]
pub(crate) struct AgedMap<V> {
    young: HashMap<u64, Entry<V>, ByWord>,
    old: HashMap<u64, Entry<V>, ByWord>,
    /// When the young generation began.
    since_ns: u64,
    half_cap: usize,
    ttl_ns: u64,
    evicted: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry<V> {
    touched_ns: u64,
    value: V,
}

impl<V: Copy> AgedMap<V> {
    /// Holds up to `cap` entries (two at least), each until `ttl_ns` after its last touch.
    #[must_use]
    pub(crate) fn new(cap: usize, ttl_ns: u64) -> Self {
        Self { young: HashMap::default(), old: HashMap::default(), since_ns: 0, half_cap: (cap / 2).max(1), ttl_ns, evicted: 0 }
    }

    /// Replaces an entry by what `next` makes of it, or of nothing if it is unknown or too old.
    pub(crate) fn update(&mut self, key: u64, now_ns: u64, next: impl FnOnce(Option<V>) -> V) -> V {
        self.turn(now_ns);
        let known = match self.young.get(&key) {
            Some(entry) => Some(*entry),
            None => self.old.remove(&key),
        };
        let live = known.filter(|entry| now_ns.saturating_sub(entry.touched_ns) <= self.ttl_ns);
        let value = next(live.map(|entry| entry.value));
        let touched_ns = known.map_or(now_ns, |entry| entry.touched_ns.max(now_ns));
        self.young.insert(key, Entry { touched_ns, value });
        value
    }

    /// Takes an entry out, unless it is too old.
    pub(crate) fn take(&mut self, key: u64, now_ns: u64) -> Option<V> {
        let known = self.young.remove(&key).or_else(|| self.old.remove(&key))?;
        (now_ns.saturating_sub(known.touched_ns) <= self.ttl_ns).then_some(known.value)
    }

    /// An entry, unless it is too old. To look is not to touch.
    #[must_use]
    pub(crate) fn get(&self, key: u64, now_ns: u64) -> Option<V> {
        let known = self.young.get(&key).or_else(|| self.old.get(&key))?;
        (now_ns.saturating_sub(known.touched_ns) <= self.ttl_ns).then_some(known.value)
    }

    /// Starts a new generation where it is time for one.
    fn turn(&mut self, now_ns: u64) {
        if self.young.is_empty() {
            self.since_ns = now_ns;
        }
        let full = self.young.len() >= self.half_cap;
        if !full && now_ns.saturating_sub(self.since_ns) <= self.ttl_ns {
            return;
        }
        // Where age turned the generations, the old one holds nothing that is still of use.
        let lost = self.old.values().filter(|entry| now_ns.saturating_sub(entry.touched_ns) <= self.ttl_ns).count();
        self.evicted += lost as u64;
        self.old = std::mem::take(&mut self.young);
        self.since_ns = now_ns;
    }

    /// Entries dropped for want of room before their time was over.
    #[must_use]
    pub(crate) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Entries held, those out of date included.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(map: &mut AgedMap<u32>, key: u64, now_ns: u64) -> u32 {
        map.update(key, now_ns, |known| known.unwrap_or(0) + 1)
    }

    #[test]
    fn an_entry_lives_until_its_time_after_the_last_touch() {
        let mut map = AgedMap::new(100, 10);
        assert_eq!(count(&mut map, 7, 0), 1);
        assert_eq!(count(&mut map, 7, 10), 2);
        assert_eq!(count(&mut map, 7, 20), 3);
        assert_eq!(count(&mut map, 7, 31), 1);
        assert_eq!(map.evicted(), 0);
    }

    #[test]
    fn the_cap_holds_and_what_it_costs_is_counted() {
        let mut map = AgedMap::new(10, 1000);
        for key in 0..100 {
            count(&mut map, key, key);
            assert!(map.len() <= 10);
        }
        assert_eq!(map.evicted() + map.len() as u64, 100);
        assert_eq!(count(&mut map, 99, 100), 2, "the newest are kept");
        assert_eq!(count(&mut map, 0, 100), 1, "the oldest are gone");
    }

    #[test]
    fn age_alone_evicts_nothing_of_use() {
        let mut map = AgedMap::new(1000, 10);
        for key in 0..100 {
            count(&mut map, key, key * 11);
        }
        assert!(map.len() <= 4);
        assert_eq!(map.evicted(), 0);
    }
}
