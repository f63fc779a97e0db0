//! Which packets and connections a fault selects, on the host's own kernel: partition, rate, refuse, selections.
//! Run as root: `cargo test -p stormdrill --features privileged-tests --test privileged_selection -- --test-threads=1`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use lab::{Habit, Peer, arriving, dump, edge, hold, in_namespace, is_plausible, kill, run};
use stormdrill::fault::capability::{self, Capability};
use stormdrill::fault::clean::{Force, clean};
use stormdrill::fault::plane::{Applied, FaultError, Plane};
use stormdrill_core::edge::{Cidr, EdgeSpec, PortRange, Role};
use stormdrill_core::fault::{Backend, Direction, FaultKind, FaultSpec, RateLimit, Select, Transport};

/// The tables, once the devices' carriers have settled, which the kernel notes with a delay.
fn settled() -> String {
    lab::wait_until("carriers settle", || !dump().contains("NO-CARRIER"));
    dump()
}

fn apply(state: &std::path::Path, spec: FaultSpec, edge: EdgeSpec) -> Applied {
    Plane::new(state).prepare_blocking(&[(spec, edge)]).unwrap().remove(0).apply_blocking().unwrap()
}

fn towards(kind: FaultKind, select: Select) -> FaultSpec {
    FaultSpec { select, ..FaultSpec::new(kind, "store") }
}

fn network(text: &str) -> Cidr {
    let (address, prefix) = text.split_once('/').unwrap();
    Cidr { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
}

const fn ports(first: u16, last: u16) -> PortRange {
    PortRange { first, last }
}

fn peer_edge(port: Option<u16>) -> EdgeSpec {
    edge(Role::Downstream, Some("10.9.0.0/24"), port)
}

#[test]
fn a_partition_lets_nothing_of_the_selection_pass_either_way_and_everything_else() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let before = settled();
        let spec = FaultSpec { direction: Direction::Both, ..towards(FaultKind::Partition, Select::default()) };
        let fault = apply(state.path(), spec, peer_edge(Some(9999)));
        assert_eq!(arriving(&peer, 200, 9999, "10.9.0.2"), 0);
        assert_eq!(arriving(&peer, 200, 9998, "10.9.0.2"), 200);
        let removal = fault.remove_blocking();
        assert!(removal.error.is_none());
        assert_eq!((removal.outcomes[0].counts.selected, removal.outcomes[0].counts.hit), (200, 200));
        assert_eq!(arriving(&peer, 200, 9999, "10.9.0.2"), 200);
        assert_eq!(dump(), before);
    });
}

#[test]
fn callers_on_this_host_and_elsewhere_are_met_however_an_ingress_edge_names_its_own_address() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let _listener = TcpListener::bind("0.0.0.0:9999").unwrap();
        let before = settled();
        let reaches = |from: &'static str| {
            let to = "10.9.0.1:9999".parse().unwrap();
            let connect = move || TcpStream::connect_timeout(&to, Duration::from_millis(300)).is_ok();
            if from == "here" { connect() } else { peer.run(connect) }
        };
        // There is no default route: without an address it is every interface that has one.
        for address in [Some("10.9.0.1/32"), Some("10.9.0.0/24"), Some("0.0.0.0/0"), Some("::ffff:10.9.0.0/120"), None] {
            let spec = FaultSpec { direction: Direction::Both, ..towards(FaultKind::Partition, Select::default()) };
            let fault = apply(state.path(), spec, edge(Role::Ingress, address, Some(9999)));
            assert_eq!(["here", "peer"].map(reaches), [false, false], "{address:?}");
            assert!(fault.remove_blocking().error.is_none());
            assert_eq!(["here", "peer"].map(reaches), [true, true], "{address:?}");
        }
        assert_eq!(dump(), before);
    });
}

