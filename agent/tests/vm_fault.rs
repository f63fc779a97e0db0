//! Faults on kernels that have netem: `cargo xtask test --only vm_fault` boots them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Client, Habit, Peer, apply, arriving, dump, edge, has_no_journal, hold, in_namespace, is_plausible, kill, ping, run, spec};
use stormdrill::fault::clean::{Force, clean};
use stormdrill::fault::plane::Plane;
use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::fault::{Backend, Direction, Distribution, FaultKind, FaultSpec, Members, RateLimit, Select};

fn delay(milliseconds: u64) -> FaultKind {
    FaultKind::Delay { time: Duration::from_millis(milliseconds), jitter: Duration::ZERO, distribution: Distribution::Uniform }
}

fn peer_edge(port: Option<u16>) -> EdgeSpec {
    edge(Role::Downstream, Some("10.9.0.2"), port)
}

/// The ifb devices of drills, by name.
fn ifbs() -> Vec<String> {
    run("ip", &["-o", "link"])
        .lines()
        .filter_map(|line| line.split(": ").nth(1))
        .filter(|name| name.starts_with("sd"))
        .map(str::to_owned)
        .collect()
}

fn qdiscs(device: &str) -> String {
    run("tc", &["qdisc", "show", "dev", device]).lines().filter(|line| !line.contains("clsact")).collect()
}

fn tcp_retransmissions() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let column = lines.next().unwrap().split(' ').position(|name| name == "RetransSegs").unwrap();
    lines.next().unwrap().split(' ').nth(column).unwrap().parse().unwrap()
}

#[test]
fn thirty_percent_loss_is_dropped_by_netem_on_the_ifb_and_the_interface_keeps_its_tree() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let (before, tree) = (dump(), qdiscs("v0"));
        let mut fault = apply(state.path(), FaultKind::Loss { share: 0.3 }, Direction::Egress, peer_edge(Some(9999)));
        assert_eq!(fault.backend(), Backend::Netem);
        assert_eq!(qdiscs("v0"), tree);
        let arrived = arriving(&peer, 5000, 9999, "10.9.0.2");
        assert!(is_plausible(5000 - arrived, 5000, 0.3), "{arrived} of 5000 arrived");
        let counts = fault.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit), (5000, 5000 - arrived));
        // Not a packet of another port is lost.
        assert_eq!(arriving(&peer, 1000, 9998, "10.9.0.2"), 1000);
        // An independent reader finds the drops on our ifb.
        let text = run("tc", &["-s", "qdisc", "show", "dev", &ifbs()[0]]);
        assert!(
            text.contains("netem 5d01:") && text.contains("loss 30%") && text.contains(&format!("dropped {}", 5000 - arrived)),
            "{text}"
        );
        assert!(fault.remove_blocking().error.is_none());
        assert_eq!(qdiscs("v0"), tree);
        assert_eq!(dump(), before);
        assert!(has_no_journal(state.path()));
    });
}

#[test]
fn a_senders_retransmissions_are_counted_under_loss() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        peer.run(|| {
            let listener = TcpListener::bind("10.9.0.2:9999").unwrap();
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut byte = [0; 1];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        });
        let mut stream = TcpStream::connect("10.9.0.2:9999").unwrap();
        stream.set_nodelay(true).unwrap();
        let mut fault = apply(state.path(), FaultKind::Loss { share: 0.2 }, Direction::Egress, peer_edge(Some(9999)));
        let before = tcp_retransmissions();
        lab::while_renewing(&mut [&mut fault], || {
            for _ in 0..60 {
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0; 1]).unwrap();
            }
        });
        let retransmitted = tcp_retransmissions() - before;
        // 60 requests and their acknowledgements at 20%: at least a handful, whatever the draw.
        assert!(retransmitted >= 3, "{retransmitted}");
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn a_delay_adds_what_was_asked_in_each_direction() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let before = dump();
        let plain = ping("10.9.0.2");
        for (direction, expected) in [(Direction::Egress, 100.0), (Direction::Ingress, 100.0), (Direction::Both, 200.0)] {
            let mut fault = apply(state.path(), delay(100), direction, peer_edge(None));
            let added = ping("10.9.0.2") - plain;
            assert!((added - expected).abs() <= 5.0, "{direction:?}: {added} ms");
            let counts = fault.counts().unwrap()[0];
            let packets = if direction == Direction::Both { 10 } else { 5 };
            assert_eq!((counts.selected, counts.hit), (packets, packets));
            assert!(fault.remove_blocking().error.is_none());
        }
        assert!(ping("10.9.0.2") - plain < 5.0);
        assert_eq!(dump(), before);
    });
}

