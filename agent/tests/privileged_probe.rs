//! The probe on the host's own kernel, with real sockets in scratch namespaces: what it counts against what was sent.
//! Run as root: `cargo test -p stormdrill --features privileged-tests --test privileged_probe -- --test-threads=1`.
//!
//! The hooks see every namespace, so the ports are ones that no other test uses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use lab::{Client, Peer, in_namespace, run, wait_until};
use stormdrill::cgroup;
use stormdrill::probe::{Attached, Health, Probe, ProbeConfig, ProbeError};
use stormdrill_core::edge::{Cidr, EdgeId, EdgeSpec, PortRange, Role};
use stormdrill_core::event::{Close, ConnectFailure, ProbeEvent, ProbeEventKind};
use stormdrill_core::window::EdgeCounts;
use stormdrill_wire::conn::side;
use stormdrill_wire::replay::Replay;

const PORT: u16 = 23_471;
const WEB: EdgeId = EdgeId(0);
const API: EdgeId = EdgeId(1);

fn edge(role: Role, address: Option<&str>, port: u16) -> EdgeSpec {
    EdgeSpec {
        name: format!("{}-{port}", role.as_str()),
        role,
        address: address.map(|text| {
            let address: std::net::IpAddr = text.parse().unwrap();
            Cidr { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
        }),
        ports: Some(PortRange { first: port, last: port }),
        protocol: None,
    }
}

fn attach(edges: &[EdgeSpec]) -> Probe {
    let cgroup = cgroup::find_or_mount(Path::new("/run/stormdrill-test")).unwrap();
    Probe::attach(&ProbeConfig { cgroup, edges, events: true, ring_bytes: 1 << 22 }).unwrap()
}

/// Both ends of one port: ingress first, downstream second.
fn both_ends(port: u16) -> [EdgeSpec; 2] {
    [edge(Role::Ingress, None, port), edge(Role::Downstream, None, port)]
}

fn count(probe: &mut Probe, edge: EdgeId) -> EdgeCounts {
    probe.snapshot().unwrap().total(edge)
}

fn events(probe: &mut Probe) -> Vec<ProbeEvent> {
    let mut all = Vec::new();
    probe.drain(|event| all.push(event)).unwrap();
    all
}

/// Sends each text on its own, reads exactly what is answered, and has the server do the same from its side.
fn exchange(address: &str, turns: &[Turn]) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    for (from, bytes) in turns {
        let (mut sender, mut receiver) = if *from == side::REQUEST { (&client, &server) } else { (&server, &client) };
        sender.write_all(bytes).unwrap();
        let mut got = vec![0; bytes.len()];
        receiver.read_exact(&mut got).unwrap();
        assert_eq!(&got, bytes);
    }
    (client, server)
}

fn request(text: &str) -> Turn {
    (side::REQUEST, text.as_bytes().to_vec())
}

fn response(text: &str) -> Turn {
    (side::RESPONSE, text.as_bytes().to_vec())
}

const GET: &str = "GET /x HTTP/1.1\r\nHost: a\r\nUser-Agent: probe-test/1.0 (a header of some length)\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nServer: t\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello";

/// What a side sends at once.
type Turn = (usize, Vec<u8>);

