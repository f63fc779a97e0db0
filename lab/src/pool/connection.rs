//! One client connection: hyper's sender, the task that drives it, and a second handle of the socket to look at it.

use std::net::{SocketAddr, TcpStream as StdStream};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::SendError;

/// A connection; dropping it closes it, with whatever is under way on it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    /// The same socket: hyper owns the other handle and does not let one look at it.
    socket: StdStream,
    driver: JoinHandle<()>,
}

impl Connection {
    /// Connects and starts to drive the connection.
    pub(super) async fn open(to: SocketAddr) -> Result<Self, SendError> {
        let connect = |source| SendError::Connect { to, source };
        let stream = TcpStream::connect(to).await.map_err(connect)?;
        stream.set_nodelay(true).map_err(connect)?;
        let std = stream.into_std().map_err(connect)?;
        let socket = std.try_clone().map_err(connect)?;
        let stream = TcpStream::from_std(std).map_err(connect)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(SendError::Reset)?;
        let driver = tokio::spawn(async move {
            // An error here reaches the request that it concerns; without one, nobody misses the connection.
            let _ = connection.await;
        });
        Ok(Self { sender, socket, driver })
    }

    /// Whether an idle connection can carry a request: not closed, and with nothing to read, not even the end.
    ///
    /// hyper learns of a close only when its task has run; the kernel knows at once.
    pub(super) fn is_whole(&self) -> bool {
        let nothing_to_read = matches!(self.socket.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        nothing_to_read && !self.sender.is_closed()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
