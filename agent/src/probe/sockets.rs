//! Connections that are open already: their roles, from the kernel's list of sockets (sock_diag).
//!
//! Ingress is a connection whose local port somebody listens on; families are not compared, since an IPv6 listener takes
//! IPv4 peers. Downstream is one that matches a downstream edge, or whose port is one that the kernel hands out. What is
//! neither stays unknown.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;

use aya::maps::{HashMap, MapData};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use nix::sched::{CloneFlags, setns};
use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::report::json::connection::Kernel;
use stormdrill_wire::abi::{Rules, role};

use super::{ProbeError, rules};
use crate::fault::namespace;

/// `TCP_LISTEN`
const LISTEN: u8 = 10;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// Enters the role of every open connection of every network namespace, by its cookie.
///
/// Connections of a namespace that cannot be entered are counted as unknown.
pub(super) fn list(found: &mut HashMap<MapData, u64, u32>, rules: &Rules, count: u32) -> Result<(), ProbeError> {
    list_here(found, rules, count)?;
    elsewhere(|| {
        let _ = list_here(found, rules, count);
    })
}

/// Does something in every other network namespace, on a thread made for it. One that cannot be entered, or has ended meanwhile, is left out.
fn elsewhere(mut job: impl FnMut() + Send) -> Result<(), ProbeError> {
    let others = other_namespaces();
    if others.is_empty() {
        return Ok(());
    }
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().name("sock-diag".to_owned()).spawn_scoped(scope, move || {
            for namespace in others {
                if setns(&namespace, CloneFlags::CLONE_NEWNET).is_ok() {
                    job();
                }
            }
        });
        worker.map_err(ProbeError::Sockets).map(drop)
    })
}

/// The network namespaces of all processes but this thread's, and those that `ip netns` keeps, each once.
fn other_namespaces() -> Vec<File> {
    let mut known = HashSet::new();
    let own = namespace::own_net();
    known.extend(own);
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_processes = processes.filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()));
    let kept = std::fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut namespaces = Vec::new();
    for path in of_processes.map(|entry| entry.path().join("ns/net")).chain(kept) {
        // A process may have ended, and may not be ours to look at.
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        if known.insert(metadata.ino()) {
            namespaces.extend(File::open(path));
        }
    }
    namespaces
}

/// Enters the role of every open connection of this thread's network namespace.
fn list_here(found: &mut HashMap<MapData, u64, u32>, rules: &Rules, count: u32) -> Result<(), ProbeError> {
    let mut sockets = dump(AF_INET).map_err(ProbeError::Sockets)?;
    sockets.extend(dump(AF_INET6).map_err(ProbeError::Sockets)?);
    let handed_out = ephemeral_ports();
    let listened: HashSet<u16> = sockets.iter().filter(|s| s.state == LISTEN).map(|s| s.local.port()).collect();
    let rules = rules.rules.iter().take(usize::try_from(count).unwrap_or(0)).collect::<Vec<_>>();
    for socket in sockets.iter().filter(|s| s.state != LISTEN) {
        let matches = |role, end| rules.iter().any(|rule| rules::matches(rule, role, end));
        let role = if listened.contains(&socket.local.port()) || matches(role::INGRESS, socket.local) {
            role::INGRESS
        } else if matches(role::DOWNSTREAM, socket.peer) || handed_out.contains(&socket.local.port()) {
            role::DOWNSTREAM
        } else {
            continue;
        };
        // A full map leaves the connection unknown, and it is counted as that.
        let _ = found.insert(socket.cookie, u32::from(role), 0);
    }
    Ok(())
}

/// A connection of a named edge, as the kernel lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The edge's position.
    pub edge: usize,
    /// This host's end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
}

/// The established connections of the edges in this thread's network namespace, whichever process has them. Needs no privilege.
///
/// # Errors
/// When the kernel does not list its sockets.
pub fn connections(edges: &[EdgeSpec]) -> Result<Vec<Connection>, ProbeError> {
    const ESTABLISHED: u8 = 1;
    let rules = rules::of_edges(edges)?;
    let mut sockets = dump(AF_INET).map_err(ProbeError::Sockets)?;
    sockets.extend(dump(AF_INET6).map_err(ProbeError::Sockets)?);
    let listened: HashSet<u16> = sockets.iter().filter(|s| s.state == LISTEN).map(|s| s.local.port()).collect();
    let of = |socket: &Open| {
        let (role, end) =
            if listened.contains(&socket.local.port()) { (role::INGRESS, socket.local) } else { (role::DOWNSTREAM, socket.peer) };
        let edge = rules.rules.iter().take(edges.len()).position(|rule| rules::matches(rule, role, end))?;
        Some(Connection { edge, local: socket.local, peer: socket.peer })
    };
    Ok(sockets.iter().filter(|socket| socket.state == ESTABLISHED).filter_map(of).collect())
}

