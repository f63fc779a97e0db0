//! What the safety tests share: a drill of several faults beside other people's configuration, a cgroup hierarchy of its own, and a dump of all
//! that a drill could leave behind.

#![allow(dead_code, reason = "each test target uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod probe;

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};

use crate::lab::{self, Peer, run};
use crate::rig::agent::Agent;

/// Where the store is: in the peer's namespace.
pub(crate) const STORE: &str = "10.9.0.2:8081";
/// How long the kernel honours a fault that nobody renews, and what a busy machine may add until a test notices.
pub(crate) const LEASE: Duration = Duration::from_millis(3000 + 700);

/// Whose configuration is on the interface before a drill comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tree {
    Default,
    Htb,
    Fq,
    FqCodel,
    Mq,
    MqOfFq,
    Netem,
    /// clsact with filters of someone else, both ways.
    Clsact,
    /// The same beside an htb tree.
    HtbAndClsact,
}

impl Tree {
    pub(crate) const ALL: [Self; 9] =
        [Self::Default, Self::Htb, Self::Fq, Self::FqCodel, Self::Mq, Self::MqOfFq, Self::Netem, Self::Clsact, Self::HtbAndClsact];

    /// Sets it up on `v0`; `false` if this kernel lacks what it needs.
    pub(crate) fn plant(self) -> bool {
        let tc = |arguments: &str| {
            Command::new("tc")
                .args(arguments.split(' ').map(|word| if word.starts_with("1,") { word.replace('_', " ") } else { word.to_owned() }))
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        };
        match self {
            Self::Default => true,
            Self::Htb => {
                tc("qdisc add dev v0 root handle 1: htb default 10")
                    && tc("class add dev v0 parent 1: classid 1:10 htb rate 10gbit")
                    && tc("class add dev v0 parent 1: classid 1:20 htb rate 1mbit")
            }
            Self::Fq => tc("qdisc add dev v0 root handle 2: fq limit 7777"),
            Self::FqCodel => tc("qdisc add dev v0 root handle 3: fq_codel"),
            Self::Mq => tc("qdisc add dev v0 root handle 4: mq"),
            Self::MqOfFq => {
                tc("qdisc add dev v0 root handle 4: mq")
                    && (1..=4).all(|queue| tc(&format!("qdisc add dev v0 parent 4:{queue} handle 4{queue}: fq")))
            }
            Self::Netem => tc("qdisc add dev v0 root handle 5: netem limit 4321"),
            Self::Clsact => {
                tc("qdisc add dev v0 clsact")
                    && ["ingress", "egress"].iter().all(|hook| {
                        tc(&format!("filter add dev v0 {hook} pref 10 handle 0x77 bpf bytecode 1,6_0_0_0,"))
                            && tc(&format!("filter add dev v0 {hook} pref 50000 handle 0x78 bpf bytecode 1,6_0_0_0,"))
                    })
            }
            Self::HtbAndClsact => Self::Htb.plant() && Self::Clsact.plant(),
        }
    }

    /// Takes it away again.
    pub(crate) fn uproot(self) {
        for place in ["root", "clsact"] {
            let _ = Command::new("tc").args(["qdisc", "del", "dev", "v0", place]).stderr(Stdio::null()).status();
        }
    }

    /// Those that this kernel can have.
    pub(crate) fn possible() -> Vec<Self> {
        let can = |tree: &Self| {
            let can = tree.plant();
            tree.uproot();
            can
        };
        Self::ALL.into_iter().filter(can).collect()
    }
}

/// A group that stands in for the root of the hierarchy: processes started by [`Scene::command`] see nothing above it, so that what they attach
/// is told apart from what others on this machine attach meanwhile.
struct Group {
    path: PathBuf,
}