#[test]
fn a_delay_on_loopback_is_felt_once_a_direction() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        lab::serve_http("127.0.0.1:8081");
        let mut client = Client::connect("127.0.0.1:8081");
        let mut fault = apply(state.path(), delay(100), Direction::Egress, edge(Role::Downstream, Some("127.0.0.1"), Some(8081)));
        let times: Vec<_> = lab::while_renewing(&mut [&mut fault], || {
            let mut time = || {
                let begin = Instant::now();
                client.get("/");
                begin.elapsed().as_millis()
            };
            (0..5).map(|_| time()).collect()
        });
        // Only what goes to the port is held back: the request, not the answer. The machine adds to some of them, not to all.
        assert!((100..200).contains(times.iter().min().unwrap()), "{times:?}");
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn delayed_packets_still_arrive_when_the_fault_is_removed_meanwhile() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let fault = apply(state.path(), delay(400), Direction::Egress, peer_edge(Some(9999)));
        let receiver = peer.run(|| std::net::UdpSocket::bind("10.9.0.2:9999").unwrap());
        let sender = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        for _ in 0..50 {
            sender.send_to(b"late", "10.9.0.2:9999").unwrap();
        }
        let removal = fault.remove_blocking();
        assert!(removal.error.is_none());
        assert_eq!(removal.outcomes[0].counts.hit, 50);
        peer.run(move || {
            receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            for _ in 0..50 {
                receiver.recv(&mut [0; 8]).unwrap();
            }
        });
    });
}

#[test]
fn loss_and_delay_on_one_target_share_one_netem_and_both_hold() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let faults = [
            (spec(FaultKind::Loss { share: 0.5 }, Direction::Egress), peer_edge(Some(9999))),
            (
                spec(
                    FaultKind::Delay {
                        time: Duration::from_millis(8),
                        jitter: Duration::from_millis(1),
                        distribution: Distribution::Normal,
                    },
                    Direction::Egress,
                ),
                peer_edge(Some(9999)),
            ),
        ];
        let prepared = Plane::new(state.path()).prepare_blocking(&faults).unwrap();
        assert_eq!(prepared.len(), 1);
        let mut fault = prepared.into_iter().next().unwrap().apply_blocking().unwrap();
        let arrived = arriving(&peer, 2000, 9999, "10.9.0.2");
        assert!(is_plausible(arrived, 2000, 0.5), "{arrived} of 2000 arrived");
        let counts = fault.counts().unwrap();
        assert_eq!((counts[0].hit, counts[1].hit), (2000 - arrived, arrived));
        let text = run("tc", &["qdisc", "show", "dev", &ifbs()[0]]);
        assert!(text.contains("loss 50%") && text.contains("delay 8ms") && text.contains(" 1ms"), "{text}");
        let removal = fault.remove_blocking();
        assert!(removal.error.is_none() && removal.outcomes.len() == 2);
    });
}

#[test]
fn a_tree_of_someone_else_survives_byte_for_byte() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        run("tc", &["qdisc", "add", "dev", "v0", "root", "handle", "1:", "htb", "default", "10"]);
        run("tc", &["class", "add", "dev", "v0", "parent", "1:", "classid", "1:10", "htb", "rate", "1gbit"]);
        run("tc", &["qdisc", "add", "dev", "v0", "clsact"]);
        run(
            "tc",
            &[
                "filter", "add", "dev", "v0", "egress", "protocol", "ip", "pref", "7", "u32", "match", "ip", "dport", "1", "0xffff",
                "action", "ok",
            ],
        );
        let before = dump();
        let fault = apply(state.path(), FaultKind::Loss { share: 1.0 }, Direction::Both, peer_edge(Some(9999)));
        assert_eq!(arriving(&peer, 200, 9999, "10.9.0.2"), 0);
        assert_eq!(arriving(&peer, 200, 9998, "10.9.0.2"), 200);
        assert!(fault.remove_blocking().error.is_none());
        assert_eq!(dump(), before);
    });
}

