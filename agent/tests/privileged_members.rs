//! Faults on the traffic of some: a cgroup, a process, a container; a share of the connections; some callers. On the host's own kernel.
//! Run as root: `cargo test -p stormdrill --features privileged-tests --test privileged_members -- --test-threads=1`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::{Nginx, Peer, arriving, dump, edge, in_namespace, is_plausible, run};
use nix::sys::socket::{setsockopt, sockopt};
use stormdrill::fault::capability::{self, Capability};
use stormdrill::fault::clean::{Force, clean};
use stormdrill::fault::plane::{Applied, Plane};
use stormdrill::fault::spared::Spared;
use stormdrill_core::edge::{Cidr, EdgeSpec, Role};
use stormdrill_core::fault::{Direction, FaultKind, FaultSpec, Members, NetNs, RateLimit, Select};

fn apply(state: &std::path::Path, spec: FaultSpec, edge: EdgeSpec) -> Applied {
    Plane::new(state).prepare_blocking(&[(spec, edge)]).unwrap().remove(0).apply_blocking().unwrap()
}

fn loss(direction: Direction, select: Select) -> FaultSpec {
    FaultSpec { direction, select, ..FaultSpec::new(FaultKind::Loss { share: 1.0 }, "store") }
}

fn network(text: &str) -> Cidr {
    let (address, prefix) = text.split_once('/').unwrap();
    Cidr { address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
}

fn at_peer(port: Option<u16>) -> EdgeSpec {
    edge(Role::Downstream, Some("10.9.0.2"), port)
}

/// A cgroup of the test's own, with a child in which commands run.
struct Group {
    path: String,
    directory: PathBuf,
}

impl Group {
    fn new(name: &str) -> Self {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root = table.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4)).unwrap().to_owned();
        let path = format!("stormdrill-test-{}-{name}", std::process::id());
        let directory = PathBuf::from(root).join(&path);
        std::fs::create_dir_all(directory.join("deeper")).unwrap();
        Self { path, directory }
    }

    /// A command whose process is in the child group before it runs.
    fn command(&self, program: &str) -> Command {
        let procs = self.directory.join("deeper/cgroup.procs");
        let mut command = Command::new(program);
        // SAFETY: a write to a file, which is safe between fork and exec; the path was allocated before.
        unsafe { command.pre_exec(move || std::fs::write(&procs, "0")) };
        command
    }

    fn select(&self) -> Select {
        Select { members: Some(Members::Cgroup(self.path.clone())), ..Select::default() }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let remove = || std::fs::remove_dir(self.directory.join("deeper")).is_ok() && std::fs::remove_dir(&self.directory).is_ok();
        // A process that was just waited for may still be on its way out.
        lab::wait_until("the test's cgroup is empty", remove);
    }
}

/// The status that curl gets, or its exit code if it gets none.
fn curl(mut command: Command, url: &str) -> Result<u16, i32> {
    let output = command.args(["-s", "-o", "/dev/null", "-m", "1", "-w", "%{http_code}", url]).output().unwrap();
    match output.status.code() {
        Some(0) => Ok(String::from_utf8(output.stdout).unwrap().parse().unwrap()),
        code => Err(code.unwrap()),
    }
}

/// Sends so many datagrams.
fn send(mut command: Command, count: u32, target: &str) {
    let status = command.args(["-c", &format!("for i in $(seq {count}); do echo x > /dev/udp/{target}; done")]).status().unwrap();
    assert!(status.success());
}

