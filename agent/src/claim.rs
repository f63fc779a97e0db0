//! What a running drill has for itself: no other drill, of whatever process, may disturb the same traffic meanwhile.
//!
//! A claim is a file in the state directory, `<drill>.claim`, locked by its owner for as long as the drill runs. The kernel gives the lock back
//! however the owner ends, and a lock means the same in every PID namespace; so an unlocked claim is a dead drill's, and is taken away. Claims
//! are looked through and made under a lock on the directory itself, so that two drills cannot start past each other.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stormdrill_core::edge::{Cidr, EdgeSpec, PortRange, Role};
use thiserror::Error;

use crate::daemon::overlap::overlap;
use crate::fault::ending;

const SUFFIX: &str = "claim";
/// Room for one hook's journal, as a file system gives it out; a target has up to four hooks.
const JOURNAL_ROOM: usize = 4096;

/// Why a drill may not have its targets.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// Another drill has them.
    #[error("drill {id} of process {pid} is running on an overlapping target")]
    Taken {
        /// The other drill.
        id: String,
        /// Its process, as its own PID namespace numbers it.
        pid: u32,
    },
    /// A file or the directory cannot be written, read or locked. No fault could be written down either.
    #[error("{verb} {}", .path.display())]
    File {
        /// What was being done.
        verb: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// Targets that are this drill's until it is dropped.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    _locked: File,
}

/// A claim as it lies in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    version: u32,
    id: String,
    pid: u32,
    targets: Vec<Target>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Target {
    /// Inode of the network namespace that its packets are in: the same addresses in another one are another target.
    namespace: u64,
    address: Option<(std::net::IpAddr, u8)>,
    ports: Option<(u16, u16)>,
}

impl Claim {
    /// Claims the targets of a drill, each with the inode of its network namespace, or says who has them. Makes the directory if need be, and finds out whether it has room for the
    /// journals to come: better now than when the baseline has been measured.
    ///
    /// # Errors
    /// When another drill has one of them, or the directory cannot be used.
    pub fn take(state_dir: &Path, id: &str, targets: &[(u64, EdgeSpec)]) -> Result<Self, ClaimError> {
        fs::create_dir_all(state_dir).map_err(failed("create the directory", state_dir))?;
        let _alone = lock_directory(state_dir)?;
        look_through(state_dir, targets)?;
        let path = state_dir.join(format!("{id}.{SUFFIX}"));
        let error = |source| ClaimError::File { verb: "write", path: path.clone(), source };
        let mut file = File::create_new(&path).map_err(error)?;
        file.lock().map_err(error)?;
        let claim = Self { path: path.clone(), _locked: file.try_clone().map_err(error)? };
        let line = Line { version: 1, id: id.to_owned(), pid: std::process::id(), targets: targets.iter().map(Target::of).collect() };
        let mut text = serde_json::to_vec(&line).map_err(|source| error(source.into()))?;
        text.push(b'\n');
        let mut write = || {
            file.write_all(&vec![b' '; JOURNAL_ROOM * (1 + 4 * targets.len())])?;
            file.sync_all()?;
            file.set_len(0)?;
            file.rewind()?;
            file.write_all(&text)
        };
        write().map_err(error)?;
        Ok(claim)
    }

    /// Says who has one of these targets, without claiming them. An absent directory means nobody.
    ///
    /// # Errors
    /// As [`Claim::take`].
    pub fn check(state_dir: &Path, targets: &[(u64, EdgeSpec)]) -> Result<(), ClaimError> {
        if !state_dir.exists() {
            return Ok(());
        }
        let _alone = lock_directory(state_dir)?;
        look_through(state_dir, targets)
    }

    /// Takes dead drills' claims away. They hinder nobody, but nothing shall be left behind.
    ///
    /// # Errors
    /// When the directory cannot be locked or read, or a claim not be removed.
    pub fn sweep(state_dir: &Path) -> Result<(), ClaimError> {
        Self::check(state_dir, &[])
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // What cannot be removed is unlocked in a moment, and the next drill takes it away.
        let _ = fs::remove_file(&self.path);
    }
}

impl Target {
    fn of((namespace, edge): &(u64, EdgeSpec)) -> Self {
        Self {
            namespace: *namespace,
            address: edge.address.map(|net| (net.address, net.prefix)),
            ports: edge.ports.map(|ports| (ports.first, ports.last)),
        }
    }

