//! What was put into the kernel, written down and synced before it is.
//!
//! One file for each installed hook, `<name>.journal` in the state directory, lines of JSON: first the record of everything that is
//! going to be made, then a line for each step that was taken. The record alone is enough to clean up; the steps say how far it got.
//!
//! Its owner holds a lock on it, which the kernel gives back however the owner ends. A journal that is locked is a living drill's, whatever PID
//! namespace its owner's number belongs to.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::filter::{Hook, Place};
use super::name::{Clsact, Name, Owner};
use super::namespace;

/// Where the journals are, unless the configuration says otherwise. It does not outlive a reboot, nor does what they describe.
pub const DEFAULT_STATE_DIR: &str = "/run/stormdrill";

const SUFFIX: &str = "journal";

/// What can go wrong with the journal. Without it nothing is changed in the kernel.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The file or its directory cannot be written, read or removed.
    #[error("{verb} {}", .path.display())]
    File {
        /// What was being done.
        verb: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file that is not a journal, or of another version.
    #[error("{} is not a journal of this version", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with its first line.
        source: serde_json::Error,
    },
}

/// Everything that an installed hook puts into the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) name: Name,
    pub(crate) owner: Owner,
    /// Inode of the network namespace: numbers of interfaces mean nothing outside it.
    pub(crate) namespace: u64,
    /// Inode of the PID namespace that the owner's number belongs to, and that it found its way from; 0 if that is not known.
    pub(crate) pid_namespace: u64,
    pub(crate) interface: String,
    pub(crate) place: Place,
    pub(crate) clsact: Clsact,
    /// Whether there is an ifb, of the same name.
    pub(crate) ifb: bool,
}

/// A record as it lies in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    version: u32,
    owner: Owner,
    namespace: u64,
    #[serde(default)]
    pid_namespace: u64,
    interface: String,
    index: u32,
    hook: String,
    priority: u16,
    handle: u32,
    clsact: Clsact,
    ifb: bool,
}

#[derive(Serialize)]
struct StepLine<'a> {
    step: &'a str,
}

/// An open journal of one installed hook.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Writes the record and syncs it and its directory.
    pub(crate) fn create(state_dir: &Path, record: &Record) -> Result<Self, JournalError> {
        let error = |verb, path: &Path| {
            let path = path.to_owned();
            move |source| JournalError::File { verb, path, source }
        };
        fs::create_dir_all(state_dir).map_err(error("create the directory", state_dir))?;
        let path = state_dir.join(format!("{}.{SUFFIX}", record.name));
        let mut file = File::create_new(&path).map_err(error("create the journal", &path))?;
        // Before there is anything to read in it, so that a record is never seen without its lock.
        file.lock().map_err(error("lock the journal", &path))?;
        let line = Line {
            version: 1,
            owner: record.owner,
            namespace: record.namespace,
            pid_namespace: record.pid_namespace,
            interface: record.interface.clone(),
            index: record.place.interface,
            hook: record.place.hook.as_str().to_owned(),
            priority: record.place.priority,
            handle: record.place.handle,
            clsact: record.clsact,
            ifb: record.ifb,
        };
        append(&mut file, &line).map_err(error("write the journal", &path))?;
        sync_directory(state_dir)?;
        Ok(Self { file, path })
    }

    /// Notes a step that was taken.
    pub(crate) fn step(&mut self, step: &str) -> Result<(), JournalError> {
        append(&mut self.file, &StepLine { step }).map_err(|source| JournalError::File {
            verb: "write the journal",
            path: self.path.clone(),
            source,
        })
    }

    /// Removes the file: nothing of the record is left in the kernel.
    pub(crate) fn close(self) -> Result<(), JournalError> {
        remove(&self.path)
    }
}

fn append(file: &mut File, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Removes a journal; success if it is gone already.
pub(crate) fn remove(path: &Path) -> Result<(), JournalError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(JournalError::File { verb: "remove the journal", path: path.to_owned(), source })
        }
        _ => path.parent().map_or(Ok(()), sync_directory),
    }
}

fn sync_directory(path: &Path) -> Result<(), JournalError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(|source| JournalError::File {
        verb: "sync the directory",
        path: path.to_owned(),
        source,
    })
}

/// A journal that was found, and what its record says or why that cannot be told.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: PathBuf,
    pub(crate) name: Name,
    pub(crate) record: Result<Record, JournalError>,
    /// Whether its drill still runs.
    pub(crate) is_alive: bool,
}

/// All journals of a state directory; none if the directory does not exist.
pub(crate) fn read_all(state_dir: &Path) -> Result<Vec<Entry>, JournalError> {
    let failed = |source| JournalError::File { verb: "read the directory", path: state_dir.to_owned(), source };
    let entries = match fs::read_dir(state_dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut journals = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<Name>().ok());
        if let (Some(name), Some(SUFFIX)) = (name, path.extension().and_then(|extension| extension.to_str())) {
            journals.extend(read(path, name)?);
        }
    }
    Ok(journals)
}