/// Not a test of its own: in a process that another test starts, it holds a fault until it is killed.
#[test]
fn holder() {
    lab::holder(&delay(200), Direction::Both, &peer_edge(None));
}

#[test]
fn a_killed_agents_delay_ends_by_itself_and_clean_takes_the_rest() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let before = dump();
        let holder = hold(state.path(), Habit::Renew);
        lab::wait_until("the delay holds", || ping_once().is_some_and(|time| time > 300.0));
        kill(holder);
        let begin = Instant::now();
        lab::wait_until("the lease runs out", || ping_once().is_some_and(|time| time < 100.0));
        // The lease, and what an emulated processor takes to notice; how exactly it ends is measured on the host (`privileged_fault`).
        assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
        assert_eq!(ifbs().len(), 2, "what is left waits for clean");
        let report = clean(state.path(), Force::No).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
        assert_eq!(dump(), before);
        assert!(has_no_journal(state.path()));
    });
}

/// The round trip, milliseconds. `None` if there was no answer: the kernel itself stops an interface for a moment when it gets its `clsact`, and drops what
/// is sent then.
fn ping_once() -> Option<f64> {
    let output = Command::new("ping").args(["-c", "1", "-W", "5", "10.9.0.2"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_once("time=")?.1.split_whitespace().next()?.parse().ok()
}

#[test]
fn a_filter_whose_ifb_is_gone_is_found_and_removed() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let before = dump();
        let holder = hold(state.path(), Habit::Renew);
        lab::wait_until("the delay holds", || ping_once().is_some_and(|time| time > 300.0));
        kill(holder);
        for ifb in ifbs() {
            run("ip", &["link", "del", &ifb]);
        }
        let elsewhere = tempfile::tempdir().unwrap();
        let report = clean(elsewhere.path(), Force::No).unwrap();
        assert!(report.is_clean() && report.removed.len() == 2, "{report:?}");
        assert_eq!(dump(), before);
        assert!(ping_once().is_some_and(|time| time < 100.0));
    });
}

#[test]
fn statuses_are_rewritten_on_this_kernel_too() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        lab::serve_http("127.0.0.1:8081");
        lab::serve_http("[::1]:8081");
        for (address, target) in [("127.0.0.1", "127.0.0.1:8081"), ("::1", "[::1]:8081")] {
            let kind = FaultKind::HttpStatus { status: 503, share: 0.3 };
            let mut fault = apply(state.path(), kind, Direction::Egress, edge(Role::Downstream, Some(address), Some(8081)));
            let hit = Client::connect(target).count("/", 1000, 503);
            assert!(is_plausible(hit, 1000, 0.3), "{hit} of 1000");
            let counts = fault.counts().unwrap()[0];
            assert_eq!((counts.selected, counts.hit), (1000, hit));
            assert!(fault.remove_blocking().error.is_none());
        }
    });
}

#[test]
fn an_answer_that_is_sent_again_gets_the_same_status_and_counts_once() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        lab::serve_http("10.9.0.1:8081");
        let served = edge(Role::Ingress, Some("10.9.0.1"), Some(8081));
        let on_v0 = |kind, edge: &EdgeSpec| {
            let mut wanted = spec(kind, Direction::Egress);
            wanted.interface = Some("v0".to_owned());
            Plane::new(state.path()).prepare_blocking(&[(wanted, edge.clone())]).unwrap().remove(0).apply_blocking().unwrap()
        };
        let mut statuses = on_v0(FaultKind::HttpStatus { status: 503, share: 0.5 }, &served);
        let mut loss = on_v0(FaultKind::Loss { share: 0.2 }, &served);
        let before = tcp_retransmissions();
        let hits =
            lab::while_renewing(&mut [&mut statuses, &mut loss], || peer.run(|| Client::connect("10.9.0.1:8081").count("/", 100, 503)));
        assert!(tcp_retransmissions() > before, "nothing was sent twice");
        let counts = statuses.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit), (100, hits));
        assert!(statuses.remove_blocking().error.is_none() && loss.remove_blocking().error.is_none());
    });
}

#[test]
fn whenever_the_agent_is_killed_clean_leaves_the_tables_as_they_were() {
    in_namespace(|| {
        let _peer = Peer::new();
        lab::survives_kills(4);
    });
}

