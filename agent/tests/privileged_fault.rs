//! Faults on the host's own kernel, in scratch namespaces with real traffic: what is selected, what is hit, what is left.
//! Run as root: `cargo test -p stormdrill --features privileged-tests --test privileged_fault -- --test-threads=1`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Client, Habit, Nginx, Peer, apply, arriving, dump, edge, has_no_journal, hold, in_namespace, is_plausible, kill, run, spec};
use stormdrill::fault::capability::{self, Capability};
use stormdrill::fault::clean::{self, Force, clean};
use stormdrill::fault::plane::{FaultError, Plane};
use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::fault::{Backend, Direction, Distribution, FaultKind, FaultSpec};

fn http_status(share: f64) -> FaultKind {
    FaultKind::HttpStatus { status: 503, share }
}

#[test]
fn a_share_of_real_answers_gets_the_status_and_the_counters_agree_with_the_client() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081", "127.0.0.1:8082"]);
        let before = dump();
        let mut fault = apply(state.path(), http_status(0.3), Direction::Egress, edge(Role::Downstream, Some("127.0.0.1"), Some(8081)));
        let mut client = Client::connect("127.0.0.1:8081");
        let hit = client.count("/", 2000, 503);
        assert!(is_plausible(hit, 2000, 0.3), "{hit} of 2000");
        let counts = fault.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit), (2000, hit));
        // Another port of the same server is not touched.
        assert_eq!(Client::connect("127.0.0.1:8082").count("/", 200, 200), 200);

        let removal = fault.remove_blocking();
        assert!(removal.error.is_none(), "{:?}", removal.error);
        let outcome = &removal.outcomes[0];
        assert!(outcome.applied_ns > 0 && outcome.removed_ns.unwrap() > outcome.applied_ns);
        assert_eq!((outcome.counts.selected, outcome.counts.hit), (2000, hit));
        assert_eq!(client.count("/", 200, 200), 200);
        assert_eq!(dump(), before);
        assert!(has_no_journal(state.path()));
    });
}

#[test]
fn all_and_none_are_exact_and_ipv6_works() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081", "[::1]:8081"]);
        for (address, share, hits) in [("127.0.0.1", 1.0, 300), ("127.0.0.1", 0.0, 0), ("::1", 1.0, 300), ("::/0", 0.0, 0)] {
            let mut fault = apply(state.path(), http_status(share), Direction::Egress, on_loopback(Some(address), 8081));
            let target = if address.contains(':') { "[::1]:8081" } else { "127.0.0.1:8081" };
            assert_eq!(Client::connect(target).count("/", 300, 503), hits, "{address} {share}");
            let counts = fault.counts().unwrap()[0];
            assert_eq!((counts.selected, counts.hit), (300, hits), "{address} {share}");
            // The other family is not selected.
            let other = if address.contains(':') { "127.0.0.1:8081" } else { "[::1]:8081" };
            assert_eq!(Client::connect(other).count("/", 50, 200), 50);
            assert_eq!(fault.counts().unwrap()[0].selected, 300);
            assert!(fault.remove_blocking().error.is_none());
        }
    });
}

/// A downstream edge whose interface does not depend on routes.
fn on_loopback(address: Option<&str>, port: u16) -> EdgeSpec {
    edge(Role::Downstream, address, Some(port))
}

#[test]
fn answers_without_a_body_keep_their_status_because_their_framing_depends_on_it() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081"]);
        let mut fault = apply(state.path(), http_status(1.0), Direction::Egress, on_loopback(None, 8081));
        let mut client = Client::connect("127.0.0.1:8081");
        assert_eq!(client.get("/none").0, 204);
        assert_eq!(client.get("/gone"), (503, "gone\n".to_owned()));
        assert_eq!(client.get("/"), (503, "hello\n".to_owned()));
        assert_eq!(fault.counts().unwrap()[0].selected, 2);
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn answers_from_another_host_are_rewritten_on_arrival_with_right_checksums() {
    for offload in [true, false] {
        in_namespace(move || {
            let peer = Peer::new();
            let state = tempfile::tempdir().unwrap();
            let nginx = peer.run(move || {
                // Without the sender's offload every segment carries a finished checksum, which the receiver verifies.
                lab::set_checksum_offload("v1", offload);
                Nginx::start(&["10.9.0.2:8081", "[fd09::2]:8081"])
            });
            for (address, target) in [("10.9.0.0/24", "10.9.0.2:8081"), ("fd09::2", "[fd09::2]:8081")] {
                let mut fault = apply(state.path(), http_status(0.5), Direction::Egress, on_loopback(Some(address), 8081));
                let hit = Client::connect(target).count("/", 1000, 503);
                assert!(is_plausible(hit, 1000, 0.5), "{hit} of 1000, offload: {offload}");
                let counts = fault.counts().unwrap()[0];
                assert_eq!((counts.selected, counts.hit), (1000, hit), "offload: {offload}");
                assert!(fault.remove_blocking().error.is_none());
            }
            assert!(!run("nstat", &["-az", "TcpInCsumErrors"]).contains("TcpInCsumErrors                 1"));
            peer.run(move || drop(nginx));
        });
    }
}

