//! Attempts by the window in which they started, until the window's book can be closed.
//!
//! An attempt's window is the *epoch* that the kernel counted it under, so that events and exact counts speak of the
//! same requests to the last one; a comparison of times could differ by those that pass while the epoch changes.

use std::collections::BTreeMap;

use crate::edge::{EdgeId, Protocol};
use crate::event::{ConnectFailure, Epoch};
use crate::retry::Finding;
use crate::status::{ErrorName, Meaning, Status};
use crate::track::answer::Answer;
use crate::track::attempt::Attempt;
use crate::track::books::Opening;
use crate::track::burst::Burst;
use crate::track::sample::Sample;
use crate::track::stats::Misfits;
use crate::window::{EdgeCounts, EdgeWindow, Failure, KernelWindow, Retries, Window};

/// With more epochs than this in hand, the oldest that no window has closed is let go.
const EPOCHS: usize = 1024;

/// With more kinds of answers than this on one edge in one window, further errors are not told apart.
const STATUSES: usize = 128;

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With an answer.
    Answered(Answer),
    /// Without one.
    Failed(Failure),
    /// With an answer that was not seen.
    Unseen,
}

impl Outcome {
    /// Why it counts as a failure, if it does.
    #[must_use]
    pub(crate) const fn failure(self) -> Option<Failure> {
        match self {
            Self::Answered(Answer { meaning: Meaning::Failed, .. }) => Some(Failure::Status),
            Self::Failed(failure) => Some(failure),
            Self::Answered(_) | Self::Unseen => None,
        }
    }
}

/// Whether somebody waits for an attempt that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// That cannot be told.
    Unknown,
    /// Somebody does.
    For,
    /// Nobody does any more.
    Late,
}

/// One edge's attempts of one epoch.
#[derive(Debug, Clone)]
struct EdgeCohort {
    attempts: u64,
    /// Those that have no outcome yet.
    open: u64,
    retries: Retries,
    hedges: u64,
    replays: u64,
    uncompared: u64,
    non_idempotent_retries: u64,
    nonretryable_retries: u64,
    retry_after_violations: u64,
    accountable: u64,
    late_starts: u64,
    orphan_ns: u64,
    gaps_ns: Sample,
    first_gaps_ns: Sample,
    burst: Burst,
    protocols: BTreeMap<Protocol, u64>,
    status: BTreeMap<(Protocol, Status), u64>,
    failures: BTreeMap<Failure, u64>,
    latency_ns: Sample,
    failure_latency_ns: Sample,
    waited_ns: Sample,
    attempts_max: u32,
    connect_failures: BTreeMap<ConnectFailure, u64>,
    turned_away: BTreeMap<Status, u64>,
}

#[derive(Debug)]
struct Cohort {
    edges: Vec<EdgeCohort>,
    /// Attempts that have no outcome yet.
    open: u64,
    closed: Option<KernelWindow>,
}

/// All epochs whose windows are not final yet.
#[derive(Debug)]
pub(crate) struct Cohorts {
    cohorts: BTreeMap<Epoch, Cohort>,
    edges: usize,
    sample_cap: usize,
    /// Epochs before this one are final.
    next: Epoch,
    misfits: Misfits,
}

impl Cohorts {
    /// For so many edges, keeping up to `sample_cap` durations of each kind for an edge and window.
    #[must_use]
    pub(crate) const fn new(edges: usize, sample_cap: usize) -> Self {
        let misfits = Misfits { attempts: 0, outcomes: 0, durations: 0 };
        Self { cohorts: BTreeMap::new(), edges, sample_cap, next: 0, misfits }
    }

