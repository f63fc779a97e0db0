//! Where results go: stdout or a file.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes to stdout. A reader that has gone away is no error of ours.
pub(super) fn stdout(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// Writes to stderr.
pub(super) fn stderr(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a file, or stdout for `-`. The file is whole or unchanged: a reader never sees half of it.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    if path == Path::new("-") {
        stdout(text);
        return Ok(());
    }
    // Only an ordinary file can be replaced; a pipe or a device is written to.
    if path.exists() && !path.is_file() {
        return fs::write(path, text);
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    fs::write(&part, text)?;
    fs::rename(&part, path)
}
