//! Sockets that systemd bound for the daemon: `sd_listen_fds(3)`. They stay bound while it restarts, so no request is refused meanwhile.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockaddrLike as _, SockaddrStorage, getsockname};
use tokio::net::{TcpListener, UnixListener};

use super::{ListenError, Listener};

/// The first that is passed.
const FIRST: RawFd = 3;
/// More would be a mistake.
const MOST: RawFd = 16;

/// What was passed to this process; nothing if it was started in another way.
///
/// # Errors
/// When something that was passed is no listening socket.
pub fn passed() -> Result<Vec<Listener>, ListenError> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<RawFd>().ok();
    let is_ours = number("LISTEN_PID").and_then(|pid| u32::try_from(pid).ok()) == Some(std::process::id());
    let count = if is_ours { number("LISTEN_FDS").unwrap_or(0).clamp(0, MOST) } else { 0 };
    (FIRST..FIRST + count).map(|fd| take(fd).map_err(|source| ListenError::Passed { fd, source })).collect()
}

fn take(fd: RawFd) -> io::Result<Listener> {
    // SAFETY: systemd passes these to this process and to nobody else in it; `passed` is called once, at the start.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    let address: SockaddrStorage = getsockname(fd.as_raw_fd())?;
    match address.family() {
        Some(AddressFamily::Unix) => {
            let listener = std::os::unix::net::UnixListener::from(fd);
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener).map(Listener::Unix)
        }
        Some(AddressFamily::Inet | AddressFamily::Inet6) => {
            let listener = std::net::TcpListener::from(fd);
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener).map(Listener::Tcp)
        }
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// An address that other hosts can reach, if there is one among these.
#[must_use]
pub fn exposed(listeners: &[Listener]) -> Option<SocketAddr> {
    let mut addresses = listeners.iter().filter_map(|listener| match listener {
        Listener::Tcp(listener) => listener.local_addr().ok(),
        Listener::Unix(_) => None,
    });
    addresses.find(|address| !address.ip().to_canonical().is_loopback())
}