#[test]
fn a_network_is_met_on_every_interface_that_a_route_within_it_leads_to() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        run("ip", &["link", "add", "w0", "type", "veth", "peer", "name", "w1"]);
        run("ip", &["address", "add", "10.10.0.1/24", "dev", "w0"]);
        for end in ["w0", "w1"] {
            run("ip", &["link", "set", end, "up"]);
        }
        let lost = |network: &str| {
            let spec = towards(FaultKind::Partition, Select::default());
            let mut fault = apply(state.path(), spec, edge(Role::Downstream, Some(network), Some(9000)));
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            // Nobody answers to ARP there: what is asked for by hand is sent.
            run("ip", &["neighbour", "replace", "10.10.0.2", "lladdr", "02:00:00:00:00:02", "dev", "w0"]);
            for address in ["10.9.0.2:9000", "10.10.0.2:9000"] {
                for _ in 0..50 {
                    socket.send_to(b"x", address).unwrap();
                }
            }
            let hit = fault.counts().unwrap()[0].hit;
            assert!(fault.remove_blocking().error.is_none());
            hit
        };
        // Without a default route the network's own address has no route.
        assert_eq!([lost("10.0.0.0/8"), lost("10.10.0.0/24"), lost("0.0.0.0/0"), lost("::/0")], [100, 50, 100, 0]);
        run("ip", &["route", "add", "default", "via", "10.9.0.2"]);
        assert_eq!(lost("10.0.0.0/8"), 100);
    });
}

#[test]
fn several_addresses_and_ports_are_anded_and_exclusions_win() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        peer.run(|| {
            for address in ["10.9.0.3", "10.9.0.4", "10.9.0.130"] {
                run("ip", &["address", "add", &format!("{address}/24"), "dev", "v1"]);
            }
        });
        let select = Select {
            // The longer prefix within the spared network does not undo it.
            addresses: vec![network("10.9.0.0/30"), network("10.9.0.4/32"), network("10.9.0.128/25"), network("10.9.0.130/32")],
            ports: vec![ports(9000, 9001), ports(65_535, 65_535)],
            exclude_addresses: vec![network("10.9.0.3/32"), network("10.9.0.128/26")],
            exclude_ports: vec![ports(9001, 9001)],
            ..Select::default()
        };
        let fault = apply(state.path(), towards(FaultKind::Loss { share: 1.0 }, select), peer_edge(None));
        for (address, port, arrives) in [
            ("10.9.0.2", 9000, false),
            ("10.9.0.4", 9000, false),
            ("10.9.0.2", 65_535, false),
            ("10.9.0.2", 9001, true),
            ("10.9.0.2", 9002, true),
            ("10.9.0.3", 9000, true),
            ("10.9.0.130", 9000, true),
        ] {
            assert_eq!(arriving(&peer, 50, port, address), if arrives { 50 } else { 0 }, "{address}:{port}");
        }
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn everything_but_some_ports_and_peers_spares_all_of_them_however_often_the_neighbours_are_forgotten() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        peer.run(|| {
            run("ip", &["address", "add", "10.9.0.3/24", "dev", "v1"]);
            run("ip", &["address", "add", "fd09::3/64", "dev", "v1", "nodad"]);
        });
        let select = Select {
            exclude_addresses: vec![network("10.9.0.3/32"), network("fd09::3/128")],
            exclude_ports: vec![ports(9001, 9001), ports(9005, 9006)],
            ..Select::default()
        };
        let mut whole = towards(FaultKind::Partition, select);
        (whole.direction, whole.interface) = (Direction::Both, Some("v0".to_owned()));
        let mut fault = apply(state.path(), whole, edge(Role::Downstream, None, None));
        lab::while_renewing(&mut [&mut fault], || {
            // What half an hour does to a table of neighbours, several times, on both ends.
            for _ in 0..3 {
                for flush in [["neigh", "flush", "all"], ["-6", "neigh", "flush all"]] {
                    let arguments: Vec<&'static str> = flush.iter().flat_map(|words| words.split(' ')).collect();
                    run("ip", &arguments);
                    peer.run(move || run("ip", &arguments));
                }
                assert_eq!(arriving(&peer, 20, 9000, "10.9.0.3"), 20);
                assert_eq!(arriving(&peer, 20, 9000, "fd09::3"), 20);
            }
            for (port, expected) in [(9001, 20), (9005, 20), (9006, 20), (9000, 0), (9002, 0), (9004, 0), (9007, 0)] {
                assert_eq!(arriving(&peer, 20, port, "10.9.0.2"), expected, "{port}");
                assert_eq!(arriving(&peer, 20, port, "fd09::2"), expected, "{port}, IPv6");
            }
        });
        for family in ["-4", "-6"] {
            let neighbours = run("ip", &[family, "neigh", "show", "dev", "v0"]);
            assert!(neighbours.contains("lladdr") && !neighbours.contains("FAILED"), "{neighbours}");
        }
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn a_protocol_is_selected_by_itself() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let icmp = Select { protocol: Some(Transport::Icmp), ..Select::default() };
        let fault = apply(state.path(), towards(FaultKind::Loss { share: 1.0 }, icmp), peer_edge(None));
        assert_eq!(arriving(&peer, 50, 9000, "10.9.0.2"), 50);
        let ping = std::process::Command::new("ping").args(["-c", "1", "-W", "1", "10.9.0.2"]).output().unwrap();
        assert!(!ping.status.success());
        assert!(fault.remove_blocking().error.is_none());
        assert!(run("ping", &["-c", "1", "-W", "1", "10.9.0.2"]).contains("1 received"));
    });
}

