//! A listening HTTP/1.1 service: accepts, hands each request to its handler, and comes to rest when told.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::counts::Counter;

/// The largest request body that a service reads, in bytes.
const BODY_LIMIT: usize = 16 << 20;
/// How long a service waits after a failed accept, which is mostly for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Why a service could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The address cannot be listened on.
    #[error("listen on {address} for {name}")]
    Listen {
        /// The service's name.
        name: String,
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// What a service does with a request.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. The future is dropped when the client's connection closes first.
    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Response<Full<Bytes>>> + Send;

    /// The counter of accepted connections.
    fn connections(&self) -> &Counter;
}

/// A service that is listening. Dropping it tells its connections to end, as [`Listening::stop`] does without waiting.
#[derive(Debug)]
pub struct Listening {
    name: String,
    address: SocketAddr,
    stop: watch::Sender<Duration>,
    accepting: JoinHandle<()>,
}

impl Listening {
    /// Listens on `address` (port 0: any free one) and starts to serve.
    ///
    /// # Errors
    /// [`ServiceError::Listen`] when the address cannot be had.
    pub async fn start<H: Handler>(name: &str, address: SocketAddr, handler: Arc<H>) -> Result<Self, ServiceError> {
        let listen = |source| ServiceError::Listen { name: name.to_owned(), address, source };
        let listener = bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let (stop, stopped) = watch::channel(Duration::ZERO);
        let accepting = tokio::spawn(accept(listener, handler, stopped));
        Ok(Self { name: name.to_owned(), address, stop, accepting })
    }

    /// The service's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address it really listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more, closes idle connections, and gives requests under way up to `drain`. Returns when all is at rest.
    pub async fn stop(self, drain: Duration) {
        self.stop.send_replace(drain);
        // The task ends by itself; had it panicked, there would be nothing left to stop.
        let _ = self.accepting.await;
    }
}

/// Listens, with room for a long queue: a service that is stopped for a while has all of it to do afterwards.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(4096)
}

async fn accept<H: Handler>(listener: TcpListener, handler: Arc<H>, mut stopped: watch::Receiver<Duration>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = stopped.changed() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    handler.connections().add();
                    connections.spawn(serve(stream, Arc::clone(&handler), stopped.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    let drain = *stopped.borrow();
    let at_rest = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(drain, at_rest).await.is_err() {
        connections.shutdown().await;
    }
}

async fn serve<H: Handler>(stream: TcpStream, handler: Arc<H>, mut stopped: watch::Receiver<Duration>) {
    // Without it answers would merely be later; not worth refusing the connection.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(handler.handle(request).await) }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // A connection's error is its client's doing, and shows in the counts as a client that is gone.
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Reads a request's whole body; `None` if it is over 16 MiB or breaks off.
pub async fn read_body(body: Incoming) -> Option<Bytes> {
    if body.is_end_stream() {
        return Some(Bytes::new());
    }
    Limited::new(body, BODY_LIMIT).collect().await.ok().map(http_body_util::Collected::to_bytes)
}

/// A small JSON answer; `body` must be JSON.
#[must_use]
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
