//! What answers said about asking again: never, or not before some time. Remembered by call, so that it can be held
//! against the next attempt however late that comes.

use crate::track::aged::AgedMap;

/// How much too early is still on time: clocks of seconds are rounded, and timers are not exact.
const TOLERANCE_NS: u64 = 50_000_000;
/// Beyond this, nobody can be said to repeat what was turned down.
const REMEMBERED_NS: u64 = 60_000_000_000;
/// Calls remembered.
const CAP: usize = 1 << 16;

/// The last word about one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pushback {
    end_ns: u64,
    wait_ns: Option<u64>,
    /// It was turned down for good.
    pub(super) is_final: bool,
}

impl Pushback {
    pub(super) fn is_early(&self, at_ns: u64) -> bool {
        self.wait_ns.is_some_and(|wait_ns| is_early(self.end_ns, wait_ns, at_ns))
    }
}

/// Whether `at_ns` is before the pause of `wait_ns` from `end_ns` is over.
pub(super) const fn is_early(end_ns: u64, wait_ns: u64, at_ns: u64) -> bool {
    at_ns.saturating_add(TOLERANCE_NS) < end_ns.saturating_add(wait_ns)
}

/// The last words, by call.
#[derive(Debug)]
pub(super) struct Pushbacks {
    calls: AgedMap<Pushback>,
}

impl Default for Pushbacks {
    fn default() -> Self {
        Self { calls: AgedMap::new(CAP, REMEMBERED_NS) }
    }
}

impl Pushbacks {
    pub(super) fn turned_down(&mut self, key: u64, end_ns: u64) {
        self.calls.update(key, end_ns, |_| Pushback { end_ns, wait_ns: None, is_final: true });
    }

    pub(super) fn asked_to_wait(&mut self, key: u64, end_ns: u64, wait_ns: u64) {
        self.calls.update(key, end_ns, |_| Pushback { end_ns, wait_ns: Some(wait_ns), is_final: false });
    }

    /// Takes out what was said about a call before `at_ns`.
    pub(super) fn take(&mut self, key: u64, at_ns: u64) -> Option<Pushback> {
        self.calls.take(key, at_ns).filter(|pushback| pushback.end_ns <= at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_word_is_held_against_one_attempt() {
        let mut pushbacks = Pushbacks::default();
        pushbacks.turned_down(1, 0);
        assert!(pushbacks.take(1, 5).is_some_and(|pushback| pushback.is_final && !pushback.is_early(5)));
        assert_eq!(pushbacks.take(1, 6), None);
        pushbacks.asked_to_wait(1, 0, SECOND);
        assert_eq!(pushbacks.take(1, 61 * SECOND), None, "too long ago");
    }

    #[test]
    fn a_pause_is_kept_to_within_the_tolerance() {
        assert!(is_early(0, SECOND, 949_999_999));
        assert!(!is_early(0, SECOND, 950_000_000));
        assert!(!is_early(5 * SECOND, 0, 5 * SECOND));
        assert!(is_early(5, u64::MAX, u64::MAX - TOLERANCE_NS - 1), "no pause is too long");
    }
}
