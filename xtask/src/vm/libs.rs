//! What a program needs besides itself: the shared libraries that ldd names, or the interpreter that a script names.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;

/// The files that must lie beside a program, at their own paths, for it to run. An interpreter is followed to its own libraries.
pub(super) fn needed_by(program: &Path) -> Result<Vec<PathBuf>> {
    let mut head = [0_u8; 256];
    let length =
        File::open(program).and_then(|mut file| file.read(&mut head)).with_context(|| format!("cannot read {}", program.display()))?;
    let head = &head[..length];
    if head.starts_with(b"\x7fELF") {
        return shared_libraries(program);
    }
    let Some(interpreter) = interpreter(&String::from_utf8_lossy(head)) else { return Ok(Vec::new()) };
    // The guest has a shell of its own under this name.
    if interpreter == "/bin/sh" {
        return Ok(Vec::new());
    }
    let path = command::find(&interpreter).with_context(|| format!("{} needs {interpreter}, which this host lacks", program.display()))?;
    let mut files = shared_libraries(&path)?;
    files.push(path);
    Ok(files)
}

/// What a script's first line runs: a path, or the name that `env` looks up.
fn interpreter(head: &str) -> Option<String> {
    let mut words = head.lines().next()?.strip_prefix("#!")?.split_whitespace();
    let program = words.next()?;
    if program.ends_with("/env") {
        return words.find(|word| !word.starts_with('-')).map(str::to_owned);
    }
    Some(program.to_owned())
}

fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new(command::require("ldd")?).arg(program).output().context("cannot run ldd")?;
    // A static program makes ldd fail; it needs nothing.
    if !output.status.success() {
        return Ok(Vec::new());
    }
    parse(&String::from_utf8_lossy(&output.stdout)).with_context(|| format!("{} would not run", program.display()))
}

/// Reads ldd's lines: `name => /path (address)`, `/path (address)`, `name (address)` for what the kernel maps itself.
fn parse(text: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.contains("not found") {
            bail!("a library is missing: {line}");
        }
        let file = line.split(" => ").last().and_then(|right| right.split(" (").next()).unwrap_or_default();
        if file.starts_with('/') {
            files.push(PathBuf::from(file));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldds_three_kinds_of_lines_are_read() {
        let text = "\tlinux-vdso.so.1 (0x00007f7e)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x0)\n";
        let files = parse(text).unwrap_or_default();
        assert_eq!(files, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from));
        assert!(parse("\tstatically linked\n").is_ok_and(|files| files.is_empty()));
        assert!(parse("\tlibx.so => not found\n").is_err());
    }

    #[test]
    fn a_scripts_interpreter_is_found_even_behind_env() {
        assert_eq!(interpreter("#!/bin/bash -eu\necho").as_deref(), Some("/bin/bash"));
        assert_eq!(interpreter("#! /usr/bin/env -S python3 -u\n").as_deref(), Some("python3"));
        assert_eq!(interpreter("echo no shebang\n"), None);
    }

    #[test]
    fn this_very_program_needs_the_c_library() {
        let files = std::env::current_exe().ok().and_then(|exe| needed_by(&exe).ok()).unwrap_or_default();
        assert!(files.iter().any(|file| file.to_string_lossy().contains("libc.so")), "{files:?}");
    }
}
