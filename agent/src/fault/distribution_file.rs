//! A table of a delay's distribution from a file, in the form in which iproute2 keeps them: numbers, and comments after `#`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Most entries that the kernel takes.
const MOST: usize = 16_384;
/// A file of that many numbers is far smaller.
const MOST_BYTES: u64 = 1024 * 1024;

/// Why a table cannot be used.
#[derive(Debug, Error)]
pub enum TableError {
    /// It cannot be read.
    #[error("read the distribution table {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is far larger than any table.
    #[error("the distribution table {} has more than a MiB", path.display())]
    Large {
        /// The file.
        path: PathBuf,
    },
    /// Something in it is no number of 16 bits.
    #[error("the distribution table {}, line {line}: `{word}` is no number from -32768 to 32767", path.display())]
    Number {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What stands there.
        word: String,
    },
    /// It is empty or too long.
    #[error("the distribution table {} has {entries} numbers; 1 to {MOST} are possible", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// How many it has.
        entries: usize,
    },
}

/// Reads a table.
pub(crate) fn read(path: &Path) -> Result<Arc<[i16]>, TableError> {
    let refuse = |source| TableError::Read { path: path.to_owned(), source };
    let found = fs::metadata(path).map_err(refuse)?;
    // A device may never end, and a pipe never begin.
    if !found.is_file() {
        return Err(refuse(io::Error::other("it is no regular file")));
    }
    if found.len() > MOST_BYTES {
        return Err(TableError::Large { path: path.to_owned() });
    }
    parse(path, &fs::read_to_string(path).map_err(refuse)?)
}

fn parse(path: &Path, text: &str) -> Result<Arc<[i16]>, TableError> {
    let mut table = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let numbers = text.split_once('#').map_or(text, |(numbers, _)| numbers);
        for word in numbers.split_whitespace() {
            let refuse = |_| TableError::Number { path: path.to_owned(), line, word: word.chars().take(40).collect() };
            table.push(word.parse().map_err(refuse)?);
        }
    }
    if table.is_empty() || table.len() > MOST {
        return Err(TableError::Length { path: path.to_owned(), entries: table.len() });
    }
    Ok(table.into())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_table_is_read_as_iproute2_writes_it_or_refused_with_the_place() {
        let path = Path::new("x.dist");
        assert_eq!(*parse(path, "# a comment\n -32768 -5 0 # more\n\n 7 32767\n").unwrap(), [-32768, -5, 0, 7, 32767]);
        let refusal = |text: &str| parse(path, text).unwrap_err().to_string();
        assert_eq!(refusal("1 2\n3 x4"), "the distribution table x.dist, line 2: `x4` is no number from -32768 to 32767");
        assert_eq!(refusal("1\n40000"), "the distribution table x.dist, line 2: `40000` is no number from -32768 to 32767");
        assert_eq!(refusal("# nothing"), "the distribution table x.dist has 0 numbers; 1 to 16384 are possible");
        assert_eq!(refusal(&"1 ".repeat(16_385)), "the distribution table x.dist has 16385 numbers; 1 to 16384 are possible");
    }
}
