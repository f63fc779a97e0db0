//! The TCP ports on which this process itself listens, the API's, and those of the host's SSH server. No fault may cut off who could end it.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};

/// How many are spared: as many as the classifier has room for.
pub(crate) const MOST: usize = 4;

/// The ports, at most `MOST`: those of the SSH server first, which need not be 22, then this process's own. None where `/proc` cannot be read.
#[must_use]
pub fn spared() -> Vec<u16> {
    let mut ports = of_ssh();
    ports.extend(listening("self"));
    let mut seen = HashSet::new();
    ports.retain(|port| seen.insert(*port));
    if let Some(left_out @ [_, ..]) = ports.get(MOST..) {
        tracing::warn!(ports = ?left_out, "more ports of the API and of SSH than can be spared; a fault that selects these cuts them off");
    }
    ports.truncate(MOST);
    ports
}

/// The far ends of the connections to this process's own listeners: who talks to the API now.
#[must_use]
pub fn callers() -> Vec<SocketAddr> {
    let (own, lines) = sockets("self");
    let listeners: HashSet<u16> = lines.iter().filter_map(|line| port(line, &own)).collect();
    lines.iter().filter_map(|line| caller(line, &own, &listeners)).collect()
}

/// The far end of an established connection of ours to one of our listeners.
fn caller(line: &str, own: &HashSet<String>, listeners: &HashSet<u16>) -> Option<SocketAddr> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, remote, state, inode) = (fields.get(1)?, fields.get(2)?, fields.get(3)?, fields.get(9)?);
    if *state != "01" || !own.contains(*inode) || !listeners.contains(&end(local)?.port()) {
        return None;
    }
    end(remote)
}

/// An end as the tables have it: the address in words of four bytes, each in the host's order, and the port.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let address = if address.len() == 8 {
        IpAddr::from(word(0)?)
    } else {
        let words = [word(0)?, word(1)?, word(2)?, word(3)?];
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(words.iter().flatten()).for_each(|(byte, of)| *byte = *of);
        IpAddr::from(bytes).to_canonical()
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

/// The ports of the host's SSH servers other than 22, as far as this user may see them.
#[must_use]
pub fn of_ssh() -> Vec<u16> {
    let mut ports: Vec<u16> = ssh_servers().iter().flat_map(|process| listening(process)).filter(|port| *port != SSH).collect();
    ports.sort_unstable();
    ports.dedup();
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
    let (own, lines) = sockets(process);
    let mut ports: Vec<u16> = lines.iter().filter_map(|line| port(line, &own)).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The inodes of a process's sockets, and the lines of this namespace's tables of TCP sockets; no lines if it has none.
fn sockets(process: &str) -> (HashSet<String>, Vec<String>) {
    let own: HashSet<String> = fs::read_dir(format!("/proc/{process}/fd"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned))
        .collect();
    if own.is_empty() {
        return (own, Vec::new());
    }
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1)).map(str::to_owned).collect();
    (own, lines)
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
        // Whoever has connected to one of them is a caller; to whom this process has connected is not.
        let (_served, caller) = listener.accept().unwrap();
        assert!(callers().contains(&caller), "{:?}", callers());
        assert!(!callers().contains(&address));
        assert_eq!(end("0100007F:1F90"), Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(end("0000000000000000FFFF00000100007F:0016"), Some("127.0.0.1:22".parse().unwrap()));
    }
}