#[test]
fn a_cgroups_packets_are_told_from_others_in_both_directions() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let root = stormdrill::cgroup::find_or_mount(state.path()).unwrap();
        let name = format!("stormdrill-test-{}", std::process::id());
        let group = root.join(&name);
        std::fs::create_dir(&group).unwrap();
        let procs = group.join("cgroup.procs");
        let ping_from_group = || {
            let line = format!("echo $$ > {} && exec ping -c 1 -W 1 10.9.0.2", procs.display());
            Command::new("sh").args(["-c", &line]).output().unwrap().status.success()
        };
        assert!(ping_from_group());
        for direction in [Direction::Egress, Direction::Ingress] {
            let select = Select { members: Some(Members::Cgroup(name.clone())), ..Select::default() };
            let spec = FaultSpec { direction, select, ..FaultSpec::new(FaultKind::Loss { share: 1.0 }, "store") };
            let fault = Plane::new(state.path()).prepare_blocking(&[(spec, peer_edge(None))]).unwrap().remove(0).apply_blocking().unwrap();
            assert!(!ping_from_group(), "{direction:?}");
            // What arrives is told by its connection, and pings have no ports: all between two hosts are one.
            if direction == Direction::Egress {
                assert!(run("ping", &["-c", "1", "-W", "1", "10.9.0.2"]).contains("1 received"));
            }
            assert!(fault.remove_blocking().error.is_none());
            assert!(ping_from_group());
        }
        lab::wait_until("the test's cgroup is empty", || std::fs::remove_dir(&group).is_ok());
    });
}

#[test]
fn a_loss_one_way_and_a_delay_both_ways_each_have_their_own_parameters_and_counts() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let before = dump();
        let faults = [
            (spec(FaultKind::Loss { share: 0.3 }, Direction::Egress), peer_edge(Some(9999))),
            (
                spec(
                    FaultKind::Rate(RateLimit { bytes_per_second: 125_000_000, overhead: 0, cell_size: 0, cell_overhead: 0 }),
                    Direction::Ingress,
                ),
                peer_edge(Some(9999)),
            ),
            (spec(delay(50), Direction::Both), peer_edge(Some(9999))),
        ];
        let mut prepared = Plane::new(state.path()).prepare_blocking(&faults).unwrap();
        assert_eq!(prepared.len(), 1, "they share their netems");
        let mut fault = prepared.remove(0).apply_blocking().unwrap();
        let devices = ifbs();
        assert_eq!(devices.len(), 2);
        let trees: Vec<String> = devices.iter().map(|device| qdiscs(device)).collect();
        assert!(trees.iter().all(|tree| tree.contains("delay 50ms")), "{trees:?}");
        assert_eq!(trees.iter().filter(|tree| tree.contains("loss 30%")).count(), 1, "{trees:?}");
        assert_eq!(trees.iter().filter(|tree| tree.contains("rate 1Gbit")).count(), 1, "{trees:?}");

        let arrived = lab::while_renewing(&mut [&mut fault], || arriving(&peer, 3000, 9999, "10.9.0.2"));
        assert!(is_plausible(3000 - arrived, 3000, 0.3), "{arrived} of 3000");
        let own = std::net::UdpSocket::bind("10.9.0.1:9000").unwrap();
        peer.run(|| {
            let socket = std::net::UdpSocket::bind("10.9.0.2:9999").unwrap();
            for _ in 0..100 {
                socket.send_to(b"x", "10.9.0.1:9000").unwrap();
            }
        });
        for _ in 0..100 {
            own.recv(&mut [0; 8]).unwrap();
        }
        let counts: Vec<(u64, u64)> = fault.counts().unwrap().iter().map(|count| (count.selected, count.hit)).collect();
        let lost = 3000 - arrived;
        // In the order in which they were grouped.
        assert_eq!(counts, [(3000, lost), (100, 100), (3100, 3100 - lost)]);
        assert!(fault.remove_blocking().error.is_none());
        assert_eq!(dump(), before);
    });
}