impl Group {
    fn new() -> Self {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.contains(" - cgroup2 ")).expect("cgroup2 is mounted");
        let path = Path::new(line.split(' ').nth(4).unwrap()).join(format!(
            "stormdrill-test-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir(&path).unwrap();
        Self { path }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let gone = || std::fs::remove_dir(&self.path).is_ok();
        let begin = Instant::now();
        while !gone() && begin.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
    }
}

/// Makes the calling process, which is about to become another program, see a group as the root of the hierarchy.
fn enter(group: &Path) -> std::io::Result<()> {
    std::fs::write(group.join("cgroup.procs"), "0")?;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    let point = group.parent().unwrap_or(group);
    umount(point)?;
    mount(Some("stormdrill-test"), point, Some("cgroup2"), MsFlags::empty(), None::<&str>)?;
    Ok(())
}

/// The programs that are attached to a group, of every kind that a drill attaches.
fn attached(group: &Path) -> String {
    const BPF_PROG_QUERY: libc::c_long = 16;
    // `enum bpf_attach_type`: cgroup ingress and egress, sock_ops, connect4 and connect6.
    const KINDS: [u32; 5] = [0, 1, 3, 10, 11];
    #[repr(C)]
    struct Query {
        target: u32,
        kind: u32,
        flags: u32,
        attach_flags: u32,
        programs: u64,
        count: u32,
        padding: u32,
    }
    let directory = File::open(group).unwrap();
    let mut text = String::new();
    for kind in KINDS {
        let mut programs = [0_u32; 64];
        let mut query = Query {
            target: u32::try_from(directory.as_raw_fd()).unwrap(),
            kind,
            flags: 0,
            attach_flags: 0,
            programs: std::ptr::from_mut(&mut programs) as u64,
            count: 64,
            padding: 0,
        };
        // SAFETY: the structure begins as the kernel's, its size is told, and the array that it points to outlives the call.
        let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut query, size_of::<Query>()) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        let count = usize::try_from(query.count).unwrap();
        text.push_str(&format!("attached {kind}: {:?}\n", &programs[..count]));
    }
    text
}

/// Programs of someone else on an interface's tcx hooks, which run before all filters, and end it for every packet by accepting it.
pub(crate) struct Accepting(#[expect(dead_code, reason = "held: a link goes with its descriptor")] Vec<OwnedFd>);

impl Accepting {
    /// `None` on kernels before 6.6, which have no tcx.
    pub(crate) fn on(interface: &str) -> Option<Self> {
        const BPF_PROG_LOAD: libc::c_long = 5;
        const BPF_LINK_CREATE: libc::c_long = 28;
        const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
        // `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`.
        const HOOKS: [u32; 2] = [46, 47];
        // `r0 = 0; exit`: TC_ACT_OK.
        let program: [u64; 2] = [0xb7, 0x95];
        let bpf = |command: libc::c_long, request: &[u32]| -> Option<OwnedFd> {
            // SAFETY: the request has the layout of the kernel's structure for the command, whose size is told; what it points to outlives the call.
            let fd = unsafe { libc::syscall(libc::SYS_bpf, command, request.as_ptr(), size_of_val(request)) };
            // SAFETY: a descriptor that the kernel has just made, and nobody else has.
            (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap()) })
        };
        let halves = |pointer: u64| [u32::try_from(pointer & 0xffff_ffff).unwrap(), u32::try_from(pointer >> 32).unwrap()];
        let [code, code_high] = halves(program.as_ptr() as u64);
        let [license, license_high] = halves(c"MIT".as_ptr() as u64);
        let program = bpf(BPF_PROG_LOAD, &[BPF_PROG_TYPE_SCHED_CLS, 2, code, code_high, license, license_high]).unwrap();
        let program_fd = u32::try_from(program.as_raw_fd()).unwrap();
        let interface = nix::net::if_::if_nametoindex(interface).unwrap();
        // A link: program, interface, hook, flags; then relative to what, which is nothing.
        let links = HOOKS.map(|hook| bpf(BPF_LINK_CREATE, &[program_fd, interface, hook, 0, 0, 0, 0, 0]));
        links.into_iter().collect::<Option<Vec<_>>>().map(Self)
    }
}