#[test]
fn packets_that_a_cgroup_sends_are_selected_and_nobody_elses() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let group = Group::new("send");
        let receiver = peer.run(|| UdpSocket::bind("10.9.0.2:9999").unwrap());
        receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut fault = apply(state.path(), loss(Direction::Egress, group.select()), at_peer(Some(9999)));
        send(group.command("bash"), 20, "10.9.0.2/9999");
        send(Command::new("bash"), 30, "10.9.0.2/9999");
        let mut arrived = 0;
        while receiver.recv(&mut [0; 8]).is_ok() {
            arrived += 1;
        }
        assert_eq!((arrived, fault.counts().unwrap()[0].hit), (30, 20));
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn two_faults_on_one_interface_hold_for_two_cgroups_and_are_refused_for_one_by_two_names() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let (one, other) = (Group::new("one"), Group::new("other"));
        let receiver = peer.run(|| UdpSocket::bind("10.9.0.2:9999").unwrap());
        receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let fault = |select: Select| (loss(Direction::Egress, select), at_peer(Some(9999)));
        let prepared = Plane::new(state.path()).prepare_blocking(&[fault(one.select()), fault(other.select())]).unwrap();
        let mut faults: Vec<Applied> = prepared.into_iter().map(|prepared| prepared.apply_blocking().unwrap()).collect();
        send(one.command("bash"), 20, "10.9.0.2/9999");
        send(other.command("bash"), 15, "10.9.0.2/9999");
        send(Command::new("bash"), 30, "10.9.0.2/9999");
        let mut arrived = 0;
        while receiver.recv(&mut [0; 8]).is_ok() {
            arrived += 1;
        }
        assert_eq!((arrived, faults[0].counts().unwrap()[0].hit, faults[1].counts().unwrap()[0].hit), (30, 20, 15));
        assert!(faults.into_iter().all(|fault| fault.remove_blocking().error.is_none()));

        // A process of the first group is not known as one by its number.
        let mut child = one.command("sleep").arg("60").spawn().unwrap();
        let table = format!("/proc/{}/cgroup", child.id());
        lab::wait_until("the child is in its group", || std::fs::read_to_string(&table).unwrap().contains(&one.path));
        let select = Select { members: Some(Members::Pid(child.id())), ..Select::default() };
        let refused = Plane::new(state.path()).prepare_blocking(&[fault(one.select()), fault(select.clone())]).unwrap_err().to_string();
        assert!(refused.starts_with("loss and loss select the same packets: the processes of both are in /"), "{refused}");
        assert!(Plane::new(state.path()).prepare_blocking(&[fault(other.select()), fault(select)]).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn packets_that_a_cgroup_receives_are_selected_though_they_have_no_socket_yet() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let group = Group::new("receive");
        let nginx = peer.run(|| Nginx::start(&["10.9.0.2:8081"]));
        let _own = Nginx::start(&["127.0.0.1:8081"]);
        let before = dump();
        for (edge, url) in [
            (at_peer(Some(8081)), "http://10.9.0.2:8081/"),
            (edge(Role::Downstream, Some("127.0.0.1"), Some(8081)), "http://127.0.0.1:8081/"),
        ] {
            let mut fault = apply(state.path(), loss(Direction::Ingress, group.select()), edge);
            assert_eq!(curl(group.command("curl"), url), Err(28), "{url}: the answer to its SYN is lost");
            assert_eq!(curl(Command::new("curl"), url), Ok(200), "{url}");
            assert!(fault.counts().unwrap()[0].hit > 0);
            assert!(fault.remove_blocking().error.is_none());
            assert_eq!(curl(group.command("curl"), url), Ok(200));
            assert_eq!(dump(), before);
        }
        peer.run(move || drop(nginx));
    });
}

#[test]
fn answers_to_a_cgroup_and_answers_of_one_are_told_apart() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let group = Group::new("answers");
        let nginx = peer.run(|| Nginx::start(&["10.9.0.2:8081"]));
        let _own = Nginx::start(&["127.0.0.1:8081"]);
        let spoil = || FaultSpec { select: group.select(), ..FaultSpec::new(FaultKind::HttpStatus { status: 503, share: 1.0 }, "store") };
        for (address, url) in [("10.9.0.2", "http://10.9.0.2:8081/"), ("127.0.0.1", "http://127.0.0.1:8081/")] {
            let fault = apply(state.path(), spoil(), edge(Role::Downstream, Some(address), Some(8081)));
            assert_eq!(curl(group.command("curl"), url), Ok(503));
            assert_eq!(curl(Command::new("curl"), url), Ok(200));
            assert!(fault.remove_blocking().error.is_none());
            // The service is in no such group.
            let mut service = edge(Role::Ingress, Some("127.0.0.1"), Some(8081));
            if address != "127.0.0.1" {
                continue;
            }
            service.name = "web".to_owned();
            let fault = apply(state.path(), FaultSpec { to: "web".to_owned(), ..spoil() }, service);
            assert_eq!(curl(group.command("curl"), url), Ok(200));
            assert!(fault.remove_blocking().error.is_none());
        }
        peer.run(move || drop(nginx));
    });
}