/// Moves this end of the veth pair under a device of that kind, which takes over the address. The other end gets its counterpart.
fn put_under(kind: &str, peer: &Peer) -> &'static str {
    run("ip", &["address", "flush", "dev", "v0"]);
    let device = match kind {
        "bond" => {
            run("ip", &["link", "add", "bond0", "type", "bond", "mode", "active-backup", "miimon", "100"]);
            run("ip", &["link", "set", "v0", "down"]);
            run("ip", &["link", "set", "v0", "master", "bond0"]);
            "bond0"
        }
        "bridge" => {
            run("ip", &["link", "add", "br0", "type", "bridge"]);
            run("ip", &["link", "set", "v0", "master", "br0"]);
            "br0"
        }
        _ => {
            run("ip", &["link", "add", "link", "v0", "name", "v0.7", "type", "vlan", "id", "7"]);
            peer.run(|| {
                run("ip", &["link", "add", "link", "v1", "name", "v1.7", "type", "vlan", "id", "7"]);
                run("ip", &["address", "flush", "dev", "v1"]);
                run("ip", &["address", "add", "10.9.0.2/24", "dev", "v1.7"]);
                run("ip", &["link", "set", "v1.7", "up"]);
            });
            "v0.7"
        }
    };
    run("ip", &["address", "add", "10.9.0.1/24", "dev", device]);
    run("ip", &["link", "set", device, "up"]);
    run("ip", &["link", "set", "v0", "up"]);
    lab::wait_until("the device carries packets", || arriving(peer, 1, 9000, "10.9.0.2") == 1);
    device
}

#[test]
fn faults_work_on_bond_vlan_and_bridge_by_their_routes_and_leave_them_as_they_were() {
    for kind in ["bond", "vlan", "bridge"] {
        in_namespace(|| {
            let peer = Peer::new();
            let state = tempfile::tempdir().unwrap();
            let device = put_under(kind, &peer);
            lab::wait_until("carriers settle", || !dump().contains("NO-CARRIER"));
            let before = dump();
            let target = || edge(Role::Downstream, Some("10.9.0.0/24"), Some(9999));
            let prepared =
                Plane::new(state.path()).prepare_blocking(&[(spec(FaultKind::Loss { share: 0.5 }, Direction::Egress), target())]);
            let prepared = prepared.unwrap().remove(0);
            assert!(prepared.describe()[0].contains(&format!("at {device} egress")), "{:?}", prepared.describe());
            let mut fault = prepared.apply_blocking().unwrap();
            let arrived = lab::while_renewing(&mut [&mut fault], || arriving(&peer, 2000, 9999, "10.9.0.2"));
            // A lease that was renewed too late lets packets pass that were not selected.
            assert_eq!(fault.counts().unwrap()[0].selected, 2000, "{kind}: {arrived} arrived");
            assert!(is_plausible(arrived, 2000, 0.5), "{kind}: {arrived} of 2000");
            assert!(fault.remove_blocking().error.is_none());

            let fault = apply(state.path(), delay(50), Direction::Both, edge(Role::Downstream, Some("10.9.0.2"), None));
            let time = ping("10.9.0.2");
            assert!((100.0..125.0).contains(&time), "{kind}: {time} ms");
            assert!(fault.remove_blocking().error.is_none());
            assert_eq!(dump(), before, "{kind}");

            // What a killed agent leaves there is found and removed.
            let holder = hold(state.path(), Habit::Renew);
            lab::wait_until("the fault is in", || dump().contains("stormdrill:sd"));
            kill(holder);
            let report = clean(state.path(), Force::No).unwrap();
            assert!(report.is_clean() && !report.removed.is_empty(), "{kind}: {report:?}");
            assert_eq!(dump(), before, "{kind}");
        });
    }
}

#[test]
fn packets_of_a_vlan_are_selected_on_the_device_below_it_too() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        put_under("vlan", &peer);
        let wanted = FaultSpec { interface: Some("v0".to_owned()), ..spec(FaultKind::Loss { share: 1.0 }, Direction::Egress) };
        let prepared = Plane::new(state.path()).prepare_blocking(&[(wanted, peer_edge(Some(9999)))]).unwrap();
        let mut fault = prepared.into_iter().next().unwrap().apply_blocking().unwrap();
        assert_eq!(lab::while_renewing(&mut [&mut fault], || arriving(&peer, 100, 9999, "10.9.0.2")), 0);
        assert_eq!(arriving(&peer, 100, 9998, "10.9.0.2"), 100);
        assert!(fault.remove_blocking().error.is_none());
    });
}
