//! What holds for every input.

use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::expectation::grammar::{GrammarError, parse_expectation, parse_guard};
use stormdrill_core::plan;
use stormdrill_core::plan::host::HostFacts;
use stormdrill_core::playbook::problem::{Problem, Source};
use stormdrill_core::playbook::{parse_with, serve};

use crate::clock;
use crate::make::Case;

/// Processor time that any input may take, nanoseconds, and what each byte of it may add. Builds without optimisation get more.
const BASE_NS: u64 = 50_000_000;
const BYTE_NS: u64 = 500;
const UNOPTIMISED: u64 = if cfg!(debug_assertions) { 15 } else { 1 };

/// How often an input that took longer is tried; the least counts.
const TRIES: u32 = 5;

/// The input that took longest.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slow {
    pub(crate) ns: u64,
    pub(crate) bytes: usize,
    pub(crate) what: &'static str,
}

impl Slow {
    pub(crate) fn max(self, other: Self) -> Self {
        if other.ns > self.ns { other } else { self }
    }
}

/// What was found of an input that broke nothing.
pub(crate) struct Checked {
    pub(crate) slow: Slow,
    pub(crate) is_good: bool,
}

/// Panics where a promise is broken.
pub(crate) fn check(case: &Case) -> Checked {
    let bytes = case.text().len();
    let (is_good, mut ns) = timed(case);
    let most = UNOPTIMISED * (BASE_NS + BYTE_NS * bytes as u64);
    // Whoever shares the processor's caches slows this thread down too, but hardly each time: what is slow is slow whenever it is tried.
    for _ in 1..TRIES {
        if ns > most {
            ns = ns.min(timed(case).1);
        }
    }
    assert!(ns <= most, "{} ms of processor time for {bytes} bytes", ns / 1_000_000);
    Checked { slow: Slow { ns, bytes, what: case.what() }, is_good }
}

/// Whether the input is good, and how long it took, nanoseconds of this thread.
fn timed(case: &Case) -> (bool, u64) {
    let start = clock::now();
    let is_good = match case {
        Case::Playbook(_, text) => playbook(text, &[]),
        Case::Override(text, path, value) => playbook(text, &[(path, value)]),
        Case::Line(line) => lines(line),
        Case::Config(text) => {
            let read = serve::parse(text);
            if let Err(problems) = &read {
                places(problems, text, &[]);
            }
            read.is_ok()
        }
    };
    (is_good, start.elapsed_ns())
}

fn playbook(text: &str, overrides: &[(&str, &str)]) -> bool {
    match parse_with(text, overrides) {
        Ok(playbook) => {
            // What is accepted can be planned, and its lines are read back from how they are printed.
            let facts = HostFacts::default();
            assert!(!plan::text(&plan::plan(&playbook, &facts), &facts).is_empty());
            for line in &playbook.expect {
                reads_back(&line.to_string(), &playbook.edges);
            }
            true
        }
        Err(problems) => {
            let sets: Vec<String> = overrides.iter().map(|(path, value)| format!("{path}={value}")).collect();
            places(&problems, text, &sets);
            false
        }
    }
}

/// Every problem has a place in its text, on whole characters, and something to say.
fn places(problems: &[Problem], text: &str, sets: &[String]) {
    assert!(!problems.is_empty(), "refused without a reason");
    for problem in problems {
        let of = match problem.place.source {
            Source::File => text,
            Source::Set(index) => &sets[index],
        };
        assert!(of.get(problem.place.start..problem.place.end).is_some(), "{problem:?}");
        assert!(!problem.message.is_empty(), "{problem:?}");
        let (line, column) = problem.place.line_and_column(of);
        assert!(line >= 1 && column >= 1 && line <= of.matches('\n').count() + 1, "{line}:{column}");
    }
}

fn edges() -> Vec<EdgeSpec> {
    let edge = |name: &str, role| EdgeSpec { name: name.to_owned(), role, address: None, ports: None, protocol: None };
    vec![edge("web", Role::Ingress), edge("db", Role::Downstream), edge("retry", Role::Downstream)]
}

fn lines(line: &str) -> bool {
    let edges = edges();
    let (expectation, guard) = (parse_expectation(line, &edges), parse_guard(line, &edges));
    for error in [expectation.as_ref().err(), guard.as_ref().err()].into_iter().flatten() {
        in_place(error, line);
    }
    if let Ok(guard) = &guard {
        let printed = guard.to_string();
        let mut again = parse_guard(&printed, &edges).unwrap_or_else(|error| panic!("{printed:?} of {line:?}: {error:?}"));
        again.text.clone_from(&guard.text);
        assert_eq!(again, *guard);
    }
    if let Ok(expectation) = &expectation {
        let printed = expectation.to_string();
        let mut again = parse_expectation(&printed, &edges).unwrap_or_else(|error| panic!("{printed:?} of {line:?}: {error:?}"));
        again.text.clone_from(&expectation.text);
        assert_eq!(again, *expectation);
    }
    expectation.is_ok() || guard.is_ok()
}

fn reads_back(printed: &str, edges: &[EdgeSpec]) {
    assert!(parse_expectation(printed, edges).is_ok(), "{printed:?}");
}

fn in_place(error: &GrammarError, line: &str) {
    assert!(line.get(error.range.clone()).is_some(), "{error:?} of {line:?}");
    assert!(!error.message.is_empty(), "{error:?}");
}