    /// Books an attempt that starts; its outcome is to follow.
    pub(crate) fn start(&mut self, opening: &Opening, finding: &Finding, waited: Waited) {
        if !opening.counts {
            return;
        }
        let Some(cohort) = self.at(opening.epoch) else {
            self.misfits.attempts += 1;
            return;
        };
        let Some(book) = cohort.edges.get_mut(usize::from(opening.edge.0)) else { return };
        cohort.open += 1;
        book.open += 1;
        book.attempts += 1;
        *book.protocols.entry(opening.protocol).or_default() += 1;
        book.accountable += u64::from(waited != Waited::Unknown);
        book.late_starts += u64::from(waited == Waited::Late);
        book.attempts_max = book.attempts_max.max(finding.number);
        book.hedges += u64::from(finding.hedge);
        book.uncompared += u64::from(finding.is_uncompared);
        if let Some(evidence) = finding.evidence {
            book.retries.count(evidence);
            book.retried(finding, opening.at_ns);
        }
    }

    /// Books how an attempt ended.
    pub(crate) fn end(&mut self, attempt: &Attempt, outcome: Outcome, at_ns: u64, orphan_ns: u64) {
        if !attempt.counts {
            return;
        }
        let Some(cohort) = self.cohorts.get_mut(&attempt.epoch) else {
            self.misfits.outcomes += 1;
            return;
        };
        let Some(book) = cohort.edges.get_mut(usize::from(attempt.edge.0)) else { return };
        cohort.open = cohort.open.saturating_sub(1);
        book.open = book.open.saturating_sub(1);
        let lasted_ns = at_ns.saturating_sub(attempt.start_ns);
        match outcome {
            Outcome::Answered(answer) => {
                book.answered(attempt.protocol, answer.status);
                book.latency_ns.push(lasted_ns);
            }
            Outcome::Unseen | Outcome::Failed(_) => {}
        }
        if let Some(failure) = outcome.failure() {
            book.fail(failure, lasted_ns);
            if failure == Failure::ClientAbort {
                book.waited_ns.push(lasted_ns);
            }
        }
        book.orphan_ns = book.orphan_ns.saturating_add(orphan_ns);
    }

    /// Books a connection that did not come about.
    pub(crate) fn connect_failed(&mut self, epoch: Epoch, edge: EdgeId, reason: ConnectFailure) {
        let book = self.at(epoch).and_then(|cohort| cohort.edges.get_mut(usize::from(edge.0)));
        if let Some(book) = book {
            *book.connect_failures.entry(reason).or_default() += 1;
        }
    }

    /// Books a login that was answered with an error.
    pub(crate) fn turned_away(&mut self, epoch: Epoch, edge: EdgeId, status: Status) {
        let book = self.at(epoch).and_then(|cohort| cohort.edges.get_mut(usize::from(edge.0)));
        if let Some(book) = book {
            *book.connect_failures.entry(ConnectFailure::TurnedAway).or_default() += 1;
            let full = book.turned_away.len() >= STATUSES && !book.turned_away.contains_key(&status);
            *book.turned_away.entry(if full { Status::Error(ErrorName::OTHER) } else { status }).or_default() += 1;
        }
    }

    /// The kernel has closed a window.
    pub(crate) fn close(&mut self, window: KernelWindow) {
        if let Some(cohort) = self.at(window.epoch) {
            cohort.closed = Some(window);
        }
    }

    /// The oldest window that is closed, with the number of its attempts that have no outcome yet.
    #[must_use]
    pub(crate) fn oldest_closed(&self) -> Option<(&KernelWindow, u64)> {
        self.cohorts.values().find_map(|cohort| cohort.closed.as_ref().map(|window| (window, cohort.open)))
    }

    /// No window is closed and not final.
    #[must_use]
    pub(crate) fn is_idle(&self) -> bool {
        self.oldest_closed().is_none()
    }