/// Streams with all that HTTP/1.x has to offer, as turns of the two sides.
fn corpus() -> Vec<(&'static str, Vec<Turn>)> {
    let body = "GET / HTTP/1.1\r\n\r\n".repeat(3);
    let post = format!("POST /p HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let chunked = "PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n12\r\nGET / HTTP/1.1\r\n\r\n\r\n0\r\n\r\n";
    let by_byte = GET.bytes().map(|byte| (side::REQUEST, vec![byte])).chain([response(OK)]).collect();
    vec![
        ("plain", vec![request(GET), response(OK), request(GET), response(OK)]),
        ("byte by byte", by_byte),
        ("fifty pipelined", vec![request(&GET.repeat(50)), response(&OK.repeat(50))]),
        ("a body like a request", vec![request(&post), response(OK), request(GET), response(OK)]),
        ("chunked", vec![request(chunked), response(OK), request(GET), response(OK)]),
        (
            "expect",
            vec![
                request("POST /e HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"),
                response("HTTP/1.1 100 Continue\r\n\r\n"),
                request("ok"),
                response("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"),
                request(GET),
                response(OK),
            ],
        ),
        (
            "no bodies",
            vec![
                request("HEAD / HTTP/1.1\r\n\r\n"),
                response("HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"),
                request(GET),
                response("HTTP/1.1 304 Not Modified\r\nContent-Length: 999\r\n\r\n"),
                request(GET),
                response("HTTP/1.1 204 No Content\r\n\r\n"),
                request(GET),
                response(OK),
            ],
        ),
        (
            "upgrade",
            vec![
                request("GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
                response("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
                request(GET),
                response(OK),
            ],
        ),
        ("absolute", vec![request("GET http://a/b HTTP/1.1\r\n\r\n"), response(OK), request("OPTIONS * HTTP/1.1\r\n\r\n")]),
        ("binary", vec![(side::REQUEST, vec![0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]), request(GET), response(OK)]),
        ("a large head", vec![request(&format!("GET / HTTP/1.1\r\nCookie: {}\r\n\r\n", "c".repeat(20_000))), response(OK), request(GET)]),
        (
            "a large body",
            vec![
                request(GET),
                response(&format!("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{}", "b".repeat(300_000))),
                request(GET),
                response(OK),
            ],
        ),
    ]
}

#[test]
fn kernel_and_host_recogniser_agree_on_real_sockets_in_both_roles_and_families() {
    in_namespace(|| {
        let mut probe = attach(&both_ends(PORT));
        for address in [format!("127.0.0.1:{PORT}"), format!("[::1]:{PORT}")] {
            for (name, turns) in corpus() {
                let mut replay = Replay::new([0, 0]);
                let mut seq = [0_u32; 2];
                for (from, bytes) in &turns {
                    replay.segment(*from, seq[*from], bytes, &mut ());
                    seq[*from] += u32::try_from(bytes.len()).unwrap();
                }
                let before = [count(&mut probe, WEB), count(&mut probe, API)];
                drop(exchange(&address, &turns));
                for (edge, before) in [WEB, API].into_iter().zip(before) {
                    let now = count(&mut probe, edge);
                    let found = (now.requests - before.requests, now.responses - before.responses);
                    assert_eq!(found, (replay.requests, replay.responses), "{name} on {address}, edge {edge:?}");
                    let bytes = (now.request_bytes - before.request_bytes, now.response_bytes - before.response_bytes);
                    assert_eq!(bytes, (u64::from(seq[0]), u64::from(seq[1])), "{name} on {address}, edge {edge:?}");
                    assert_eq!(now.connections_opened - before.connections_opened, 1);
                }
            }
        }
        let health = probe.snapshot().unwrap().health;
        assert_eq!(health, Health { unparsed_connections: 4, ..Health::default() });
    });
}

#[test]
fn heads_arrive_whole_with_their_index_and_status() {
    in_namespace(|| {
        let mut probe = attach(&both_ends(PORT));
        probe.set_epoch(7).unwrap();
        let long = format!("GET /long HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(1200));
        let answer = OK.replace("200 OK", "503 Sorry");
        let streams = exchange(&format!("127.0.0.1:{PORT}"), &[request(GET), response(OK), request(&long), response(&answer)]);
        let all = events(&mut probe);
        for (edge, role) in [(WEB, Role::Ingress), (API, Role::Downstream)] {
            let mine: Vec<&ProbeEvent> = all.iter().filter(|event| event.edge == edge).collect();
            assert!(mine.iter().all(|event| event.role == Some(role) && event.epoch == 7 && event.conn == mine[0].conn));
            assert!(mine.is_sorted_by_key(|event| event.at_ns));
            assert!(matches!(mine[0].kind, ProbeEventKind::Opened { .. }));
            let mut heads: BTreeMap<(bool, u32), (Vec<u8>, u16, bool)> = BTreeMap::new();
            for event in &mine {
                let (key, code, piece) = match &event.kind {
                    ProbeEventKind::RequestHead { index, piece } => ((true, *index), 0, piece),
                    ProbeEventKind::ResponseHead { index, status, piece, .. } => ((false, *index), *status, piece),
                    _ => continue,
                };
                let head = heads.entry(key).or_default();
                assert_eq!(head.0.len(), usize::try_from(piece.offset).unwrap().min(head.0.len()));
                head.0.extend(&piece.bytes);
                head.1 = code;
                head.2 = piece.complete;
            }
            assert_eq!(heads[&(true, 0)], (GET.as_bytes().to_vec(), 0, true));
            // Nobody asks more of it than its status.
            assert_eq!(heads[&(false, 0)], (Vec::new(), 200, true));
            assert_eq!(heads[&(false, 1)], (answer.as_bytes().to_vec(), 503, true));
            let (bytes, _, complete) = &heads[&(true, 1)];
            assert!(*complete && long.as_bytes().starts_with(&bytes[..512]), "{bytes:?}");
        }
        drop(streams);
    });
}

#[test]
fn counts_and_statuses_fall_into_the_epoch_that_was_set() {
    in_namespace(|| {
        let mut probe = attach(&both_ends(PORT));
        let not_found = OK.replace("200 OK", "404 Not Found");
        for (epoch, answer) in [(1, OK), (2, &not_found), (2, OK), (6, OK)] {
            probe.set_epoch(epoch).unwrap();
            drop(exchange(&format!("127.0.0.1:{PORT}"), &[request(GET), response(answer)]));
        }
        let snapshot = probe.snapshot().unwrap();
        assert_eq!(snapshot.slot(1)[0].requests, 1);
        // Epochs 2 and 6 share a slot.
        assert_eq!(snapshot.slot(2)[0].requests, 3);
        assert_eq!(snapshot.slot(3)[0].requests, 0);
        assert_eq!(snapshot.status(2, WEB), Some(&BTreeMap::from([(200, 2), (404, 1)])));
        assert_eq!(snapshot.total_status(API), BTreeMap::from([(200, 3), (404, 1)]));
    });
}

#[test]
fn connections_that_were_open_before_are_counted_in_their_role() {
    in_namespace(|| {
        let mut pairs = Vec::new();
        for address in ["127.0.0.1", "[::1]"] {
            pairs.push(exchange(&format!("{address}:{PORT}"), &[request(GET), response(OK)]));
        }
        // The listeners are gone by now: what is an ingress edge's port is that edge's even so.
        let mut probe = attach(&both_ends(PORT));
        for (client, server) in &pairs {
            for _ in 0..3 {
                let (mut client, mut server) = (client, server);
                client.write_all(GET.as_bytes()).unwrap();
                server.read_exact(&mut vec![0; GET.len()]).unwrap();
                server.write_all(OK.as_bytes()).unwrap();
                client.read_exact(&mut vec![0; OK.len()]).unwrap();
            }
        }
        drop(pairs);
        for edge in [WEB, API] {
            wait_until("the connections are closed", || count(&mut probe, edge).connections_closed == 2);
            let counts = count(&mut probe, edge);
            assert_eq!((counts.requests, counts.responses, counts.connections_opened), (6, 6, 0), "{edge:?}");
        }
        assert_eq!(probe.snapshot().unwrap().health, Health::default());
        let opened = events(&mut probe).iter().filter(|e| matches!(e.kind, ProbeEventKind::Opened { .. })).count();
        assert_eq!(opened, 4);
    });
}

#[test]
fn a_connection_of_unknown_role_is_counted_as_that_and_never_guessed() {
    in_namespace(|| {
        // Open before, and in a namespace that the probe does not list.
        let peer = Peer::new();
        let (client, server) = peer.run(|| exchange(&format!("127.0.0.1:{PORT}"), &[request(GET), response(OK)]));
        let mut probe = attach(&both_ends(PORT));
        let (mut client, mut server) = (&client, &server);
        for _ in 0..3 {
            client.write_all(GET.as_bytes()).unwrap();
            server.read_exact(&mut vec![0; GET.len()]).unwrap();
        }
        assert_eq!((count(&mut probe, WEB).requests, count(&mut probe, API).requests), (0, 0));
        assert_eq!(probe.snapshot().unwrap().health, Health { unknown_role_connections: 2, ..Health::default() });
    });
}

#[test]
fn connections_in_other_namespaces_that_were_open_before_are_known_too() {
    in_namespace(|| {
        let peer = Peer::new();
        // A namespace is found by its processes; a thread of this one is none.
        let (mut resident, client, server) = peer.run(|| {
            let resident = Command::new("sleep").arg("100").spawn().unwrap();
            let (client, server) = exchange(&format!("127.0.0.1:{PORT}"), &[request(GET), response(OK)]);
            (resident, client, server)
        });
        let mut probe = attach(&both_ends(PORT));
        let (mut client, mut server) = (&client, &server);
        for _ in 0..3 {
            client.write_all(GET.as_bytes()).unwrap();
            server.read_exact(&mut vec![0; GET.len()]).unwrap();
        }
        resident.kill().unwrap();
        resident.wait().unwrap();
        assert_eq!((count(&mut probe, WEB).requests, count(&mut probe, API).requests), (3, 3));
        assert_eq!(probe.snapshot().unwrap().health, Health::default());
    });
}

#[test]
fn a_mapped_peer_is_matched_and_shown_as_ipv4() {
    in_namespace(|| {
        let mut probe = attach(&[edge(Role::Ingress, Some("127.0.0.1"), PORT), edge(Role::Downstream, Some("127.0.0.1"), PORT)]);
        let listener = TcpListener::bind(format!("[::]:{PORT}")).unwrap();
        let mut client = TcpStream::connect(format!("127.0.0.1:{PORT}")).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(GET.as_bytes()).unwrap();
        server.read_exact(&mut vec![0; GET.len()]).unwrap();
        assert_eq!((count(&mut probe, WEB).requests, count(&mut probe, API).requests), (1, 1));
        let local: SocketAddr = format!("127.0.0.1:{PORT}").parse().unwrap();
        let peer = client.local_addr().unwrap();
        assert!(events(&mut probe).iter().any(|e| e.edge == WEB && e.kind == ProbeEventKind::Opened { local, peer }));
    });
}

#[test]
fn ends_and_failures_are_told_apart() {
    in_namespace(|| {
        let mut probe = attach(&both_ends(PORT));
        let address = format!("127.0.0.1:{PORT}");
        let closes = |probe: &mut Probe, end: &dyn Fn(TcpStream, TcpStream)| {
            let (client, server) = exchange(&address, &[request(GET)]);
            let before = [count(probe, WEB).connections_closed, count(probe, API).connections_closed];
            end(client, server);
            wait_until("both ends are closed", || {
                count(probe, WEB).connections_closed > before[0] && count(probe, API).connections_closed > before[1]
            });
            let events = events(probe);
            // Nobody is answered here who had not ended his side.
            assert!(events.iter().all(|e| !matches!(e.kind, ProbeEventKind::ResponseHead { requester_ended: false, .. })), "{events:?}");
            let mut found = events
                .into_iter()
                .filter_map(|e| match e.kind {
                    ProbeEventKind::Closed { how } => Some((e.edge, how)),
                    _ => None,
                })
                .collect::<Vec<_>>();
            found.sort_unstable();
            found
        };
        // The client gives up.
        let client_first = closes(&mut probe, &|client, server| {
            drop(client);
            let _ = (&server).read(&mut [0; 4096]);
            drop(server);
        });
        assert_eq!(client_first, [(WEB, Close::Peer), (API, Close::Local)]);
        // The server goes without an answer.
        let server_first = closes(&mut probe, &|client, server| {
            drop(server);
            let _ = (&client).read(&mut [0; 4096]);
            drop(client);
        });
        assert_eq!(server_first, [(WEB, Close::Local), (API, Close::Peer)]);
        // The server resets: it closes with data unread.
        let reset = closes(&mut probe, &|client, server| {
            (&client).write_all(b"more").unwrap();
            wait_until("the data has arrived", || server.peek(&mut [0; 4]).unwrap() == 4);
            drop(server);
            let _ = (&client).read(&mut [0; 4096]);
            drop(client);
        });
        assert_eq!(reset, [(WEB, Close::LocalReset), (API, Close::PeerReset)]);

        // The client is gone, and the server answers all the same.
        let gone = closes(&mut probe, &|client, server| {
            drop(client);
            let _ = (&server).read(&mut [0; 4096]);
            (&server).write_all(OK.as_bytes()).unwrap();
            wait_until("the answer is reset", || (&server).write(b"x").is_err());
            drop(server);
        });
        assert_eq!(gone, [(WEB, Close::PeerReset), (API, Close::Local)]);
        // The client asks no more, and reads the answer.
        let asks_no_more = closes(&mut probe, &|client, server| {
            client.shutdown(Shutdown::Write).unwrap();
            let _ = (&server).read(&mut [0; 4096]);
            (&server).write_all(OK.as_bytes()).unwrap();
            (&client).read_exact(&mut vec![0; OK.len()]).unwrap();
            drop(server);
            let _ = (&client).read(&mut [0; 4096]);
        });
        assert_eq!(asks_no_more, [(WEB, Close::Peer), (API, Close::Local)]);

        assert!(TcpStream::connect(&address).is_err());
        assert_eq!(count(&mut probe, API).connect_failures, 1);
        let peer: SocketAddr = address.parse().unwrap();
        let failed = ProbeEventKind::ConnectFailed { peer, reason: ConnectFailure::Refused };
        assert!(events(&mut probe).iter().any(|e| e.edge == API && e.kind == failed));
    });
}

#[test]
fn data_that_completes_the_handshake_is_counted_once() {
    in_namespace(|| {
        let mut probe = attach(&both_ends(PORT));
        let listener = TcpListener::bind(format!("127.0.0.1:{PORT}")).unwrap();
        // With this option the kernel drops the bare third packet and waits for data: the listener's hook gets the data.
        let seconds: libc::c_int = 30;
        // SAFETY: an option of an open socket, read from an integer of the length that is given.
        let set =
            unsafe { libc::setsockopt(listener.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, (&raw const seconds).cast(), 4) };
        assert_eq!(set, 0);
        for _ in 0..10 {
            let mut client = TcpStream::connect(format!("127.0.0.1:{PORT}")).unwrap();
            client.write_all(GET.repeat(2).as_bytes()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            server.read_exact(&mut vec![0; 2 * GET.len()]).unwrap();
            server.write_all(OK.repeat(2).as_bytes()).unwrap();
            client.read_exact(&mut vec![0; 2 * OK.len()]).unwrap();
        }
        for edge in [WEB, API] {
            let counts = count(&mut probe, edge);
            assert_eq!((counts.requests, counts.responses, counts.connections_opened), (20, 20, 10), "{edge:?}");
            assert_eq!(counts.request_bytes, 20 * GET.len() as u64);
        }
        let heads = events(&mut probe)
            .into_iter()
            .filter(|e| matches!(&e.kind, ProbeEventKind::RequestHead { index: 0, piece } if e.edge == WEB && piece.complete && piece.bytes == GET.as_bytes()))
            .count();
        assert_eq!(heads, 10);
    });
}

#[test]
fn a_retransmitted_request_is_one_request() {
    in_namespace(|| {
        let peer = Peer::new();
        let mut probe = attach(&both_ends(PORT));
        let (tell, told) = std::sync::mpsc::channel();
        let server = thread::spawn({
            let (ready, is_ready) = std::sync::mpsc::channel();
            let job = move || {
                let listener = TcpListener::bind(format!("10.9.0.2:{PORT}")).unwrap();
                ready.send(()).unwrap();
                let (mut stream, _) = listener.accept().unwrap();
                for _ in 0..2 {
                    stream.read_exact(&mut vec![0; GET.len()]).unwrap();
                    stream.write_all(OK.as_bytes()).unwrap();
                }
                wait_until("the client is done", || stream.read(&mut [0]).unwrap() == 0);
                tell.send(sent_again(&stream)).unwrap();
            };
            let serving = move || peer.run(job);
            let handle = thread::spawn(serving);
            is_ready.recv().unwrap();
            move || handle.join().unwrap()
        });
        let mut client = TcpStream::connect(format!("10.9.0.2:{PORT}")).unwrap();
        client.write_all(GET.as_bytes()).unwrap();
        client.read_exact(&mut vec![0; OK.len()]).unwrap();
        // Frames to a wrong address are dropped by the peer, and the sender believes them sent.
        let address = run("ip", &["neigh", "show", "10.9.0.2"]).split_whitespace().nth(4).unwrap().to_owned();
        run("ip", &["neigh", "replace", "10.9.0.2", "lladdr", "02:00:00:00:00:99", "dev", "v0", "nud", "permanent"]);
        client.write_all(GET.as_bytes()).unwrap();
        wait_until("the request is sent again", || count(&mut probe, API).tcp_retransmits >= 2);
        run("ip", &["neigh", "replace", "10.9.0.2", "lladdr", &address, "dev", "v0", "nud", "permanent"]);
        client.read_exact(&mut vec![0; OK.len()]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        server.join().unwrap();
        for edge in [WEB, API] {
            let counts = count(&mut probe, edge);
            assert_eq!((counts.requests, counts.responses), (2, 2), "{edge:?}");
            assert_eq!(counts.request_bytes, 2 * GET.len() as u64);
        }
        // The server's side has lost nothing; on a busy machine it may have sent something again all the same.
        assert_eq!(count(&mut probe, WEB).tcp_retransmits, u64::from(told.recv().unwrap()));
    });
}

/// Segments that the kernel says it has sent again on a connection.
fn sent_again(stream: &TcpStream) -> u32 {
    // SAFETY: plain numbers.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = libc::socklen_t::try_from(size_of_val(&info)).unwrap();
    // SAFETY: an option of an open socket, written to a structure of the length that is given.
    let got = unsafe { libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len) };
    assert_eq!(got, 0);
    info.tcpi_total_retrans
}

/// nginx as a gateway before another one, with keep-alive between them; each counts on its own.
struct Chain {
    gateway: Child,
    backend: Child,
    _dir: tempfile::TempDir,
}

impl Chain {
    const GATEWAY: &str = "127.0.0.1:23481";
    const BACKEND: &str = "127.0.0.1:23482";

    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let temp = dir.path().display();
        let temp = format!(
            "client_body_temp_path {temp}; proxy_temp_path {temp}; fastcgi_temp_path {temp}; uwsgi_temp_path {temp}; scgi_temp_path {temp};"
        );
        let start = |name: &str, address: &str, http: &str| {
            let config = format!(
                "daemon off; master_process off; pid {0}/{name}.pid; error_log stderr warn; events {{ worker_connections 256; }}
                 http {{ access_log off; keepalive_requests 1000000; {temp} {http} }}",
                dir.path().display()
            );
            let path = dir.path().join(name);
            std::fs::write(&path, config).unwrap();
            let child = Command::new("nginx").arg("-c").arg(&path).arg("-e").arg("stderr").stdin(Stdio::null()).spawn().unwrap();
            wait_until("nginx listens", || TcpStream::connect(address).is_ok());
            child
        };
        let status = "location = /status { stub_status; }";
        let backend = format!("server {{ listen {}; location / {{ return 200 ok; }} {status} }}", Self::BACKEND);
        let gateway = format!(
            "upstream b {{ server {}; keepalive 8; }} server {{ listen {}; {status}
             location / {{ proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection ''; }} }}",
            Self::BACKEND,
            Self::GATEWAY
        );
        Self { backend: start("backend", Self::BACKEND, &backend), gateway: start("gateway", Self::GATEWAY, &gateway), _dir: dir }
    }

    /// Requests that a server has counted, this one included.
    fn counted(address: &str) -> u64 {
        let (_, text) = Client::connect(address).get("/status");
        text.lines().nth(2).unwrap().split_whitespace().nth(2).unwrap().parse().unwrap()
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for child in [&mut self.gateway, &mut self.backend] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn counts_equal_those_of_nginx_to_the_last_request() {
    in_namespace(|| {
        let _chain = Chain::start();
        // Some of the clients are there before the probe.
        let mut early: Vec<Client> = (0..3).map(|_| Client::connect(Chain::GATEWAY)).collect();
        for client in &mut early {
            client.count("/", 10, 200);
        }
        let before = (Chain::counted(Chain::GATEWAY), Chain::counted(Chain::BACKEND));
        let edges = [edge(Role::Ingress, None, 23_481), edge(Role::Downstream, None, 23_482)];
        let mut probe = attach(&edges);
        for client in &mut early {
            assert_eq!(client.count("/", 500, 200), 500);
        }
        for _ in 0..20 {
            assert_eq!(Client::connect(Chain::GATEWAY).count("/", 50, 200), 50);
        }
        let counts = [count(&mut probe, WEB), count(&mut probe, API)];
        let after = (Chain::counted(Chain::GATEWAY), Chain::counted(Chain::BACKEND));
        // Each reading counts itself.
        assert_eq!(counts[0].requests, after.0 - before.0 - 1);
        assert_eq!(counts[1].requests, after.1 - before.1 - 1);
        assert_eq!([counts[0].responses, counts[1].responses], [2500, 2500]);
        assert_eq!(counts[0].connections_opened, 20);
        let snapshot = probe.snapshot().unwrap();
        assert_eq!(snapshot.total_status(WEB).get(&200), Some(&2501));
        assert_eq!(snapshot.health, Health::default());
    });
}

#[test]
fn a_hook_that_the_kernel_took_off_is_seen() {
    in_namespace(|| {
        let root = cgroup::find_or_mount(Path::new("/run/stormdrill-test")).unwrap();
        let group = root.join(format!("stormdrill-test-{}", std::process::id()));
        std::fs::create_dir(&group).unwrap();
        let edges = both_ends(PORT);
        let config = ProbeConfig { cgroup: group.clone(), edges: &edges, events: false, ring_bytes: 1 << 16 };
        let probe = Probe::attach(&config).unwrap();
        assert_eq!(probe.attached(), Attached { ingress: true, egress: true, sock_ops: true });
        // With the cgroup go the hooks, some time after.
        std::fs::remove_dir(&group).unwrap();
        let none = Attached { ingress: false, egress: false, sock_ops: false };
        wait_until("the hooks are off", || probe.attached() == none);
    });
}

#[test]
fn a_cgroup_that_is_not_there_is_named() {
    let edges = both_ends(PORT);
    let config = ProbeConfig { cgroup: "/no/such/cgroup".into(), edges: &edges, events: true, ring_bytes: 1 << 16 };
    assert!(matches!(Probe::attach(&config), Err(ProbeError::Cgroup { cgroup, .. }) if cgroup == Path::new("/no/such/cgroup")));
}

#[test]
fn the_verifier_is_far_from_its_limit() {
    let probe = attach(&both_ends(PORT));
    for (program, instructions) in probe.verified() {
        assert!(instructions < 400_000, "{program}: {instructions} instructions verified");
    }
}