#[test]
fn ssh_is_selected_when_the_playbook_says_so() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let listener = peer.run(|| TcpListener::bind("10.9.0.2:22").unwrap());
        let select = Select { include_management: true, ..Select::default() };
        let fault = apply(state.path(), towards(FaultKind::Loss { share: 1.0 }, select), peer_edge(Some(22)));
        let connect = || TcpStream::connect_timeout(&"10.9.0.2:22".parse().unwrap(), Duration::from_millis(500));
        assert_eq!(connect().unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(fault.remove_blocking().error.is_none());
        connect().unwrap();
        drop(listener);
    });
}

#[test]
fn a_rate_holds_within_five_percent_with_whatever_the_kernel_has() {
    if !capability::try_one(Capability::Tbf).works() && !capability::try_one(Capability::Netem).works() {
        return;
    }
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let before = settled();
        let limit = RateLimit { bytes_per_second: 1_250_000, overhead: 0, cell_size: 0, cell_overhead: 0 };
        let mut fault = apply(state.path(), towards(FaultKind::Rate(limit), Select::default()), peer_edge(Some(9999)));
        assert!(matches!(fault.backend(), Backend::Netem | Backend::Tbf));
        let receiver = peer.run(|| UdpSocket::bind("10.9.0.2:9999").unwrap());
        receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
        // Twice the rate for 1.5 s: the queue is never empty. 958 bytes and the headers are 1000.
        let worker = std::thread::spawn(move || {
            let begin = Instant::now();
            let mut sent = 0_u32;
            while begin.elapsed() < Duration::from_millis(1500) {
                while f64::from(sent) < begin.elapsed().as_secs_f64() * 2500.0 {
                    let _ = sender.send_to(&[0; 958], "10.9.0.2:9999");
                    sent += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut arrivals = Vec::new();
        lab::while_renewing(&mut [&mut fault], || {
            while receiver.recv(&mut [0; 2000]).is_ok() {
                arrivals.push(Instant::now());
            }
        });
        worker.join().unwrap();
        drop(receiver);
        // What passed in the first tenth of a second is the burst.
        let begin = arrivals[0] + Duration::from_millis(100);
        let end = arrivals[0] + Duration::from_millis(1400);
        let steady = arrivals.iter().filter(|at| **at >= begin && **at < end).count();
        let rate = steady as f64 * 1000.0 / (end - begin).as_secs_f64();
        assert!((rate / 1_250_000.0 - 1.0).abs() < 0.05, "{rate} bytes a second");
        let removal = fault.remove_blocking();
        assert!(removal.error.is_none(), "{:?}", removal.error);
        assert!(removal.outcomes[0].counts.hit > 0);
        assert_eq!(arriving(&peer, 100, 9999, "10.9.0.2"), 100);
        assert_eq!(dump(), before);
    });
}

#[test]
fn a_rate_passes_the_largest_packets_of_the_interface_and_is_missed_when_its_device_goes() {
    if !capability::try_one(Capability::Tbf).works() && !capability::try_one(Capability::Netem).works() {
        return;
    }
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        run("ip", &["link", "set", "v0", "mtu", "9000"]);
        peer.run(|| run("ip", &["link", "set", "v1", "mtu", "9000"]));
        let before = settled();
        // A hundredth of a second's is a seventh of a packet.
        let mut fault = apply(state.path(), towards(slow_rate(), Select::default()), peer_edge(Some(9999)));
        let receiver = peer.run(|| UdpSocket::bind("10.9.0.2:9999").unwrap());
        receiver.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
        for size in [1000, 5000, 8900] {
            sender.send_to(&vec![0; size], "10.9.0.2:9999").unwrap();
            lab::while_renewing(&mut [&mut fault], || assert_eq!(receiver.recv(&mut [0; 9000]).unwrap(), size));
        }
        drop(receiver);
        assert!(fault.is_in_place().unwrap());
        // The filter stays, and drops what it selects.
        let links = run("ip", &["-o", "link", "show", "type", "ifb"]);
        let ifb = links.split(": ").nth(1).unwrap();
        run("ip", &["link", "del", ifb]);
        assert!(!fault.is_in_place().unwrap());
        let removal = fault.remove_blocking();
        assert!(removal.error.is_none(), "{:?}", removal.error);
        assert_eq!(dump(), before);
    });
}

