//! Reads what Rust's test programs print: the closing `test result:` line, and the list of tests.

use std::fmt;
use std::ops::AddAssign;

/// How many tests passed, failed, and were not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// Closing lines that were read; a program that prints none has not run to its end.
    pub(super) closings: u64,
}

impl Tally {
    /// Adds up every closing line in what one or more test programs printed. An ignored test counts as skipped.
    pub(super) fn of_output(text: &str) -> Self {
        let mut tally = Self::default();
        for line in text.lines() {
            let Some(rest) = line.trim().strip_prefix("test result: ") else { continue };
            let Some((_, counts)) = rest.split_once(". ") else { continue };
            for part in counts.split("; ") {
                let Some((count, what)) = part.split_once(' ') else { continue };
                let Ok(count) = count.parse::<u64>() else { continue };
                match what {
                    "passed" => tally.passed += count,
                    "failed" => tally.failed += count,
                    "ignored" => tally.skipped += count,
                    _ => {}
                }
            }
            tally.closings += 1;
        }
        tally
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.closings += other.closings;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// The names in what a test program prints for `--list --format terse`.
pub(super) fn listed(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.trim().strip_suffix(": test")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up() {
        let text = "running 2 tests\ntest a ... ok\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s\n\n\
                    test result: FAILED. 4 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s\r\n";
        assert_eq!(Tally::of_output(text), Tally { passed: 6, failed: 5, skipped: 1, closings: 2 });
    }

    #[test]
    fn a_program_that_printed_no_closing_line_counts_nothing() {
        assert_eq!(Tally::of_output("running 2 tests\ntest a ... ok\n"), Tally::default());
        assert_eq!(Tally::of_output("a test said: test result: ok. 1 passed; 0 failed\n"), Tally::default());
    }

    #[test]
    fn the_closing_line_is_the_one_that_is_read_in_any_language() {
        assert_eq!(Tally { passed: 3, failed: 0, skipped: 1, closings: 1 }.to_string(), "3 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_list_of_tests_has_their_names() {
        assert_eq!(listed("a::b: test\nc: test\nd: benchmark\n"), ["a::b", "c"]);
    }
}
