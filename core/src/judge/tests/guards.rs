//! Guards over windows.

use super::*;
use crate::judge::guard::GuardState;
use crate::playbook::Guard;

fn guard(edge: Option<&str>, metric: Metric, op: Op, value: f64, windows: u32) -> Guard {
    Guard { text: "the guard".to_owned(), edge: edge.map(str::to_owned), metric, op, value, windows }
}

/// Index of the window at which the guard trips, and its sentence.
fn trips(guard: &Guard, drill: &Drill) -> Option<(usize, String)> {
    let mut state = GuardState::new(guard, &drill.edges);
    (drill.windows.iter().enumerate()).find_map(|(index, window)| Some((index, state.observe(window)?)))
}

fn web(failures: &[u64]) -> Drill {
    failures.iter().fold(Drill::new(), |drill, &failures| drill.window(PhaseName::Fault, &[seen(100).failures(failures), seen(100)]))
}

#[test]
fn trips_only_after_enough_windows_in_a_row() {
    let success = guard(Some("web"), Metric::SuccessRatio, Op::Less, 0.2, 3);
    assert_eq!(trips(&success, &web(&[90, 90, 0, 90, 90])), None);
    let (at, reason) = trips(&success, &web(&[0, 90, 85, 90, 0])).unwrap();
    assert_eq!(at, 3);
    assert_eq!(reason, "guard `the guard`: success ratio of web was 10% for 3 windows");
    assert_eq!(trips(&success, &web(&[80, 80, 80])), None, "a fifth is not less than a fifth");
}

#[test]
fn silence_neither_counts_nor_resets() {
    let success = guard(Some("web"), Metric::SuccessRatio, Op::Less, 0.2, 2);
    let drill = web(&[90]).window(PhaseName::Fault, &[seen(0), seen(0)]);
    assert_eq!(trips(&success, &drill), None);
    let drill = drill.window(PhaseName::Fault, &[seen(100).failures(90), seen(100)]);
    assert_eq!(trips(&success, &drill).unwrap().0, 2);
}

#[test]
fn without_an_edge_any_edge_trips() {
    let success = guard(None, Metric::SuccessRatio, Op::Less, 0.2, 1);
    let drill = Drill::new().window(PhaseName::Fault, &[seen(100), seen(100).failures(96)]);
    assert!(trips(&success, &drill).unwrap().1.contains("of db was 4%"));
}

#[test]
fn rates_and_amplification_have_guards_too() {
    let storm = Drill::usual(seen(500), seen(100));
    let qps = guard(Some("db"), Metric::DownstreamQps, Op::Greater, 30.0, 2);
    assert_eq!(trips(&qps, &storm).unwrap().0, 7);
    let times = guard(Some("db"), Metric::Amplification, Op::Greater, 3.0, 1);
    let (at, reason) = trips(&times, &storm).unwrap();
    assert_eq!(at, 6);
    assert!(reason.contains("amplification of db was 5x"), "{reason}");
    let slow = guard(Some("db"), Metric::FailureLatency { quantile: 0.99 }, Op::Greater, 1.0, 2);
    let failing = Drill::usual(seen(100).failures(10).failed_after(2_000), seen(100));
    assert_eq!(trips(&slow, &failing).unwrap().0, 7);
    assert_eq!(trips(&slow, &storm), None);
}

#[test]
fn a_window_that_chance_can_explain_does_not_end_a_drill() {
    let success = guard(Some("web"), Metric::SuccessRatio, Op::Less, 0.2, 1);
    // One of ten is less than a fifth, but no proof of it; ten such windows are.
    let few = |windows: usize| Drill::new().windows(PhaseName::Fault, windows, seen(10).failures(9), seen(10));
    assert_eq!(trips(&success, &few(3)), None);
    assert!(trips(&success, &few(60)).is_some_and(|(at, _)| (5..40).contains(&at)));
}

#[test]
fn a_rate_on_the_limit_ends_no_more_than_one_drill_of_twenty() {
    let qps = guard(Some("db"), Metric::DownstreamQps, Op::Greater, 2.0, 1);
    let mut random = crate::stats::simulation::Random::seeded(17);
    let ended = (0..400).filter(|_| {
        let mut drill = Drill::new();
        for index in 0..100 {
            let phase = if index < 20 { PhaseName::Baseline } else { PhaseName::Fault };
            let count = (0..20).filter(|_| random.happens(0.5)).count() + (0..20).filter(|_| random.happens(0.5)).count();
            drill = drill.window(phase, &[seen(20), seen(count as u64)]);
        }
        trips(&qps, &drill).is_some()
    });
    let ended = ended.count();
    assert!(ended <= 20, "{ended} of 400");
}

#[test]
fn facts_need_no_proof() {
    let connections = guard(Some("db"), Metric::Connections, Op::Greater, 5.0, 1);
    // One more is open after each window.
    assert_eq!(trips(&connections, &Drill::usual(seen(1), seen(1))).map(|(at, _)| at), Some(5));
    let most = guard(Some("db"), Metric::AttemptsMax, Op::Greater, 3.0, 1);
    assert_eq!(trips(&most, &Drill::usual(seen(1), seen(1))), None);
}

#[test]
fn only_edges_that_the_guard_is_about_are_waited_for() {
    let needed = |guard: &Guard| {
        let mut asked = Vec::new();
        let tripped = GuardState::new(guard, &Drill::new().edges).look_ahead(|from, needed| {
            assert_eq!(from, 0);
            asked = needed.to_vec();
            Vec::new()
        });
        assert_eq!(tripped, None);
        asked
    };
    assert_eq!(needed(&guard(Some("web"), Metric::SuccessRatio, Op::Less, 0.2, 1)), [true, false]);
    assert_eq!(needed(&guard(None, Metric::SuccessRatio, Op::Less, 0.2, 1)), [true, true]);
    assert_eq!(needed(&guard(None, Metric::LayersRetrying, Op::Greater, 1.0, 1)), [false, true]);
    // The kernel's counts are known when the window closes.
    assert_eq!(needed(&guard(Some("db"), Metric::Amplification, Op::Greater, 3.0, 1)), [false, false]);
}

#[test]
fn a_window_that_was_seen_ahead_counts_once() {
    let success = guard(Some("web"), Metric::SuccessRatio, Op::Less, 0.2, 3);
    let drill = web(&[90, 90, 90]);
    let mut state = GuardState::new(&success, &drill.edges);
    assert_eq!(state.look_ahead(|_, _| drill.windows[..2].to_vec()), None);
    assert_eq!(drill.windows[..2].iter().find_map(|window| state.observe(window)), None, "these were seen");
    let mut from = 0;
    let tripped = state.look_ahead(|next, _| {
        from = next;
        drill.windows[2..].to_vec()
    });
    assert_eq!((from, tripped.is_some()), (2, true));
}
