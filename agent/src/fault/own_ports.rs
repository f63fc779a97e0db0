//! The TCP ports on which this process itself listens, the API's, and those of the host's SSH server. No fault may cut off who could end it.

use std::collections::HashSet;
use std::fs;

/// How many are spared: as many as the classifier has room for.
pub(crate) const MOST: usize = 4;

/// The ports, at most `MOST`: those of the SSH server first, which need not be 22, then this process's own. None where `/proc` cannot be read.
#[must_use]
pub fn spared() -> Vec<u16> {
    let mut ports: Vec<u16> = ssh_servers().iter().flat_map(|process| listening(process)).filter(|port| *port != SSH).collect();
    ports.extend(listening("self"));
    let mut seen = HashSet::new();
    ports.retain(|port| seen.insert(*port));
    if let Some(left_out @ [_, ..]) = ports.get(MOST..) {
        tracing::warn!(ports = ?left_out, "more ports of the API and of SSH than can be spared; a fault that selects these cuts them off");
    }
    ports.truncate(MOST);
    ports
}

/// The port that the classifier spares by itself.
const SSH: u16 = 22;

/// The ids of the processes that serve SSH.
fn ssh_servers() -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let serves = |id: &String| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim_end() == "sshd");
    processes.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).filter(serves).collect()
}

/// The ports on which a process listens in this network namespace.
fn listening(process: &str) -> Vec<u16> {
    let own: HashSet<String> = fs::read_dir(format!("/proc/{process}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned))
        .collect();
    if own.is_empty() {
        return Vec::new();
    }
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let mut ports: Vec<u16> = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(|line| port(line, &own)).collect();
    ports.sort_unstable();
    ports.dedup();
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
        let ports = listening("self");
        assert!(ports.contains(&address.port()), "{ports:?}");
        assert!(!ports.contains(&client.local_addr().unwrap().port()));
    }
}
