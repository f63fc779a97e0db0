//! How many of the requests user space is told of: the share of the identities that keeps events within a budget.
//!
//! The share is all, or a half of it again and again, so that a smaller one is part of a larger one. It falls at once, and grows from one turn
//! to the next. A turn lasts ten seconds, and each tells of other identities: a share of a quarter tells of everybody a quarter of the time, also
//! of the one URL that a load generator knows. Of an identity nothing was told before its turn, so that a retry at the turn's beginning looks like a
//! first attempt: the beginning is left out of what is counted by events ([`crate::track::Tracker::warm_up`]).

use stormdrill_wire::sampling::EVERYTHING;

/// Events a second that are taken in at most, in the mean of the turns: less than a twentieth of a processor, at a microsecond each.
pub const DEFAULT_BUDGET: u64 = 40_000;

/// Over how long the load is measured, nanoseconds: a shorter burst has room in the ring.
const MEASURE_NS: u64 = 500_000_000;

/// How long the same identities are told, nanoseconds.
const TURN_NS: u64 = 10_000_000_000;

/// A border that comes a little early ends a turn all the same.
const SLACK_NS: u64 = TURN_NS / 20;

/// Where no window ends, a turn ends by itself.
const LONGEST_TURN_NS: u64 = TURN_NS + TURN_NS / 2;

/// The smallest share is one of 128.
const MOST_HALVINGS: u32 = 7;

/// From this much of the ring on that is full when it is read, the share is halved: twice as much, or half as often read, and events are lost.
const FULLEST: f64 = 0.5;

/// So much more than was measured has to be within the budget before the share grows.
const MARGIN: f64 = 1.25;

/// Turns are apart by the golden section: however many there were, they are spread evenly.
const GOLDEN: u32 = 0x9e37_79b9;

/// Which identities are told: those whose number, moved on by `turn`, is not above `share`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// See [`stormdrill_wire::sampling::is_told`].
    pub share: u32,
    /// See there.
    pub turn: u32,
}

/// What was taken in so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Taken {
    /// Events, in all.
    pub events: u64,
    /// Requests that were left out, in all.
    pub left_out: u64,
    /// How full the ring was when it was read last, 0 to 1.
    pub fill: f64,
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Some of those that were told are not any more.
    Fewer,
    /// Others are told than before.
    Others,
}

/// Chooses the share.
#[derive(Debug, Clone)]
pub struct Sampler {
    budget: f64,
    warm_up_ns: u64,
    halvings: u32,
    turn: u32,
    turned_ns: u64,
    /// When the turn's beginning is over.
    warm_ns: u64,
    /// When the load was measured last, and what had been taken in by then.
    measured: Option<(u64, Taken)>,
    /// Events a second if all were told.
    load: f64,
    /// Of the mean: since when, up to when, and the share times that time.
    mean: (u64, u64, f64),
    least: f64,
}

impl Sampler {
    /// Everything is told as long as that is no more than `budget` events a second. The first `warm_up_ns` nanoseconds of a turn do not count.
    #[must_use]
    pub fn new(budget: u64, warm_up_ns: u64) -> Self {
        Self {
            budget: budget.max(1) as f64,
            warm_up_ns,
            halvings: 0,
            turn: 0,
            turned_ns: 0,
            warm_ns: 0,
            measured: None,
            load: 0.0,
            mean: (0, 0, 0.0),
            least: 1.0,
        }
    }

    /// Which identities are told now.
    #[must_use]
    pub const fn told(&self) -> Told {
        Told { share: EVERYTHING >> self.halvings, turn: self.turn.wrapping_mul(GOLDEN) }
    }

