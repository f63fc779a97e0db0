//! Retries without any trace on the wire: the same call again, from the same caller, after an attempt that failed.
//!
//! Each failed attempt explains one successor at most. An attempt that is still open explains one only if it is
//! overdue (a hedge, or a retry whose caller forgot to hang up), and only while few like it are in flight: a crowd of
//! identical requests is what load generators and polls look like, not hedging.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::edge::EdgeId;
use crate::retry::fingerprint::BodyPrefix;
use crate::track::hash::ByWord;
use crate::window::Window;

/// How many failures of one call are compared, from the latest back.
const SCAN: usize = 64;

/// With more unexplained attempts of one call in flight than this, none of them is taken for hedged.
const CROWD: usize = 3;

/// Share of `matched` among attempts, in windows where nothing failed, above which the evidence is not worth reporting.
pub const FALSE_RATE_LIMIT: f64 = 0.02;

/// An attempt as the matcher knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Names the attempt; unique for ever.
    pub token: u64,
    /// When it started, nanoseconds.
    pub start_ns: u64,
    /// Which attempt of its logical request it is, from 1.
    pub number: u32,
    /// The body's start.
    pub body: BodyPrefix,
}

/// The attempt that a request repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predecessor {
    /// Which attempt of its logical request it was, from 1.
    pub number: u32,
    /// It had no outcome yet; `ending` says nothing then.
    pub open: bool,
    /// How it ended.
    pub ending: Ending,
}

/// How a failed attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ending {
    /// When, nanoseconds.
    pub end_ns: u64,
    /// With an answer.
    pub is_answered: bool,
    /// With the message that nobody had looked at it.
    pub is_unprocessed: bool,
    /// The pause that the answer asked for before another attempt, nanoseconds.
    pub wait_ns: Option<u64>,
}

impl Ending {
    /// Without an answer.
    #[must_use]
    pub const fn silent(end_ns: u64) -> Self {
        Self { end_ns, is_answered: false, is_unprocessed: false, wait_ns: None }
    }
}

#[derive(Debug, Default)]
struct Alike {
    /// Attempts in flight that have explained nothing so far, `open` or not.
    in_flight: usize,
    /// The first few of those.
    open: [Option<Candidate>; CROWD],
    /// Failed and unexplained, oldest first.
    failed: VecDeque<(Ending, Candidate)>,
}

/// Attempts that may yet be repeated, by fingerprint.
#[derive(Debug)]
pub struct Matcher {
    alike: HashMap<u64, Alike, ByWord>,
    /// Failures in order of time, so that the oldest can be let go.
    by_age: VecDeque<(u64, u64)>,
    /// Attempts in flight that have explained a successor already.
    explained: HashSet<u64, ByWord>,
    within_ns: u64,
    cap: usize,
    evicted: u64,
}

impl Matcher {
    /// A failure explains a successor for `within_ns`; up to `cap` failures are remembered.
    #[must_use]
    pub fn new(within_ns: u64, cap: usize) -> Self {
        Self { alike: HashMap::default(), by_age: VecDeque::new(), explained: HashSet::default(), within_ns, cap: cap.max(1), evicted: 0 }
    }

    /// Finds the attempt that a request starting at `at_ns` repeats, and uses it up.
    ///
    /// The latest failure is taken, as the nearest; an open attempt only without one, and if it has been open for
    /// `overdue_ns` at least.
    pub fn take_predecessor(&mut self, key: u64, body: BodyPrefix, at_ns: u64, overdue_ns: u64) -> Option<Predecessor> {
        self.forget(at_ns);
        let alike = self.alike.get_mut(&key)?;
        let fits = |(ending, failed): &(Ending, Candidate)| ending.end_ns <= at_ns && !failed.body.contradicts(body);
        if let Some(back) = alike.failed.iter().rev().take(SCAN).position(fits) {
            let (ending, failed) = alike.failed.remove(alike.failed.len() - 1 - back)?;
            return Some(Predecessor { number: failed.number, open: false, ending });
        }
        if alike.in_flight > CROWD {
            return None;
        }
        let overdue = |open: &Candidate| at_ns.saturating_sub(open.start_ns) >= overdue_ns && !open.body.contradicts(body);
        let slot = alike.open.iter_mut().find(|slot| slot.as_ref().is_some_and(overdue))?;
        let open = slot.take()?;
        alike.in_flight -= 1;
        self.explained.insert(open.token);
        Some(Predecessor { number: open.number, open: true, ending: Ending::default() })
    }

