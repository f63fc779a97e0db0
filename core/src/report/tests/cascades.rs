//! Cascades: a cache that fails and a database that is asked in its place, on simulated streams.

use super::result;
use crate::judge::tests::{Drill, Seen, http_status, seen};
use crate::report::json::finding::{CASCADE, FindingView, UNNAMED_RISE};
use crate::report::json::{self, Run};
use crate::report::{html, junit, markdown};
use crate::stats::simulation::Random;
use crate::window::PhaseName;

/// Requests by mean, none of them answered beyond `failures` of them.
fn some(random: &mut Random, mean: f64, failing: f64) -> Seen {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole count")]
    let requests = random.poisson(mean) as u64;
    let failures = (0..requests).map(|_| u64::from(random.happens(failing))).sum();
    seen(requests).failures(failures)
}

/// A drill on `web`, `redis` (as `db` of the builder) and `mysql`: means of mysql in each of the phases' six windows, by phase and window.
pub(crate) fn drill(random: &mut Random, redis_fails: f64, mysql: impl Fn(PhaseName, u32) -> f64) -> Drill {
    let mut drill = Drill::new();
    drill.edges[1].name = "redis".to_owned();
    let mut third = drill.edges[1].clone();
    third.name = "mysql".to_owned();
    drill.edges.push(third);
    drill.faults = vec![http_status(400, 100)];
    drill.faults[0].spec.to = "redis".to_owned();
    for phase in [PhaseName::Baseline, PhaseName::Fault, PhaseName::Recovery] {
        for index in 0..6 {
            let failing = if phase == PhaseName::Fault { redis_fails } else { 0.0 };
            let seen = [some(random, 100.0, 0.0), some(random, 100.0, failing), some(random, mysql(phase, index), 0.0)];
            drill = drill.window(phase, &seen);
        }
    }
    drill
}

pub(crate) fn run_of(drill: Drill) -> Run {
    let mut result = result();
    result.judgements.clear();
    (result.phases, result.faults, result.edges, result.windows) = (drill.phases(), drill.faults, drill.edges, drill.windows);
    Run::of(&result)
}

fn kinds(run: &Run) -> Vec<(&str, &str)> {
    run.findings.iter().map(|finding| (finding.kind.as_str(), finding.edge.as_str())).collect()
}

fn stormy(phase: PhaseName) -> f64 {
    if phase == PhaseName::Fault { 90.0 } else { 10.0 }
}

#[test]
fn a_database_that_is_asked_in_place_of_a_failing_cache_is_a_cascade() {
    let run = run_of(drill(&mut Random::seeded(31), 0.95, |phase, _| stormy(phase)));
    assert_eq!(kinds(&run), [(CASCADE, "mysql")]);
    let found = &run.findings[0];
    assert_eq!(found.caused_by, ["redis"]);
    assert!(found.factor.is_some_and(|factor| (7.0..11.0).contains(&factor)), "{found:?}");
    assert!(found.interval[0].unwrap() > 6.0 && found.per_ingress);
    assert!(found.text.starts_with("cascade: while redis failed (9"), "{}", found.text);
    assert!(
        found.text.contains("mysql, which no fault touches, rose to ") && found.text.ends_with("no expectation names it"),
        "{}",
        found.text
    );
    assert_eq!(found.seen_after_s, Some(10.0), "the first window shows it");
    for report in [markdown::render(&run), junit::render(&run)] {
        assert!(report.contains("cascade: while redis failed"), "{report}");
    }
    let page = html::render(&run);
    for shown in ["<span class=\"badge open\">cascade</span>", "redis → mysql", "while redis failed"] {
        assert!(page.contains(shown), "{shown}");
    }
    let read = json::read_run(&json::write_run(&run)).unwrap();
    assert_eq!(read.findings, run.findings);
}

#[test]
fn a_result_of_an_earlier_version_is_looked_through_when_it_is_read() {
    let run = run_of(drill(&mut Random::seeded(31), 0.95, |phase, _| stormy(phase)));
    let mut old: serde_json::Value = serde_json::from_str(&json::write_run(&run)).unwrap();
    old.as_object_mut().unwrap().remove("findings");
    assert_eq!(json::read_run(&old.to_string()).unwrap().findings, run.findings);
}

