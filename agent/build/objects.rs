//! What the agent's build script and `cargo xtask build` must agree on: which kernel objects there are, and from which sources each was made.
//!
//! It is compiled into both, so it uses the standard library only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What, below the workspace's root, decides what a kernel object does. Tests beside these folders are left out on purpose.
pub(crate) const SOURCES: [&str; 5] = ["ebpf/Cargo.toml", "ebpf/Cargo.lock", "ebpf/src", "wire/Cargo.toml", "wire/src"];

/// The names of the kernel objects: the `[[bin]]` targets of the kernel crate's manifest, in the order in which they stand there.
#[must_use]
pub(crate) fn names(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut in_bin = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_bin = line == "[[bin]]";
        } else if in_bin
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "name"
        {
            names.push(value.trim().trim_matches('"').to_owned());
        }
    }
    names
}

/// The files that the hash covers, sorted by path.
fn sources(workspace: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for source in SOURCES {
        collect(&workspace.join(source), &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// A hash (FNV-1a, 64 bits, in hexadecimal) of every source's path and content. It guards against a forgotten build, not against an attacker.
pub(crate) fn source_hash(workspace: &Path) -> io::Result<String> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for file in sources(workspace)? {
        let name = file.strip_prefix(workspace).unwrap_or(&file);
        let content = fs::read(&file)?;
        add(name.as_os_str().as_encoded_bytes());
        // The length keeps the end of one file apart from the start of the next.
        add(&content.len().to_le_bytes());
        add(&content);
    }
    Ok(format!("{hash:016x}"))
}

/// Adds a file, or all files below a folder. What does not exist adds nothing.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else if path.is_file() {
        files.push(path.to_path_buf());
    }
    Ok(())
}