    /// The share that is told now, above 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        0.5_f64.powi(self.halvings.cast_signed())
    }

    /// The least share that was ever told.
    #[must_use]
    pub const fn least_share(&self) -> f64 {
        self.least
    }

    /// The mean share that counts, since this was asked before, or since the first instant that is known: nothing of a turn's beginning does.
    pub fn mean_share(&mut self, now_ns: u64) -> f64 {
        self.pass(now_ns);
        let (since_ns, until_ns, weighted) = std::mem::replace(&mut self.mean, (now_ns, now_ns, 0.0));
        if until_ns > since_ns { weighted / (until_ns - since_ns) as f64 } else { self.share() }
    }

    /// It is time to tell, by [`Self::taken`], how many requests were left out.
    #[must_use]
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.measured.is_none_or(|(since_ns, _)| now_ns.saturating_sub(since_ns) >= MEASURE_NS)
    }

    /// The ring was read; what has to change at once.
    pub fn taken(&mut self, taken: Taken, now_ns: u64) -> Option<Change> {
        let fewer = self.measure(taken, now_ns) | self.overflows(taken, now_ns);
        if fewer {
            return Some(Change::Fewer);
        }
        (self.halvings > 0 && now_ns.saturating_sub(self.turned_ns) >= LONGEST_TURN_NS).then(|| self.next_turn(now_ns))
    }

    /// A window ends, and another begins: what changes with it.
    pub fn border(&mut self, now_ns: u64) -> Option<Change> {
        let is_due = now_ns.saturating_sub(self.turned_ns) >= TURN_NS - SLACK_NS;
        (self.halvings > 0 && is_due).then(|| self.next_turn(now_ns))
    }

    fn measure(&mut self, taken: Taken, now_ns: u64) -> bool {
        let Some((since_ns, before)) = self.measured else {
            self.measured = Some((now_ns, taken));
            self.mean = (now_ns, now_ns, 0.0);
            return false;
        };
        let lasted_ns = now_ns.saturating_sub(since_ns);
        if lasted_ns < MEASURE_NS {
            return false;
        }
        self.measured = Some((now_ns, taken));
        // A request that is told is two events, with its answer.
        let all = taken.events.saturating_sub(before.events) as f64 + 2.0 * taken.left_out.saturating_sub(before.left_out) as f64;
        self.load = all * 1e9 / lasted_ns as f64;
        self.fall_to(halvings(self.load / self.budget), now_ns)
    }

    fn overflows(&mut self, taken: Taken, now_ns: u64) -> bool {
        taken.fill > FULLEST && self.fall_to(self.halvings + 1, now_ns)
    }

    /// Halves the share so often in all, if that is more often than now.
    fn fall_to(&mut self, halvings: u32, now_ns: u64) -> bool {
        let halvings = halvings.min(MOST_HALVINGS);
        if halvings <= self.halvings {
            return false;
        }
        self.pass(now_ns);
        if self.halvings == 0 {
            self.turned_ns = now_ns;
        }
        self.halvings = halvings;
        self.least = self.least.min(self.share());
        true
    }

    fn next_turn(&mut self, now_ns: u64) -> Change {
        self.pass(now_ns);
        self.turned_ns = now_ns;
        self.warm_ns = now_ns.saturating_add(self.warm_up_ns);
        self.turn = self.turn.wrapping_add(1);
        if halvings(MARGIN * self.load / self.budget) < self.halvings {
            self.halvings -= 1;
        }
        Change::Others
    }

    /// The share so far lasted until now.
    fn pass(&mut self, now_ns: u64) {
        let share = self.share();
        let (_, until_ns, weighted) = &mut self.mean;
        *weighted += share * now_ns.saturating_sub(self.warm_ns.max(*until_ns)) as f64;
        *until_ns = now_ns.max(*until_ns);
    }
}

/// How often something has to be halved to be one at most.
fn halvings(times: f64) -> u32 {
    (0..MOST_HALVINGS).find(|&halvings| times <= 2_f64.powi(halvings.cast_signed())).unwrap_or(MOST_HALVINGS)
}

#[cfg(test)]
mod tests {
    use stormdrill_wire::sampling::is_told;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A sampler under a steady load of requests a second, of which a share is one identity; what it was told of, by second.
    struct Run {
        sampler: Sampler,
        taken: Taken,
        now_ns: u64,
    }

    impl Run {
        fn new(budget: u64) -> Self {
            let mut run = Self { sampler: Sampler::new(budget, 2 * SECOND), taken: Taken::default(), now_ns: 100 * SECOND };
            run.sampler.taken(run.taken, run.now_ns);
            run
        }

        /// Half a second with so many requests of an identity each.
        fn half(&mut self, requests: u64, identities: &[u32]) -> Option<Change> {
            let Told { share, turn } = self.sampler.told();
            for identity in identities {
                if is_told(*identity, turn, share) {
                    self.taken.events += 2 * requests;
                } else {
                    self.taken.left_out += requests;
                }
            }
            self.now_ns += SECOND / 2;
            self.sampler.taken(self.taken, self.now_ns)
        }

        fn is_told(&self, identity: u32) -> bool {
            let Told { share, turn } = self.sampler.told();
            is_told(identity, turn, share)
        }
    }

    fn spread(count: u32) -> Vec<u32> {
        (0..count).map(|at| at.wrapping_mul(u32::MAX / count)).collect()
    }

