//! Running other programs: with an error that names what was run, and found where root's tools are even for a user whose PATH lacks them.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Folders that Debian leaves out of an ordinary user's PATH.
const SYSTEM_FOLDERS: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"];

/// Finds a program on PATH, then among the system's own tools. A path with a slash is taken as it is.
pub(crate) fn find(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let program = Path::new(program.as_ref());
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_path_buf());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(SYSTEM_FOLDERS.iter().map(PathBuf::from)).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// As [`find`], for a program that must be there.
pub(crate) fn require(program: &str) -> Result<PathBuf> {
    find(program).with_context(|| format!("`{program}` is not installed: run `cargo xtask setup`"))
}

/// Cargo: the one that runs this task, when one does.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command to its end; its output goes where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", show(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", show(command));
    }
    Ok(())
}

/// Runs a command to its end and returns what it wrote to stdout. On failure the error holds what it wrote to stderr.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", show(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}: {}", show(command), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {} is not UTF-8", show(command)))
}

/// Whether a command runs and succeeds; what it prints is thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A command as one would type it.
pub(crate) fn show(command: &Command) -> String {
    let mut text = String::from("`");
    text.push_str(&command.get_program().to_string_lossy());
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text.push('`');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_system_is_found_and_an_unknown_one_is_not() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program-anywhere"), None);
        assert_eq!(find("/no/such/file"), None);
    }

    #[test]
    fn a_failing_command_is_named_with_what_it_said() {
        let error = capture(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).map_err(|error| error.to_string());
        let text = error.err().unwrap_or_default();
        assert!(text.contains("`sh -c"), "{text}");
        assert!(text.contains("broken"), "{text}");
    }
}
