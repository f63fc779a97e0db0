//! netem's whole vocabulary on kernels that have it: from a playbook's text to the qdisc, which an independent reader (tc) finds the
//! same as tc's own. `cargo xtask test --only vm_netem` boots them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use lab::{Peer, arriving, dump, edge, in_namespace, is_plausible, ping, run};
use stormdrill::fault::plane::{Applied, Plane};
use stormdrill_core::edge::{Cidr, EdgeSpec, Role};
use stormdrill_core::fault::{Backend, Direction, Distribution, FaultKind, FaultSpec, RateLimit};
use stormdrill_core::playbook;

fn peer_edge() -> EdgeSpec {
    edge(Role::Downstream, Some("10.9.0.2"), Some(9999))
}

fn apply_all(state: &std::path::Path, specs: Vec<FaultSpec>) -> Vec<Applied> {
    let faults: Vec<_> = specs.into_iter().map(|spec| (spec, peer_edge())).collect();
    let prepared = Plane::new(state).prepare_blocking(&faults).unwrap();
    prepared.into_iter().map(|prepared| prepared.apply_blocking().unwrap()).collect()
}

fn apply(state: &std::path::Path, spec: FaultSpec) -> Applied {
    apply_all(state, vec![spec]).remove(0)
}

/// The faults of a playbook that has these items.
fn faults(items: &str) -> Vec<FaultSpec> {
    let text = format!(
        "version: 1\nname: x\nobserve:\n  downstream: {{store: {{address: 10.9.0.2, port: 9999}}}}\nphases: {{baseline: 10s, fault: 1h, recovery: 10s}}\nfaults:\n{items}"
    );
    playbook::parse(&text).unwrap_or_else(|problems| panic!("{items}: {problems:#?}")).faults
}

fn ifb() -> String {
    run("ip", &["-o", "link"]).lines().filter_map(|line| line.split(": ").nth(1)).find(|name| name.starts_with("sd")).unwrap().to_owned()
}

/// What tc says of a device's netem, from its parameters on; the seed is the kernel's own where none was asked.
fn netem(device: &str) -> String {
    let text = run("tc", &["qdisc", "show", "dev", device]);
    let text = text.split_once("refcnt ").map_or(text.as_str(), |(_, rest)| rest.split_once(' ').unwrap().1);
    text.split(" seed ").next().unwrap().trim().to_owned()
}

#[test]
fn a_playbooks_fault_reads_back_as_the_same_netem_that_tc_makes() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        run("ip", &["link", "add", "theirs", "type", "dummy"]);
        for (items, arguments) in [
            ("  - {loss: {share: 30%, limit: 1000}, to: store}\n", "loss 30%"),
            ("  - {loss: {share: 10%, ecn: true, limit: 1000}, to: store}\n", "loss 10% ecn"),
            ("  - {loss: {gemodel: {p: 2%, r: 20%, h: 10%, k: 99.9%}, limit: 1000}, to: store}\n", "loss gemodel 2% 20% 90% 0.1%"),
            (
                "  - {loss: {state: {p13: 1%, p31: 30%, p32: 20%, p23: 40%, p14: 0.5%}, limit: 1000}, to: store}\n",
                "loss state 1% 30% 20% 40% 0.5%",
            ),
            ("  - {delay: {time: 100ms, jitter: 20ms, correlation: 25%, limit: 77}, to: store}\n", "limit 77 delay 100ms 20ms 25%"),
            ("  - {delay: {time: 0.5ms, limit: 9}, to: store}\n", "limit 9 delay 500us"),
            ("  - {delay: {time: 250us, limit: 9}, to: store}\n", "limit 9 delay 0.25ms"),
            ("  - {delay: {time: 1.5s, limit: 9}, to: store}\n", "limit 9 delay 1500ms"),
            ("  - {duplicate: {share: 1%, limit: 1000}, to: store}\n", "duplicate 1%"),
            ("  - {corrupt: {share: 2%, correlation: 25%, limit: 1000}, to: store}\n", "corrupt 2% 25%"),
            (
                "  - {delay: {time: 10ms, limit: 1000}, to: store}\n  - {reorder: {share: 25%, correlation: 50%, gap: 5}, to: store}\n",
                "delay 10ms reorder 25% 50% gap 5",
            ),
            (
                "  - {rate: {bandwidth: 56kbit, overhead: 20, cell_size: 100, cell_overhead: 5, limit: 1000}, to: store}\n",
                "rate 56kbit 20 100 5",
            ),
            ("  - {rate: {bandwidth: 100gbit, limit: 1000}, to: store}\n", "rate 100gbit"),
            (
                "  - {delay: {time: 1ms, slot: {min: 800us, max: 1ms, packets: 32, bytes: 64000}, limit: 1000}, to: store}\n",
                "delay 1ms slot 800us 1ms packets 32 bytes 64000",
            ),
            ("  - {partition: true, to: store, direction: egress}\n", "loss 100%"),
        ] {
            let applied = apply_all(state.path(), faults(items));
            assert_eq!((applied.len(), applied[0].backend()), (1, Backend::Netem), "{items}");
            let ours = netem(&ifb());
            let all: Vec<&str> = ["qdisc", "add", "dev", "theirs", "root", "netem"].into_iter().chain(arguments.split(' ')).collect();
            run("tc", &all);
            assert_eq!(ours, netem("theirs"), "{items}");
            run("tc", &["qdisc", "del", "dev", "theirs", "root"]);
            for fault in applied {
                assert!(fault.remove_blocking().error.is_none());
            }
        }
    });
}

