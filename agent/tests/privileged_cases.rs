//! Cases that tools like this one got wrong, each as somebody met it; see docs/known-bugs.md. Run as root: `cargo xtask test --only privileged_cases`.
//!
//! The hooks see every namespace, so the ports are ones that no other test uses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::Path;

use lab::{Peer, in_namespace, run, wait_until};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt};
use stormdrill::cgroup;
use stormdrill::probe::{self, Health, Probe, ProbeConfig};
use stormdrill_core::edge::{EdgeId, EdgeSpec, PortRange, Protocol, Role};
use stormdrill_core::event::{ConnectFailure, ProbeEvent, ProbeEventKind};
use stormdrill_core::window::EdgeCounts;

const SERVED: EdgeId = EdgeId(0);
const CALLED: EdgeId = EdgeId(1);
const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Both ends of a port that HTTP is spoken on, with so many bytes for events.
fn attach(port: u16, ring_bytes: u32) -> Probe {
    let edge = |role: Role| EdgeSpec {
        name: role.as_str().to_owned(),
        role,
        address: None,
        ports: Some(PortRange { first: port, last: port }),
        protocol: Some(Protocol::Http),
    };
    let cgroup = cgroup::find_or_mount(Path::new("/run/stormdrill-test")).unwrap();
    Probe::attach_to_edges(&ProbeConfig { cgroup, edges: &[edge(Role::Ingress), edge(Role::Downstream)], events: true, ring_bytes })
        .unwrap()
}

fn counts(probe: &mut Probe) -> [EdgeCounts; 2] {
    let snapshot = probe.snapshot().unwrap();
    [snapshot.total(SERVED), snapshot.total(CALLED)]
}

fn events(probe: &mut Probe) -> Vec<ProbeEvent> {
    let mut all = Vec::new();
    probe.drain(|event| all.push(event)).unwrap();
    all
}

/// Connects over IPv4 from a port of one's own choice, which may have been in use a moment ago.
fn connect_from(port: u16, to: u16) -> TcpStream {
    let client = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
    setsockopt(&client, sockopt::ReuseAddr, &true).unwrap();
    let local: SocketAddrV4 = format!("127.0.0.1:{port}").parse().unwrap();
    bind(client.as_raw_fd(), &SockaddrIn::from(local)).unwrap();
    let peer: SocketAddrV4 = format!("127.0.0.1:{to}").parse().unwrap();
    connect(client.as_raw_fd(), &SockaddrIn::from(peer)).unwrap();
    TcpStream::from(client)
}

/// Asks and answers so many times.
fn talk(client: &mut TcpStream, server: &mut TcpStream, times: usize) {
    for _ in 0..times {
        client.write_all(GET.as_bytes()).unwrap();
        server.read_exact(&mut vec![0; GET.len()]).unwrap();
        server.write_all(OK.as_bytes()).unwrap();
        client.read_exact(&mut vec![0; OK.len()]).unwrap();
    }
}

/// The server's port is one that the kernel hands out to clients, the client's is one that services have; the listener is IPv6's, and its peers are not.
#[test]
fn roles_are_right_whatever_the_ports_say_before_the_start_and_after() {
    in_namespace(|| {
        let listener = TcpListener::bind("[::]:50000").unwrap();
        let pair = |from| {
            let client = connect_from(from, 50_000);
            (client, listener.accept().unwrap().0)
        };
        let mut before = pair(1024);
        let mut probe = attach(50_000, 1 << 22);
        let mut after = pair(1025);
        for (client, server) in [&mut before, &mut after] {
            talk(client, server, 3);
        }
        for counts in counts(&mut probe) {
            assert_eq!((counts.requests, counts.responses, counts.connections_opened), (6, 6, 1), "{counts:?}");
        }
        assert_eq!(probe.snapshot().unwrap().health, Health::default());
        let roles: BTreeSet<_> = events(&mut probe).iter().map(|event| (event.edge, event.role, event.conn)).collect();
        assert_eq!(roles.len(), 4, "two ends of two connections, each in one role: {roles:?}");
    });
}

/// The first connection breaks off in the middle of a head; the next has the same addresses and ports.
#[test]
fn a_port_that_is_used_again_carries_nothing_over() {
    in_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:24401").unwrap();
        let mut probe = attach(24_401, 1 << 22);
        for round in 0..3 {
            let mut client = connect_from(24_402, 24_401);
            let (mut server, _) = listener.accept().unwrap();
            talk(&mut client, &mut server, 2);
            client.write_all(&GET.as_bytes()[..10]).unwrap();
            server.read_exact(&mut [0; 10]).unwrap();
            // With a reset, so that nothing waits on either side.
            setsockopt(&client, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 }).unwrap();
            drop(client);
            assert!(server.read(&mut [0]).is_err());
            drop(server);
            wait_until("both ends are closed", || counts(&mut probe).iter().all(|counts| counts.connections_closed == round + 1));
        }
        for counts in counts(&mut probe) {
            assert_eq!((counts.requests, counts.responses, counts.connections_opened), (6, 6, 3), "{counts:?}");
        }
        let told = events(&mut probe);
        let conns: BTreeSet<_> = told.iter().map(|event| event.conn).collect();
        assert_eq!(conns.len(), 6, "each end of each connection is one of its own");
        for conn in conns {
            let complete = |event: &&ProbeEvent| {
                event.conn == conn && matches!(&event.kind, ProbeEventKind::RequestHead { piece, .. } if piece.complete)
            };
            let heads: Vec<_> = told.iter().filter(complete).collect();
            let is = |at: usize, number: u32| matches!(heads[at].kind, ProbeEventKind::RequestHead { index, .. } if index == number);
            assert!(heads.len() == 2 && is(0, 0) && is(1, 1), "{heads:?}");
        }
    });
}

