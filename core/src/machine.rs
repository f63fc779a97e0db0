//! The drill as a state machine: (state, event) gives (state, effects).
//!
//! It decides *when* windows open and close, when faults are applied and removed, and when the drill is
//! over; it does none of it. While faults are being applied or removed the kernel counts under a
//! transition window, which is shown but never judged, so that every judged request lies between two
//! instants that the kernel acknowledged.

use std::time::Duration;

use crate::playbook::Phases;
use crate::window::{Phase, PhaseName};

/// How long the machine is told to wait for answers to the last window's requests.
pub const DRAIN: Duration = Duration::from_secs(4);

/// Everything that can move a drill on. `now_ns` is the kernel's monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The probe is attached; counting starts.
    Begin {
        /// The time.
        now_ns: u64,
    },
    /// Time has passed; sent no later than [`Machine::deadline`].
    Tick {
        /// The time.
        now_ns: u64,
    },
    /// Every fault is in place, since `at_ns`.
    Applied {
        /// When the kernel acknowledged the last of them.
        at_ns: u64,
    },
    /// A fault could not be applied. What was built has to be removed again.
    ApplyFailed {
        /// Why.
        reason: String,
        /// The time.
        now_ns: u64,
    },
    /// No fault is left, since `at_ns`.
    Removed {
        /// When the kernel acknowledged the last removal.
        at_ns: u64,
    },
    /// Something of a fault is left in the kernel.
    RemoveFailed {
        /// What and why.
        reason: String,
        /// The time.
        now_ns: u64,
    },
    /// All attempts have an outcome, so nothing is left to wait for.
    Drained,
    /// A guard tripped, a signal came, or somebody asked for the end.
    Abort {
        /// Who or what.
        reason: String,
        /// The time.
        now_ns: u64,
    },
}

/// Everything that the machine may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Count under a new window of this phase from now on; the one before is closed.
    OpenWindow(PhaseName),
    /// Close the current window and open none.
    CloseWindow,
    /// Apply every fault; answer with [`Event::Applied`] or [`Event::ApplyFailed`].
    ApplyFaults,
    /// Remove every fault; answer with [`Event::Removed`] or [`Event::RemoveFailed`].
    RemoveFaults,
    /// The drill is over.
    Finish,
}

/// How a drill ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// All phases were run.
    Complete,
    /// It was ended early; the faults are gone.
    Aborted(String),
    /// A fault could not be applied; nothing of it is left.
    NotApplied(String),
    /// A fault could not be removed.
    NotRemoved(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Idle,
    Baseline { until_ns: u64, next_ns: u64 },
    Applying { abort: Option<End> },
    Fault { until_ns: u64, next_ns: u64 },
    Removing { then: Option<End> },
    Recovery { until_ns: u64, next_ns: u64 },
    Draining { until_ns: u64 },
    Done(End),
}