    #[test]
    fn within_the_budget_everything_is_told() {
        let mut run = Run::new(1000);
        for _ in 0..100 {
            assert_eq!(run.half(5, &spread(50)), None);
            assert_eq!(run.sampler.border(run.now_ns), None);
        }
        assert_eq!(run.sampler.told(), Told { share: EVERYTHING, turn: 0 });
        assert!((run.sampler.mean_share(run.now_ns) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_load_of_three_times_the_budget_leaves_a_quarter_at_once_and_all_again_when_it_has_gone() {
        let mut run = Run::new(1000);
        assert_eq!(run.half(15, &spread(50)), Some(Change::Fewer));
        assert!((run.sampler.share() - 0.25).abs() < 1e-9);
        for _ in 0..40 {
            assert_ne!(run.half(15, &spread(50)), Some(Change::Fewer));
            run.sampler.border(run.now_ns);
            assert!((run.sampler.share() - 0.25).abs() < 1e-9);
        }
        let mut borders = 0;
        while run.sampler.share() < 1.0 {
            run.half(1, &spread(50));
            borders += u32::from(run.sampler.border(run.now_ns).is_some());
        }
        assert_eq!(borders, 2);
    }

    #[test]
    fn a_full_ring_halves_at_once() {
        let mut sampler = Sampler::new(u64::MAX, 0);
        assert_eq!(sampler.taken(Taken { fill: 0.4, ..Taken::default() }, 1), None);
        assert_eq!(sampler.taken(Taken { fill: 0.6, ..Taken::default() }, 2), Some(Change::Fewer));
        assert_eq!(sampler.taken(Taken { fill: 0.6, ..Taken::default() }, 3), Some(Change::Fewer));
        assert!((sampler.share() - 0.25).abs() < 1e-9);
        for now_ns in 4..20 {
            sampler.taken(Taken { fill: 1.0, ..Taken::default() }, now_ns);
        }
        assert!(sampler.share() >= 1.0 / 128.0, "never nothing");
    }

    #[test]
    fn the_only_identity_there_is_has_its_turn_again_and_again() {
        for identity in [0, 1 << 30, 77 << 24, u32::MAX] {
            let mut run = Run::new(1000);
            run.half(750, &[identity]);
            assert!((run.sampler.share() - 0.25).abs() < 1e-9);
            let (mut told, mut without, mut longest) = (0, 0, 0);
            for _ in 0..100 {
                without = if run.is_told(identity) { 0 } else { without + 1 };
                told += i32::from(run.is_told(identity));
                longest = longest.max(without);
                let before = run.sampler.share();
                for _ in 0..20 {
                    run.half(750, &[identity]);
                }
                assert_eq!(run.sampler.border(run.now_ns), Some(Change::Others));
                assert!((run.sampler.share() - before).abs() < 1e-9, "the load is the same, whether it is told or not");
            }
            assert!((20..=30).contains(&told), "{told}");
            assert!(longest <= 5, "{longest}");
        }
    }

    #[test]
    fn without_a_border_a_turn_ends_by_itself() {
        let mut run = Run::new(1000);
        run.half(750, &[0]);
        let changes: Vec<Change> = (0..60).filter_map(|_| run.half(750, &[0])).collect();
        assert_eq!(changes, [Change::Others, Change::Others]);
    }

    #[test]
    fn a_windows_share_is_that_of_its_time() {
        let mut run = Run::new(1000);
        run.sampler.mean_share(run.now_ns);
        run.half(1, &spread(50));
        run.half(15, &spread(50));
        run.half(15, &spread(50));
        run.half(15, &spread(50));
        assert!((run.sampler.mean_share(run.now_ns) - (1.0 + 1.0 + 0.25 + 0.25) / 4.0).abs() < 1e-9);
        run.half(15, &spread(50));
        assert!((run.sampler.mean_share(run.now_ns) - 0.25).abs() < 1e-9);
        // The next turn's first two seconds do not count.
        for _ in 0..20 {
            run.half(15, &spread(50));
        }
        assert_eq!(run.sampler.border(run.now_ns), Some(Change::Others));
        run.sampler.mean_share(run.now_ns);
        for _ in 0..8 {
            run.half(15, &spread(50));
        }
        assert!((run.sampler.mean_share(run.now_ns) - 0.125).abs() < 1e-9);
        assert!((run.sampler.least_share() - 0.25).abs() < 1e-9);
    }
}
