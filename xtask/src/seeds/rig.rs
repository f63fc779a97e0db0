//! Where results and the programs of a virtual environment are kept.

use std::path::PathBuf;

use crate::paths;

/// The task's own folder.
pub(crate) fn folder() -> PathBuf {
    paths::workspace().join("target/seeds")
}