/// 125 kB a second.
fn slow_rate() -> FaultKind {
    FaultKind::Rate(RateLimit { bytes_per_second: 125_000, overhead: 0, cell_size: 0, cell_overhead: 0 })
}

#[test]
fn a_rate_and_a_loss_on_the_same_packets_need_netem() {
    if capability::try_one(Capability::Netem).works() {
        return;
    }
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let limit = RateLimit { bytes_per_second: 1_250_000, overhead: 0, cell_size: 0, cell_overhead: 0 };
        let kinds = [FaultKind::Loss { share: 0.1 }, FaultKind::Rate(limit)];
        let faults = kinds.map(|kind| (towards(kind, Select::default()), peer_edge(Some(9999))));
        let error = Plane::new(state.path()).prepare_blocking(&faults).unwrap_err();
        assert!(matches!(error, FaultError::Missing { module: "sch_netem", .. }), "{error}");
    });
}

/// How many of so many connections are refused, and with which error.
fn refused(count: u64, target: &str) -> (u64, Vec<ErrorKind>) {
    let mut kinds = Vec::new();
    for _ in 0..count {
        if let Err(error) = TcpStream::connect(target) {
            kinds.push(error.kind());
        }
    }
    (kinds.len() as u64, kinds)
}

#[test]
fn a_share_of_connections_is_refused_and_no_other() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        for (address, target, other) in [
            ("127.0.0.1", "127.0.0.1:8471", "127.0.0.1:8472"),
            ("::1", "[::1]:8471", "[::1]:8472"),
            ("127.0.0.1", "[::ffff:127.0.0.1]:8471", "[::1]:8472"),
        ] {
            let listen = |target: &str| {
                let listener = TcpListener::bind(target.replace("::ffff:127.0.0.1", "::")).unwrap();
                std::thread::spawn(move || listener.incoming().for_each(drop));
            };
            if !target.contains("ffff") {
                listen(target);
                listen(other);
            }
            let mut fault = apply(
                state.path(),
                towards(FaultKind::Refuse { share: 0.3 }, Select::default()),
                edge(Role::Downstream, Some(address), Some(8471)),
            );
            assert_eq!(fault.backend(), Backend::CgroupConnect);
            if !target.contains("ffff") {
                let (hit, kinds) = lab::while_renewing(&mut [&mut fault], || refused(1000, target));
                assert!(is_plausible(hit, 1000, 0.3), "{hit} of 1000");
                // EPERM before 5.18.
                assert!(kinds.iter().all(|kind| matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied)), "{kinds:?}");
                let counts = fault.counts().unwrap()[0];
                assert_eq!((counts.selected, counts.hit), (1000, hit));
                assert_eq!(lab::while_renewing(&mut [&mut fault], || refused(100, other)).0, 0);
                assert_eq!(fault.counts().unwrap()[0].selected, 1000);
            } else {
                lab::while_renewing(&mut [&mut fault], || refused(100, target));
                assert_eq!(fault.counts().unwrap()[0].selected, 100, "a mapped address is the IPv4 one");
            }
            let removal = fault.remove_blocking();
            assert!(removal.error.is_none());
            assert!(removal.outcomes[0].removed_ns.is_some() && removal.outcomes[0].counts.selected >= 100);
            assert_eq!(refused(100, if target.contains("ffff") { "127.0.0.1:8471" } else { target }).0, 0);
        }
    });
}

