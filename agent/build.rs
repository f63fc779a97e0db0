//! Copies the kernel object to where `include_bytes!` finds it (a stand-in until `cargo xtask build` has its own).

use std::{env, fs, path::PathBuf};

fn main() {
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    let folder = env::var("STORMDRILL_BPF_DIR").map_or_else(|_| PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../target/bpf"), PathBuf::from);
    let object = folder.join("fault.o");
    println!("cargo::rerun-if-changed={}", object.display());
    fs::copy(&object, out.join("fault.o")).unwrap_or_else(|error| panic!("{}: {error}", object.display()));
}
