//! Sockets to requests: a bounded number of connections, each with a limit on how long its heads may take.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::guard::Peer;

pub mod activation;

mod stalled;

use stalled::Bounded;

/// How long a request's head may take, and an idle connection stay.
const HEAD: Duration = Duration::from_secs(15);
/// How long an answer may wait for a client to take more of it.
const TAKE: Duration = Duration::from_secs(30);
/// After a failed accept, as when descriptors are used up.
const BREATH: Duration = Duration::from_millis(100);

/// Why an address cannot be listened on.
#[derive(Debug, Error)]
pub enum ListenError {
    /// TCP.
    #[error("listen on {address}")]
    Tcp {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A socket from systemd.
    #[error("listen on the socket that was passed as descriptor {fd}")]
    Passed {
        /// Which.
        fd: i32,
        /// Why not.
        source: io::Error,
    },
    /// The Unix socket.
    #[error("listen on the socket {}", path.display())]
    Unix {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A socket that is bound.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// The Unix socket, for root and the daemon's own user.
    Unix(UnixListener),
}

impl Listener {
    /// Binds an address.
    ///
    /// # Errors
    /// When it is taken or not allowed.
    pub async fn tcp(address: SocketAddr) -> Result<Self, ListenError> {
        TcpListener::bind(address).await.map(Self::Tcp).map_err(|source| ListenError::Tcp { address, source })
    }

    /// Binds the Unix socket. One that a dead daemon left is replaced; one that answers is not.
    ///
    /// # Errors
    /// When another daemon has it, or it cannot be made.
    pub async fn unix(path: &Path) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Unix { path: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        if let Ok(metadata) = std::fs::symlink_metadata(path) {
            if !metadata.file_type().is_socket() || UnixStream::connect(path).await.is_ok() {
                return Err(failed(io::ErrorKind::AddrInUse.into()));
            }
            std::fs::remove_file(path).map_err(failed)?;
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        // Between the two calls the peer's user id is what keeps others out, as it does afterwards.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self::Unix(listener))
    }

    /// Where it listens, for people.
    #[must_use]
    pub fn describe(&self, tls: &Certificate) -> String {
        match self {
            Self::Tcp(listener) => {
                let scheme = if tls.get().is_some() { "https" } else { "http" };
                listener.local_addr().map(|address| format!("{scheme}://{address}")).unwrap_or_default()
            }
            Self::Unix(listener) => {
                let address = listener.local_addr().ok();
                let path = address.as_ref().and_then(|address| address.as_pathname());
                path.map(|path| format!("unix:{}", path.display())).unwrap_or_default()
            }
        }
    }

    /// Answers requests until the task is dropped. `connections` is shared by all listeners, and so is the certificate of those on TCP.
    pub async fn serve(self, router: Router, connections: Arc<Semaphore>, tls: Certificate) {
        loop {
            // The permit comes first: who is beyond the limit waits in the kernel's queue, and costs nothing here.
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
            let accepted = match &self {
                Self::Tcp(listener) => listener.accept().await.map(|(stream, from)| Some(Stream::Tcp(stream, from.ip(), tls.get()))),
                Self::Unix(listener) => listener.accept().await.map(|(stream, _)| may_use(&stream).then_some(Stream::Unix(stream))),
            };
            let router = router.clone();
            match accepted {
                Ok(Some(stream)) => {
                    tokio::spawn(async move {
                        match stream {
                            Stream::Tcp(stream, from, None) => connection(stream, Peer::Tcp(from), router).await,
                            Stream::Tcp(stream, from, Some(config)) => {
                                let accept = TlsAcceptor::from(config).accept(stream);
                                // Who speaks plain HTTP to this, or nothing at all, costs a connection for a while.
                                match tokio::time::timeout(HEAD, accept).await {
                                    Ok(Ok(stream)) => connection(stream, Peer::Tls(from), router).await,
                                    Ok(Err(error)) => tracing::debug!("TLS with {from}: {error}"),
                                    Err(_) => tracing::debug!("TLS with {from}: no handshake in time"),
                                }
                            }
                            Stream::Unix(stream) => connection(stream, Peer::Local, router).await,
                        }
                        drop(permit);
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!("accept: {error}");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
    }
}

/// The certificate that TCP clients see, if any; a new one holds for new connections.
#[derive(Debug, Clone, Default)]
pub struct Certificate(Arc<RwLock<Option<Arc<ServerConfig>>>>);

impl Certificate {
    /// The present one.
    #[must_use]
    pub fn get(&self) -> Option<Arc<ServerConfig>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on another one, or none.
    pub fn set(&self, config: Option<Arc<ServerConfig>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }
}

enum Stream {
    Tcp(TcpStream, IpAddr, Option<Arc<ServerConfig>>),
    Unix(UnixStream),
}

/// Root and the daemon's own user may use the Unix socket; the kernel says who asks.
fn may_use(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw())
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, peer: Peer, router: Router) {
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let router = router.clone();
        async move {
            let mut request: Request = request.map(axum::body::Body::new);
            request.extensions_mut().insert(peer);
            Ok::<_, Infallible>(answer(router, request).await)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(32 * 1024);
    // How a client's connection ends is its own affair.
    if let Err(error) = http.serve_connection(TokioIo::new(Bounded::new(stream, TAKE)), service).await {
        tracing::debug!("a connection ended: {error}");
    }
}

async fn answer(router: Router, request: Request) -> axum::response::Response {
    use hyper_util::service::TowerToHyperService;
    match hyper::service::Service::call(&TowerToHyperService::new(router), request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