/// A process in the group that stays.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_stands_for_its_cgroup_and_a_container_is_found_by_its_id() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let id = format!("{:012x}{}", std::process::id(), "c".repeat(52));
        let group = Group::new(&format!("x/docker-{id}.scope"));
        let sleeper = Sleeper(group.command("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap());
        let _nginx = Nginx::start(&["127.0.0.1:8081"]);
        let target = || edge(Role::Downstream, Some("127.0.0.1"), Some(8081));
        for members in [Members::Pid(sleeper.0.id()), Members::Container(id[..12].to_owned()), Members::Container(id.clone())] {
            let select = Select { members: Some(members.clone()), ..Select::default() };
            for kind in [FaultKind::Refuse { share: 1.0 }, FaultKind::HttpStatus { status: 503, share: 1.0 }] {
                let spec = FaultSpec { select: select.clone(), ..FaultSpec::new(kind.clone(), "store") };
                let fault = apply(state.path(), spec, target());
                let expected = if matches!(kind, FaultKind::Refuse { .. }) { Err(7) } else { Ok(503) };
                assert_eq!(curl(group.command("curl"), "http://127.0.0.1:8081/"), expected, "{members:?} {kind:?}");
                assert_eq!(curl(Command::new("curl"), "http://127.0.0.1:8081/"), Ok(200), "{members:?} {kind:?}");
                assert!(fault.remove_blocking().error.is_none());
            }
        }
        let nobody = Select { members: Some(Members::Container("f".repeat(12))), ..Select::default() };
        let error = Plane::new(state.path()).prepare_blocking(&[(loss(Direction::Egress, nobody), target())]).unwrap_err();
        assert!(error.to_string().contains("no cgroup of a running container has the id ffffffffffff"), "{error}");
        drop(sleeper);
        std::fs::remove_dir(group.directory.join("deeper")).unwrap();
        lab::wait_until("the test's cgroup is empty", || std::fs::remove_dir(&group.directory).is_ok());
        std::fs::remove_dir(group.directory.parent().unwrap()).unwrap();
        std::mem::forget(group);
    });
}

#[test]
fn a_redirected_fault_learns_a_cgroups_connections_too() {
    if !capability::try_one(Capability::Tbf).works() && !capability::try_one(Capability::Netem).works() {
        return;
    }
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let group = Group::new("redirect");
        let nginx = peer.run(|| Nginx::start(&["10.9.0.2:8081"]));
        let before = dump();
        let slow = RateLimit { bytes_per_second: 1_250_000, overhead: 0, cell_size: 0, cell_overhead: 0 };
        let spec = FaultSpec { select: group.select(), direction: Direction::Both, ..FaultSpec::new(FaultKind::Rate(slow), "store") };
        let mut fault = apply(state.path(), spec, at_peer(Some(8081)));
        assert_eq!(curl(Command::new("curl"), "http://10.9.0.2:8081/"), Ok(200));
        assert_eq!(fault.counts().unwrap()[0].selected, 0);
        assert_eq!(curl(group.command("curl"), "http://10.9.0.2:8081/"), Ok(200));
        // Handshake, request, answer and close, in both directions.
        assert!(fault.counts().unwrap()[0].hit >= 7, "{:?}", fault.counts());
        assert!(fault.remove_blocking().error.is_none());
        assert_eq!(dump(), before);
        peer.run(move || drop(nginx));
    });
}