    /// Makes the oldest closed window final. `open` are all attempts without an outcome; those of the window that were
    /// open for `hang_after_ns` by `at_ns` count as hanging.
    pub(crate) fn finalise<'a>(&mut self, open: impl Iterator<Item = &'a Attempt>, at_ns: u64, hang_after_ns: u64) -> Option<Window> {
        let epoch = self.oldest_closed()?.0.epoch;
        // Epochs before it were never closed: their attempts belong to no window.
        while let Some(entry) = self.cohorts.first_entry()
            && *entry.key() < epoch
        {
            self.misfits.attempts += entry.remove().attempts();
        }
        self.next = epoch.saturating_add(1);
        let mut cohort = self.cohorts.remove(&epoch)?;
        // Nearly always there is none, and then the others need not be looked through.
        let unanswered = (cohort.open > 0).then_some(open).into_iter().flatten();
        for attempt in unanswered.filter(|attempt| attempt.epoch == epoch && attempt.counts) {
            let age_ns = at_ns.saturating_sub(attempt.start_ns);
            let Some(book) = cohort.edges.get_mut(usize::from(attempt.edge.0)) else { continue };
            if let Some(given_up_ns) = attempt.given_up_ns {
                book.fail(Failure::ClientAbort, given_up_ns.saturating_sub(attempt.start_ns));
                continue;
            }
            book.waited_ns.push(age_ns);
            if age_ns >= hang_after_ns {
                book.fail(Failure::Hang, age_ns);
            }
        }
        let mut closed = cohort.closed?;
        closed.status.resize(cohort.edges.len().max(closed.status.len()), BTreeMap::new());
        let mut edges = Vec::with_capacity(cohort.edges.len());
        for ((at, book), kernel_status) in cohort.edges.into_iter().enumerate().zip(std::mem::take(&mut closed.status)) {
            self.misfits.durations += book.latency_ns.left_out() + book.failure_latency_ns.left_out();
            edges.push(book.window(closed.counts.get(at).copied().unwrap_or_default(), kernel_status));
        }
        Some(closed.of(edges))
    }

    /// The closed windows from an epoch on that ended by `settled_ns` and whose attempts on the `needed` edges all have an outcome, in order, up to
    /// the first that is not so. Of the other edges they hold only what the kernel counted.
    pub(crate) fn ahead(&self, from: Epoch, needed: &[bool], settled_ns: u64) -> Vec<Window> {
        let is_needed = |at: usize| needed.get(at).copied().unwrap_or(false);
        let closed = self.cohorts.range(from..).filter_map(|(_, cohort)| Some((cohort, cohort.closed.as_ref()?)));
        let ready = closed.take_while(|(cohort, window)| {
            window.end_ns <= settled_ns && !cohort.edges.iter().enumerate().any(|(at, book)| is_needed(at) && book.open > 0)
        });
        let window = |(cohort, closed): (&Cohort, &KernelWindow)| {
            let edges = cohort.edges.iter().enumerate().map(|(at, book)| {
                let book = if is_needed(at) { book.clone() } else { EdgeCohort::new(self.sample_cap) };
                book.window(closed.counts.get(at).copied().unwrap_or_default(), closed.status.get(at).cloned().unwrap_or_default())
            });
            closed.of(edges.collect())
        };
        ready.map(window).collect()
    }

    /// What fitted nowhere.
    #[must_use]
    pub(crate) const fn misfits(&self) -> Misfits {
        self.misfits
    }

    /// The cohort of an epoch that is not final yet.
    fn at(&mut self, epoch: Epoch) -> Option<&mut Cohort> {
        if epoch < self.next {
            return None;
        }
        if !self.cohorts.contains_key(&epoch) && self.cohorts.len() >= EPOCHS {
            let unclosed = self.cohorts.iter().find(|(_, cohort)| cohort.closed.is_none()).map(|(epoch, _)| *epoch);
            if let Some(cohort) = unclosed.and_then(|epoch| self.cohorts.remove(&epoch)) {
                self.misfits.attempts += cohort.attempts();
            }
        }
        let (edges, sample_cap) = (self.edges, self.sample_cap);
        Some(self.cohorts.entry(epoch).or_insert_with(|| Cohort {
            edges: (0..edges).map(|_| EdgeCohort::new(sample_cap)).collect(),
            open: 0,
            closed: None,
        }))
    }
}

impl Cohort {
    fn attempts(&self) -> u64 {
        self.edges.iter().map(|book| book.attempts).sum()
    }
}

