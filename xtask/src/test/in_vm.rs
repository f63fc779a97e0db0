//! The tests that need a kernel of their own: a guest for each program, since an emulated machine keeps one processor busy and others would idle.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::libtest::Tally;
use super::targets::Target;
use super::{judge, skip};
use crate::vm::{self, Bring, Ending, Job, Kernel};
use crate::{paths, say};

/// The kernels of a whole run unless others are named. An emulated guest takes a quarter of an hour for all tests, so that there is one here, and the
/// others (5.10, 6.12, 7.2) are asked for with `--kernel`. The first one has every test in full; on more, long tests are shortened, and those of
/// [`ONCE`] left out.
pub(super) const KERNELS: [&str; 1] = ["6.1"];

/// Whole drills: an emulated processor takes minutes to verify their probe, and nothing of what they add depends on the kernel.
const ONCE: [&str; 1] = ["vm_drill"];

/// A guest that is still running after this many seconds hangs.
const PROGRAM_LIMIT: Duration = Duration::from_secs(900);

/// The programs that take longest, longest first, so that no guest begins one of them when the others have ended.
const LONG: [&str; 3] = ["vm_safety", "vm_fault", "vm_drill"];

/// A guest takes one processor and a gigabyte.
const GUESTS: usize = 3;

/// Runs test programs on one kernel, each in a guest of its own, as many side by side as there are processors. `in_full`: none is left out or shortened.
pub(super) fn run(targets: &[&Target], version: &str, in_full: bool) -> Result<Tally> {
    let mut targets: Vec<&Target> = targets.iter().filter(|target| in_full || !ONCE.contains(&target.name.as_str())).copied().collect();
    if targets.is_empty() {
        return Ok(Tally::default());
    }
    let kernel = match vm::kernel_of_version(version, false) {
        Ok(kernel) => kernel,
        Err(error) => return skip_all(&targets, &format!("no kernel {version}: {error:#}")),
    };
    targets.sort_by_key(|target| LONG.iter().position(|name| *name == target.name).unwrap_or(LONG.len()));
    let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
    say::step(format!("{} in the VM, kernel {}{}", names.join(", "), kernel.release, if in_full { "" } else { ", in short" }));
    let guests = thread::available_parallelism().map_or(1, NonZero::get).min(GUESTS);
    let next = Mutex::new(targets.into_iter());
    let total = Mutex::new(Ok(Tally::default()));
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..guests {
            scope.spawn(|| {
                while let Some(target) = take() {
                    let tally = run_one(target, &kernel, in_full);
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    match (&mut *total, tally) {
                        (Ok(total), Ok(tally)) => *total += tally,
                        (Ok(_), Err(error)) => *total = Err(error),
                        (Err(_), _) => {}
                    }
                }
            });
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one program in a guest.
fn run_one(target: &Target, kernel: &Kernel, in_full: bool) -> Result<Tally> {
    let mut output = Vec::new();
    let mut said = 0;
    let ending = vm::boot(kernel, &job(target, in_full)?, &mut |bytes| {
        output.extend_from_slice(bytes);
        // Whole lines: other guests print beside this one.
        if let Some(end) = output.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1).filter(|end| *end > said) {
            say::raw(&output[said..end]);
            said = end;
        }
    })?;
    say::raw(&output[said..]);
    let output = String::from_utf8_lossy(&output);
    let failure = match ending {
        Ending::Exited(0) => None,
        Ending::Exited(code) => Some(format!("ended with exit code {code}")),
        Ending::TimedOut => Some("was killed, since it hung".to_owned()),
        Ending::Died(why) => Some(format!("went down with its guest: {why}")),
    };
    Ok(judge(&target.name, &output, failure))
}

/// Counts tests that cannot be run here.
pub(super) fn skip_all(targets: &[&Target], why: &str) -> Result<Tally> {
    let mut tally = Tally::default();
    for target in targets {
        tally += skip(target, why)?;
    }
    Ok(tally)
}

fn job(target: &Target, in_full: bool) -> Result<Job> {
    let binaries = paths::target().join("debug");
    let bring = |host: &Path| -> Result<Bring> { Ok(Bring { host: host.to_path_buf(), guest: text(host)? }) };
    let bring_along = vec![bring(&binaries.join("stormdrill"))?, bring(&binaries.join("stormdrill-lab"))?, bring(&target.program)?];
    let mut env = vec![("STORMDRILL_BIN_DIR".to_owned(), text(&binaries)?)];
    if !in_full {
        env.push(("STORMDRILL_SHORT".to_owned(), "1".to_owned()));
    }
    let command = vec![OsString::from(&target.program), "--test-threads=1".into()];
    Ok(Job { command, bring: bring_along, env, memory: 1024, timeout: PROGRAM_LIMIT, ..Job::default() })
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_kernel_is_the_one_that_the_others_are_compared_with() {
        assert_eq!(KERNELS[0], "6.1");
    }
}