/// Reads one; `None` if its drill has just removed it.
fn read(path: PathBuf, name: Name) -> Result<Option<Entry>, JournalError> {
    let failed = |source: io::Error| JournalError::File { verb: "read", path: path.clone(), source };
    // What is no file, as a FIFO, must not be waited for.
    let mut file = match File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path) {
        Ok(file) => file,
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let mut text = Vec::new();
    let record = file.read_to_end(&mut text).map_err(failed).and_then(|_| parse(&text, &path, name));
    // Shared, so that two readers do not take each other for the owner.
    let is_alive = match (file.try_lock_shared(), &record) {
        (Err(TryLockError::WouldBlock), _) => true,
        // Not even a record: its owner may be about to lock it.
        (Ok(()), Err(_)) => name.owner_lives().map_err(failed)?,
        (Ok(()), Ok(_)) => false,
        // No locks on this file system.
        (Err(TryLockError::Error(_)), Ok(record)) => record.owner.is_alive().map_err(failed)?,
        (Err(TryLockError::Error(_)), Err(_)) => name.owner_lives().map_err(failed)?,
    };
    Ok(Some(Entry { path, name, record, is_alive }))
}

fn parse(text: &[u8], path: &Path, name: Name) -> Result<Record, JournalError> {
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let unreadable = |source| JournalError::Unreadable { path: path.to_owned(), source };
    let line: Line = serde_json::from_slice(first).map_err(unreadable)?;
    let hook = if line.hook == Hook::Egress.as_str() { Hook::Egress } else { Hook::Ingress };
    Ok(Record {
        name,
        owner: line.owner,
        namespace: line.namespace,
        pid_namespace: line.pid_namespace,
        interface: line.interface,
        place: Place { interface: line.index, hook, priority: line.priority, handle: line.handle },
        clsact: line.clsact,
        ifb: line.ifb,
    })
}

/// Names of what dead drills left behind, as far as their journals tell. Changes nothing.
///
/// # Errors
/// When the directory cannot be read.
pub fn of_dead_drills(state_dir: &Path) -> Result<Vec<String>, JournalError> {
    Ok(read_all(state_dir)?.into_iter().filter(|entry| !entry.is_alive).map(|entry| entry.name.to_string()).collect())
}

/// The inode of the calling thread's network namespace.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn namespace() -> Result<u64, JournalError> {
    namespace::own_net().map_err(|source| JournalError::File { verb: "read", path: namespace::OWN_NET.into(), source })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn record() -> Record {
        let owner = Owner { pid: 4321, start: 99 };
        let name = Name::next(owner);
        Record {
            name,
            owner,
            namespace: 4_026_531_840,
            pid_namespace: 4_026_531_836,
            interface: "eth0".to_owned(),
            place: Place { interface: 2, hook: Hook::Egress, priority: 0xfd01, handle: name.handle() },
            clsact: Clsact::Ours,
            ifb: true,
        }
    }

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let record = record();
        let mut journal = Journal::create(dir.path(), &record).unwrap();
        journal.step("clsact").unwrap();
        let read = read_all(dir.path()).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].record.as_ref().unwrap(), &record);
        // Its owner's number is another process's or nobody's here; the lock is what tells.
        assert!(read[0].is_alive);
        assert!(of_dead_drills(dir.path()).unwrap().is_empty());
        journal.close().unwrap();
        assert!(read_all(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn a_torn_journal_is_an_error_and_other_files_are_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(format!("{}.journal", record().name)), "{\"version\":1,\"own").unwrap();
        fs::write(dir.path().join("api.token"), "x").unwrap();
        let read = read_all(dir.path()).unwrap();
        assert_eq!(read.len(), 1);
        assert!(matches!(read[0].record, Err(JournalError::Unreadable { .. })));
    }

    #[test]
    fn a_journal_that_nobody_holds_any_more_is_a_dead_drills_and_one_that_is_no_text_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let record = record();
        let journal = Journal::create(dir.path(), &record).unwrap();
        drop(journal);
        let read = read_all(dir.path()).unwrap();
        assert!(!read[0].is_alive && read[0].record.is_ok());
        assert_eq!(of_dead_drills(dir.path()).unwrap(), [record.name.to_string()]);
        fs::write(&read[0].path, [0xff, 0xfe, 0, b'\n', 0x80]).unwrap();
        let read = read_all(dir.path()).unwrap();
        assert!(!read[0].is_alive && matches!(read[0].record, Err(JournalError::Unreadable { .. })));
    }

    #[test]
    fn no_directory_means_no_journals() {
        assert!(read_all(Path::new("/nonexistent/stormdrill")).unwrap().is_empty());
    }
}
