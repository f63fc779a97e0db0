//! A client that asks and tells what it got, without a library in between.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// The status of one answer on a connection of its own; `None` if there was none.
pub(crate) fn ask(address: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(stream, "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()
}
