//! Tells systemd how the daemon is: `sd_notify(3)`, which is a datagram. Without systemd nobody is told.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The daemon answers requests.
pub fn ready() {
    send("READY=1\n");
}

/// The daemon is about to end.
pub fn stopping() {
    send("STOPPING=1\n");
}

/// The daemon still does what it should.
pub fn alive() {
    send("WATCHDOG=1\n");
}

/// How often systemd wants to hear that, halved so that one late call is none too many; `None` if it does not.
#[must_use]
pub fn watchdog() -> Option<Duration> {
    let is_ours = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
    let period: u64 = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    (is_ours && period > 1).then(|| Duration::from_micros(period / 2))
}

fn send(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = address.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&address),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!("systemd could not be told {}: {error}", state.trim());
    }
}
