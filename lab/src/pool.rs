//! Keep-alive connections to one address.
//!
//! A connection is looked at before it is used again, so that one which the server has closed neither fails a request nor
//! sends it twice. Should hyper give back a request that never reached the wire, it goes out on another connection and is
//! counted as a replay. A request that did reach the wire is never sent again here: that is the caller's decision.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, Response};
use tokio::sync::Semaphore;
use tokio::time::timeout;

mod connection;

use crate::counts::Counter;
use crate::lock::lock;
use connection::Connection;

/// Why an attempt brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// No connection could be opened.
    #[error("connect to {to}")]
    Connect {
        /// The callee.
        to: SocketAddr,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The connection broke before the whole answer was read.
    #[error("connection broke before the answer")]
    Reset(#[source] hyper::Error),
    /// There was no whole answer in time; the connection has been closed, as HTTP/1 clients do.
    #[error("no answer within {limit:?}")]
    Timeout {
        /// The time it was given.
        limit: Duration,
    },
}

/// What becomes of a connection after its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// It is kept and used again.
    KeepAlive,
    /// It is closed, and the request says so.
    Close,
}

/// What went through a pool. `sent` = answers + resets after sending + `abandoned`, once all is at rest.
#[derive(Debug, Default)]
pub struct PoolCounts {
    /// Requests handed to a connection.
    pub sent: Counter,
    /// Requests whose connection was closed unanswered: the time was up, or the caller was gone.
    pub abandoned: Counter,
    /// Connections opened.
    pub opened: Counter,
    /// Kept connections that turned out to be closed by the server, found before use.
    pub stale: Counter,
    /// Requests that never reached the wire on a kept connection and went out on another.
    pub replays: Counter,
}

/// Connections to one address.
#[derive(Debug)]
pub struct Pool {
    to: SocketAddr,
    reuse: Reuse,
    idle: Mutex<Vec<Connection>>,
    places: Semaphore,
    counts: PoolCounts,
}

impl Pool {
    /// A pool with no connection yet, of at most `limit` connections in use at once; further requests wait for one.
    #[must_use]
    pub fn new(to: SocketAddr, reuse: Reuse, limit: u32) -> Self {
        let places = Semaphore::new(usize::try_from(limit).unwrap_or(Semaphore::MAX_PERMITS).min(Semaphore::MAX_PERMITS));
        Self { to, reuse, idle: Mutex::default(), places, counts: PoolCounts::default() }
    }

    /// The callee.
    #[must_use]
    pub fn to(&self) -> SocketAddr {
        self.to
    }

    /// What went through so far.
    #[must_use]
    pub fn counts(&self) -> &PoolCounts {
        &self.counts
    }

    /// Sends one request and reads its whole answer, all within `limit`.
    ///
    /// Dropping the future closes the connection.
    ///
    /// # Errors
    /// As [`SendError`] says.
    pub async fn send(&self, request: Request<Full<Bytes>>, limit: Duration) -> Result<Response<Bytes>, SendError> {
        timeout(limit, self.exchange(request)).await.unwrap_or(Err(SendError::Timeout { limit }))
    }

    async fn exchange(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Bytes>, SendError> {
        // The semaphore is never closed; were it, there would be no limit to keep.
        let _place = self.places.acquire().await.ok();
        if self.reuse == Reuse::Close {
            request.headers_mut().insert(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"));
        }
        loop {
            let kept = self.take_idle();
            let is_kept = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.open().await?,
            };
            if let Err(error) = connection.sender.ready().await {
                if is_kept {
                    self.counts.stale.add();
                    continue;
                }
                return Err(SendError::Reset(error));
            }
            let sent = Sent::new(&self.counts);
            match connection.sender.try_send_request(request).await {
                Ok(answer) => {
                    let (head, body) = answer.into_parts();
                    let body = body.collect().await;
                    sent.ended();
                    let body = body.map_err(SendError::Reset)?.to_bytes();
                    self.keep(connection);
                    return Ok(Response::from_parts(head, body));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_kept => {
                        sent.take_back();
                        self.counts.replays.add();
                        request = unsent;
                    }
                    Some(_) => {
                        sent.take_back();
                        return Err(SendError::Reset(error.into_error()));
                    }
                    None => {
                        sent.ended();
                        return Err(SendError::Reset(error.into_error()));
                    }
                },
            }
        }
    }

    async fn open(&self) -> Result<Connection, SendError> {
        let connection = Connection::open(self.to).await?;
        self.counts.opened.add();
        Ok(connection)
    }

    /// The connection used last that is still whole. The last, so that no more are kept busy than are needed.
    fn take_idle(&self) -> Option<Connection> {
        loop {
            let connection = lock(&self.idle).pop()?;
            if connection.is_whole() {
                return Some(connection);
            }
            self.counts.stale.add();
        }
    }

    fn keep(&self, connection: Connection) {
        if self.reuse == Reuse::KeepAlive && !connection.sender.is_closed() {
            lock(&self.idle).push(connection);
        }
    }
}

/// A request on the wire; dropped unended, it was abandoned.
struct Sent<'a> {
    counts: &'a PoolCounts,
    ended: bool,
}

impl<'a> Sent<'a> {
    fn new(counts: &'a PoolCounts) -> Self {
        counts.sent.add();
        Self { counts, ended: false }
    }

    fn ended(mut self) {
        self.ended = true;
    }

    fn take_back(mut self) {
        self.ended = true;
        self.counts.sent.take_back();
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.counts.abandoned.add();
        }
    }
}
