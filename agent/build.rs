//! Puts the kernel objects where the agent's `include_bytes!` finds them: `OUT_DIR/<name>.o`.
//!
//! It does not build them: that takes a toolchain of its own, so `cargo xtask build` does. What it refuses is to embed an object that is
//! older than its sources. Objects are looked for in `STORMDRILL_BPF_DIR`, else in `target/bpf`. With `STORMDRILL_SKIP_BPF` set, a
//! missing or outdated object becomes an empty file, so that `cargo check` and clippy work on a machine without that toolchain.

#[path = "build/objects.rs"]
mod objects;

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match place_objects() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cargo::error={error}");
            ExitCode::FAILURE
        }
    }
}

fn place_objects() -> Result<(), Box<dyn Error>> {
    let package = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let workspace = package.parent().unwrap_or(&package);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo::rerun-if-env-changed=STORMDRILL_BPF_DIR");
    println!("cargo::rerun-if-env-changed=STORMDRILL_SKIP_BPF");
    let folder = env::var_os("STORMDRILL_BPF_DIR").map_or_else(|| workspace.join("target/bpf"), PathBuf::from);
    let may_skip = env::var_os("STORMDRILL_SKIP_BPF").is_some();

    let manifest = workspace.join("ebpf/Cargo.toml");
    println!("cargo::rerun-if-changed={}", manifest.display());
    for source in objects::SOURCES {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    let hash = objects::source_hash(workspace)?;
    for name in objects::names(&fs::read_to_string(&manifest)?) {
        let object = folder.join(format!("{name}.o"));
        let record = folder.join(format!("{name}.src-hash"));
        println!("cargo::rerun-if-changed={}", object.display());
        println!("cargo::rerun-if-changed={}", record.display());
        let placed = out.join(format!("{name}.o"));
        match complaint(&object, &record, &hash) {
            None => {
                fs::copy(&object, &placed)?;
            }
            Some(_) if may_skip => fs::write(&placed, [])?,
            Some(complaint) => return Err(complaint.into()),
        }
    }
    Ok(())
}

/// Why an object cannot be embedded, in one line that says what to do.
fn complaint(object: &Path, record: &Path, hash: &str) -> Option<String> {
    if !object.is_file() {
        return Some(format!(
            "the kernel object {} is missing: run `cargo xtask build` (`cargo xtask setup` installs the toolchain that it needs)",
            object.display()
        ));
    }
    match fs::read_to_string(record) {
        Ok(recorded) if recorded.trim() == hash => None,
        _ => Some(format!("the kernel object {} is older than its sources: run `cargo xtask build`", object.display())),
    }
}