#[test]
fn a_share_of_the_connections_is_hit_wholly_and_the_rest_not_at_all() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let echo = peer.run(|| UdpSocket::bind("10.9.0.2:9999").unwrap());
        echo.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        setsockopt(&echo, sockopt::RcvBufForce, &(32 << 20)).unwrap();
        let flows = Select { flows: Some(3 << 30), ..Select::default() };
        // Both ways: what is not hit on its way there is not hit on its way back, since it is one connection.
        let mut fault = apply(state.path(), loss(Direction::Both, flows), at_peer(Some(9999)));
        let sockets: Vec<UdpSocket> = (0..400).map(|_| UdpSocket::bind("10.9.0.1:0").unwrap()).collect();
        let mut through = 0;
        for socket in &sockets {
            socket.set_nonblocking(true).unwrap();
            for _ in 0..5 {
                socket.send_to(b"?", "10.9.0.2:9999").unwrap();
            }
        }
        let mut senders = std::collections::HashMap::new();
        while let Ok((_, from)) = echo.recv_from(&mut [0; 8]) {
            *senders.entry(from).or_insert(0) += 1;
            if senders[&from] == 5 {
                echo.send_to(b"!", from).unwrap();
            }
        }
        assert!(senders.values().all(|count| *count == 5), "{senders:?}");
        for socket in &sockets {
            through += usize::from(socket.recv(&mut [0; 8]).is_ok());
        }
        assert_eq!(through, senders.len());
        assert!(is_plausible(400 - through as u64, 400, 0.75), "{through} of 400 connections passed");
        assert_eq!(fault.counts().unwrap()[0].hit, 5 * (400 - through as u64));
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn callers_of_an_ingress_edge_are_told_by_their_networks_and_some_are_spared() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["0.0.0.0:8081"]);
        peer.run(|| {
            for address in ["10.9.0.3", "10.9.0.130"] {
                run("ip", &["address", "add", &format!("{address}/24"), "dev", "v1"]);
            }
        });
        let select = Select { peers: vec![network("10.9.0.0/25")], exclude_peers: vec![network("10.9.0.3/32")], ..Select::default() };
        let http = FaultKind::HttpStatus { status: 503, share: 1.0 };
        for (spec, hit) in
            [(loss(Direction::Ingress, select.clone()), Err(28)), (FaultSpec { select, ..FaultSpec::new(http, "store") }, Ok(503))]
        {
            let spec = FaultSpec { interface: Some("v0".to_owned()), ..spec };
            let fault = apply(state.path(), spec, edge(Role::Ingress, None, Some(8081)));
            let statuses = peer.run(|| {
                ["10.9.0.2", "10.9.0.3", "10.9.0.130"].map(|from| {
                    let mut command = Command::new("curl");
                    command.args(["--interface", from]);
                    curl(command, "http://10.9.0.1:8081/")
                })
            });
            assert_eq!(statuses, [hit, Ok(200), Ok(200)]);
            assert!(fault.remove_blocking().error.is_none());
        }
        assert_eq!(arriving(&peer, 10, 9999, "10.9.0.2"), 10);
    });
}

#[test]
fn a_host_name_is_resolved_before_anything_is_changed_and_shown() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081", "127.0.0.2:8081"]);
        let select = Select { hosts: vec!["localhost".to_owned()], ..Select::default() };
        let spec = FaultSpec { select, ..FaultSpec::new(FaultKind::HttpStatus { status: 503, share: 1.0 }, "store") };
        let mut wide = edge(Role::Downstream, None, Some(8081));
        let prepared = Plane::new(state.path()).prepare_blocking(&[(spec.clone(), wide.clone())]).unwrap().remove(0);
        assert!(prepared.describe()[0].contains("127.0.0.1"), "{:?}", prepared.describe());
        let fault = prepared.apply_blocking().unwrap();
        assert_eq!(curl(Command::new("curl"), "http://127.0.0.1:8081/"), Ok(503));
        assert_eq!(curl(Command::new("curl"), "http://127.0.0.2:8081/"), Ok(200));
        assert!(fault.remove_blocking().error.is_none());
        wide.address = Some(network("10.0.0.0/8"));
        let before = dump();
        let error = Plane::new(state.path()).prepare_blocking(&[(spec, wide)]).unwrap_err();
        assert!(error.to_string().contains("lies outside of the edge store"), "{error}");
        assert_eq!(dump(), before);
    });
}

#[test]
fn the_agents_own_port_is_spared_unless_the_playbook_says_otherwise() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081", "127.0.0.1:8082"]);
        for (include_management, expected) in [(false, Ok(200)), (true, Err(28))] {
            let spec = loss(Direction::Egress, Select { include_management, ..Select::default() });
            let plane = Plane::new(state.path()).sparing(Spared { ports: vec![8081], ends: Vec::new() });
            let fault = plane.prepare_blocking(&[(spec, edge(Role::Downstream, Some("127.0.0.0/8"), None))]).unwrap().remove(0);
            let fault = fault.apply_blocking().unwrap();
            assert_eq!(curl(Command::new("curl"), "http://127.0.0.1:8081/"), expected);
            assert_eq!(curl(Command::new("curl"), "http://127.0.0.1:8082/"), Err(28));
            assert!(fault.remove_blocking().error.is_none());
        }
    });
}

