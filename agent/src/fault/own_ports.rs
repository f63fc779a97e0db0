//! The TCP ports on which this process itself listens: the API's. No fault may cut off who could end it.

use std::collections::HashSet;
use std::fs;

/// How many are spared; the API listens on two addresses at most in practice.
pub(crate) const MOST: usize = 4;

/// The ports, at most `MOST`; none where `/proc` cannot be read.
#[must_use]
pub fn listening() -> Vec<u16> {
    let own: HashSet<String> = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned))
        .collect();
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let mut ports: Vec<u16> = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(|line| port(line, &own)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports.truncate(MOST);
    ports
}

/// The port of a listener whose inode is among ours: `sl local remote st tx:rx tr:when retr uid timeout inode`.
fn port(line: &str, own: &HashSet<String>) -> Option<u16> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != "0A" || !own.contains(*inode) {
        return None;
    }
    u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn only_this_processs_listeners_are_its_own() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let ports = listening();
        // Other tests of this process may listen too.
        assert!(ports.contains(&address.port()) || ports.len() == MOST, "{ports:?}");
        assert!(!ports.contains(&client.local_addr().unwrap().port()));
    }
}
