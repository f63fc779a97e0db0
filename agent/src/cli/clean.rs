//! `stormdrill clean`: takes out of the kernel what a killed drill left there.

use std::path::Path;

use super::output;
use crate::exit::Exit;
use crate::fault::clean::{CleanReport, Force, clean};
use crate::report::log::{chain, complain};

/// Exits 0 when nothing of a dead drill is left, 2 when something is or when it cannot be told.
pub(super) fn run(state_dir: &Path, force: bool) -> Exit {
    match clean(state_dir, if force { Force::Yes } else { Force::No }) {
        Ok(report) => {
            output::stdout(&describe(&report));
            for problem in &report.problems {
                complain(&chain(problem));
            }
            if report.is_clean() { Exit::Pass } else { Exit::Environment }
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Environment
        }
    }
}

fn describe(report: &CleanReport) -> String {
    let mut text = String::new();
    for removed in &report.removed {
        text.push_str(&format!("removed {removed}\n"));
    }
    for pid in &report.alive {
        text.push_str(&format!("left the faults of process {pid}, which is still running; `stormdrill clean --force` ends them\n"));
    }
    if text.is_empty() && report.problems.is_empty() {
        text.push_str("nothing to remove\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said() {
        assert_eq!(describe(&CleanReport::default()), "nothing to remove\n");
        let report = CleanReport { removed: vec!["sd0000010002ff on lo (egress)".to_owned()], alive: vec![77], problems: Vec::new() };
        assert_eq!(
            describe(&report),
            "removed sd0000010002ff on lo (egress)\nleft the faults of process 77, which is still running; `stormdrill clean --force` ends them\n"
        );
    }
}
