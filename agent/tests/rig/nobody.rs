//! The agent without any privilege, whoever runs the test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::agent::PROGRAM;

/// The user `nobody`, who has everything that needs no privilege.
const NOBODY: u32 = 65534;

/// A folder that everybody may read, with the agent's program in it.
pub(crate) struct Nobody {
    dir: TempDir,
}

impl Nobody {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = dir.path().join("stormdrill");
        // By a process of its own: a copy that this one still had open for writing while another test forks could not be run.
        let copied = Command::new("cp").arg(PROGRAM).arg(&program).status().unwrap();
        assert!(copied.success());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    /// Writes a file that everybody may read.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The agent; its state directory cannot be made by it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.dir.path().join("stormdrill"));
        command.arg("--state-dir").arg(self.dir.path().join("state")).args(arguments);
        if nix::unistd::geteuid().is_root() {
            // Supplementary groups go with the user.
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }
}