/// The connection stays open, and is counted all the same, as soon as each message has passed.
#[test]
fn a_connection_that_never_ends_is_counted_at_once() {
    in_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:24403").unwrap();
        let mut probe = attach(24_403, 1 << 22);
        let mut client = TcpStream::connect("127.0.0.1:24403").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        for asked in 1..=3 {
            client.write_all(GET.as_bytes()).unwrap();
            server.read_exact(&mut vec![0; GET.len()]).unwrap();
            assert!(counts(&mut probe).iter().all(|counts| (counts.requests, counts.responses) == (asked, asked - 1)));
            server.write_all(OK.as_bytes()).unwrap();
            client.read_exact(&mut vec![0; OK.len()]).unwrap();
            assert!(counts(&mut probe).iter().all(|counts| (counts.requests, counts.responses) == (asked, asked)));
        }
        assert!(counts(&mut probe).iter().all(|counts| (counts.connections_opened, counts.connections_closed) == (1, 0)));
    });
}

/// The ring has no room for most, and nobody reads it: what is lost is counted to the last record, and the counts are exact.
#[test]
fn events_that_find_no_room_are_counted_and_the_counts_stay_exact() {
    in_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:24404").unwrap();
        let mut probe = attach(24_404, 1 << 14);
        let mut client = TcpStream::connect("127.0.0.1:24404").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        talk(&mut client, &mut server, 1000);
        for counts in counts(&mut probe) {
            assert_eq!((counts.requests, counts.responses), (1000, 1000));
        }
        let lost = probe.snapshot().unwrap().health.events_lost;
        let told = u64::try_from(events(&mut probe).len()).unwrap();
        assert!(told > 0 && lost > told, "{told} {lost}");
        // At both ends: the opening, and a record for each message.
        assert_eq!(told + lost, 2 * (1 + 2 * 1000));
        // A ring that was full goes on when there is room again, without anybody being woken.
        talk(&mut client, &mut server, 5);
        assert_eq!(events(&mut probe).len(), 2 * 2 * 5);
        assert_eq!(probe.snapshot().unwrap().health.events_lost, lost);
    });
}

/// A window full of segments is lost, some of them more than once: as many are counted as the kernel says that it has sent again.
#[test]
fn retransmissions_of_many_segments_are_as_many_as_the_kernel_s_own() {
    in_namespace(|| {
        const LENGTH: usize = 40_000;
        let peer = Peer::new();
        let mut probe = attach(24_405, 1 << 22);
        let listener = peer.run(|| TcpListener::bind("10.9.0.2:24405").unwrap());
        let mut client = TcpStream::connect("10.9.0.2:24405").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let post = format!("POST / HTTP/1.1\r\nContent-Length: {LENGTH}\r\n\r\n{}", "x".repeat(LENGTH));
        let heard = |server: &mut TcpStream| server.read_exact(&mut vec![0; post.len()]).unwrap();
        client.write_all(post.as_bytes()).unwrap();
        heard(&mut server);
        // Frames to a wrong address are dropped by the peer, and the sender believes them sent.
        let address = run("ip", &["neigh", "show", "10.9.0.2"]).split_whitespace().nth(4).unwrap().to_owned();
        for round in 1..=3 {
            run("ip", &["neigh", "replace", "10.9.0.2", "lladdr", "02:00:00:00:00:99", "dev", "v0", "nud", "permanent"]);
            client.write_all(post.as_bytes()).unwrap();
            wait_until("segments are sent again", || counts(&mut probe)[1].tcp_retransmits >= 2 * round);
            run("ip", &["neigh", "replace", "10.9.0.2", "lladdr", &address, "dev", "v0", "nud", "permanent"]);
            heard(&mut server);
        }
        let told = events(&mut probe);
        let conn = told.iter().find(|event| event.edge == CALLED).unwrap().conn;
        let [at_server, at_client] = counts(&mut probe);
        let kernel = probe::details().unwrap()[&conn.0].retransmits;
        assert!(kernel > 10, "{kernel}");
        assert_eq!((at_client.tcp_retransmits, at_server.tcp_retransmits), (kernel, 0));
        assert_eq!((at_client.requests, at_server.requests), (4, 4));
        let bytes = 4 * u64::try_from(post.len()).unwrap();
        assert_eq!((at_client.request_bytes, at_server.request_bytes), (bytes, bytes), "each byte once");
    });
}

/// One that nobody answers, and one that its caller gives up.
#[test]
fn a_connect_that_is_interrupted_or_not_answered_is_a_failure_with_its_reason() {
    in_namespace(|| {
        let _peer = Peer::new();
        std::fs::write("/proc/sys/net/ipv4/tcp_syn_retries", "1").unwrap();
        run("ip", &["neigh", "replace", "10.9.0.2", "lladdr", "02:00:00:00:00:99", "dev", "v0", "nud", "permanent"]);
        let mut probe = attach(24_406, 1 << 22);
        let peer: SocketAddrV4 = "10.9.0.2:24406".parse().unwrap();
        let hurried = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).unwrap();
        assert_eq!(connect(hurried.as_raw_fd(), &SockaddrIn::from(peer)), Err(nix::Error::EINPROGRESS));
        drop(hurried);
        assert_eq!(TcpStream::connect(peer).unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        let [_, called] = counts(&mut probe);
        assert_eq!((called.connect_failures, called.connections_opened, called.connections_closed), (2, 0, 0), "{called:?}");
        let told: Vec<_> = events(&mut probe).into_iter().map(|event| event.kind).collect();
        let failed = |reason| ProbeEventKind::ConnectFailed { peer: peer.into(), reason };
        assert_eq!(told, [failed(ConnectFailure::Other), failed(ConnectFailure::TimedOut)]);
    });
}
