//! Processes that were killed and have not ended yet.
//!
//! The kernel takes its time to end a process: what it has of BPF is freed as its files are closed, for half a second and more, and only then
//! are its locks given back. Meanwhile it looks alive, but does nothing of its own will any more; who is asked to clean up after it has to wait for
//! it, since what it began in the kernel may still be finished there.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How long to wait for a killed process. A kernel that takes longer is in trouble, and has to be said so.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// `PF_EXITING` and `PF_SIGNALED` of the kernel's `sched.h`.
const ENDING_FLAGS: u32 = 0x4 | 0x400;

/// What is known of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It runs, or sleeps.
    Running,
    /// It was killed, or is exiting, and has not ended.
    Ending,
    /// There is none, or it has ended.
    Over,
}

/// What is known of a process, without waiting.
///
/// # Errors
/// When `/proc` cannot be read; that says nothing about the process.
pub(crate) fn state(pid: u32) -> io::Result<State> {
    let (Some(status), Some(stat)) = (read(pid, "status")?, read(pid, "stat")?) else { return Ok(State::Over) };
    Ok(if is_ending(&status, &stat) { State::Ending } else { State::Running })
}

/// Waits for a process if it is ending, up to [`PATIENCE`].
///
/// # Errors
/// As [`state`], and when the kernel does not let it be waited for.
pub(crate) fn wait_for(pid: u32) -> io::Result<State> {
    let now = state(pid)?;
    if now != State::Ending {
        return Ok(now);
    }
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(State::Over) };
    let process = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(rustix::io::Errno::SRCH) => return Ok(State::Over),
        Err(error) => return Err(error.into()),
    };
    // Readable as soon as its last thread has ended, which is after its files were closed; whether it was waited for by its parent or not.
    let timeout = Timespec::try_from(PATIENCE).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout)) {
        Ok(1..) => Ok(State::Over),
        // Whoever is interrupted has a signal to attend to.
        Ok(0) | Err(rustix::io::Errno::INTR) => state(pid),
        Err(error) => Err(error.into()),
    }
}

/// A file of a process in `/proc`; `None` if there is no such process.
pub(super) fn read(pid: u32, file: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(format!("/proc/{pid}/{file}")) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// By `/proc/PID/status` and `/proc/PID/stat`. The first thread may be a zombie while others have not ended; a SIGKILL stays pending for the process as a whole
/// until it is gone.
fn is_ending(status: &str, stat: &str) -> bool {
    const SIGKILL: u64 = 1 << (libc::SIGKILL - 1);
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let has_kill = |name: &str| field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & SIGKILL != 0);
    let is_dead = field("State:").is_some_and(|state| state.starts_with(['Z', 'X']));
    // The command's name may hold spaces and brackets: the fields begin behind the last bracket, with the third; flags are the ninth.
    let flags = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(6)).and_then(|flags| flags.parse::<u32>().ok());
    is_dead || has_kill("SigPnd:") || has_kill("ShdPnd:") || flags.is_some_and(|flags| flags & ENDING_FLAGS != 0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::process::Command;

    use super::*;

    const ALIVE: &str = "Name:\tstormdrill\nState:\tS (sleeping)\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n";
    const STAT: &str = "12 (a) b) S 1 12 1 0 -1 4194560 100";

    #[test]
    fn a_process_that_was_killed_is_told_from_one_that_runs() {
        assert!(!is_ending(ALIVE, STAT));
        assert!(!is_ending(&ALIVE.replace("ShdPnd:\t0000000000000000", "ShdPnd:\t0000000000004002"), STAT));
        assert!(is_ending(&ALIVE.replace("ShdPnd:\t0000000000000000", "ShdPnd:\t0000000000000100"), STAT));
        assert!(is_ending(&ALIVE.replace("SigPnd:\t0000000000000000", "SigPnd:\t0000000000000100"), STAT));
        assert!(is_ending(&ALIVE.replace("S (sleeping)", "Z (zombie)"), STAT));
        assert!(is_ending(ALIVE, &STAT.replace("4194560", "4194564")));
    }

    #[test]
    fn a_process_that_runs_is_not_waited_for_and_one_that_was_killed_is() {
        assert_eq!(wait_for(std::process::id()).unwrap(), State::Running);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(wait_for(child.id()).unwrap(), State::Running);
        child.kill().unwrap();
        // It is not waited for by its parent, and stays a zombie.
        assert_eq!(wait_for(child.id()).unwrap(), State::Over);
        child.wait().unwrap();
        assert_eq!(wait_for(child.id()).unwrap(), State::Over);
    }
}