#[test]
fn a_database_that_nobody_asked_before_is_found_too() {
    let run = run_of(drill(&mut Random::seeded(32), 0.95, |phase, _| if phase == PhaseName::Fault { 50.0 } else { 0.0 }));
    assert_eq!(kinds(&run), [(CASCADE, "mysql")]);
    assert_eq!(run.findings[0].factor, None);
    assert!(run.findings[0].text.contains("rose from nothing to 0.5"), "{}", run.findings[0].text);
}

#[test]
fn a_cache_that_was_stopped_by_hand_is_the_cause_and_the_database_that_turns_calls_down_is_not() {
    let mut random = Random::seeded(39);
    let mut stopped = drill(&mut random, 0.99, |phase, _| if phase == PhaseName::Fault { 80.0 } else { 5.0 });
    stopped.faults.clear();
    // The cache's clients try twice; the database has errors for half of what is asked.
    for window in stopped.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
        window.edges[1] = some(&mut random, 200.0, 0.99).window();
        window.edges[2] = some(&mut random, 80.0, 0.5).window();
    }
    let run = run_of(stopped.clone());
    assert_eq!(kinds(&run), [(CASCADE, "mysql"), (UNNAMED_RISE, "redis")]);
    let found = &run.findings[0];
    assert_eq!((&found.caused_by[..], found.seen_after_s), (&["redis".to_owned()][..], Some(10.0)));
    assert!(found.text.contains("(99") && found.text.contains("mysql rose to ") && !found.text.contains("touches"), "{}", found.text);
    assert!(found.text.contains("after the fault phase began: the drill has no fault; it failed ("), "{}", found.text);
    // Where a service is asked more and everything fails in part, nothing shows which came first.
    for window in stopped.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
        window.edges[1] = some(&mut random, 200.0, 0.4).window();
    }
    assert!(run_of(stopped).findings.iter().all(|finding| finding.kind != CASCADE));
}

#[test]
fn what_is_no_cascade() {
    let calm = |_, _| 10.0;
    assert_eq!(kinds(&run_of(drill(&mut Random::seeded(33), 0.95, calm))), [], "nothing rose");
    let storm = |phase, _| stormy(phase);
    let unharmed = run_of(drill(&mut Random::seeded(34), 0.0, storm));
    assert_eq!(kinds(&unharmed), [(UNNAMED_RISE, "mysql")], "nothing failed");
    let mut hit_too = drill(&mut Random::seeded(35), 0.95, storm);
    let mut second = hit_too.faults[0].clone();
    second.spec.to = "mysql".to_owned();
    hit_too.faults.push(second);
    assert_eq!(kinds(&run_of(hit_too)), [(UNNAMED_RISE, "mysql")], "a fault touches it");
    let rising = |phase, index: u32| {
        let before = match phase {
            PhaseName::Baseline => 0,
            PhaseName::Fault => 6,
            _ => 12,
        };
        40.0 + 20.0 * f64::from(before + index)
    };
    let trend = run_of(drill(&mut Random::seeded(36), 0.95, rising));
    assert_eq!(kinds(&trend), [(UNNAMED_RISE, "mysql")], "it rose before");
}

#[test]
fn twice_the_load_is_no_cascade() {
    let mut random = Random::seeded(37);
    let mut twice = drill(&mut random, 0.95, |phase, _| if phase == PhaseName::Fault { 20.0 } else { 10.0 });
    for window in twice.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
        window.edges[0] = some(&mut random, 200.0, 0.0).window();
    }
    assert_eq!(kinds(&run_of(twice)), [(UNNAMED_RISE, "web")]);
}

#[test]
fn where_the_database_retries_itself_the_sentence_says_so() {
    let mut drill = drill(&mut Random::seeded(38), 0.95, |phase, _| stormy(phase));
    for window in drill.windows.iter_mut().filter(|window| window.phase == PhaseName::Fault) {
        window.edges[2].retries.matched = 70;
    }
    let run = run_of(drill);
    assert!(run.findings[0].retries_of_rise.is_some_and(|share| share > 0.7));
    assert!(run.findings[0].text.contains("of what was added are its own retries"), "{}", run.findings[0].text);
    assert!(FindingView::all(&run) == run.findings);
}