/// A place for drills: a peer with a store, a group, a state directory.
pub(crate) struct Scene {
    pub(crate) agent: Agent,
    pub(crate) peer: Peer,
    group: Group,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let peer = Peer::with_queues(4);
        peer.run(|| lab::serve_http(STORE));
        // The link's own address comes with its carrier, which on a busy machine is noticed late.
        lab::wait_until("the addresses have settled", || {
            let shown = run("ip", &["-j", "address", "show", "dev", "v0"]);
            shown.contains("\"fe80::") && !shown.contains("tentative") && !shown.contains("NO-CARRIER")
        });
        Self { agent: Agent::new(), peer, group: Group::new() }
    }

    /// Links, addresses, routes, qdiscs, classes, filters and attached programs, as independent readers print them.
    pub(crate) fn dump(&self) -> String {
        let mut text = attached(&self.group.path);
        for arguments in ["-d -j link", "-j address", "-j route show table all"] {
            text.push_str(&run("ip", &arguments.split(' ').collect::<Vec<_>>()));
        }
        text.push_str(&run("tc", &["-d", "-j", "qdisc", "show"]));
        for line in run("ip", &["-o", "link"]).lines() {
            let name = line.split(": ").nth(1).unwrap().split('@').next().unwrap();
            text.push_str(&format!("\n{name}: {}", run("tc", &["-d", "class", "show", "dev", name])));
            for hook in ["root", "ingress", "egress"] {
                // tc fails where there is no clsact; that is a state like any other.
                let output = Command::new("tc").args(["-d", "-j", "filter", "show", "dev", name, hook]).output().unwrap();
                text.push_str(&String::from_utf8(output.stdout).unwrap());
            }
        }
        text
    }

    /// Waits until all is as it was, since the kernel takes a dead process's programs away a moment later; fails with what differs.
    #[track_caller]
    pub(crate) fn assert_restored(&self, before: &str, context: &str) {
        let begin = Instant::now();
        while self.dump() != before && begin.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        assert_same(&self.dump(), before, context);
    }

    /// `stormdrill` with these arguments, in the group.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.agent.command(arguments);
        let group = self.group.path.clone();
        // SAFETY: between fork and exec the child makes system calls and a few allocations; glibc keeps its allocator usable there.
        unsafe { command.pre_exec(move || enter(&group)) };
        command
    }

    /// Runs `stormdrill clean` with success, and gives what it printed.
    pub(crate) fn clean(&self) -> String {
        let output = self.command(&["clean"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Faults of every kind that any kernel has: one by classifiers alone, one through an ifb, one by a program on the group. All edges speak HTTP, so that
/// the programs for other protocols, which take longest to load, stay away.
pub(crate) fn playbook(phases: [&str; 3]) -> String {
    let [baseline, fault, recovery] = phases;
    format!(
        "version: 1\nname: killed\nobserve:\n  downstream:\n    store: {{address: 10.9.0.2, port: 8081, protocol: http}}\n    \
         stock: {{address: 10.9.0.0/24, port: 9999, protocol: http}}\n    cart: {{address: 10.9.0.3, port: 80, protocol: http}}\n  window: 250ms\n\
         phases: {{baseline: {baseline}, fault: {fault}, recovery: {recovery}}}\nfaults:\n  - {{partition: true, to: store}}\n  \
         - {{rate: 1gbit, to: stock}}\n  - {{refuse: 100%, to: cart}}\n"
    )
}

/// Whether the store can be reached now.
pub(crate) fn is_reachable() -> bool {
    let address: SocketAddr = STORE.parse().unwrap();
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

/// Numbers that are the same in every run (splitmix64).
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    /// A duration below this one.
    pub(crate) fn below(&mut self, limit: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^= value >> 31;
        let limit = u64::try_from(limit.as_nanos()).unwrap().max(1);
        Duration::from_nanos(value % limit)
    }
}

/// Fails with the lines that differ, since a whole dump is a screenful.
#[track_caller]
pub(crate) fn assert_same(now: &str, before: &str, context: &str) {
    let differs = |(now, before): (&str, &str)| {
        let same = now.bytes().zip(before.bytes()).take_while(|(now, before)| now == before).count().saturating_sub(40);
        let part = |text: &str| String::from_utf8_lossy(&text.as_bytes()[same..text.len().min(same + 300)]).into_owned();
        (now != before).then(|| format!("now    …{}…\nbefore …{}…\n", part(now), part(before)))
    };
    let count = now.lines().count().abs_diff(before.lines().count());
    let lines: String = now.lines().zip(before.lines()).filter_map(differs).collect();
    assert!(now == before, "{context}: {count} lines more or fewer\n{lines}");
}

/// How many rounds: a few, or all if the variable asks for the long form.
pub(crate) fn rounds(short: u32, long: u32) -> u32 {
    if std::env::var_os("STORMDRILL_LONG").is_some() { long } else { short }
}
