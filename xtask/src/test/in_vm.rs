//! The tests that need a kernel of their own: one guest a kernel, in which all of them run one after another.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::libtest::Tally;
use super::targets::Target;
use super::{judge, skip};
use crate::vm::{self, Bring, Ending, Job};
use crate::{paths, say};

/// The kernels of a whole run unless others are named. An emulated guest takes a quarter of an hour for all tests, so that there is one here, and the
/// others (5.10, 6.12, 7.2) are asked for with `--kernel`. The first one has every test in full; on more, long tests are shortened, and those of
/// [`ONCE`] left out.
pub(super) const KERNELS: [&str; 1] = ["6.1"];

/// Whole drills: an emulated processor takes minutes to verify their probe, and nothing of what they add depends on the kernel.
const ONCE: [&str; 1] = ["vm_drill"];

/// A guest that is still running after this many seconds for each program hangs.
const PROGRAM_LIMIT: Duration = Duration::from_secs(900);

/// Runs test programs on one kernel. `in_full`: none is left out or shortened.
pub(super) fn run(targets: &[&Target], version: &str, in_full: bool) -> Result<Tally> {
    let targets: Vec<&Target> = targets.iter().filter(|target| in_full || !ONCE.contains(&target.name.as_str())).copied().collect();
    if targets.is_empty() {
        return Ok(Tally::default());
    }
    let kernel = match vm::kernel_of_version(version, false) {
        Ok(kernel) => kernel,
        Err(error) => return skip_all(&targets, &format!("no kernel {version}: {error:#}")),
    };
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    say::step(format!("{} in the VM, kernel {}{}", names.join(", "), kernel.release, if in_full { "" } else { ", in short" }));
    let mut output = Vec::new();
    let ending = vm::boot(&kernel, &job(&targets, in_full)?, &mut |bytes| {
        output.extend_from_slice(bytes);
        say::raw(bytes);
    })?;
    let output = String::from_utf8_lossy(&output);
    let failure = match ending {
        Ending::Exited(0) => None,
        Ending::Exited(code) => Some(format!("ended with exit code {code}")),
        Ending::TimedOut => Some("was killed, since it hung".to_owned()),
        Ending::Died(why) => Some(format!("went down with its guest: {why}")),
    };
    Ok(all_ended(judge(&names.join(", "), &output, failure), names.len()))
}

/// A program that crashed prints no closing line, and is itself a failed test.
fn all_ended(mut tally: Tally, programs: usize) -> Tally {
    if tally.closings < programs as u64 && tally.failed == 0 {
        tally.failed = 1;
    }
    tally
}

/// Counts tests that cannot be run here.
pub(super) fn skip_all(targets: &[&Target], why: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    for target in targets {
        tally += skip(target, why)?;
    }
    Ok(tally)
}

fn job(targets: &[&Target], in_full: bool) -> Result<Job> {
    let binaries = paths::target().join("debug");
    let bring = |host: &Path| -> Result<Bring> { Ok(Bring { host: host.to_path_buf(), guest: text(host)? }) };
    let mut bring_along = vec![bring(&binaries.join("stormdrill"))?, bring(&binaries.join("stormdrill-lab"))?];
    let mut programs = Vec::new();
    for target in targets {
        bring_along.push(bring(&target.program)?);
        programs.push(text(&target.program)?);
    }
    let mut env = vec![("STORMDRILL_BIN_DIR".to_owned(), text(&binaries)?)];
    if !in_full {
        env.push(("STORMDRILL_SHORT".to_owned(), "1".to_owned()));
    }
    let mut command: Vec<OsString> = vec!["sh".into(), "-c".into(), SCRIPT.into(), "sh".into()];
    command.extend(programs.iter().map(OsString::from));
    let timeout = PROGRAM_LIMIT * u32::try_from(targets.len()).unwrap_or(u32::MAX);
    Ok(Job { command, bring: bring_along, env, memory: 1024, timeout, ..Job::default() })
}

/// Runs its arguments one after another, whatever comes of those before, and fails if one did.
const SCRIPT: &str = "code=0; for program do \"$program\" --test-threads=1 || code=1; done; exit $code";

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_prints_no_result_is_a_failed_test_beside_one_that_does() {
        let fine = Tally { passed: 2, closings: 2, ..Tally::default() };
        assert_eq!(all_ended(fine, 2).failed, 0);
        assert_eq!(all_ended(fine, 3).failed, 1);
        assert_eq!(all_ended(Tally { failed: 2, closings: 1, ..Tally::default() }, 2).failed, 2);
    }

    #[test]
    fn the_first_kernel_is_the_one_that_the_others_are_compared_with() {
        assert_eq!(KERNELS[0], "6.1");
    }
}
