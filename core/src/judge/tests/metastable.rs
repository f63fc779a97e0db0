//! Whether a service comes back, judged on a simulated queue: N. Bronson's example (HotOS 2021), a store of 300 requests a second before
//! which requests wait, callers that give up after a second, and an outage of ten seconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Drill, SECONDS, http_status, seen};
use crate::expectation::{Demand, Expectation, Metric, Op};
use crate::judge::{Judgement, Verdict};
use crate::window::{EdgeWindow, Failure, PhaseName, Retries};

fn expectation() -> Expectation {
    Expectation {
        text: "not metastable".to_owned(),
        edge: None,
        metric: Metric::Metastable,
        demand: Demand::Limit { op: Op::AtMost, value: 0.0, increase: false, phase: PhaseName::Recovery, every_window: false },
    }
}

/// Requests at `rate` a second, each tried up to `tries` times; `drops`: the store drops what came during the outage.
///
/// Six windows of baseline, one of the outage, and so many after it.
fn queue(rate: u64, tries: u32, drops: bool, recovery: usize) -> Drill {
    const MICROS: u64 = 1_000_000;
    let windows = 6 + 1 + recovery;
    let (outage, healed) = (6 * SECONDS * MICROS, 7 * SECONDS * MICROS);
    let mut web = vec![EdgeWindow::default(); windows];
    let mut db = vec![EdgeWindow::default(); windows];
    let at = |micros: u64| usize::try_from(micros / (SECONDS * MICROS)).unwrap_or(usize::MAX);
    // When an attempt arrives, which of its request it is, and when the request came.
    let total = windows as u64 * SECONDS * rate;
    let mut coming: BinaryHeap<Reverse<(u64, u32, u64)>> = (0..total).map(|n| Reverse((n * MICROS / rate, 1, n * MICROS / rate))).collect();
    let mut free = 0;
    while let Some(Reverse((now, number, came))) = coming.pop() {
        let Some(window) = db.get_mut(at(now)) else {
            web[at(came)].pending += 1;
            continue;
        };
        window.counts.requests += 1;
        window.attempts += 1;
        window.retries = Retries { matched: window.retries.matched + u64::from(number > 1), ..window.retries };
        let lost = drops && (outage..healed).contains(&now);
        let done = if lost {
            u64::MAX
        } else {
            let start = if (outage..healed).contains(&free.max(now)) { healed } else { free.max(now) };
            free = start + MICROS / 300;
            free
        };
        let entry = &mut web[at(came)];
        if number == 1 {
            entry.counts.requests += 1;
            entry.attempts += 1;
        }
        if done - now <= MICROS {
            window.latency_ns.push((done - now) * 1000);
            entry.latency_ns.push((done - came) * 1000);
        } else {
            window.failures.entry(Failure::ClientAbort).and_modify(|count| *count += 1).or_insert(1);
            if number < tries {
                coming.push(Reverse((now + MICROS, number + 1, came)));
            } else {
                entry.failures.entry(Failure::ClientAbort).and_modify(|count| *count += 1).or_insert(1);
            }
        }
    }
    let mut drill = Drill::new();
    for (index, (web, db)) in web.into_iter().zip(db).enumerate() {
        let phase = match index {
            0..6 => PhaseName::Baseline,
            6 => PhaseName::Fault,
            _ => PhaseName::Recovery,
        };
        drill = drill.window(phase, &[seen(0), seen(0)]);
        if let Some(window) = drill.windows.last_mut() {
            window.edges = vec![web, db];
        }
    }
    drill.faults = vec![http_status(10, 10)];
    drill
}

fn judged(drill: &Drill) -> (Verdict, String) {
    let Judgement { verdict, reason, .. } = drill.judge(&expectation());
    (verdict, reason.unwrap_or_default())
}

#[test]
fn two_tries_at_280_a_second_never_come_back() {
    let (verdict, reason) = judged(&queue(280, 2, false, 18));
    assert_eq!(verdict, Verdict::Fail, "{reason}");
    assert!(reason.starts_with("metastable") && reason.contains("at 0% of") && reason.contains("2x"), "{reason}");
}

#[test]
fn four_tries_do_not_come_back_at_200_even_if_the_outage_loses_its_requests() {
    let (verdict, reason) = judged(&queue(200, 4, true, 18));
    assert_eq!(verdict, Verdict::Fail, "{reason}");
    assert!(reason.starts_with("metastable"), "{reason}");
}

