//! The tests that need a kernel of their own: a guest for each program, since an emulated machine keeps one processor busy and others would idle.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::libtest::Tally;
use super::targets::{Target, longest_first};
use super::{Options, Printing, judge, skip};
use crate::vm::{self, Bring, Ending, Job, Kernel, servers};
use crate::{paths, say};

/// The kernels of a whole run unless others are named with `--kernel`: what is supported. The first one has every test in full, beside which the others cost little: on
/// them, long tests are shortened, and those of [`ONCE`] left out.
pub(super) const KERNELS: [&str; 4] = ["6.1", "5.10", "6.12", "7.2"];

/// An emulated processor takes minutes to verify their probe, and nothing of what they add depends on the kernel.
const ONCE: [&str; 2] = ["vm_drill", "vm_observe"];

/// Starts servers in its guest.
const WITH_SERVERS: &str = "vm_observe";

/// A guest that is still running after this many seconds hangs.
const PROGRAM_LIMIT: Duration = Duration::from_secs(900);

/// The programs that take longest, longest first, so that no guest begins one of them when the others have ended.
const LONG: [&str; 4] = ["vm_observe", "vm_safety", "vm_fault", "vm_drill"];

/// A program that is going to run in a guest of its own.
pub(super) struct Guest<'t> {
    target: &'t Target,
    kernel: Arc<Kernel>,
    /// Nothing is shortened.
    in_full: bool,
}

/// The guests for test programs, on each of the kernels. On the first one, and where tests are named, none is left out or shortened. Those of a kernel that
/// cannot be had are counted as skipped.
pub(super) fn guests<'t>(targets: &[&'t Target], options: &Options, tally: &mut Tally) -> Result<Vec<Guest<'t>>> {
    let mut guests = Vec::new();
    for (place, version) in options.kernel.iter().enumerate() {
        let in_full = place == 0 || !options.only.is_empty();
        let mut targets: Vec<&Target> = targets.iter().filter(|target| in_full || !ONCE.contains(&target.name.as_str())).copied().collect();
        if targets.is_empty() {
            continue;
        }
        longest_first(&mut targets, &LONG);
        match vm::kernel_of_version(version, false) {
            Ok(kernel) => {
                let kernel = Arc::new(kernel);
                guests.extend(targets.into_iter().map(|target| Guest { target, kernel: Arc::clone(&kernel), in_full }));
            }
            Err(error) => *tally += skip_all(&targets, &format!("no kernel {version}: {error:#}"))?,
        }
    }
    Ok(guests)
}

impl Guest<'_> {
    /// Runs the program.
    pub(super) fn run(&self, printing: Printing) -> Result<Tally> {
        let title =
            format!("{} in the VM, kernel {}{}", self.target.name, self.kernel.release, if self.in_full { "" } else { ", in short" });
        say::step(&title);
        let begin = Instant::now();
        let mut output = Vec::new();
        let ending = vm::boot(&self.kernel, &job(self.target, self.in_full)?, &mut |bytes| {
            output.extend_from_slice(bytes);
            if printing == Printing::AsItComes {
                say::raw(bytes);
            }
        })?;
        if printing == Printing::AtItsEnd {
            say::step(format!("{title}, {:.0} s:", begin.elapsed().as_secs_f64()));
            say::raw(&output);
        }
        let output = String::from_utf8_lossy(&output);
        let failure = match ending {
            Ending::Exited(0) => None,
            Ending::Exited(code) => Some(format!("ended with exit code {code}")),
            Ending::TimedOut => Some("was killed, since it hung".to_owned()),
            Ending::Died(why) => Some(format!("went down with its guest: {why}")),
        };
        Ok(judge(&self.target.name, &output, failure))
    }
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
    let mut bring_along = vec![bring(&binaries.join("stormdrill"))?, bring(&binaries.join("stormdrill-lab"))?, bring(&target.program)?];
    let mut env = vec![("STORMDRILL_BIN_DIR".to_owned(), text(&binaries)?)];
    if !in_full {
        env.push(("STORMDRILL_SHORT".to_owned(), "1".to_owned()));
    }
    // Under loss everybody mostly waits, and may do so together.
    let (memory, threads) = if target.name == WITH_SERVERS {
        for server in [servers::web()?, servers::redis()?, servers::mariadb()?, servers::postgresql()?] {
            bring_along.extend(server);
        }
        (servers::MEMORY, "--test-threads=5")
    } else {
        (1024, "--test-threads=1")
    };
    let command = vec![OsString::from(&target.program), threads.into()];
    Ok(Job { command, bring: bring_along, env, memory, timeout: PROGRAM_LIMIT, ..Job::default() })
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
