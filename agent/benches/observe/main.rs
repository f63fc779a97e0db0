//! What counting costs: the requests a second that real servers still serve while they are watched, and the processor's time a request. `cargo xtask bench
//! observe` runs it, as root.
//!
//! Everything is on one machine and in one run: pairs of the same load without and with a watcher, in turns, and the median of their ratios. The watchers are a pair
//! of hooks that do nothing, this probe without events, this probe as `stormdrill observe` uses it, and, where it is installed, a counting script of bpftrace.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that fails may stop, and prints its table")]

mod empty;
mod load;
mod watch;

use load::{Amount, Load};
use watch::Watcher;

/// Pairs of each watcher under each load.
const PAIRS: usize = 9;

/// Without and with, of one pair.
struct Pair {
    without: Amount,
    with: Amount,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A pair; every second one the other way round, so that what drifts favours neither.
fn pair(load: &Load, watcher: &Watcher, is_reversed: bool) -> Pair {
    let watched = || {
        let watching = watcher.watch(load);
        let with = load.run();
        watching.end(&with);
        with
    };
    if is_reversed {
        let with = watched();
        Pair { without: load.run(), with }
    } else {
        let without = load.run();
        Pair { without, with: watched() }
    }
}

fn main() {
    // What `cargo test` and `cargo bench` add is of no meaning here; a number is how many pairs there are.
    let pairs = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(PAIRS);
    println!("kernel {}, {pairs} pairs each\n", stormdrill::fault::capability::kernel_release());
    println!(
        "| load | watcher | requests a second, with over without | processor time a request, with over without |\n|---|---|---:|---:|"
    );
    for load in [Load::nginx(), Load::redis()] {
        // Caches, connections and the clock of the processor settle.
        load.run();
        for watcher in Watcher::all() {
            let all: Vec<Pair> = (0..pairs).map(|index| pair(&load, &watcher, index % 2 == 1)).collect();
            let rate = median(all.iter().map(|pair| pair.with.per_second() / pair.without.per_second()).collect());
            let cost = median(all.iter().map(|pair| pair.with.processor_per_request() / pair.without.processor_per_request()).collect());
            println!("| {} | {} | {rate:.3} | {cost:.3} |", load.name(), watcher.name());
        }
        println!("\nWithout a watcher: {:.0} requests a second.", load.run().per_second());
        println!("{}\n", watch::hook_cost(&load));
    }
}