#[test]
fn refusing_ends_by_itself_when_nobody_renews_it() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:8473").unwrap();
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let edge = edge(Role::Downstream, Some("127.0.0.1"), Some(8473));
        let fault = apply(state.path(), towards(FaultKind::Refuse { share: 1.0 }, Select::default()), edge);
        assert_eq!(refused(10, "127.0.0.1:8473").0, 10);
        let begin = Instant::now();
        lab::wait_until("the lease runs out", || refused(1, "127.0.0.1:8473").0 == 0);
        assert!(begin.elapsed() < Duration::from_secs(4));
        drop(fault);
    });
}

#[test]
fn two_faults_on_two_targets_of_one_hook_both_hold_and_nothing_else_is_touched() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let before = settled();
        let faults = [
            (towards(FaultKind::Loss { share: 1.0 }, Select::default()), peer_edge(Some(9999))),
            (towards(FaultKind::Loss { share: 0.5 }, Select { ports: vec![ports(9998, 9998)], ..Select::default() }), peer_edge(None)),
        ];
        let prepared = Plane::new(state.path()).prepare_blocking(&faults).unwrap();
        assert_eq!(prepared.len(), 2);
        let applied: Vec<Applied> = prepared.into_iter().map(|prepared| prepared.apply_blocking().unwrap()).collect();
        assert_eq!(arriving(&peer, 200, 9999, "10.9.0.2"), 0);
        let arrived = arriving(&peer, 1000, 9998, "10.9.0.2");
        assert!(is_plausible(arrived, 1000, 0.5), "{arrived} of 1000");
        assert_eq!(arriving(&peer, 200, 9997, "10.9.0.2"), 200);
        for fault in applied {
            assert!(fault.remove_blocking().error.is_none());
        }
        assert_eq!(dump(), before);
    });
}

#[test]
fn incoming_traffic_is_matched_by_its_source() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        peer.run(|| run("ip", &["address", "add", "10.9.0.3/24", "dev", "v1"]));
        let spec = FaultSpec {
            direction: Direction::Ingress,
            ..towards(FaultKind::Loss { share: 1.0 }, Select { addresses: vec![network("10.9.0.3/32")], ..Select::default() })
        };
        let mut fault = apply(state.path(), spec, peer_edge(None));
        let receiver = UdpSocket::bind("10.9.0.1:9000").unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        peer.run(|| {
            for source in ["10.9.0.3:0", "10.9.0.2:0"] {
                let sender = UdpSocket::bind(source).unwrap();
                for _ in 0..20 {
                    sender.send_to(b"x", "10.9.0.1:9000").unwrap();
                }
            }
        });
        let mut sources = Vec::new();
        while let Ok((_, from)) = receiver.recv_from(&mut [0; 8]) {
            sources.push(from.ip().to_string());
        }
        assert_eq!(sources, ["10.9.0.2"; 20]);
        assert_eq!(fault.counts().unwrap()[0].hit, 20);
        // What leaves for it is not selected.
        assert_eq!(arriving(&peer, 20, 9000, "10.9.0.3"), 20);
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn a_bridge_works_by_its_route_and_is_left_as_it_was() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        run("ip", &["link", "add", "br0", "type", "bridge"]);
        run("ip", &["address", "flush", "dev", "v0"]);
        run("ip", &["link", "set", "v0", "master", "br0"]);
        run("ip", &["address", "add", "10.9.0.1/24", "dev", "br0"]);
        run("ip", &["link", "set", "br0", "up"]);
        lab::wait_until("the bridge forwards", || arriving(&peer, 1, 9000, "10.9.0.2") == 1);
        let before = settled();
        let fault = apply(state.path(), towards(FaultKind::Loss { share: 1.0 }, Select::default()), peer_edge(Some(9999)));
        assert_eq!(arriving(&peer, 100, 9999, "10.9.0.2"), 0);
        assert_eq!(arriving(&peer, 100, 9998, "10.9.0.2"), 100);
        assert!(fault.remove_blocking().error.is_none());
        assert_eq!(dump(), before);
    });
}

