//! A playbook on disk: read, decoded, checked.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use stormdrill_core::playbook::problem::Problem;
use stormdrill_core::playbook::{self, Playbook};

/// `--set path=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// Keys and positions with dots between.
    pub path: String,
    /// The value, as it would stand in the file.
    pub value: String,
}

/// An argument of `--set` without an equals sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an override is written `path=value`, as in `phases.fault=10s`")]
pub struct NoEqualsSign;

impl FromStr for Override {
    type Err = NoEqualsSign;

    fn from_str(text: &str) -> Result<Self, NoEqualsSign> {
        let (path, value) = text.split_once('=').ok_or(NoEqualsSign)?;
        Ok(Self { path: path.to_owned(), value: value.to_owned() })
    }
}

/// Why there is no playbook.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file is not text.
    #[error("{}:{line}: not UTF-8 text", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The first line that is not, from one.
        line: usize,
    },
    /// The playbook has problems; [`crate::diagnostic::render`] shows them.
    #[error("{}: {} problems", rejected.path.display(), rejected.problems.len())]
    Rejected {
        /// The problems and the texts that they are in.
        rejected: Box<Rejected>,
    },
}

/// A playbook with problems.
#[derive(Debug)]
pub struct Rejected {
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// The overrides that were applied.
    pub overrides: Vec<Override>,
    /// What is wrong, at least one.
    pub problems: Vec<Problem>,
}

/// Reads a playbook and applies overrides.
///
/// # Errors
/// When the file cannot be read, is no text, or has problems.
pub fn read(path: &Path, overrides: &[Override]) -> Result<Playbook, ReadError> {
    let bytes = fs::read(path).map_err(|source| ReadError::Unreadable { path: path.to_owned(), source })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        ReadError::NotUtf8 { path: path.to_owned(), line }
    })?;
    parse(path, text, overrides)
}

/// Checks a playbook's text and applies overrides; `path` is what messages call it.
///
/// # Errors
/// When it has problems.
pub fn parse(path: &Path, text: String, overrides: &[Override]) -> Result<Playbook, ReadError> {
    let pairs: Vec<(&str, &str)> = overrides.iter().map(|set| (set.path.as_str(), set.value.as_str())).collect();
    playbook::parse_with(&text, &pairs).map_err(|problems| {
        let rejected = Rejected { path: path.to_owned(), text, overrides: overrides.to_vec(), problems };
        ReadError::Rejected { rejected: Box::new(rejected) }
    })
}
