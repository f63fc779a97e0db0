//! What a fault on one, a hundred and ten thousand targets costs: to apply, to remove, and a packet; beside the same rules made by `tc -batch` with u32,
//! and by tcconfig. `cargo xtask bench fault` runs it, as root, in network namespaces of its own.
//!
//! The rule is a bandwidth of 10 gigabits a second for packets to each of the targets together, because any kernel that tc can do this on has what it takes
//! (htb and u32 there; tbf or netem on an ifb, and an eBPF classifier here). Packets of the measurement go to none of the targets: that is what a host pays
//! for a drill that is not about it, and where a list of filters is walked to its end.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that fails may stop, and prints its table")]

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stormdrill::fault::plane::{Plane, Prepared};
use stormdrill::netns;
use stormdrill_core::edge::{Cidr, EdgeSpec, Role};
use stormdrill_core::fault::{Direction, FaultKind, FaultSpec, RateLimit};

const TARGETS: [u32; 4] = [1, 100, 1000, 10_000];
/// How often each is done, unless it takes longer than [`ENOUGH`]; the median counts.
const TIMES: usize = 7;
/// What takes so long is not done again.
const ENOUGH: Duration = Duration::from_secs(20);
const PACKETS: u32 = 100_000;

fn run(program: &str, arguments: &str) {
    let output = Command::new(program).args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The targets' addresses: every second one, so that no two make one prefix.
fn address(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a0a_0000 + 2 * index)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = work();
    (result, begin.elapsed())
}

/// The fault, found possible but not yet applied: a drill does that before its baseline.
fn ours(state: &Path, targets: u32) -> Prepared {
    let limit = RateLimit { bytes_per_second: 1_250_000_000, overhead: 0, cell_size: 0, cell_overhead: 0 };
    let mut spec =
        FaultSpec { direction: Direction::Egress, interface: Some("v0".to_owned()), ..FaultSpec::new(FaultKind::Rate(limit), "all") };
    spec.select.addresses = (0..targets).map(|index| Cidr { address: IpAddr::V4(address(index)), prefix: 32 }).collect();
    let edge = EdgeSpec {
        name: "all".to_owned(),
        role: Role::Downstream,
        address: Some(Cidr { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), prefix: 8 }),
        ports: None,
        protocol: None,
    };
    Plane::new(state).prepare_blocking(&[(spec, edge)]).unwrap().remove(0)
}

/// What `tc -batch` reads. A table of u32 holds 2048 filters, so that there is one for every two thousand.
fn batch(targets: u32) -> String {
    let mut text = String::from(
        "qdisc add dev v0 root handle 1: htb default 1\nclass add dev v0 parent 1: classid 1:1 htb rate 100gbit\nclass add dev v0 parent 1: classid 1:10 htb rate 10gbit\n",
    );
    for index in 0..targets {
        writeln!(
            text,
            "filter add dev v0 parent 1: protocol ip prio {} u32 match ip dst {}/32 flowid 1:10",
            5 + index / 2000,
            address(index)
        )
        .unwrap();
    }
    text
}

/// Nanoseconds that a packet to none of the targets takes to be sent.
fn packet_cost() -> f64 {
    let socket = UdpSocket::bind("10.200.0.1:0").unwrap();
    let ((), time) = timed(|| {
        for _ in 0..PACKETS {
            socket.send_to(b"packet", "10.200.0.2:9").unwrap();
        }
    });
    time.as_secs_f64() * 1e9 / f64::from(PACKETS)
}

/// What a rule costs.
#[derive(Clone, Copy)]
struct Costs {
    /// What a drill does before its baseline.
    prepare: Duration,
    apply: Duration,
    remove: Duration,
    /// Nanoseconds.
    packet: f64,
}

fn measure(mut once: impl FnMut() -> Costs) -> Costs {
    let begin = Instant::now();
    let mut all: Vec<Costs> = vec![once()];
    while all.len() < TIMES && begin.elapsed() < ENOUGH {
        all.push(once());
    }
    let median = |of: fn(&Costs) -> Duration| median(all.iter().map(of).collect());
    Costs {
        prepare: median(|costs| costs.prepare),
        apply: median(|costs| costs.apply),
        remove: median(|costs| costs.remove),
        // The least of the packet costs: other work on the machine only adds.
        packet: all.iter().map(|costs| costs.packet).fold(f64::INFINITY, f64::min),
    }
}