#[test]
fn ten_thousand_networks_are_one_classifier() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let mut addresses: Vec<Cidr> =
            (0..9999_u32).map(|n| Cidr { address: std::net::Ipv4Addr::from_bits((11 << 24) | (n << 8)).into(), prefix: 24 }).collect();
        addresses.push(network("10.9.0.2/32"));
        let fault = apply(
            state.path(),
            FaultSpec {
                interface: Some("v0".to_owned()),
                ..towards(FaultKind::Loss { share: 1.0 }, Select { addresses, ..Select::default() })
            },
            edge(Role::Downstream, None, Some(9999)),
        );
        assert_eq!(run("tc", &["filter", "show", "dev", "v0", "egress"]).matches("stormdrill:").count(), 1);
        assert_eq!(arriving(&peer, 100, 9999, "10.9.0.2"), 0);
        assert_eq!(arriving(&peer, 100, 9998, "10.9.0.2"), 100);
        assert!(fault.remove_blocking().error.is_none());
    });
}

fn slow() -> FaultKind {
    FaultKind::Rate(RateLimit { bytes_per_second: 1250, overhead: 0, cell_size: 0, cell_overhead: 0 })
}

/// Not a test of its own: in a process that another test starts, it holds a fault until it is killed.
#[test]
fn holder() {
    lab::holder(&slow(), Direction::Both, &edge(Role::Downstream, Some("127.0.0.1"), Some(8475)));
}

#[test]
fn a_killed_agents_ifb_is_no_obstacle_to_a_second_drill_and_clean_removes_it() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let before = settled();
        let holder = hold(state.path(), Habit::Renew);
        lab::wait_until("the fault is in", || dump().matches("stormdrill:sd").count() == 2);
        kill(holder);
        let second = apply(state.path(), towards(slow(), Select::default()), edge(Role::Downstream, Some("127.0.0.1"), Some(8476)));
        let report = clean(state.path(), Force::No).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
        assert_eq!((report.removed.len(), report.alive.len()), (2, 1), "{report:?}");
        assert!(second.remove_blocking().error.is_none());
        assert_eq!(dump(), before);
    });
}

#[test]
fn whenever_the_agent_of_a_redirected_fault_is_killed_clean_leaves_the_tables_as_they_were() {
    in_namespace(|| {
        lab::survives_kills(10);
    });
}

#[test]
fn the_interfaces_are_those_of_what_is_selected_not_of_the_wider_edge() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        run("ip", &["link", "add", "wan0", "type", "ifb"]);
        run("ip", &["link", "set", "wan0", "up"]);
        run("ip", &["route", "add", "default", "dev", "wan0"]);
        let everywhere = edge(Role::Downstream, None, Some(9999));
        let select = Select { addresses: vec![network("10.9.0.2/32")], ..Select::default() };
        let fault = apply(state.path(), towards(FaultKind::Loss { share: 1.0 }, select), everywhere);
        assert_eq!(arriving(&peer, 50, 9999, "10.9.0.2"), 0);
        assert!(fault.remove_blocking().error.is_none());
        // What is served at an address of this host is asked for from elsewhere, too.
        let served = edge(Role::Ingress, Some("10.9.0.1"), Some(9999));
        let fault = apply(
            state.path(),
            FaultSpec { direction: Direction::Ingress, ..towards(FaultKind::Loss { share: 1.0 }, Select::default()) },
            served,
        );
        let socket = UdpSocket::bind("10.9.0.1:9999").unwrap();
        peer.run(|| {
            let socket = UdpSocket::bind("10.9.0.2:0").unwrap();
            (0..50).for_each(|_| assert_eq!(socket.send_to(b"packet", "10.9.0.1:9999").unwrap(), 6));
        });
        let removal = fault.remove_blocking();
        assert_eq!(removal.outcomes[0].counts.hit, 50);
        socket.set_nonblocking(true).unwrap();
        assert_eq!(socket.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}
