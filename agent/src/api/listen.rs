//! Sockets to requests: a bounded number of connections, each with a limit on how long its heads may take.
//!
//! Who comes when all places are taken is told so with 503, on one of a few places that are kept for it: a client that waited in the kernel's queue
//! would not know why. The Unix socket has places of its own, so that whatever TCP clients do, drills can be listed and ended on the host.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use super::guard::Peer;
use super::problem::{Kind, Problem};

pub mod activation;

mod places;

mod stalled;

use places::Place;
pub use places::Places;
use stalled::Bounded;

/// How long an answer may wait for a client to take more of it.
const TAKE: Duration = Duration::from_secs(30);
/// Connections that the kernel keeps until they are accepted, as far as its own limit (net.core.somaxconn) lets it. Beyond that it drops segments, and
/// clients try again a second later.
const QUEUE: u32 = 4096;
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
    /// Too few descriptors.
    #[error(
        "have the {needed} descriptors that `limits: {{connections: {connections}}}` takes (LimitNOFILE= of systemd's unit, `ulimit -Hn` of a shell)"
    )]
    Descriptors {
        /// What the configuration says.
        connections: usize,
        /// How many it takes.
        needed: u64,
        /// Why there are fewer.
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
    pub fn tcp(address: SocketAddr) -> Result<Self, ListenError> {
        let bind = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(QUEUE)
        };
        bind().map(Self::Tcp).map_err(|source| ListenError::Tcp { address, source })
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

    /// Answers requests until the task is dropped. `places` and the certificate are shared by all listeners on TCP.
    pub async fn serve(self, router: Router, places: Places, tls: Certificate) {
        loop {
            let mut place = match &self {
                Self::Tcp(_) => places.take().await,
                Self::Unix(_) => places.take_local().await,
            };
            let accepted = match &self {
                Self::Tcp(listener) => listener.accept().await.map(|(stream, from)| Some(Stream::Tcp(stream, from.ip(), tls.get()))),
                Self::Unix(listener) => listener.accept().await.map(|(stream, _)| may_use(&stream).then_some(Stream::Unix(stream))),
            };
            place = places.better(place);
            match accepted {
                Ok(Some(stream)) => drop(tokio::spawn(stream.answer(router.clone(), place))),
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

impl Stream {
    async fn answer(self, router: Router, place: Place) {
        match self {
            Self::Tcp(stream, from, None) => connection(stream, Peer::Tcp(from), router, &place).await,
            Self::Tcp(stream, from, Some(config)) => {
                let accept = TlsAcceptor::from(config).accept(stream);
                // Who speaks plain HTTP to this, or nothing at all, costs a connection for a while.
                match tokio::time::timeout(place.patience(), accept).await {
                    Ok(Ok(stream)) => connection(stream, Peer::Tls(from), router, &place).await,
                    Ok(Err(error)) => tracing::debug!("TLS with {from}: {error}"),
                    Err(_) => tracing::debug!("TLS with {from}: no handshake in time"),
                }
            }
            Self::Unix(stream) => connection(stream, Peer::Local, router, &place).await,
        }
    }
}

/// Root and the daemon's own user may use the Unix socket; the kernel says who asks.
fn may_use(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw())
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, peer: Peer, router: Router, place: &Place) {
    let is_refused = place.is_refused();
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let router = router.clone();
        async move {
            if is_refused {
                return Ok(Problem::new(Kind::Busy, "as many connections as may be are open").into_response());
            }
            let mut request: Request = request.map(axum::body::Body::new);
            request.extensions_mut().insert(peer);
            Ok::<_, Infallible>(answer(router, request).await)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(place.patience()).max_buf_size(32 * 1024).keep_alive(!is_refused);
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