/// In memory, as `/run` is, where the journal is kept in use.
fn state() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn stormdrill(targets: u32) -> Costs {
    let state = state();
    measure(|| {
        let (prepared, prepare) = timed(|| ours(state.path(), targets));
        let (fault, apply) = timed(|| prepared.apply_blocking().unwrap());
        let packet = packet_cost();
        let (removal, remove) = timed(|| fault.remove_blocking());
        assert!(removal.error.is_none());
        Costs { prepare, apply, remove, packet }
    })
}

fn tc(targets: u32) -> Costs {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), batch(targets)).unwrap();
    let arguments = format!("-batch {}", file.path().display());
    measure(|| {
        let ((), apply) = timed(|| run("tc", &arguments));
        let packet = packet_cost();
        let ((), remove) = timed(|| run("tc", "qdisc del dev v0 root"));
        Costs { prepare: Duration::ZERO, apply, remove, packet }
    })
}

/// One call of tcset, which makes one rule: really where the kernel has netem, and else only as far as saying what it would do.
fn tcset(program: &str) -> Option<(Duration, bool)> {
    let call = |extra: &[&str]| {
        let mut command = Command::new(program);
        command.args(["v0", "--rate", "10Gbps", "--network", "10.10.0.0/32"]).args(extra).stdout(Stdio::null()).stderr(Stdio::null());
        let (status, time) = timed(|| command.status());
        status.is_ok_and(|status| status.success()).then_some(time)
    };
    let several = |extra: &[&str]| (0..3).map(|_| call(extra)).collect::<Option<Vec<_>>>().map(median);
    let really = several(&["--overwrite"]);
    let _ = Command::new("tc").args(["qdisc", "del", "dev", "v0", "root"]).stderr(Stdio::null()).status();
    really.map(|time| (time, true)).or_else(|| several(&["--tc-command"]).map(|time| (time, false)))
}

fn main() {
    netns::in_scratch(|| {
        run("ip", "link set lo up");
        run("ip", "link add v0 type veth peer name v1");
        run("ip", "address add 10.200.0.1/24 dev v0");
        run("ip", "link set v0 up");
        run("ip", "link set v1 up");
        run("ip", "neighbour add 10.200.0.2 lladdr 02:00:00:00:00:02 dev v0");
        let without = (0..TIMES).map(|_| packet_cost()).fold(f64::INFINITY, f64::min);
        println!("kernel {}; a packet without any rule takes {without:.0} ns", stormdrill::fault::capability::kernel_release());
        println!("\n| targets | | before the baseline | apply | remove | more ns a packet |\n|---:|---|---:|---:|---:|---:|");
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        for targets in TARGETS {
            let (mine, theirs) = (stormdrill(targets), tc(targets));
            for (name, costs) in [("stormdrill", mine), ("tc -batch, u32", theirs)] {
                println!(
                    "| {targets} | {name} | {:.1} ms | {:.1} ms | {:.1} ms | {:.0} |",
                    milliseconds(costs.prepare),
                    milliseconds(costs.apply),
                    milliseconds(costs.remove),
                    costs.packet - without
                );
            }
            let ratio = |theirs: Duration, mine: Duration| theirs.as_secs_f64() / mine.as_secs_f64();
            println!(
                "| {targets} | tc over stormdrill (with what is before the baseline) | | {:.2}× ({:.2}×) | {:.2}× | {:.1}× |",
                ratio(theirs.apply, mine.apply),
                ratio(theirs.apply, mine.prepare + mine.apply),
                ratio(theirs.remove, mine.remove),
                (theirs.packet - without) / (mine.packet - without).max(1.0)
            );
            if let Some((time, is_real)) = std::env::var("STORMDRILL_TCSET").ok().and_then(|program| tcset(&program)) {
                // It makes one rule a call.
                let all = time * targets;
                let how = if is_real { "measured once" } else { "only saying what it would do, since this kernel has no netem" };
                println!("| {targets} | tcconfig, {targets} calls ({how}) | | {:.0} ms | | |", milliseconds(all));
                println!("| {targets} | tcconfig over stormdrill | | {:.0}× | | |", ratio(all, mine.apply));
            }
        }
    })
    .unwrap();
}
