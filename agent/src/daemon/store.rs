//! Drills on disk: `<id>.json` says what a drill is and how it went, `<id>.result.json` is its result. Files are whole or not there.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why something cannot be kept or found.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The folder or a file in it.
    #[error("{operation} {}", path.display())]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another daemon keeps its drills there.
    #[error("use {}: another daemon keeps its drills there; give this one a `state_dir` of its own", path.display())]
    Taken {
        /// The folder.
        path: PathBuf,
    },
}

/// Where a drill is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is being carried out.
    Running,
    /// All phases were run; there is a verdict.
    Finished,
    /// It was ended early; its faults are gone.
    Aborted,
    /// It could not be carried out, or a fault could not be removed.
    Failed,
}

/// What is known of a drill without its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its identifier: 16 hexadecimal digits.
    pub id: String,
    /// The playbook's name.
    pub playbook: String,
    /// Where it is in its life.
    pub state: State,
    /// RFC 3339, UTC.
    pub started_at: String,
    /// RFC 3339, UTC; `None` while it runs.
    pub ended_at: Option<String>,
    /// The verdict of a finished drill.
    pub verdict: Option<String>,
    /// Why it ended early or failed.
    pub reason: Option<String>,
    /// What a repeated request is recognised by.
    pub request: Option<Request>,
}

/// A request that named itself by an `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The key.
    pub key: String,
    /// A digest of what was asked.
    pub digest: u64,
}

/// The folder of drills.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

const RECORD: &str = ".json";
const RESULT: &str = ".result.json";

impl Store {
    /// Opens the folder `drills` in a state directory; makes it if need be.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
        let folder = state_dir.join("drills");
        fs::create_dir_all(&folder).map_err(|source| StoreError::File { operation: "create", path: folder.clone(), source })?;
        Ok(Self { folder })
    }

    /// Has the folder for this process alone, until what is returned is dropped or the process ends, however it does. Whoever reads the records of a
    /// living daemon takes its drills for a dead one's.
    ///
    /// # Errors
    /// When another process has it, or it cannot be locked.
    pub fn alone(&self) -> Result<File, StoreError> {
        let path = &self.folder;
        let failed = |source| StoreError::File { operation: "lock", path: path.clone(), source };
        let folder = File::open(path).map_err(failed)?;
        match folder.try_lock() {
            Ok(()) => Ok(folder),
            Err(TryLockError::WouldBlock) => Err(StoreError::Taken { path: path.clone() }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    fn path(&self, id: &str, suffix: &str) -> PathBuf {
        self.folder.join(format!("{id}{suffix}"))
    }

    fn write(&self, path: &Path, text: &str) -> Result<(), StoreError> {
        let part = path.with_extension("part");
        fs::write(&part, text).and_then(|()| fs::rename(&part, path)).map_err(|source| StoreError::File {
            operation: "write",
            path: path.to_owned(),
            source,
        })
    }

    /// Keeps a record; replaces the one of the same id.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, record: &Record) -> Result<(), StoreError> {
        let text = serde_json::to_string_pretty(record).unwrap_or_default();
        self.write(&self.path(&record.id, RECORD), &text)
    }

    /// Keeps a result, the JSON of `run`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_result(&self, id: &str, json: &str) -> Result<(), StoreError> {
        self.write(&self.path(id, RESULT), json)
    }

    /// The result of a drill; `None` if it has none.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn result(&self, id: &str) -> Result<Option<String>, StoreError> {
        let path = self.path(id, RESULT);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::File { operation: "read", path, source }),
        }
    }

    /// Forgets a drill.
    pub fn forget(&self, id: &str) {
        for suffix in [RECORD, RESULT] {
            // What is not there needs no removal, and what cannot be removed is tried again at the next start.
            let _ = fs::remove_file(self.path(id, suffix));
        }
    }

    /// All records, oldest first. A file that is no record is left alone and skipped.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, StoreError> {
        let failed = |source| StoreError::File { operation: "read", path: self.folder.clone(), source };
        let mut records: Vec<Record> = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(id) = name.to_str().filter(|name| !name.ends_with(RESULT)).and_then(|name| name.strip_suffix(RECORD)) else {
                continue;
            };
            let text = fs::read_to_string(self.path(id, RECORD)).unwrap_or_default();
            match serde_json::from_str::<Record>(&text) {
                Ok(record) if record.id == id => records.push(record),
                _ => tracing::warn!(id, "a file among the drills is no record, and is skipped"),
            }
        }
        records.sort_by(|a, b| (&a.started_at, &a.id).cmp(&(&b.started_at, &b.id)));
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_folder_is_one_daemons_until_it_lets_go() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::open(dir.path()).unwrap().alone().unwrap();
        let refused = Store::open(dir.path()).unwrap().alone().unwrap_err();
        assert!(matches!(&refused, StoreError::Taken { path } if path == &dir.path().join("drills")), "{refused}");
        drop(first);
        Store::open(dir.path()).unwrap().alone().unwrap();
    }
}