impl EdgeCohort {
    const fn new(sample_cap: usize) -> Self {
        Self {
            attempts: 0,
            open: 0,
            retries: Retries { marker: 0, id: 0, matched: 0 },
            hedges: 0,
            replays: 0,
            uncompared: 0,
            non_idempotent_retries: 0,
            nonretryable_retries: 0,
            retry_after_violations: 0,
            accountable: 0,
            late_starts: 0,
            orphan_ns: 0,
            gaps_ns: Sample::new(sample_cap),
            first_gaps_ns: Sample::new(sample_cap),
            burst: Burst::NONE,
            protocols: BTreeMap::new(),
            status: BTreeMap::new(),
            failures: BTreeMap::new(),
            latency_ns: Sample::new(sample_cap),
            failure_latency_ns: Sample::new(sample_cap),
            waited_ns: Sample::new(sample_cap),
            attempts_max: 0,
            connect_failures: BTreeMap::new(),
            turned_away: BTreeMap::new(),
        }
    }

    fn retried(&mut self, finding: &Finding, at_ns: u64) {
        let faults = finding.faults;
        self.replays += u64::from(faults.is_replay);
        self.non_idempotent_retries += u64::from(faults.is_harmful);
        self.nonretryable_retries += u64::from(faults.is_hopeless);
        self.retry_after_violations += u64::from(faults.is_early);
        // A hedge and a replay wait for nothing.
        if faults.is_replay || finding.hedge {
            return;
        }
        self.burst.add(at_ns);
        if let Some(gap_ns) = finding.gap_ns {
            self.gaps_ns.push(gap_ns);
            if finding.is_first_gap {
                self.first_gaps_ns.push(gap_ns);
            }
        }
    }

    fn answered(&mut self, protocol: Protocol, status: Status) {
        // Scripts can make up errors: beyond a few, they are one.
        let full = self.status.len() >= STATUSES && !self.status.contains_key(&(protocol, status));
        let status = if full && matches!(status, Status::Error(_)) { Status::Error(ErrorName::OTHER) } else { status };
        *self.status.entry((protocol, status)).or_default() += 1;
    }

    fn fail(&mut self, failure: Failure, lasted_ns: u64) {
        *self.failures.entry(failure).or_default() += 1;
        self.failure_latency_ns.push(lasted_ns);
    }

    fn window(self, counts: EdgeCounts, kernel_status: BTreeMap<u16, u64>) -> EdgeWindow {
        let answered: u64 = self.status.values().sum();
        let failures = self.failures.iter().filter(|(failure, _)| **failure != Failure::Status);
        let unanswered: u64 = failures.map(|(_, count)| count).sum();
        let (mut status, mut told_status) = (BTreeMap::new(), BTreeMap::new());
        for ((protocol, of), count) in self.status {
            *status.entry(of.to_string()).or_default() += count;
            if !protocol.has_codes() && of != Status::Ok {
                *told_status.entry(of.to_string()).or_default() += count;
            }
        }
        let turned_away: BTreeMap<String, u64> = self.turned_away.into_iter().map(|(of, count)| (of.to_string(), count)).collect();
        for (of, count) in &turned_away {
            *status.entry(of.clone()).or_default() += count;
        }
        EdgeWindow {
            counts,
            attempts: self.attempts,
            retries: self.retries,
            hedges: self.hedges,
            replays: self.replays,
            uncompared: self.uncompared,
            non_idempotent_retries: self.non_idempotent_retries,
            nonretryable_retries: self.nonretryable_retries,
            retry_after_violations: self.retry_after_violations,
            accountable: self.accountable,
            late_starts: self.late_starts,
            orphan_ns: self.orphan_ns,
            gaps_ns: self.gaps_ns.into_values(),
            first_gaps_ns: self.first_gaps_ns.into_values(),
            burst: self.burst,
            protocols: self.protocols,
            status,
            told_status,
            turned_away,
            kernel_status,
            failures: self.failures,
            pending: self.attempts.saturating_sub(answered + unanswered),
            latency_ns: self.latency_ns.into_values(),
            failure_latency_ns: self.failure_latency_ns.into_values(),
            waited_ns: self.waited_ns.into_values(),
            attempts_max: self.attempts_max,
            connect_failures: self.connect_failures,
        }
    }
}