#[test]
fn single_connections_are_spared_by_their_far_end_in_both_directions_unless_the_playbook_says_otherwise() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        for address in ["10.9.0.1:8083", "[fd09::1]:8083"] {
            let listener = TcpListener::bind(address).unwrap();
            std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(std::thread::spawn(move || echo(stream)))));
            let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
            let web = EdgeSpec { address: None, ..edge(Role::Ingress, None, Some(port)) };
            for (include_management, spared) in [(false, true), (true, false)] {
                let [mut kept, mut other] = peer.run(move || [(); 2].map(|()| TcpStream::connect(address).unwrap()));
                let select = Select { include_management, ..Select::default() };
                let spec = FaultSpec { interface: Some("v0".to_owned()), ..loss(Direction::Both, select) };
                let plane = Plane::new(state.path()).sparing(Spared { ports: Vec::new(), ends: vec![kept.local_addr().unwrap()] });
                let fault = plane.prepare_blocking(&[(spec, web.clone())]).unwrap().remove(0).apply_blocking().unwrap();
                assert_eq!(is_answered(&mut kept), spared, "{address}");
                assert!(!is_answered(&mut other), "{address}");
                assert!(fault.remove_blocking().error.is_none());
            }
        }
    });
}

/// Sends back what comes.
fn echo(mut stream: TcpStream) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
}

/// Whether a byte comes back.
fn is_answered(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).is_ok()
}

#[test]
fn refusing_spares_ssh_the_agents_own_ports_and_the_servers_that_it_needs() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let listeners = [22, 8084, 8085, 8086].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
        let connects = || listeners.each_ref().map(|listener| TcpStream::connect(listener.local_addr().unwrap()).is_ok());
        for (include_management, expected) in [(false, [true, true, true, false]), (true, [false; 4])] {
            let spared = Spared { ports: vec![8084], ends: vec!["127.0.0.1:8085".parse().unwrap()] };
            let select = Select { include_management, ..Select::default() };
            let spec = FaultSpec { select, ..FaultSpec::new(FaultKind::Refuse { share: 1.0 }, "store") };
            let plane = Plane::new(state.path()).sparing(spared);
            let edge = edge(Role::Downstream, Some("127.0.0.0/8"), None);
            let fault = plane.prepare_blocking(&[(spec, edge)]).unwrap().remove(0).apply_blocking().unwrap();
            assert_eq!(connects(), expected);
            assert!(fault.remove_blocking().error.is_none());
        }
        assert_eq!(connects(), [true; 4]);
    });
}

/// `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    size_in: u32,
    size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    rest: [u64; 8],
}

/// Nanoseconds that a classifier takes for a packet, as the kernel measures it over so many runs.
fn nanoseconds(program: i32, packet: &[u8], repeat: u32) -> u32 {
    const BPF_PROG_TEST_RUN: i32 = 10;
    let mut run = TestRun {
        program: u32::try_from(program).unwrap(),
        size_in: u32::try_from(packet.len()).unwrap(),
        data_in: packet.as_ptr() as u64,
        repeat,
        ..TestRun::default()
    };
    // SAFETY: the attribute lives as long as the call, and the packet that it points to as well.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut run, size_of::<TestRun>()) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    run.duration
}

/// The classifiers that this process has loaded, by descriptor.
fn classifiers() -> Vec<i32> {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    descriptors
        .filter(|descriptor: &i32| {
            // BPF_PROG_TYPE_SCHED_CLS.
            std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).is_ok_and(|info| info.contains("prog_type:\t3\n"))
        })
        .collect()
}

#[test]
fn ten_thousand_networks_cost_a_packet_no_more_than_one_does_within_a_fifth() {
    in_namespace(|| {
        let _peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let many: Vec<Cidr> =
            (0..10_000_u32).map(|n| Cidr { address: std::net::Ipv4Addr::from_bits((11 << 24) | (n << 8)).into(), prefix: 24 }).collect();
        let one = vec![many[4321]];
        let mut faults = Vec::new();
        let mut programs = Vec::new();
        for addresses in [one, many] {
            let before = classifiers();
            let spec = FaultSpec { interface: Some("v0".to_owned()), ..loss(Direction::Egress, Select { addresses, ..Select::default() }) };
            faults.push(apply(state.path(), spec, edge(Role::Downstream, None, Some(9999))));
            programs.extend(classifiers().into_iter().filter(|program| !before.contains(program)));
        }
        assert_eq!(programs.len(), 2);
        // A datagram to 11.16.225.9, port 9999, which both select.
        let mut packet = vec![0_u8; 60];
        packet[12..14].copy_from_slice(&[8, 0]);
        packet[14..34].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 11, 16, 225, 9]);
        packet[34..42].copy_from_slice(&[0x30, 0x39, 0x27, 0x0f, 0, 26, 0, 0]);
        let [one, many] = lab::while_renewing(&mut faults.iter_mut().collect::<Vec<_>>(), || {
            let mut best = [u32::MAX; 2];
            // In turns, and the fastest of each: what else runs on the machine only makes a round slower.
            for _ in 0..40 {
                for (best, program) in best.iter_mut().zip(&programs) {
                    *best = (*best).min(nanoseconds(*program, &packet, 5000));
                }
            }
            best
        });
        for fault in &mut faults {
            assert!(fault.counts().unwrap()[0].selected > 0, "the packet is selected");
        }
        assert!(f64::from(many) <= f64::from(one) * 1.2, "{many} ns with ten thousand networks, {one} ns with one");
        for fault in faults {
            assert!(fault.remove_blocking().error.is_none());
        }
    });
}

