//! Hostile playbooks and lines, made by a seeded generator: no panic, no unbounded time, and every error has a place.
//!
//! A few hundred in the tests. `cargo xtask fuzz-playbooks --minutes 10` goes on for that long, with `STORMDRILL_FUZZ_SECONDS` and `_SEED` set.
//! What breaks a promise is written to `target/fuzz-playbooks/`, with the seed that made it.
#![expect(clippy::unwrap_used, reason = "tests state what they expect")]
#![expect(clippy::print_stdout, reason = "a run of ten minutes says how far it is")]
#![expect(clippy::disallowed_methods, reason = "core has no clock and no files, but its fuzzer is about time and keeps what it finds")]

mod check;
mod clock;
mod make;
#[path = "../../src/stats/simulation.rs"]
#[expect(dead_code, reason = "numbers are wanted, and no arrivals")]
mod simulation;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use check::Slow;
use make::{Case, Maker};

/// Cases of the short form.
const CASES: u64 = 500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_playbook_breaks_the_reader() {
    let seconds = number("STORMDRILL_FUZZ_SECONDS");
    let seed = number("STORMDRILL_FUZZ_SEED").unwrap_or(1);
    let start = Instant::now();
    let goes_on = |done: u64| seconds.map_or(done < CASES, |seconds| start.elapsed() < Duration::from_secs(seconds));
    let (mut done, mut bytes, mut slowest, mut good) = (0_u64, 0, Slow::default(), 0_u64);
    while goes_on(done) {
        // Each case has a seed of its own, so that it can be made again by itself.
        let own = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(done);
        let case = Maker::seeded(own).case();
        match catch_unwind(AssertUnwindSafe(|| check::check(&case))) {
            Ok(checked) => {
                good += u64::from(checked.is_good);
                slowest = slowest.max(checked.slow);
            }
            Err(panic) => {
                let kept = keep(&case, own);
                panic!("seed {own}, kept in {kept}: {:?}", panic.downcast_ref::<String>());
            }
        }
        bytes += case.text().len();
        done += 1;
        if seconds.is_some() && done.is_multiple_of(100_000) {
            println!("{done} cases in {} s", start.elapsed().as_secs());
        }
    }
    println!(
        "{done} cases, {good} of them good, {} MB, in {} s; the slowest took {:.1} ms of processor time for {} bytes ({})",
        bytes / 1_000_000,
        start.elapsed().as_secs(),
        slowest.ns as f64 / 1e6,
        slowest.bytes,
        slowest.what
    );
    assert!(good > 0 && good < done, "a generator that makes only good or only bad ones tests little: {good} of {done}");
}

/// Writes a case down, and says where.
fn keep(case: &Case, seed: u64) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/fuzz-playbooks");
    let path = format!("{folder}/{}-{seed}", case.what());
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, case.text()));
    written.map_or_else(|error| format!("nothing ({error})"), |()| path)
}