#[test]
fn an_ingress_edge_spoils_what_this_host_answers() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["0.0.0.0:8081"]);
        let mut wanted = spec(http_status(1.0), Direction::Egress);
        wanted.interface = Some("v0".to_owned());
        let prepared = Plane::new(state.path()).prepare_blocking(&[(wanted, edge(Role::Ingress, None, Some(8081)))]).unwrap();
        let mut fault = prepared.into_iter().next().unwrap().apply_blocking().unwrap();
        assert_eq!(peer.run(|| Client::connect("10.9.0.1:8081").count("/", 200, 503)), 200);
        // A caller on this host goes over loopback, which was not named.
        assert_eq!(Client::connect("127.0.0.1:8081").count("/", 50, 200), 50);
        assert_eq!(fault.counts().unwrap()[0].hit, 200);
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn loss_without_netem_drops_its_share_of_the_selected_packets_and_no_other() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        for (address, target) in [("10.9.0.2", "10.9.0.2"), ("fd09::/64", "fd09::2")] {
            let mut fault = apply(state.path(), FaultKind::Loss { share: 0.3 }, Direction::Egress, on_loopback(Some(address), 9999));
            if fault.backend() != Backend::EbpfDrop {
                // This kernel has netem; the VM tests cover that.
                return;
            }
            let arrived = arriving(&peer, 10_000, 9999, target);
            assert!(is_plausible(10_000 - arrived, 10_000, 0.3), "{arrived} of 10000 arrived");
            let counts = fault.counts().unwrap()[0];
            assert_eq!((counts.selected, counts.hit), (10_000, 10_000 - arrived));
            assert_eq!(arriving(&peer, 1000, 9998, target), 1000);
            assert!(fault.remove_blocking().error.is_none());
            assert_eq!(arriving(&peer, 1000, 9999, target), 1000);
        }
    });
}

#[test]
fn loss_both_ways_selects_requests_and_answers() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let mut fault = apply(state.path(), FaultKind::Loss { share: 0.0 }, Direction::Both, on_loopback(Some("10.9.0.2"), 9999));
        let socket = peer.run(|| UdpSocket::bind("10.9.0.2:9999").unwrap());
        let own = UdpSocket::bind("10.9.0.1:0").unwrap();
        own.send_to(b"?", "10.9.0.2:9999").unwrap();
        peer.run(move || {
            let (_, from) = socket.recv_from(&mut [0; 8]).unwrap();
            for _ in 0..3 {
                socket.send_to(b"!", from).unwrap();
            }
        });
        for _ in 0..3 {
            own.recv(&mut [0; 8]).unwrap();
        }
        assert_eq!(fault.counts().unwrap()[0].selected, 4);
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn an_ingress_qdisc_of_another_is_in_the_way_of_leaving_packets_only_and_that_is_known_before_anything_is_made() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        run("tc", &["qdisc", "add", "dev", "v0", "ingress"]);
        let before = dump();
        let prepare = |kind: FaultKind, direction| {
            let spec = FaultSpec { direction, ..FaultSpec::new(kind, "store") };
            Plane::new(state.path()).prepare_blocking(&[(spec, edge(Role::Downstream, Some("10.9.0.2"), Some(9999)))])
        };
        let loss = FaultKind::Loss { share: 1.0 };
        // Of answers that arrive, the requests are read as they leave.
        for (kind, direction) in
            [(loss.clone(), Direction::Egress), (loss.clone(), Direction::Both), (http_status(1.0), Direction::Ingress)]
        {
            let refused = prepare(kind, direction).unwrap_err().to_string();
            assert_eq!(refused, "interface v0 has an `ingress` qdisc of someone else, which has no hook for leaving packets");
        }
        let fault = prepare(loss, Direction::Ingress).unwrap().remove(0).apply_blocking().unwrap();
        assert!(run("tc", &["filter", "show", "dev", "v0", "ingress"]).contains("stormdrill:"));
        assert!(fault.remove_blocking().error.is_none());
        assert_eq!(dump(), before);
    });
}

