//! `cargo xtask demo`: not built yet.

use anyhow::{Result, bail};

/// The task.
pub(crate) fn run() -> Result<()> {
    bail!("the demo is not built yet")
}
