//! placeholder until the fault branch is merged
use std::path::Path;
use crate::exit::Exit;
pub(super) fn run(_json: bool, _state_dir: &Path) -> Exit { Exit::Pass }