#[test]
fn ssh_is_never_selected_nor_arp_nor_neighbour_discovery() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        peer.run(|| {
            for address in ["10.9.0.2:22", "[fd09::2]:22"] {
                let listener = TcpListener::bind(address).unwrap();
                std::thread::spawn(move || listener.accept().map(|(mut stream, _)| stream.write_all(b"SSH-2.0-x\r\n")));
            }
        });
        let mut four =
            apply(state.path(), FaultKind::Loss { share: 1.0 }, Direction::Both, edge(Role::Downstream, Some("10.9.0.0/24"), None));
        let six = apply(state.path(), FaultKind::Loss { share: 1.0 }, Direction::Both, edge(Role::Downstream, Some("fd09::/64"), None));
        // Neighbours are learnt anew, and the banner arrives, though everything else to these networks is lost.
        run("ip", &["neigh", "flush", "dev", "v0"]);
        for address in ["10.9.0.2:22", "[fd09::2]:22"] {
            let mut banner = [0; 11];
            TcpStream::connect_timeout(&address.parse().unwrap(), Duration::from_secs(5)).unwrap().read_exact(&mut banner).unwrap();
            assert_eq!(&banner, b"SSH-2.0-x\r\n");
        }
        assert_eq!(arriving(&peer, 100, 9999, "10.9.0.2"), 0);
        assert_eq!(four.counts().unwrap()[0].hit, 100);
        assert!(four.remove_blocking().error.is_none() && six.remove_blocking().error.is_none());
    });
}

#[test]
fn a_fault_that_is_not_renewed_ends_by_itself_within_four_seconds() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081"]);
        let mut fault = apply(state.path(), http_status(1.0), Direction::Egress, on_loopback(None, 8081));
        let mut client = Client::connect("127.0.0.1:8081");
        let begin = Instant::now();
        assert_eq!(client.get("/").0, 503);
        lab::wait_until("the lease runs out", || client.get("/").0 == 200);
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
        assert!(run("tc", &["filter", "show", "dev", "lo", "egress"]).contains("stormdrill:sd"), "the filter is still there");
        assert_eq!(client.count("/", 100, 200), 100);
        fault.renew().unwrap();
        assert_eq!(client.get("/").0, 503);
        assert!(fault.remove_blocking().error.is_none());
    });
}

/// Not a test of its own: in a process that another test starts, it holds a fault until it is killed.
#[test]
fn holder() {
    lab::holder(&http_status(1.0), Direction::Egress, &on_loopback(Some("127.0.0.1"), 8081));
}

#[test]
fn a_killed_agents_fault_is_cleaned_up_and_a_living_ones_is_not() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081"]);
        let before = dump();
        let mut client = Client::connect("127.0.0.1:8081");
        let holder = hold(state.path(), Habit::Renew);
        lab::wait_until("the fault holds", || client.get("/").0 == 503);

        let report = clean(state.path(), Force::No).unwrap();
        assert_eq!((report.alive.as_slice(), report.removed.len()), ([holder.id()].as_slice(), 0));
        assert_eq!(client.get("/").0, 503);
        assert!(clean::leftovers(state.path()).unwrap().is_empty());

        kill(holder);
        assert_eq!(clean::leftovers(state.path()).unwrap().len(), 1);
        let report = clean(state.path(), Force::No).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
        assert_eq!((report.removed.len(), report.alive.len()), (1, 0));
        assert_eq!(dump(), before);
        assert!(has_no_journal(state.path()));
        assert_eq!(client.get("/").0, 200);
        // Twice is success, and there is nothing to say.
        let again = clean(state.path(), Force::No).unwrap();
        assert!(again.is_clean() && again.removed.is_empty());
    });
}

#[test]
fn leftovers_are_found_by_name_when_the_journal_is_lost() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let before = dump();
        let holder = hold(state.path(), Habit::Renew);
        lab::wait_until("the fault is in", || dump().contains("stormdrill:sd"));
        kill(holder);
        let elsewhere = tempfile::tempdir().unwrap();
        let report = clean(elsewhere.path(), Force::No).unwrap();
        assert!(report.is_clean() && report.removed.len() == 1, "{report:?}");
        assert_eq!(dump(), before);
    });
}

#[test]
fn a_foreign_clsact_with_a_foreign_filter_survives_byte_for_byte() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081"]);
        run("tc", &["qdisc", "add", "dev", "lo", "clsact"]);
        foreign_filter();
        let before = dump();
        let fault = apply(state.path(), http_status(1.0), Direction::Egress, on_loopback(None, 8081));
        assert_eq!(Client::connect("127.0.0.1:8081").count("/", 20, 503), 20);
        assert!(fault.remove_blocking().error.is_none());
        assert_eq!(dump(), before);
    });
}

