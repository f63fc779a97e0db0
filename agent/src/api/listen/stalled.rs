//! A stream that is given up when its peer does not take what is written: a client that stops reading must not hold a connection for ever.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The stream, and the time at which the write that waits is given up.
pub(super) struct Bounded<S> {
    stream: S,
    patience: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncWrite + Unpin> Bounded<S> {
    /// A write may wait so long for its peer.
    pub(super) const fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, deadline: None }
    }

    fn bound<T>(&mut self, polled: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline = None;
            return polled;
        }
        let patience = self.patience;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        deadline.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bound(polled, context)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.bound(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        self.bound(polled, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bound(polled, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_write_that_nobody_takes_is_given_up() {
        let (ours, _theirs) = tokio::io::duplex(16);
        let mut stream = Bounded::new(ours, Duration::ZERO);
        assert!(stream.write_all(&[7; 16]).await.is_ok(), "there is room");
        let error = stream.write_all(&[7; 16]).await.err();
        assert_eq!(error.map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn a_write_that_is_taken_late_is_none_of_those() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut stream = Bounded::new(ours, Duration::from_secs(3_600));
        let mut all = [0; 64];
        let (written, read) = tokio::join!(stream.write_all(&[7; 64]), theirs.read_exact(&mut all));
        assert!(written.is_ok() && read.is_ok());
    }
}
