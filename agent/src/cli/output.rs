//! Where results go: stdout or a file.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes to stdout. A reader that has gone away is no error of ours.
pub(super) fn stdout(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// Writes to stderr.
pub(super) fn stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Whether a file can be written, found out before the work whose result it shall hold.
pub(super) fn check(path: &Path) -> io::Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    if path.exists() && !path.is_file() {
        return fs::OpenOptions::new().write(true).open(path).map(drop);
    }
    let part = part(path);
    fs::write(&part, "")?;
    fs::remove_file(&part)
}

fn part(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

/// Writes a file, or stdout for `-`. The file is whole or unchanged: a reader never sees half of it.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    if path == Path::new("-") {
        let mut out = io::stdout().lock();
        return match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            // A reader that has seen enough is no error of ours.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        };
    }
    // Only an ordinary file can be replaced; a pipe or a device is written to.
    if path.exists() && !path.is_file() {
        return fs::write(path, text);
    }
    let part = part(path);
    let written = fs::write(&part, text).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        // What could not be finished is of no use to anybody, and may be what fills the disk.
        let _ = fs::remove_file(&part);
    }
    written
}
