//! `stormdrill clean`: takes out of the kernel what a killed drill left there.

use std::path::Path;

use super::output;
use crate::cgroup;
use crate::claim::Claim;
use crate::exit::Exit;
use crate::fault::clean::{CleanReport, Force, clean};
use crate::fault::journal;
use crate::report::log::{chain, complain};

/// Exits 0 when nothing of a dead drill is left, 2 when something is or when it cannot be told.
pub(super) fn run(state_dir: &Path, force: bool) -> Exit {
    match clean(state_dir, if force { Force::Yes } else { Force::No }) {
        Ok(mut report) => {
            // On a host that has no cgroup2 mounted, a drill mounts one; nothing needs it between drills.
            if report.alive.is_empty() && cgroup::take_off(state_dir) {
                report.removed.push("the cgroup2 hierarchy that was mounted in the state directory".to_owned());
            }
            output::stdout(&describe(&report));
            for problem in &report.problems {
                complain(&chain(problem));
            }
            let swept = Claim::sweep(state_dir).inspect_err(|error| complain(&chain(error)));
            if report.is_clean() && swept.is_ok() { Exit::Pass } else { Exit::Environment }
        }
        Err(error) => {
            complain(&chain(&error));
            Exit::Environment
        }
    }
}

/// Says on stderr what a drill could not remove or a killed one left, for every command that does not do something about it itself. Who may not
/// read the journals is not told.
pub(super) fn warn(state_dir: &Path) {
    if let Some(text) = journal::of_dead_drills(state_dir).ok().and_then(|names| warning(&names)) {
        output::stderr(&text);
    }
}

fn warning(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| {
        format!("warning: {} of a drill that is over may still be in the kernel; `stormdrill clean` removes it\n", names.join(", "))
    })
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
    fn what_is_left_is_named_and_nothing_is_not_worth_a_word() {
        assert_eq!(warning(&[]), None);
        assert!(warning(&["sd0000010002ff".to_owned()]).is_some_and(|text| text.starts_with("warning: sd0000010002ff of a drill")));
    }

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