/// tc reads the table of a distribution from a file that the guest lacks, so that its own words are all there is to compare with.
#[test]
fn a_delay_to_one_address_holds_nothing_else_back() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        peer.run(|| run("ip", &["address", "add", "10.9.0.3/24", "dev", "v1"]));
        let others = ["10.9.0.3", "fd09::2", "127.0.0.1"];
        let before = others.map(ping);
        let mut fault = lab::apply(
            state.path(),
            FaultKind::Delay { time: Duration::from_millis(200), jitter: Duration::ZERO, distribution: Distribution::Uniform },
            Direction::Egress,
            edge(Role::Downstream, Some("10.9.0.2"), None),
        );
        let (delayed, others) = lab::while_renewing(&mut [&mut fault], || (ping("10.9.0.2"), others.map(ping)));
        assert!((200.0..300.0).contains(&delayed), "{delayed} ms");
        // The emulated processor takes its time, but no tenth of the delay.
        for (now, before) in others.into_iter().zip(before) {
            assert!(now - before < 20.0, "{now} ms, and {before} ms before");
        }
        // Its own five pings and nothing else went through the netem.
        let counts = fault.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit), (5, 5));
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn slots_spaced_by_a_distribution_are_read_back_as_such() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let slot = "{time: 10ms, jitter: 2ms, distribution: normal, packets: 8}";
        let applied = apply_all(state.path(), faults(&format!("  - {{delay: {{time: 1ms, slot: {slot}, limit: 9}}, to: store}}\n")));
        let shown = netem(&ifb());
        assert!(shown.contains("slot distribution 10ms 2ms packets 8"), "{shown}");
        for fault in applied {
            assert!(fault.remove_blocking().error.is_none());
        }
    });
}

#[test]
fn duplicates_are_counted_and_arrive_twice() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let mut fault = apply(state.path(), FaultSpec::new(FaultKind::Duplicate { share: 0.2, correlation: 0.0 }, "store"));
        let arrived = arriving(&peer, 5000, 9999, "10.9.0.2");
        let counts = fault.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit), (5000, arrived - 5000));
        assert!(is_plausible(counts.hit, 5000, 0.2), "{counts:?}");
        assert!(fault.remove_blocking().error.is_none());
    });
}

/// Sends packets in one go; gives what `work` makes of the receiving socket.
fn burst(peer: &Peer, packets: u32) -> UdpSocket {
    let receiver = peer.run(|| UdpSocket::bind("10.9.0.2:9999").unwrap());
    receiver.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
    for number in 0..packets {
        sender.send_to(&number.to_ne_bytes(), "10.9.0.2:9999").unwrap();
    }
    receiver
}

