//! TLS 1.3 by rustls: the daemon's certificate, and whom its clients trust. Files are PEM.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

/// What a client trusts if it is not told: the system's bundle, as Debian and its kin have it.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What a client goes by: files of PEM, each with a default.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files<'a> {
    /// The authorities to trust; the system's if not given.
    pub authorities: Option<&'a Path>,
    /// The certificate that it shows, its chain behind it, and its key; none if not given.
    pub identity: Option<(&'a Path, &'a Path)>,
}

/// Why there is no TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file is no PEM, or lacks what it should hold.
    #[error("{}: find {what} in it", path.display())]
    Pem {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why not.
        source: pem::Error,
    },
    /// There is none of it.
    #[error("{}: there is no certificate in it", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// Certificate and key do not fit, or are of a kind that is not known.
    #[error("use the certificate")]
    Certificate(#[source] rustls::Error),
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::File { path: path.to_owned(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|source| TlsError::Pem { path: path.to_owned(), what: "a certificate", source })?;
    if all.is_empty() { Err(TlsError::Empty { path: path.to_owned() }) } else { Ok(all) }
}

/// A certificate, its chain behind it, and its key.
fn identity(certificate: &Path, key: &Path) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let text = read(key)?;
    let key =
        PrivateKeyDer::from_pem_slice(&text).map_err(|source| TlsError::Pem { path: key.to_owned(), what: "a private key", source })?;
    Ok((certificates(certificate)?, key))
}

/// What a server shows: a certificate, its chain behind it, and its key.
///
/// # Errors
/// When a file cannot be read, or the two do not belong together.
pub fn server(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let (chain, key) = identity(certificate, key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(TlsError::Certificate)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Whom a client trusts, and what it shows.
///
/// # Errors
/// When a file cannot be read, there is no authority in it, or certificate and key do not belong together.
pub fn client(files: &Files<'_>) -> Result<Arc<ClientConfig>, TlsError> {
    let authorities = files.authorities.unwrap_or(Path::new(SYSTEM_CA));
    let mut roots = RootCertStore::empty();
    // A bundle has entries of kinds that are not known here; one that is known is enough.
    let (added, _) = roots.add_parsable_certificates(certificates(authorities)?);
    if added == 0 {
        return Err(TlsError::Empty { path: authorities.to_owned() });
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(TlsError::Certificate)?
        .with_root_certificates(roots);
    let config = match files.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let (chain, key) = identity(certificate, key)?;
            config.with_client_auth_cert(chain, key).map_err(TlsError::Certificate)?
        }
    };
    Ok(Arc::new(config))
}