/// What the kernel knows of each connection of every network namespace, by socket cookie. Of a namespace that cannot be entered, nothing.
///
/// # Errors
/// When the kernel does not list its sockets, or no thread can be made.
pub fn details() -> Result<std::collections::HashMap<u64, Kernel>, ProbeError> {
    let mut known = std::collections::HashMap::new();
    let mut here = || -> io::Result<()> {
        for family in [AF_INET, AF_INET6] {
            known.extend(dump(family)?.iter().filter_map(|socket| Some((socket.cookie, socket.kernel?))));
        }
        Ok(())
    };
    here().map_err(ProbeError::Sockets)?;
    elsewhere(|| {
        let _ = here();
    })?;
    Ok(known)
}

#[derive(Debug, Clone, Copy)]
struct Open {
    state: u8,
    cookie: u64,
    local: SocketAddr,
    peer: SocketAddr,
    kernel: Option<Kernel>,
}

impl Open {
    /// From an `inet_diag_msg`: family, state, two timers; ports, addresses, interface and cookie; then what is not needed.
    fn parse(message: &[u8]) -> Option<Self> {
        let family = *message.first()?;
        let state = *message.get(1)?;
        let port = |at| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?));
        let address = |at| -> Option<IpAddr> {
            Some(if family == AF_INET {
                Ipv4Addr::from(<[u8; 4]>::try_from(message.get(at..at + 4)?).ok()?).into()
            } else {
                Ipv6Addr::from(<[u8; 16]>::try_from(message.get(at..at + 16)?).ok()?).to_canonical()
            })
        };
        let word = |at| Some(u64::from(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?)));
        Some(Self {
            state,
            local: SocketAddr::new(address(8)?, port(4)?),
            peer: SocketAddr::new(address(24)?, port(6)?),
            cookie: word(44)? | word(48)? << 32,
            kernel: message.get(INET_DIAG_MSG..).and_then(tcp_info),
        })
    }
}

/// Bytes of an `inet_diag_msg`; attributes follow.
const INET_DIAG_MSG: usize = 72;
/// The attribute that is a `tcp_info`.
const INET_DIAG_INFO: u16 = 2;

/// Round-trip time and retransmissions from the `tcp_info` among the attributes.
fn tcp_info(attributes: &[u8]) -> Option<Kernel> {
    const RTT: usize = 68;
    const TOTAL_RETRANS: usize = 100;
    let mut rest = attributes;
    loop {
        let (header, _) = rest.split_at_checked(4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([header[2], header[3]]) == INET_DIAG_INFO {
            let word = |at| Some(u64::from(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?)));
            return Some(Kernel { retransmits: word(TOTAL_RETRANS)?, rtt_us: word(RTT)? });
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
}

/// Asks for all TCP sockets of a family: `nlmsghdr` and `inet_diag_req_v2`. Written out, since the crate that knows these
/// messages wants another version of the netlink crates than the rest of the workspace.
fn request(family: u8) -> [u8; 72] {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const NLM_F_REQUEST_DUMP: u16 = 0x301;
    const IPPROTO_TCP: u8 = 6;
    let mut message = [0; 72];
    message[0..4].copy_from_slice(&72_u32.to_ne_bytes());
    message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    message[16] = family;
    message[17] = IPPROTO_TCP;
    // With each socket's `tcp_info`.
    message[18] = 1 << (INET_DIAG_INFO - 1);
    // All states.
    message[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    message
}

/// All TCP sockets of a family, in this thread's network namespace.
fn dump(family: u8) -> io::Result<Vec<Open>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&NetlinkAddr::new(0, 0))?;
    socket.send(&request(family), 0)?;
    let mut open = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        if read_messages(&datagram, &mut open)? {
            return Ok(open);
        }
    }
}

/// Takes the sockets out of a datagram; whether it was the last one.
fn read_messages(datagram: &[u8], open: &mut Vec<Open>) -> io::Result<bool> {
    const NLMSG_ERROR: u16 = 2;
    const NLMSG_DONE: u16 = 3;
    const HEADER: usize = 16;
    let mut rest = datagram;
    while let Some((header, _)) = rest.split_at_checked(HEADER) {
        let length = usize::try_from(u32::from_ne_bytes([header[0], header[1], header[2], header[3]])).unwrap_or(0);
        let body = rest.get(HEADER..length).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        match u16::from_ne_bytes([header[4], header[5]]) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                return Err(io::Error::from_raw_os_error(-code));
            }
            _ => open.extend(Open::parse(body)),
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// Ports that the kernel hands out to clients that bind none.
fn ephemeral_ports() -> std::ops::RangeInclusive<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = range.split_whitespace().filter_map(|word| word.parse().ok());
    match (bounds.next(), bounds.next()) {
        (Some(first), Some(last)) => first..=last,
        _ => 32768..=60999,
    }
}
