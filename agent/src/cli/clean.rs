//! placeholder until the fault branch is merged
use std::path::Path;
use crate::exit::Exit;
pub(super) fn run(_state_dir: &Path, _force: bool) -> Exit { Exit::Pass }
