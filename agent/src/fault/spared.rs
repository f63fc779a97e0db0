//! Whom no fault may cut off: who could end it, and whom the agent needs to go on.
//!
//! Besides SSH's port and this process's own, these are single connections, by the address and port of their far end: the SSH session that the agent was
//! started from, whatever port its server has, and those that are talking to the API. Of etcd it is the server's end, because the daemon may
//! have to connect to it anew under the fault.

use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

use super::own_ports;

/// How far up from this process the variables of SSH are looked for: `sudo` and the like take them away.
const MOST_ANCESTORS: usize = 16;

/// What is spared like SSH's port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spared {
    /// TCP ports, at either end; the first four count.
    pub ports: Vec<u16>,
    /// Ends of TCP connections, at either end.
    pub ends: Vec<SocketAddr>,
}

impl Spared {
    /// What this process is reached by.
    #[must_use]
    pub fn of_this_process() -> Self {
        let mut ends = ssh_clients();
        ends.extend(own_ports::callers());
        ends.sort_unstable();
        ends.dedup();
        Self { ports: own_ports::spared(), ends }
    }

    /// The same, and these servers, `name:port` each. One that cannot be resolved is told in the log.
    #[must_use]
    pub fn with_servers(mut self, servers: &[String]) -> Self {
        for server in servers {
            match server.to_socket_addrs() {
                Ok(addresses) => self.ends.extend(addresses),
                Err(error) => tracing::warn!(server, %error, "cannot be resolved, and is not spared by the drill's faults"),
            }
        }
        self
    }
}

/// The far ends of the SSH sessions that this process, or one that it descends from, was started in.
#[must_use]
pub fn ssh_clients() -> Vec<SocketAddr> {
    let mut found: Vec<SocketAddr> = Vec::new();
    let mut process = std::process::id();
    for _ in 0..MOST_ANCESTORS {
        // Those of other users may not be read.
        let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        found.extend(variables.split(|byte| *byte == 0).filter_map(|variable| client(std::str::from_utf8(variable).ok()?)));
        match parent(process) {
            Some(above) if above > 1 => process = above,
            _ => break,
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The far end that a variable of SSH names: its first two words are the client's address and port.
fn client(variable: &str) -> Option<SocketAddr> {
    let (name, value) = variable.split_once('=')?;
    if !matches!(name, "SSH_CONNECTION" | "SSH_CLIENT") {
        return None;
    }
    let mut words = value.split_whitespace();
    // A link-local address carries its interface.
    let address: IpAddr = words.next()?.split('%').next()?.parse().ok()?;
    Some(SocketAddr::new(address.to_canonical(), words.next()?.parse().ok()?))
}

fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_session_is_known_by_its_clients_end_whatever_port_the_server_has() {
        let end = |text: &str| Some(text.parse().unwrap());
        assert_eq!(client("SSH_CONNECTION=192.0.2.7 51234 192.0.2.1 2222"), end("192.0.2.7:51234"));
        assert_eq!(client("SSH_CLIENT=::ffff:192.0.2.7 51234 22"), end("192.0.2.7:51234"));
        assert_eq!(client("SSH_CONNECTION=fe80::1%eth0 51234 fe80::2%eth0 22"), end("[fe80::1]:51234"));
        for other in ["SSH_TTY=/dev/pts/0", "SSH_CONNECTION=", "SSH_CONNECTION=host 22", "SSH_CLIENT=192.0.2.7 ssh 22", "PATH"] {
            assert_eq!(client(other), None, "{other}");
        }
    }

    #[test]
    fn every_process_descends_from_others() {
        assert_eq!(parent(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert!(parent(1).is_none_or(|above| above == 0));
    }
}
