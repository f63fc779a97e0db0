//! Where things are: the workspace, and what the tasks keep below `target/`.

use std::env;
use std::path::{Path, PathBuf};

/// The workspace's root. `cargo run` sets the variable; the folder known at compile time is for a binary started by hand.
pub(crate) fn workspace() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Where cargo leaves its binaries.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Tools that `setup` builds. They live here and not in the user's own cargo folder, whose versions are not ours to change.
pub(crate) fn tools() -> PathBuf {
    workspace().join("target/tools")
}

/// The kernel objects, and beside each the hash of the sources it was made from. Fixed, because the agent's build script looks here.
pub(crate) fn bpf() -> PathBuf {
    workspace().join("target/bpf")
}

/// Kernels and what else the VM keeps between runs.
pub(crate) fn vm() -> PathBuf {
    workspace().join("target/vm")
}
