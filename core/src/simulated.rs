//! How often each test is wrong, by simulation: streams of known truth, and the share of drills with a wrong answer.
//!
//! A study states the most errors that its test may make. It is done so often that a short run finds gross mistakes, and with
//! `STORMDRILL_LONG=1` (`cargo xtask simulate`) 10,000 times. Whether what was found goes with what is stated is the exact binomial test, at
//! 1 in 10,000: an interval that fits the number of runs, and no tolerance beside it. Seeds are fixed, so that a study does not change its mind.

use crate::stats::simulation::Random;
use crate::stats::{Tails, beta, proportion};

mod drills;
mod guards;
mod rates;
mod reports;
mod shares;
mod times;
mod windows;

/// Runs of the long form.
const LONG: u32 = 10_000;

/// Runs of the short one.
const SHORT: u32 = 100;

/// The chance that a study whose statement holds is called wrong.
const DOUBT: f64 = 1e-4;

/// One test, one truth, and one error that can be made of it.
pub(crate) struct Study<'a> {
    /// The test.
    pub(crate) test: &'a str,
    /// The truth, and the answer that is wrong of it.
    pub(crate) error: &'a str,
    /// The most of it that the test is to make: a share of the drills.
    pub(crate) stated: f64,
}

impl Study<'_> {
    /// Counts the drills in which `errs`, and holds the share against what is stated. Prints a row of the table in docs/error-rates.md.
    pub(crate) fn run(&self, errs: impl FnMut(&mut Random) -> bool) {
        let (errors, runs) = self.count(errs);
        let surprise = beta::binomial_at_least(errors, runs, self.stated);
        assert!(surprise > DOUBT, "{}, {}: {errors} of {runs}, stated {}", self.test, self.error, self.stated);
    }

    /// As [`Study::run`], for what is done wrong on purpose: a rule that must be seen to fail.
    pub(crate) fn run_naive(&self, errs: impl FnMut(&mut Random) -> bool) {
        let (errors, runs) = self.count(errs);
        let surprise = beta::binomial_at_least(errors, runs, self.stated);
        assert!(surprise < DOUBT, "{}, {}: only {errors} of {runs}", self.test, self.error);
    }

    fn count(&self, mut errs: impl FnMut(&mut Random) -> bool) -> (f64, f64) {
        let runs = if std::env::var_os("STORMDRILL_LONG").is_some() { LONG } else { SHORT };
        // The same name, the same numbers.
        let seed = self.test.bytes().chain(self.error.bytes()).fold(17_u64, |seed, byte| seed.wrapping_mul(1099).wrapping_add(byte.into()));
        let mut random = Random::seeded(seed);
        let errors = f64::from((0..runs).map(|_| u32::from(errs(&mut random))).sum::<u32>());
        let runs = f64::from(runs);
        let interval = proportion::interval(errors, runs, Tails::each(0.025));
        #[expect(clippy::print_stdout, reason = "`cargo xtask simulate` makes the page of what is printed")]
        let print = |row: String| println!("\n{row}");
        print(format!(
            "| {} | {} | {:.1}% | {:.2}% | {:.2}% to {:.2}% |",
            self.test,
            self.error,
            100.0 * self.stated,
            100.0 * errors / runs,
            100.0 * interval.lo,
            100.0 * interval.hi
        ));
        (errors, runs)
    }
}
