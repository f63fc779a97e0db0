//! Who watches: nobody's hooks, this probe with and without events, bpftrace.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use stormdrill::cgroup;
use stormdrill::probe::{Probe, ProbeConfig};
use stormdrill_core::edge::{EdgeSpec, PortRange, Role};

use crate::empty::Empty;
use crate::load::{Amount, Load};

/// A counting script as one writes it: reads of the servers that brought something.
const SCRIPT: &str = "tracepoint:syscalls:sys_exit_recvfrom,tracepoint:syscalls:sys_exit_read \
                      /(comm == \"nginx\" || comm == \"redis-server\") && args->ret > 0/ { @[pid] = count(); } BEGIN { printf(\"ready\\n\"); }";
/// It needs the kernel's list of tracepoints, which is not mounted everywhere; the mount goes with the process.
const MOUNT_AND_TRACE: &str = "mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace -e \"$0\"";
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Who watches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watcher {
    Empty,
    Counters,
    Observe,
    Bpftrace,
}

/// A watcher at work.
pub(crate) enum Watching {
    Empty(#[expect(dead_code, reason = "held")] Empty),
    Probe(#[expect(dead_code, reason = "held")] Box<Probe>),
    Process { child: Child, watcher: Watcher },
}

impl Watcher {
    /// Those that this machine has.
    pub(crate) fn all() -> Vec<Self> {
        let has_bpftrace = Command::new("bpftrace").arg("--version").output().is_ok();
        if !has_bpftrace {
            println!("(bpftrace is not installed)");
        }
        [Self::Empty, Self::Counters, Self::Observe].into_iter().chain(has_bpftrace.then_some(Self::Bpftrace)).collect()
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Empty => "a pair of empty hooks",
            Self::Counters => "stormdrill, counters alone",
            Self::Observe => "stormdrill observe",
            Self::Bpftrace => "bpftrace, counting reads",
        }
    }

    /// Begins to watch; it does when this returns.
    pub(crate) fn watch(self, load: &Load) -> Watching {
        match self {
            Self::Empty => Watching::Empty(Empty::attach(&root())),
            Self::Counters => Watching::Probe(Box::new(probe(load))),
            Self::Observe => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_stormdrill"));
                command.arg("observe").args(load.edges()).args(["--json", "-"]);
                // It says each second what it has counted, once it counts.
                let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
                lines.next().unwrap().unwrap();
                std::thread::spawn(move || lines.for_each(drop));
                Watching::Process { child, watcher: self }
            }
            Self::Bpftrace => {
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", MOUNT_AND_TRACE, SCRIPT]);
                let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
                let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
                while lines.next().unwrap().unwrap() != "ready" {}
                std::thread::spawn(move || lines.for_each(drop));
                Watching::Process { child, watcher: self }
            }
        }
    }
}

impl Watching {
    /// Ends it. What `stormdrill observe` counted must be what was asked.
    pub(crate) fn end(self, amount: &Amount) {
        let Self::Process { mut child, watcher } = self else { return };
        let cost = (watcher == Watcher::Observe).then(|| own_cost(child.id()));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), nix::sys::signal::Signal::SIGINT).unwrap();
        let Some((processor, memory)) = cost else {
            child.wait().unwrap();
            return;
        };
        let output = child.wait_with_output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let counted = result["edges"][0]["phases"]["all"]["requests"].as_f64().unwrap();
        let lost = &result["data_quality"]["events_lost"];
        println!(
            "(counted {counted:.0} of {:.0} requests, {lost} events lost; the agent took {processor:.0} ms of processor time and {memory:.0} MB)",
            amount.requests
        );
    }
}

/// Milliseconds of processor time of a process so far, and megabytes that it holds.
fn own_cost(process: u32) -> (f64, f64) {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (ticks * 10.0, line.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1024.0)
}

fn root() -> std::path::PathBuf {
    cgroup::find_or_mount(Path::new("/run/stormdrill-bench")).unwrap()
}

fn probe(load: &Load) -> Probe {
    let edge = |role: Role| EdgeSpec {
        name: role.as_str().to_owned(),
        role,
        address: None,
        ports: Some(PortRange { first: load.port(), last: load.port() }),
        protocol: None,
    };
    let edges = [edge(Role::Ingress), edge(Role::Downstream)];
    Probe::attach(&ProbeConfig { cgroup: root(), edges: &edges, events: false, ring_bytes: ProbeConfig::DEFAULT_RING_BYTES }).unwrap()
}

/// How long a run of one of the probe's hooks takes under a load, in words. The kernel's own measuring adds to it.
pub(crate) fn hook_cost(load: &Load) -> String {
    let before = fs::read_to_string(STATS).unwrap();
    let probe = probe(load);
    fs::write(STATS, "1").unwrap();
    load.run();
    let [runs, nanoseconds] = totals();
    fs::write(STATS, before).unwrap();
    drop(probe);
    format!(
        "A run of a hook took {:.0} ns in the mean of {runs}, with what the kernel's measuring adds.",
        nanoseconds as f64 / runs.max(1) as f64
    )
}

/// Runs of all programs that this process holds, and the nanoseconds that they took.
fn totals() -> [u64; 2] {
    let mut totals = [0; 2];
    for entry in fs::read_dir("/proc/self/fdinfo").unwrap() {
        let Ok(text) = fs::read_to_string(entry.unwrap().path()) else { continue };
        for (total, name) in totals.iter_mut().zip(["run_cnt:", "run_time_ns:"]) {
            *total += text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(0);
        }
    }
    totals
}