    /// An attempt begins: it may be repeated from now on.
    pub fn begin(&mut self, key: u64, attempt: Candidate) {
        let alike = self.alike.entry(key).or_default();
        alike.in_flight += 1;
        if let Some(free) = alike.open.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(attempt);
        }
    }

    /// An attempt ended well, or how it ended was not seen: it explains nothing any more.
    pub fn succeed(&mut self, key: u64, token: u64) {
        self.leave(key, token);
        self.sweep(key);
    }

    /// An attempt failed: it may explain one successor, unless it already has.
    pub fn fail(&mut self, key: u64, attempt: Candidate, ending: Ending) {
        let end_ns = ending.end_ns;
        self.forget(end_ns);
        if !self.leave(key, attempt.token) {
            self.sweep(key);
            return;
        }
        self.alike.entry(key).or_default().failed.push_back((ending, attempt));
        self.by_age.push_back((end_ns, key));
        if self.by_age.len() > self.cap {
            self.drop_oldest();
        }
    }

    /// Takes an attempt out of those in flight; `false` if it has explained a successor.
    fn leave(&mut self, key: u64, token: u64) -> bool {
        if self.explained.remove(&token) {
            return false;
        }
        if let Some(alike) = self.alike.get_mut(&key) {
            alike.in_flight = alike.in_flight.saturating_sub(1);
            let own = |open: &Candidate| open.token == token;
            if let Some(slot) = alike.open.iter_mut().find(|slot| slot.as_ref().is_some_and(own)) {
                *slot = None;
            }
        }
        true
    }

    /// Forgets failures that are too old to explain anything at `now_ns`.
    fn forget(&mut self, now_ns: u64) {
        let too_old = |end_ns: u64| end_ns.saturating_add(self.within_ns) < now_ns;
        while let Some(&(end_ns, key)) = self.by_age.front() {
            if !too_old(end_ns) {
                break;
            }
            self.by_age.pop_front();
            if let Some(alike) = self.alike.get_mut(&key) {
                while alike.failed.front().is_some_and(|(ending, _)| too_old(ending.end_ns)) {
                    alike.failed.pop_front();
                }
                if alike.is_empty() {
                    self.alike.remove(&key);
                }
            }
        }
    }

    fn drop_oldest(&mut self) {
        let Some((end_ns, key)) = self.by_age.pop_front() else { return };
        if let Some(alike) = self.alike.get_mut(&key)
            && alike.failed.front().is_some_and(|(front, _)| front.end_ns == end_ns)
        {
            alike.failed.pop_front();
            self.evicted += 1;
        }
        self.sweep(key);
    }

    fn sweep(&mut self, key: u64) {
        if self.alike.get(&key).is_some_and(Alike::is_empty) {
            self.alike.remove(&key);
        }
    }

    /// Failures forgotten for want of room before their time was over.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Fingerprints held now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.alike.len()
    }

    /// Nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.alike.is_empty()
    }
}

impl Alike {
    fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.failed.is_empty()
    }
}

/// How often `matched` speaks up where there is nothing to retry: its share of the attempts, less one for each failure, over
/// the windows in which at most one attempt in a hundred failed. `None` without any attempt in such a window.
///
/// Above [`FALSE_RATE_LIMIT`] the edge's calls are too alike for this evidence.
#[must_use]
pub fn false_rate(windows: &[Window], edge: EdgeId) -> Option<f64> {
    false_rate_of(windows, usize::from(edge.0))
}