/// One drill's progress.
#[derive(Debug, Clone)]
pub struct Machine {
    lengths: Phases,
    window_ns: u64,
    state: State,
    phases: Vec<Phase>,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Machine {
    /// A drill that has not begun. `window` is positive and no longer than any phase: the playbook's check saw to it.
    #[must_use]
    pub fn new(lengths: Phases, window: Duration) -> Self {
        Self { lengths, window_ns: nanos(window).max(1), state: State::Idle, phases: Vec::new() }
    }

    /// When the machine wants its next [`Event::Tick`]; `None` while it waits for something else.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        match &self.state {
            State::Baseline { until_ns, next_ns } | State::Fault { until_ns, next_ns } | State::Recovery { until_ns, next_ns } => {
                Some(*until_ns.min(next_ns))
            }
            State::Draining { until_ns } => Some(*until_ns),
            State::Idle | State::Applying { .. } | State::Removing { .. } | State::Done(_) => None,
        }
    }

    /// The phases so far; the last one's end is open (equal to its start) while it lasts.
    #[must_use]
    pub fn phases(&self) -> &[Phase] {
        &self.phases
    }

    /// The phase that is running, with its planned end.
    #[must_use]
    pub fn current(&self) -> Option<(PhaseName, u64)> {
        match &self.state {
            State::Baseline { until_ns, .. } => Some((PhaseName::Baseline, *until_ns)),
            State::Fault { until_ns, .. } => Some((PhaseName::Fault, *until_ns)),
            State::Recovery { until_ns, .. } => Some((PhaseName::Recovery, *until_ns)),
            State::Idle | State::Applying { .. } | State::Removing { .. } | State::Draining { .. } | State::Done(_) => None,
        }
    }

    /// How it ended, once it has.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        match &self.state {
            State::Done(end) => Some(end),
            _ => None,
        }
    }

    /// Moves on. Events that mean nothing in the present state are ignored: a late tick, a second abort.
    pub fn on(&mut self, event: Event) -> Vec<Effect> {
        let state = std::mem::replace(&mut self.state, State::Idle);
        let (next, effects) = self.step(state, event);
        self.state = next;
        effects
    }

    fn step(&mut self, state: State, event: Event) -> (State, Vec<Effect>) {
        match (state, event) {
            (State::Idle, Event::Begin { now_ns }) => {
                self.begin(PhaseName::Baseline, now_ns);
                let until_ns = now_ns.saturating_add(nanos(self.lengths.baseline));
                (
                    State::Baseline { until_ns, next_ns: now_ns.saturating_add(self.window_ns) },
                    vec![Effect::OpenWindow(PhaseName::Baseline)],
                )
            }
            (State::Baseline { until_ns, .. }, Event::Tick { now_ns }) if now_ns >= until_ns => {
                self.finish_phase(now_ns);
                (State::Applying { abort: None }, vec![Effect::OpenWindow(PhaseName::Transition), Effect::ApplyFaults])
            }
            (State::Baseline { until_ns, next_ns }, Event::Tick { now_ns }) => {
                let (next_ns, effects) = self.roll(PhaseName::Baseline, next_ns, until_ns, now_ns);
                (State::Baseline { until_ns, next_ns }, effects)
            }
            (State::Applying { abort: Some(end) }, Event::Applied { .. }) => {
                (State::Removing { then: Some(end) }, vec![Effect::RemoveFaults])
            }
            (State::Applying { abort: None }, Event::Applied { at_ns }) => {
                self.begin(PhaseName::Fault, at_ns);
                let until_ns = at_ns.saturating_add(nanos(self.lengths.fault));
                (State::Fault { until_ns, next_ns: at_ns.saturating_add(self.window_ns) }, vec![Effect::OpenWindow(PhaseName::Fault)])
            }
            (State::Applying { .. }, Event::ApplyFailed { reason, .. }) => {
                (State::Removing { then: Some(End::NotApplied(reason)) }, vec![Effect::RemoveFaults])
            }
            (State::Applying { abort: None }, Event::Abort { reason, .. }) => {
                // The answer to `ApplyFaults` is still to come: removal has to wait for it, or it would miss what is being built.
                (State::Applying { abort: Some(End::Aborted(reason)) }, Vec::new())
            }
            (State::Fault { until_ns, .. }, Event::Tick { now_ns }) if now_ns >= until_ns => {
                self.finish_phase(now_ns);
                (State::Removing { then: None }, vec![Effect::OpenWindow(PhaseName::Transition), Effect::RemoveFaults])
            }
            (State::Fault { until_ns, next_ns }, Event::Tick { now_ns }) => {
                let (next_ns, effects) = self.roll(PhaseName::Fault, next_ns, until_ns, now_ns);
                (State::Fault { until_ns, next_ns }, effects)
            }
            (State::Fault { .. }, Event::Abort { reason, now_ns }) => {
                self.finish_phase(now_ns);
                (
                    State::Removing { then: Some(End::Aborted(reason)) },
                    vec![Effect::OpenWindow(PhaseName::Transition), Effect::RemoveFaults],
                )
            }
            (State::Removing { then: Some(end) }, Event::Removed { .. }) => (State::Done(end), vec![Effect::CloseWindow, Effect::Finish]),
            (State::Removing { then: None }, Event::Removed { at_ns }) => {
                self.begin(PhaseName::Recovery, at_ns);
                let until_ns = at_ns.saturating_add(nanos(self.lengths.recovery));
                (State::Recovery { until_ns, next_ns: at_ns.saturating_add(self.window_ns) }, vec![Effect::OpenWindow(PhaseName::Recovery)])
            }
            (State::Removing { then: None }, Event::Abort { reason, .. }) => {
                (State::Removing { then: Some(End::Aborted(reason)) }, Vec::new())
            }
            (State::Removing { .. }, Event::RemoveFailed { reason, .. }) => {
                (State::Done(End::NotRemoved(reason)), vec![Effect::CloseWindow, Effect::Finish])
            }
            (State::Recovery { until_ns, .. }, Event::Tick { now_ns }) if now_ns >= until_ns => {
                self.finish_phase(now_ns);
                (State::Draining { until_ns: now_ns.saturating_add(nanos(DRAIN)) }, vec![Effect::CloseWindow])
            }
            (State::Recovery { until_ns, next_ns }, Event::Tick { now_ns }) => {
                let (next_ns, effects) = self.roll(PhaseName::Recovery, next_ns, until_ns, now_ns);
                (State::Recovery { until_ns, next_ns }, effects)
            }
            (State::Baseline { .. } | State::Recovery { .. }, Event::Abort { reason, now_ns }) => {
                self.finish_phase(now_ns);
                (State::Done(End::Aborted(reason)), vec![Effect::CloseWindow, Effect::Finish])
            }
            (State::Draining { until_ns }, Event::Tick { now_ns }) if now_ns >= until_ns => {
                (State::Done(End::Complete), vec![Effect::Finish])
            }
            // Every phase was run: an abort now has nothing left to abort but the wait.
            (State::Draining { .. }, Event::Drained | Event::Abort { .. }) => (State::Done(End::Complete), vec![Effect::Finish]),
            (State::Idle, Event::Abort { reason, .. }) => (State::Done(End::Aborted(reason)), vec![Effect::Finish]),
            (state, _) => (state, Vec::new()),
        }
    }

    /// Opens the next window once the present one is full. A rest shorter than half a window joins the window before it.
    fn roll(&self, phase: PhaseName, next_ns: u64, until_ns: u64, now_ns: u64) -> (u64, Vec<Effect>) {
        if now_ns < next_ns {
            return (next_ns, Vec::new());
        }
        if until_ns.saturating_sub(next_ns) < self.window_ns / 2 {
            return (until_ns, Vec::new());
        }
        // A driver that was held up opens one window late, not a row of empty ones.
        let behind = now_ns.saturating_sub(next_ns) / self.window_ns;
        (next_ns.saturating_add(self.window_ns.saturating_mul(behind + 1)), vec![Effect::OpenWindow(phase)])
    }

    fn begin(&mut self, name: PhaseName, at_ns: u64) {
        self.phases.push(Phase { name, start_ns: at_ns, end_ns: at_ns });
    }

    fn finish_phase(&mut self, now_ns: u64) {
        if let Some(phase) = self.phases.last_mut() {
            phase.end_ns = now_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn machine() -> Machine {
        Machine::new(
            Phases { baseline: Duration::from_secs(4), fault: Duration::from_secs(6), recovery: Duration::from_secs(4) },
            Duration::from_secs(2),
        )
    }

    /// Runs the ticks that the machine asks for until it waits for something else.
    fn run(machine: &mut Machine) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(now_ns) = machine.deadline() {
            effects.extend(machine.on(Event::Tick { now_ns }));
        }
        effects
    }

    #[test]
    fn a_whole_drill_applies_once_removes_once_and_completes() {
        let mut m = machine();
        assert_eq!(m.on(Event::Begin { now_ns: 0 }), [Effect::OpenWindow(PhaseName::Baseline)]);
        assert_eq!(run(&mut m), [Effect::OpenWindow(PhaseName::Baseline), Effect::OpenWindow(PhaseName::Transition), Effect::ApplyFaults]);
        assert_eq!(m.on(Event::Applied { at_ns: 5 * S }), [Effect::OpenWindow(PhaseName::Fault)]);
        assert_eq!(
            run(&mut m),
            [
                Effect::OpenWindow(PhaseName::Fault),
                Effect::OpenWindow(PhaseName::Fault),
                Effect::OpenWindow(PhaseName::Transition),
                Effect::RemoveFaults
            ]
        );
        assert_eq!(m.on(Event::Removed { at_ns: 12 * S }), [Effect::OpenWindow(PhaseName::Recovery)]);
        assert_eq!(run(&mut m), [Effect::OpenWindow(PhaseName::Recovery), Effect::CloseWindow, Effect::Finish]);
        assert_eq!(m.end(), Some(&End::Complete));
        let bounds: Vec<_> = m.phases().iter().map(|p| (p.name, p.start_ns / S, p.end_ns / S)).collect();
        assert_eq!(bounds, [(PhaseName::Baseline, 0, 4), (PhaseName::Fault, 5, 11), (PhaseName::Recovery, 12, 16)]);
    }

    #[test]
    fn an_abort_while_applying_removes_what_was_built() {
        let mut m = machine();
        m.on(Event::Begin { now_ns: 0 });
        run(&mut m);
        assert_eq!(m.on(Event::Abort { reason: "SIGINT".into(), now_ns: 4 * S }), []);
        assert_eq!(m.on(Event::Applied { at_ns: 5 * S }), [Effect::RemoveFaults]);
        assert_eq!(m.on(Event::Removed { at_ns: 5 * S }), [Effect::CloseWindow, Effect::Finish]);
        assert_eq!(m.end(), Some(&End::Aborted("SIGINT".into())));
    }

    #[test]
    fn an_abort_in_the_fault_phase_removes_before_it_finishes_and_a_second_one_changes_nothing() {
        let mut m = machine();
        m.on(Event::Begin { now_ns: 0 });
        run(&mut m);
        m.on(Event::Applied { at_ns: 5 * S });
        let effects = m.on(Event::Abort { reason: "guard".into(), now_ns: 6 * S });
        assert_eq!(effects, [Effect::OpenWindow(PhaseName::Transition), Effect::RemoveFaults]);
        assert_eq!(m.on(Event::Abort { reason: "SIGTERM".into(), now_ns: 6 * S }), []);
        m.on(Event::Removed { at_ns: 7 * S });
        assert_eq!(m.end(), Some(&End::Aborted("guard".into())));
    }

    #[test]
    fn a_fault_that_cannot_be_applied_or_removed_ends_the_drill_and_says_which() {
        let mut m = machine();
        m.on(Event::Begin { now_ns: 0 });
        run(&mut m);
        assert_eq!(m.on(Event::ApplyFailed { reason: "no netem".into(), now_ns: 4 * S }), [Effect::RemoveFaults]);
        m.on(Event::Removed { at_ns: 4 * S });
        assert_eq!(m.end(), Some(&End::NotApplied("no netem".into())));

        let mut m = machine();
        m.on(Event::Begin { now_ns: 0 });
        run(&mut m);
        m.on(Event::Applied { at_ns: 5 * S });
        run(&mut m);
        m.on(Event::RemoveFailed { reason: "busy".into(), now_ns: 11 * S });
        assert_eq!(m.end(), Some(&End::NotRemoved("busy".into())));
    }

    #[test]
    fn a_driver_that_was_held_up_opens_one_window_not_a_row_of_empty_ones() {
        let mut m = Machine::new(
            Phases { baseline: Duration::from_secs(100), fault: Duration::from_secs(6), recovery: Duration::from_secs(4) },
            Duration::from_secs(2),
        );
        m.on(Event::Begin { now_ns: 0 });
        assert_eq!(m.on(Event::Tick { now_ns: 9 * S }), [Effect::OpenWindow(PhaseName::Baseline)]);
        assert_eq!(m.deadline(), Some(10 * S));
    }

    #[test]
    fn a_rest_shorter_than_half_a_window_joins_the_last_window() {
        let mut m = Machine::new(
            Phases { baseline: Duration::from_millis(4_900), fault: Duration::from_secs(2), recovery: Duration::from_secs(2) },
            Duration::from_secs(2),
        );
        m.on(Event::Begin { now_ns: 0 });
        let effects = run(&mut m);
        let baseline = effects.iter().filter(|e| **e == Effect::OpenWindow(PhaseName::Baseline)).count();
        assert_eq!(baseline, 1, "windows of 2 s and 2.9 s: {effects:?}");
    }
}