#[test]
fn below_the_hidden_capacity_and_without_retries_it_comes_back() {
    for (rate, tries, drops) in [(100, 2, false), (130, 2, false), (200, 1, false), (250, 1, false), (280, 2, true), (280, 1, true)] {
        assert_eq!(judged(&queue(rate, tries, drops, 18)), (Verdict::Pass, String::new()), "{rate} {tries}");
    }
}

#[test]
fn a_queue_that_drains_without_retries_is_not_called_metastable() {
    // 295 of 300 drain within ten minutes, and three do not show it: all that is seen is that retries are not to blame.
    let (verdict, reason) = judged(&queue(295, 1, false, 18));
    assert_eq!(verdict, Verdict::Fail, "{reason}");
    assert!(reason.starts_with("not metastable, but degraded"), "{reason}");
}

#[test]
fn too_short_a_recovery_tells_nothing() {
    let (verdict, reason) = judged(&queue(280, 2, false, 3));
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(reason.contains("3 windows, too few for a trend"), "{reason}");
}

#[test]
fn a_slow_fall_is_a_recovery_under_way_with_its_time() {
    let mut drill = Drill::usual(seen(300).retries(200), seen(100));
    drill.windows.truncate(12);
    for step in 0..8_u64 {
        let attempts = 300 - 15 * step;
        drill = drill.window(PhaseName::Recovery, &[seen(100).failures(40 - 2 * step), seen(attempts).retries(attempts - 100)]);
    }
    let (verdict, reason) = judged(&drill);
    assert_eq!(verdict, Verdict::Pass, "{reason}");
    // From 75% at the end of the last window to 95% at 0.2 points a second; attempts are back sooner.
    assert!(reason.contains("success rises") && reason.contains("back in 100 s"), "{reason}");
}

/// Twelve windows after the fault, in which of a hundred requests so many fail after so many milliseconds.
fn after(failures: fn(u64) -> u64, latency_ns: fn(u64) -> u64) -> Drill {
    let mut drill = Drill::usual(seen(100).failures(100), seen(100));
    drill.windows.truncate(12);
    for step in 0..12 {
        let down = seen(100).failures(failures(step));
        drill = drill.window(PhaseName::Recovery, &[down, down]);
        for edge in drill.windows.last_mut().into_iter().flat_map(|window| &mut window.edges) {
            edge.latency_ns = vec![latency_ns(step); 100];
        }
    }
    drill
}

#[test]
fn errors_that_come_quicker_are_no_recovery() {
    let (verdict, reason) = judged(&after(|_| 100, |step| (500 - 40 * step) * 1_000_000));
    assert_eq!(verdict, Verdict::Fail, "{reason}");
    assert!(reason.contains("success stays at 0%"), "{reason}");
}

#[test]
fn a_recovery_that_takes_weeks_is_none() {
    // All succeed, but so slowly, and with so many retries, that it is not back; times fall by a microsecond a window.
    let mut drill = after(|_| 0, |step| 500_000_000 - 1_000 * step);
    for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Recovery) {
        window.edges[1].retries.matched = 50;
    }
    let (verdict, reason) = judged(&drill);
    assert_eq!(verdict, Verdict::Inconclusive, "{reason}");
    assert!(reason.contains("back, and the retries are not") && reason.contains("it would take more than 1200 s"), "{reason}");
}

#[test]
fn a_recovered_service_with_few_requests_is_told_what_it_lacks() {
    let few = seen(25);
    let drill = Drill::new().windows(PhaseName::Baseline, 12, few, few).windows(PhaseName::Fault, 6, few, few.failures(10));
    let (verdict, reason) = judged(&drill.windows(PhaseName::Recovery, 12, few, few));
    assert_eq!(verdict, Verdict::Inconclusive, "{reason}");
    assert!(reason.contains("success is 100%") && reason.contains("fewer than 30 requests"), "{reason}");
}

#[test]
fn more_load_than_before_proves_nothing_and_no_fault_tests_nothing() {
    let mut drill = queue(280, 2, false, 18);
    for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Recovery) {
        window.edges[0].counts.requests *= 2;
    }
    assert_eq!(judged(&drill).0, Verdict::Inconclusive);
    let mut drill = queue(100, 2, false, 18);
    drill.faults = vec![http_status(10, 0)];
    assert_eq!(judged(&drill).0, Verdict::Vacuous);
}