    fn edge(&self) -> EdgeSpec {
        EdgeSpec {
            name: String::new(),
            role: Role::Downstream,
            address: self.address.map(|(address, prefix)| Cidr { address, prefix }),
            ports: self.ports.map(|(first, last)| PortRange { first, last }),
            protocol: None,
        }
    }
}

fn failed(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> ClaimError + use<> {
    let path = path.to_owned();
    move |source| ClaimError::File { verb, path: path.clone(), source }
}

fn lock_directory(state_dir: &Path) -> Result<File, ClaimError> {
    let error = failed("lock the directory", state_dir);
    let directory = File::open(state_dir).map_err(&error)?;
    directory.lock().map_err(&error)?;
    Ok(directory)
}

/// Takes dead claims away, and finds a living one that overlaps.
fn look_through(state_dir: &Path, targets: &[(u64, EdgeSpec)]) -> Result<(), ClaimError> {
    let error = failed("read the directory", state_dir);
    for entry in fs::read_dir(state_dir).map_err(&error)? {
        let path = entry.map_err(&error)?.path();
        if path.extension().and_then(|extension| extension.to_str()) != Some(SUFFIX) {
            continue;
        }
        let error = failed("read", &path);
        let file = match File::open(&path) {
            Ok(file) => file,
            // Its drill has just ended.
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(error(source)),
        };
        match lock_unless_alive(&file, &path) {
            Ok(()) => {
                fs::remove_file(&path)
                    .or_else(|gone| if gone.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(gone) })
                    .map_err(&error)?;
            }
            Err(TryLockError::Error(source)) => return Err(error(source)),
            Err(TryLockError::WouldBlock) => {
                let text = match fs::read(&path) {
                    Ok(text) => text,
                    Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
                    Err(source) => return Err(error(source)),
                };
                let other: Line = serde_json::from_slice(&text).map_err(|source| error(source.into()))?;
                let meets = |target: &Target| {
                    let edge = [target.edge()];
                    targets.iter().any(|(namespace, ours)| target.namespace == *namespace && overlap(&edge, std::slice::from_ref(ours)))
                };
                if other.targets.iter().any(meets) {
                    return Err(ClaimError::Taken { id: other.id, pid: other.pid });
                }
            }
        }
    }
    Ok(())
}

/// Locks a claim that nobody has; that of a process which was killed is waited for.
fn lock_unless_alive(file: &File, path: &Path) -> Result<(), TryLockError> {
    let held = match file.try_lock() {
        Err(TryLockError::WouldBlock) => fs::read(path).ok(),
        other => return other,
    };
    if let Some(Line { pid, .. }) = held.and_then(|text| serde_json::from_slice(&text).ok()) {
        ending::wait_for(pid).map_err(TryLockError::Error)?;
    }
    file.try_lock()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn edge(namespace: u64, address: &str, port: u16) -> Vec<(u64, EdgeSpec)> {
        vec![(namespace, Target { namespace, address: Some((address.parse().unwrap(), 32)), ports: Some((port, port)) }.edge())]
    }

    fn claims(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn an_overlapping_target_is_refused_until_the_first_drill_ends() {
        let dir = tempfile::tempdir().unwrap();
        let first = Claim::take(dir.path(), "one", &edge(7, "10.0.0.1", 80)).unwrap();
        let refused = Claim::take(dir.path(), "two", &edge(7, "10.0.0.1", 80)).unwrap_err();
        assert!(matches!(&refused, ClaimError::Taken { id, pid } if id == "one" && *pid == std::process::id()), "{refused}");
        assert!(Claim::check(dir.path(), &edge(7, "10.0.0.1", 80)).is_err());
        // Another port, another namespace, no target at all.
        let others = [
            Claim::take(dir.path(), "a", &edge(7, "10.0.0.1", 81)),
            Claim::take(dir.path(), "b", &edge(8, "10.0.0.1", 80)),
            Claim::take(dir.path(), "c", &[]),
        ];
        assert!(others.iter().all(Result::is_ok), "{others:?}");
        drop((first, others));
        assert_eq!(claims(dir.path()), 0);
        Claim::take(dir.path(), "two", &edge(7, "10.0.0.1", 80)).unwrap();
    }

    #[test]
    fn a_dead_drills_claim_is_taken_away_whatever_it_says() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("dead.claim"), [0xff, 0xfe]).unwrap();
        let _claim = Claim::take(dir.path(), "next", &edge(7, "10.0.0.1", 80)).unwrap();
        assert_eq!(claims(dir.path()), 1);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = Claim::take(&file.path().join("state"), "x", &[]).unwrap_err();
        assert!(refused.to_string().starts_with("create the directory /"), "{refused}");
    }
}