#[test]
fn a_foreign_filter_that_joins_our_clsact_keeps_it() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081"]);
        let fault = apply(state.path(), http_status(1.0), Direction::Egress, on_loopback(None, 8081));
        foreign_filter();
        assert!(fault.remove_blocking().error.is_none());
        let filters = run("tc", &["filter", "show", "dev", "lo", "egress"]);
        assert!(filters.contains("0x77") && !filters.contains("stormdrill"), "{filters}");
    });
}

/// A classifier of someone else on lo's egress: classic bytecode that matches nothing, so that no compiler is needed.
fn foreign_filter() {
    run("tc", &["filter", "add", "dev", "lo", "egress", "pref", "10", "handle", "0x77", "bpf", "bytecode", "1,6 0 0 0,"]);
}

#[test]
fn two_faults_on_one_interface_leave_together_whatever_the_order() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081", "127.0.0.1:8082"]);
        let before = dump();
        for first_goes_first in [true, false] {
            let a = apply(state.path(), http_status(1.0), Direction::Egress, on_loopback(None, 8081));
            let b = apply(state.path(), http_status(1.0), Direction::Egress, on_loopback(None, 8082));
            let (first, mut second, port) = if first_goes_first { (a, b, 8082) } else { (b, a, 8081) };
            assert!(first.remove_blocking().error.is_none());
            second.renew().unwrap();
            assert_eq!(Client::connect(&format!("127.0.0.1:{port}")).get("/").0, 503);
            assert!(second.remove_blocking().error.is_none());
            assert_eq!(dump(), before);
        }
    });
}

#[test]
fn dropping_a_fault_removes_it() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let before = dump();
        drop(apply(state.path(), http_status(1.0), Direction::Egress, edge(Role::Downstream, Some("127.0.0.1"), Some(8081))));
        assert_eq!(dump(), before);
        assert!(has_no_journal(state.path()));
    });
}

#[test]
fn a_fault_removed_by_hand_is_removed_with_success() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let before = dump();
        let fault = apply(state.path(), http_status(1.0), Direction::Egress, edge(Role::Downstream, Some("127.0.0.1"), Some(8081)));
        run("tc", &["qdisc", "del", "dev", "lo", "clsact"]);
        let removal = fault.remove_blocking();
        assert!(removal.error.is_none(), "{:?}", removal.error);
        assert!(removal.outcomes[0].removed_ns.is_some());
        assert_eq!(dump(), before);
    });
}

#[test]
fn a_delay_without_netem_is_refused_before_anything_is_changed() {
    if capability::try_one(Capability::Netem).works() {
        return;
    }
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let before = dump();
        let kind = FaultKind::Delay { time: Duration::from_millis(100), jitter: Duration::ZERO, distribution: Distribution::Uniform };
        let error = Plane::new(state.path())
            .prepare_blocking(&[(spec(kind, Direction::Egress), edge(Role::Downstream, Some("127.0.0.1"), Some(8081)))])
            .unwrap_err();
        let release = run("uname", &["-r"]);
        let text = error.to_string();
        assert!(matches!(error, FaultError::Missing { module: "sch_netem", .. }), "{text}");
        assert!(text.contains("delay needs sch_netem") && text.contains(release.trim()), "{text}");
        assert_eq!(dump(), before);
        assert!(has_no_journal(state.path()));
    });
}

#[test]
fn a_status_that_breaks_the_framing_is_refused() {
    for status in [100, 204, 304, 600] {
        let kind = FaultKind::HttpStatus { status, share: 1.0 };
        let error = Plane::new("/nonexistent")
            .prepare_blocking(&[(spec(kind, Direction::Egress), edge(Role::Downstream, Some("127.0.0.1"), Some(80)))])
            .unwrap_err();
        assert!(matches!(error, FaultError::Status { .. }), "{error}");
    }
}

#[test]
fn whenever_the_agent_is_killed_clean_leaves_the_tables_as_they_were() {
    in_namespace(|| {
        lab::survives_kills(25);
    });
}

#[test]
fn clean_without_the_privilege_is_an_error_and_removes_nothing() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let holder = hold(state.path(), Habit::Renew);
        lab::wait_until("the fault is in", || dump().contains("stormdrill:sd"));
        kill(holder);
        let held = dump();
        // A copy where everybody can run it.
        let program = state.path().join("stormdrill");
        std::fs::copy(env!("CARGO_BIN_EXE_stormdrill"), &program).unwrap();
        std::fs::set_permissions(state.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let clean = |user: u32| {
            Command::new(&program).args(["--state-dir", state.path().to_str().unwrap(), "clean"]).uid(user).gid(user).output().unwrap()
        };

        let output = clean(65_534);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("Operation not permitted"), "{text}");
        assert_eq!(dump(), held);

        let output = clean(0);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("removed sd"), "{output:?}");
        assert!(!dump().contains("stormdrill"));
    });
}