#[test]
fn a_full_queue_is_told_apart_from_loss() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let items = "  - {delay: {time: 300ms, limit: 100}, to: store}\n  - {loss: 20%, to: store}\n";
        let mut fault = apply_all(state.path(), faults(items)).remove(0);
        let receiver = burst(&peer, 1000);
        let mut arrived = 0;
        while receiver.recv(&mut [0; 8]).is_ok() {
            arrived += 1;
        }
        assert_eq!(arrived, 100);
        let counts = fault.counts().unwrap();
        assert_eq!(counts[0].overflowed + counts[1].hit, 900, "{counts:?}");
        // The loss is drawn before the queue is looked at.
        assert!(is_plausible(counts[1].hit, 1000, 0.2), "{counts:?}");
        assert!(counts[1].overflowed > 600, "{counts:?}");
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn a_long_delay_under_many_packets_has_room_for_all() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let mut fault = apply_all(state.path(), faults("  - {delay: 1s, to: store}\n")).remove(0);
        let receiver = burst(&peer, 3000);
        // A receive buffer holds a part of them; the counters hold all.
        while receiver.recv(&mut [0; 8]).is_ok() {}
        let counts = fault.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit, counts.overflowed), (3000, 3000, 0));
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn reordered_packets_overtake_those_that_the_delay_holds() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let items = "  - {delay: 50ms, to: store}\n  - {reorder: 20%, to: store}\n";
        let mut fault = apply_all(state.path(), faults(items)).remove(0);
        let receiver = burst(&peer, 200);
        let mut arrived = Vec::new();
        let mut buffer = [0; 4];
        while receiver.recv(&mut buffer).is_ok() {
            arrived.push(u32::from_ne_bytes(buffer));
        }
        // By their order, not by the time, which a busy machine takes longer for than the delay: one that comes before another that was sent before it.
        let early = (0..arrived.len()).filter(|&at| arrived[at..].iter().any(|&later| later < arrived[at])).count();
        let early = u64::try_from(early).unwrap();
        assert!(is_plausible(early, 200, 0.2), "{early} of 200 were early");
        assert_eq!(fault.counts().unwrap()[0].selected, 200);
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn a_distribution_table_is_read_and_a_bad_one_refused_before_anything_is_changed() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join("t.dist");
        let items = format!("  - {{delay: {{time: 10ms, jitter: 1ms, table: {}}}, to: store}}\n", path.display());
        let before = dump();
        std::fs::write(&path, "1 2 x").unwrap();
        let bad: Vec<_> = faults(&items).into_iter().map(|spec| (spec, peer_edge())).collect();
        let error = Plane::new(state.path()).prepare_blocking(&bad).unwrap_err();
        assert!(error.to_string().contains("`x` is no number"), "{error}");
        assert_eq!(dump(), before);
        std::fs::write(&path, "# flat\n-8192 0 8192\n").unwrap();
        let fault = apply_all(state.path(), faults(&items)).remove(0);
        assert!(netem(&ifb()).contains("delay 10ms  1ms"), "{}", netem(&ifb()));
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn a_duplicate_beside_another_netem_works_or_is_explained_and_leaves_nothing() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        // Someone else's netem is the interface's root; ours is on a device of its own, hence in another tree.
        run("tc", &["qdisc", "add", "dev", "v0", "root", "handle", "1:", "netem", "delay", "1ms"]);
        let before = dump();
        let fault = apply(state.path(), FaultSpec::new(FaultKind::Duplicate { share: 1.0, correlation: 0.0 }, "store"));
        assert_eq!(arriving(&peer, 100, 9999, "10.9.0.2"), 200);
        assert!(fault.remove_blocking().error.is_none());
        assert_eq!(dump(), before);
    });
}

#[test]
fn a_rate_by_netem_is_read_back_with_its_room_for_the_delay() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let limit = RateLimit { bytes_per_second: 12_500_000_000, overhead: 0, cell_size: 0, cell_overhead: 0 };
        let fault = apply(state.path(), FaultSpec::new(FaultKind::Rate(limit), "store"));
        assert_eq!(netem(&ifb()), "limit 1000 rate 100Gbit");
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn connections_are_refused_on_this_kernel_too_with_the_error_that_it_can_say() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        for (address, target) in [("127.0.0.1", "127.0.0.1:8474"), ("::1", "[::1]:8474")] {
            let listener = TcpListener::bind(target).unwrap();
            std::thread::spawn(move || listener.incoming().for_each(drop));
            let faults = [(FaultSpec::new(FaultKind::Refuse { share: 0.5 }, "store"), edge(Role::Downstream, Some(address), Some(8474)))];
            let mut fault = Plane::new(state.path()).prepare_blocking(&faults).unwrap().remove(0).apply_blocking().unwrap();
            let mut refused = 0;
            lab::while_renewing(&mut [&mut fault], || {
                for _ in 0..400 {
                    if let Err(error) = TcpStream::connect(target) {
                        assert!(matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied), "{error}");
                        refused += 1;
                    }
                }
            });
            assert!(is_plausible(refused, 400, 0.5), "{refused} of 400");
            let counts = fault.counts().unwrap()[0];
            assert_eq!((counts.selected, counts.hit), (400, refused));
            assert!(fault.remove_blocking().error.is_none());
            TcpStream::connect(target).unwrap();
        }
    });
}

#[test]
fn exclusions_win_on_this_kernel_too() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let mut text = faults("  - {partition: true, to: store, select: {exclude: {ports: [9998, 65535]}}}\n").remove(0);
        text.select.exclude_addresses = vec![Cidr { address: "10.9.0.0".parse().unwrap(), prefix: 30 }];
        let whole = edge(Role::Downstream, Some("10.9.0.0/24"), None);
        let apply = |spec: &FaultSpec| {
            Plane::new(state.path()).prepare_blocking(&[(spec.clone(), whole.clone())]).unwrap().remove(0).apply_blocking().unwrap()
        };
        let fault = apply(&text);
        assert_eq!(arriving(&peer, 50, 9999, "10.9.0.2"), 50, "the peer is spared");
        assert!(fault.remove_blocking().error.is_none());
        let mut ports_only = text;
        ports_only.select.exclude_addresses.clear();
        let fault = apply(&ports_only);
        assert_eq!(arriving(&peer, 50, 9999, "10.9.0.2"), 0);
        assert_eq!(arriving(&peer, 50, 9998, "10.9.0.2"), 50, "the port is spared");
        assert!(fault.remove_blocking().error.is_none());
    });
}