#[test]
fn a_fault_in_another_network_namespace_works_there_and_clean_finds_what_a_killed_agent_left() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let sleeper = peer.run(|| Sleeper(Command::new("sleep").arg("600").spawn().unwrap()));
        let pid = sleeper.0.id();
        lab::wait_until("carriers settle", || !dump().contains("NO-CARRIER") && !peer.run(dump).contains("NO-CARRIER"));
        let (here, there) = (dump(), peer.run(dump));
        let path = format!("/proc/{pid}/ns/net");
        for netns in [NetNs::Pid(pid), NetNs::Path(path)] {
            // Towards us, from over there.
            let spec = FaultSpec { netns: Some(netns), ..loss(Direction::Ingress, Select::default()) };
            let fault = apply(state.path(), spec, edge(Role::Downstream, Some("10.9.0.1"), None));
            assert_eq!(arriving(&peer, 20, 9999, "10.9.0.2"), 0);
            assert_eq!(dump(), here, "nothing was made here");
            assert!(peer.run(dump).contains("stormdrill:sd"));
            assert!(fault.remove_blocking().error.is_none());
            assert_eq!(peer.run(dump), there);
            assert_eq!(arriving(&peer, 20, 9999, "10.9.0.2"), 20);
        }
        let gone = FaultSpec { netns: Some(NetNs::Path("/nonexistent".to_owned())), ..loss(Direction::Ingress, Select::default()) };
        let error = Plane::new(state.path()).prepare_blocking(&[(gone, at_peer(None))]).unwrap_err();
        assert_eq!(error.to_string(), "netns: open the network namespace /nonexistent");

        // A namespace that is named two ways is one, over there and here.
        let ways = [Some(NetNs::Pid(pid)), Some(NetNs::Path(format!("/proc/{pid}/ns/net")))];
        let own = [None, Some(NetNs::Path(format!("/proc/self/task/{}/ns/net", nix::unistd::gettid())))];
        for ([one, other], address) in [(ways, "10.9.0.1"), (own, "10.9.0.2")] {
            let two = |direction, port| {
                let fault = |netns: &Option<NetNs>, direction| FaultSpec { netns: netns.clone(), ..loss(direction, Select::default()) };
                let first = (fault(&one, Direction::Egress), edge(Role::Downstream, Some(address), Some(80)));
                let second = (fault(&other, direction), edge(Role::Downstream, Some(address), Some(port)));
                Plane::new(state.path()).prepare_blocking(&[first, second])
            };
            let refused = two(Direction::Both, 80).unwrap_err().to_string();
            assert!(refused.starts_with("loss and loss select the same packets: "), "{refused}");
            assert!(refused.ends_with(" are one network namespace; name it the same way"), "{refused}");
            assert!(two(Direction::Ingress, 80).is_ok() && two(Direction::Egress, 81).is_ok());
        }

        // The journal says in which namespace, and `clean` goes there.
        let state_dir = state.path().to_owned();
        let holder = peer.run(move || lab::hold(&state_dir, lab::Habit::Renew));
        lab::wait_until("the fault is in", || peer.run(dump).contains("stormdrill:sd"));
        lab::kill(holder);
        let report = clean(state.path(), Force::No).unwrap();
        assert!(report.is_clean() && report.removed.len() == 1, "{report:?}");
        assert_eq!(peer.run(dump), there);
        drop(sleeper);
    });
}

/// Not a test of its own: in a process that another test starts, it holds a fault until it is killed.
#[test]
fn holder() {
    lab::holder(&FaultKind::Loss { share: 0.0 }, Direction::Egress, &edge(Role::Downstream, Some("10.9.0.1"), None));
}
