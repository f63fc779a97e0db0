//! The daemon's configuration on disk: read, checked, and the token that it names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use stormdrill_core::playbook::serve::{self, Config};
use thiserror::Error;

use crate::playbook_file::{ReadError, Rejected};
use crate::tls::{self, TlsError};

/// Shortest token that is accepted: 16 characters, too many to be guessed over a network.
const MIN_TOKEN: usize = 16;

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file has problems or cannot be read; [`crate::diagnostic::render`] shows why.
    #[error("read the configuration")]
    Rejected(#[source] ReadError),
    /// The token cannot be read.
    #[error("read token_file {}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("tls")]
    Tls(#[from] TlsError),
    /// No client could send the token.
    #[error("token_file {}: its first line has characters that no HTTP header carries; `openssl rand -hex 32` makes a good one", path.display())]
    Unsendable {
        /// The file.
        path: PathBuf,
    },
    /// The token can be guessed.
    #[error("token_file {}: its first line has fewer than {MIN_TOKEN} characters; `openssl rand -hex 32` makes a good one", path.display())]
    Short {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a configuration; without a path, the defaults.
///
/// # Errors
/// When the file cannot be read or has problems.
pub fn read(path: Option<&Path>) -> Result<Config, ConfigError> {
    let Some(path) = path else { return Ok(Config::default()) };
    let unreadable = |source| ConfigError::Rejected(ReadError::Unreadable { path: path.to_owned(), source });
    let text = fs::read_to_string(path).map_err(unreadable)?;
    serve::parse(&text).map_err(|problems| {
        let rejected = Rejected { path: path.to_owned(), text, overrides: Vec::new(), problems };
        ConfigError::Rejected(ReadError::Rejected { rejected: Box::new(rejected) })
    })
}

/// Reads the bearer token: the first line of the file, without blanks around it.
///
/// # Errors
/// When the file cannot be read, or the token is too short.
pub fn token(config: &Config) -> Result<Option<String>, ConfigError> {
    let Some(path) = &config.token_file else { return Ok(None) };
    let text = fs::read_to_string(path).map_err(|source| ConfigError::Token { path: path.clone(), source })?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.len() < MIN_TOKEN {
        return Err(ConfigError::Short { path: path.clone() });
    }
    if !token.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(ConfigError::Unsendable { path: path.clone() });
    }
    Ok(Some(token.to_owned()))
}

/// Reads the certificate that the configuration names.
///
/// # Errors
/// When a file cannot be read, or the two do not belong together.
pub fn certificate(config: &Config) -> Result<Option<Arc<ServerConfig>>, ConfigError> {
    Ok(config.tls.as_ref().map(|tls| tls::server(&tls.cert, &tls.key)).transpose()?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn with_token(text: &str) -> Result<Option<String>, ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        token(&Config { token_file: Some(file.path().to_owned()), ..Config::default() })
    }

    #[test]
    fn a_token_is_the_first_line_and_no_short_one() {
        assert_eq!(with_token(" 0123456789abcdef \nmore\n").unwrap().unwrap(), "0123456789abcdef");
        assert!(matches!(with_token("\n0123456789abcdef"), Err(ConfigError::Short { .. })));
        assert!(matches!(with_token("0123456789äbcdef"), Err(ConfigError::Unsendable { .. })));
        assert!(token(&Config::default()).unwrap().is_none());
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read(Some(Path::new("/nonexistent/x.yaml"))).unwrap_err();
        assert!(matches!(error, ConfigError::Rejected(ReadError::Unreadable { .. })));
    }
}