/// The same over any windows, of the edge at a position.
pub(crate) fn false_rate_of<'a>(windows: impl IntoIterator<Item = &'a Window>, edge: usize) -> Option<f64> {
    let (mut matched, mut attempts) = (0_u64, 0_u64);
    for window in windows.into_iter().filter_map(|window| window.edges.get(edge)) {
        let failed: u64 = window.failures.values().sum();
        if failed.saturating_mul(100) <= window.attempts {
            matched += window.retries.matched.saturating_sub(failed);
            attempts += window.attempts;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    (attempts > 0).then(|| matched as f64 / attempts as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{EdgeWindow, Failure, PhaseName, Retries};

    const MS: u64 = 1_000_000;
    const KEY: u64 = 77;
    const OVERDUE: u64 = 50 * MS;

    fn matcher() -> Matcher {
        Matcher::new(2000 * MS, 100)
    }

    fn attempt(token: u64, start_ns: u64) -> Candidate {
        Candidate { token, start_ns, number: 1, body: BodyPrefix::default() }
    }

    fn take(matcher: &mut Matcher, at_ns: u64) -> Option<Predecessor> {
        matcher.take_predecessor(KEY, BodyPrefix::default(), at_ns, OVERDUE)
    }

    fn failed(matcher: &mut Matcher, token: u64, end_ns: u64) {
        matcher.begin(KEY, attempt(token, end_ns));
        matcher.fail(KEY, attempt(token, end_ns), Ending::silent(end_ns));
    }

    #[test]
    fn one_failure_explains_one_successor() {
        let mut matcher = matcher();
        failed(&mut matcher, 1, 10 * MS);
        assert_eq!(take(&mut matcher, 20 * MS), Some(Predecessor { number: 1, open: false, ending: Ending::silent(10 * MS) }));
        assert_eq!(take(&mut matcher, 21 * MS), None);
    }

    #[test]
    fn a_success_explains_nothing() {
        let mut matcher = matcher();
        matcher.begin(KEY, attempt(1, 0));
        matcher.succeed(KEY, 1);
        assert_eq!(take(&mut matcher, 20 * MS), None);
        assert!(matcher.is_empty());
    }

    #[test]
    fn the_time_between_failure_and_successor_is_bounded_at_both_ends() {
        for (start, explained) in [(9, false), (10, true), (2010, true), (2011, false)] {
            let mut matcher = matcher();
            failed(&mut matcher, 1, 10 * MS);
            assert_eq!(take(&mut matcher, start * MS).is_some(), explained, "{start} ms");
        }
    }

    #[test]
    fn an_open_attempt_explains_a_successor_once_it_is_overdue() {
        let mut matcher = matcher();
        matcher.begin(KEY, attempt(1, 0));
        assert_eq!(take(&mut matcher, OVERDUE - 1), None);
        assert_eq!(take(&mut matcher, OVERDUE), Some(Predecessor { number: 1, open: true, ending: Ending::default() }));
        assert_eq!(take(&mut matcher, OVERDUE + 1), None, "used up");
        matcher.fail(KEY, attempt(1, 0), Ending::silent(60 * MS));
        assert_eq!(take(&mut matcher, 61 * MS), None, "its later failure explains nothing more");
        assert!(matcher.is_empty());
    }

    #[test]
    fn a_crowd_of_alike_calls_is_not_hedging() {
        let mut matcher = matcher();
        for token in 0..100 {
            matcher.begin(KEY, attempt(token, 0));
        }
        assert_eq!(take(&mut matcher, 1000 * MS), None);
        for token in 0..97 {
            matcher.succeed(KEY, token);
        }
        matcher.begin(KEY, attempt(100, 0));
        assert_eq!(take(&mut matcher, 1000 * MS), None, "four in flight are a crowd still");
        matcher.succeed(KEY, 99);
        assert!(take(&mut matcher, 1000 * MS).is_some());
    }

    #[test]
    fn a_body_that_differs_is_another_call() {
        let mut matcher = matcher();
        let (one, two) = (BodyPrefix::of(b"{1}"), BodyPrefix::of(b"{2}"));
        let first = Candidate { body: one, ..attempt(1, 0) };
        matcher.begin(KEY, first);
        matcher.fail(KEY, first, Ending::silent(MS));
        assert_eq!(matcher.take_predecessor(KEY, two, 2 * MS, OVERDUE), None);
        assert!(matcher.take_predecessor(KEY, one, 2 * MS, OVERDUE).is_some());
    }

    #[test]
    fn the_cap_holds_and_what_it_costs_is_counted() {
        let mut matcher = Matcher::new(2000 * MS, 100);
        for token in 0..1000 {
            let failed = attempt(token, token);
            matcher.begin(token, failed);
            matcher.fail(token, failed, Ending::silent(token));
            assert!(matcher.len() <= 101);
        }
        assert_eq!(matcher.evicted(), 900);
    }

    #[test]
    fn what_is_too_old_is_forgotten() {
        let mut matcher = matcher();
        for token in 0..50 {
            failed(&mut matcher, token, token);
        }
        assert_eq!(take(&mut matcher, 5000 * MS), None);
        assert!(matcher.is_empty());
        assert_eq!(matcher.evicted(), 0);
    }

    fn window(attempts: u64, matched: u64, failed: u64) -> Window {
        let retries = Retries { matched, ..Retries::default() };
        let failures = [(Failure::Status, failed)].into_iter().collect();
        let edge = EdgeWindow { attempts, retries, failures, ..EdgeWindow::default() };
        Window { epoch: 0, phase: PhaseName::Baseline, start_ns: 0, end_ns: 1, edges: vec![edge], events_lost: 0, sampling: 1.0 }
    }

    #[test]
    fn the_false_rate_comes_from_windows_without_failures() {
        let windows = [window(100, 3, 1), window(100, 1, 0), window(100, 80, 80)];
        let rate = false_rate(&windows, EdgeId(0));
        assert!(rate.is_some_and(|rate| (rate - 0.015).abs() < 1e-12), "{rate:?}");
        assert_eq!(false_rate(&windows[2..], EdgeId(0)), None);
        assert_eq!(false_rate(&windows, EdgeId(1)), None);
    }
}
