//! What is left of a drill that is killed, refused, or gets in another's way: nothing. On the host's kernel, with the real program.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;
mod safety;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Nginx, apply, edge, in_namespace, run, wait_until};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rig::agent::{Agent, journals};
use rig::process::{Ended, Process};
use safety::probe::Probe;
use safety::{Accepting, Draws, LEASE, Scene, Tree, assert_same, is_reachable, playbook, rounds};
use stormdrill::fault::plane::Plane;
use stormdrill_core::edge::Role;
use stormdrill_core::fault::{Direction, FaultKind, FaultSpec, RateLimit};

#[test]
fn a_second_drill_on_an_overlapping_target_is_refused_by_another_process_until_the_first_is_dead() {
    in_namespace(|| {
        let scene = Scene::new();
        let path = scene.agent.write(&playbook(["2s", "60s", "2s"]));
        let path = path.to_str().unwrap();
        let before = scene.dump();
        let mut first = Process::start(&mut scene.command(&["run", path]));
        first.wait_for("baseline:");
        let second = Process::start(&mut scene.command(&["run", path])).end();
        assert_eq!(second.code, Some(2), "{second:#?}");
        assert!(second.stderr.contains(&format!("of process {} is running on an overlapping target", first.pid())), "{second:#?}");
        // It was refused before it measured anything, and did the first no harm.
        assert!(!second.stderr.contains("baseline:"), "{second:#?}");
        first.wait_for("fault:");
        first.signal(Signal::SIGKILL);
        assert_eq!(first.end().code, None);
        let mut third = Process::start(&mut scene.command(&["run", path]));
        third.wait_for("fault:");
        third.signal(Signal::SIGTERM);
        assert_eq!(third.end().code, Some(4));
        scene.assert_restored(&before, "after the drills");
        assert!(scene.agent.has_no_journal());
    });
}

#[test]
fn who_could_end_the_drill_is_not_cut_off_by_it() {
    in_namespace(|| {
        let agent = Agent::new();
        let listener = TcpListener::bind("127.0.0.1:8474").unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
                });
            }
        });
        let [mut session, mut other] = [(); 2].map(|()| TcpStream::connect("127.0.0.1:8474").unwrap());
        let is_answered = |stream: &mut TcpStream| {
            stream.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).is_ok()
        };
        let path = agent.write(
            "version: 1\nname: spared\nobserve:\n  downstream: {store: {address: 127.0.0.1, port: 8474}}\n  window: 250ms\n\
             phases: {baseline: 250ms, fault: 2s, recovery: 250ms}\nfaults:\n  - {partition: true, to: store}\n",
        );
        // As sshd sets it, for a server of another port than 22; and as sudo leaves it, to a process further up only.
        let variable = format!("127.0.0.1 {} 127.0.0.1 8474", session.local_addr().unwrap().port());
        let run = agent.command(&["run", path.to_str().unwrap()]);
        let mut command = Command::new("sh");
        command.args(["-c", "env -u SSH_CONNECTION \"$@\"; exit $?", "sh"]).arg(run.get_program()).args(run.get_args());
        let mut drill = Process::start(command.env("SSH_CONNECTION", variable));
        drill.wait_for("fault:");
        assert!(is_answered(&mut session), "the session is cut off");
        assert!(!is_answered(&mut other), "the fault does not hold");
        // It judges nothing: there is no traffic.
        let ended = drill.end();
        assert_eq!(ended.code, Some(3), "{ended:#?}");
    });
}

/// How long a drill that is not disturbed takes from phase to phase.
struct Course {
    /// From its start to its baseline.
    start: Duration,
    /// From its baseline until the fault is in place.
    baseline: Duration,
    /// From there to the recovery.
    fault: Duration,
    /// From its recovery to its end.
    recovery: Duration,
}

impl Course {
    fn of(scene: &Scene, playbook: &str) -> Self {
        let path = scene.agent.write(playbook);
        let mut begin = Instant::now();
        let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
        let mut lap = || std::mem::replace(&mut begin, Instant::now()).elapsed();
        let mut reach = |phase: &str| {
            drill.wait_for(phase);
            lap()
        };
        let (start, baseline, fault) = (reach("baseline:"), reach("fault:"), reach("recovery:"));
        drill.end();
        Self { start, baseline, fault, recovery: lap() }
    }

    /// Lets a drill run up to a moment at which it is going to be killed: some in its first instants, some while it starts, some about the set-up of the
    /// faults, some while they hold, some about their removal, some anywhere after. What the drill says itself is waited for, so that a busy machine shifts the
    /// moments with it, and says what came before.
    fn run_up(&self, drill: &mut Process, round: u32, draws: &mut Draws) -> String {
        const NEAR: Duration = Duration::from_millis(300);
        let about = |moment: Duration, draws: &mut Draws| (moment + draws.below(NEAR)).saturating_sub(NEAR / 2);
        let (phase, moment) = match round % 5 {
            0 if round.is_multiple_of(10) => ("", draws.below(NEAR)),
            0 => ("", draws.below(self.start)),
            1 => ("baseline:", about(self.baseline, draws)),
            2 => ("fault:", draws.below(self.fault / 2)),
            3 => ("fault:", about(self.fault, draws)),
            _ => ("recovery:", draws.below(self.recovery)),
        };
        if !phase.is_empty() {
            drill.wait_for(phase);
        }
        std::thread::sleep(moment);
        format!("killed {moment:?} after `{phase}`")
    }
}

#[test]
fn whenever_a_drill_is_killed_its_faults_end_with_the_lease_and_clean_or_the_next_start_leaves_all_as_it_was() {
    in_namespace(|| {
        let scene = Scene::new();
        let drill = playbook(["250ms", "500ms", "250ms"]);
        let course = Course::of(&scene, &drill);
        let trees = Tree::possible();
        let (mut draws, mut met) = (Draws(1), 0);
        for round in 0..rounds(10, 200) {
            let tree = trees[usize::try_from(round).unwrap() % trees.len()];
            assert!(tree.plant());
            let before = scene.dump();
            let path = scene.agent.write(&drill);
            let mut victim = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
            let moment = course.run_up(&mut victim, round, &mut draws);
            victim.signal(Signal::SIGKILL);
            let said = victim.end().stderr;
            let killed = Instant::now();
            let at = format!("round {round}, {tree:?}, {moment}");
            wait_until("the store is reachable again", is_reachable);
            assert!(killed.elapsed() < LEASE, "{at}: a fault held for {:?}", killed.elapsed());
            met += u32::from(scene.dump() != before);
            if round % 3 == 2 {
                // What `clean` is not asked to do, the next drill does.
                let empty = drill.split("faults:").next().unwrap();
                let path = scene.agent.write(empty);
                let mut next = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
                next.wait_for("baseline:");
                next.signal(Signal::SIGTERM);
                assert_eq!(next.end().code, Some(4), "{at}");
            } else {
                scene.clean();
            }
            scene.assert_restored(&before, &format!("{at}\n{said}"));
            assert!(scene.agent.has_no_journal(), "{at}");
            tree.uproot();
        }
        assert!(met > 0, "no kill met a fault in place");
    });
}

#[test]
fn no_signal_that_follows_the_first_skips_the_removal() {
    in_namespace(|| {
        let scene = Scene::new();
        // Slow enough that packets are on their way out while the second signal comes.
        let playbook = playbook(["250ms", "60s", "250ms"]).replace("1gbit", "64kbit");
        let path = scene.agent.write(&playbook);
        let before = scene.dump();
        for signals in [[Signal::SIGHUP; 3], [Signal::SIGINT; 3], [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]] {
            let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
            drill.wait_for("fault:");
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            for _ in 0..20 {
                socket.send_to(&[0; 400], "10.9.0.2:9999").unwrap();
            }
            for signal in signals {
                drill.signal(signal);
            }
            let ended = drill.end();
            assert_eq!(ended.code, Some(4), "{signals:?}: {ended:#?}");
            scene.assert_restored(&before, &format!("{signals:?}"));
            assert!(scene.agent.has_no_journal());
        }
    });
}

/// A file system for the state directory, of so many KiB.
struct StateFs {
    path: std::path::PathBuf,
}

impl StateFs {
    fn new(agent: &Agent, kibibytes: u32) -> Self {
        let path = agent.state_dir();
        std::fs::create_dir_all(&path).unwrap();
        mount(Some("test"), &path, Some("tmpfs"), MsFlags::empty(), Some(format!("size={kibibytes}k").as_str())).unwrap();
        Self { path }
    }

    fn set(&self, flags: MsFlags) {
        mount(None::<&str>, &self.path, None::<&str>, MsFlags::MS_REMOUNT | flags, None::<&str>).unwrap();
    }
}

impl Drop for StateFs {
    fn drop(&mut self) {
        let _ = umount(&self.path);
    }
}

fn to_end(scene: &Scene, arguments: &[&str]) -> Ended {
    Process::start(&mut scene.command(arguments)).end()
}

#[test]
fn a_removal_that_fails_is_exit_2_and_every_later_command_says_so_until_it_is_clean() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = scene.agent.state_dir();
        let path = scene.agent.write(&playbook(["250ms", "60s", "250ms"]));
        let path = path.to_str().unwrap();
        let before = scene.dump();
        let mut drill = Process::start(&mut scene.command(&["run", path]));
        drill.wait_for("fault:");
        // What is gone from the kernel cannot be crossed out: something that is not a file is in the journal's place.
        let journal = journals(&state)[0].clone();
        let aside = state.join("aside");
        std::fs::rename(&journal, &aside).unwrap();
        std::fs::create_dir(&journal).unwrap();
        drill.signal(Signal::SIGTERM);
        let ended = drill.end();
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.stderr.contains("remove the journal") && ended.stderr.contains("Is a directory"), "{ended:#?}");
        let name = journal.file_stem().unwrap().to_str().unwrap().to_owned();
        for command in [["plan", path], ["validate", path]] {
            let later = to_end(&scene, &command);
            assert!(later.stderr.contains(&name) && later.stderr.contains("stormdrill clean"), "{later:#?}");
        }
        for command in [["doctor", "--json"].as_slice(), &["clean"], &["run", path]] {
            let later = to_end(&scene, command);
            assert_eq!(later.code, Some(2), "{later:#?}");
        }
        std::fs::remove_dir(&journal).unwrap();
        std::fs::rename(&aside, &journal).unwrap();
        scene.clean();
        assert_eq!(to_end(&scene, &["plan", path]).stderr, "");
        scene.assert_restored(&before, "after clean");
    });
}

/// Lets a process's route sockets hear nothing any more, so that whatever it asks the kernel to remove fails.
fn deafen(pid: Pid) {
    const PIDFD_OPEN: libc::c_long = 434;
    const PIDFD_GETFD: libc::c_long = 438;
    // SAFETY: a system call with numbers only; its result is a descriptor of our own.
    let process = unsafe { OwnedFd::from_raw_fd(i32::try_from(libc::syscall(PIDFD_OPEN, pid.as_raw(), 0)).unwrap()) };
    // Of protocol 0, which is the route table's; the inode comes last.
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/netlink")).unwrap();
    let inodes: Vec<String> = table
        .lines()
        .skip(1)
        .filter(|line| line.split_whitespace().nth(1) == Some("0"))
        .map(|line| format!("socket:[{}]", line.split_whitespace().last().unwrap()))
        .collect();
    let mut deafened = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if !inodes.iter().any(|inode| target.as_os_str() == inode.as_str()) {
            continue;
        }
        let number: libc::c_long = entry.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: as above.
        let copy = unsafe { libc::syscall(PIDFD_GETFD, process.as_raw_fd(), number, 0) };
        // SAFETY: a descriptor that the kernel has just made, and nobody else has.
        let copy = unsafe { OwnedFd::from_raw_fd(i32::try_from(copy).unwrap()) };
        // A classic filter that lets nothing in, and no patience.
        let nothing = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
        let program = libc::sock_fprog { len: 1, filter: nothing.as_ptr().cast_mut() };
        let patience = libc::timeval { tv_sec: 0, tv_usec: 1000 };
        let set = |option, value: *const libc::c_void, size| {
            // SAFETY: the value outlives the call, and its size is told.
            let result = unsafe { libc::setsockopt(copy.as_raw_fd(), libc::SOL_SOCKET, option, value, u32::try_from(size).unwrap()) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        };
        set(libc::SO_RCVTIMEO, (&raw const patience).cast(), size_of_val(&patience));
        set(libc::SO_ATTACH_FILTER, (&raw const program).cast(), size_of_val(&program));
        deafened += 1;
    }
    assert!(deafened > 0, "no route socket in {inodes:?}");
}

#[test]
fn a_fault_that_the_kernel_still_has_after_the_drill_is_exit_2_named_and_harmless_until_clean_removes_it() {
    in_namespace(|| {
        let scene = Scene::new();
        let path = scene.agent.write(&playbook(["250ms", "60s", "250ms"]));
        let path = path.to_str().unwrap();
        let before = scene.dump();
        let mut drill = Process::start(&mut scene.command(&["run", path]));
        drill.wait_for("fault:");
        assert!(!is_reachable());
        deafen(drill.pid());
        drill.signal(Signal::SIGTERM);
        let ended = drill.end();
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        // It says what is left, and where; the kernel has it, and does nothing with it.
        let names: Vec<String> = journals(&scene.agent.state_dir())
            .iter()
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .filter(|name| name.starts_with("sd"))
            .collect();
        assert!(names.len() >= 2, "{names:?}");
        assert!(names.iter().any(|name| ended.stderr.contains(&format!("{name} on v0 could not be removed"))), "{names:?}: {ended:#?}");
        let filters = run("tc", &["filter", "show", "dev", "v0", "egress"]);
        assert!(names.iter().any(|name| filters.contains(&format!("stormdrill:{name}"))), "{names:?}: {filters}");
        wait_until("the lease is over", is_reachable);
        for (command, code) in [(["plan", path].as_slice(), 0), (&["validate", path], 0), (&["doctor"], 2)] {
            let later = to_end(&scene, command);
            assert_eq!(later.code, Some(code), "{later:#?}");
            let said = format!("{}{}", later.stdout, later.stderr);
            assert!(names.iter().any(|name| said.contains(name)) && said.contains("stormdrill clean"), "{later:#?}");
        }
        let cleaned = scene.clean();
        assert!(names.iter().all(|name| cleaned.contains(name)), "{names:?}: {cleaned}");
        scene.assert_restored(&before, "after clean");
        assert!(scene.agent.has_no_journal());
    });
}

#[test]
fn a_state_directory_without_room_or_that_cannot_be_written_ends_the_drill_before_its_baseline() {
    in_namespace(|| {
        let scene = Scene::new();
        let path = scene.agent.write(&playbook(["250ms", "250ms", "250ms"]));
        let before = scene.dump();
        let refused = |expected: &str| {
            let ended = to_end(&scene, &["run", path.to_str().unwrap()]);
            assert_eq!(ended.code, Some(2), "{ended:#?}");
            assert!(ended.stderr.contains(expected) && !ended.stderr.contains("baseline:"), "{ended:#?}");
            scene.assert_restored(&before, expected);
        };
        let state = StateFs::new(&scene.agent, 32);
        refused("No space left on device");
        state.set(MsFlags::MS_RDONLY);
        refused("Read-only file system");
    });
}

/// Kills a drill in its fault phase.
fn killed(scene: &Scene) {
    let path = scene.agent.write(&playbook(["250ms", "60s", "250ms"]));
    let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
    drill.wait_for("fault:");
    drill.signal(Signal::SIGKILL);
    drill.end();
}

#[test]
fn a_filter_that_somebody_adds_beside_ours_during_a_drill_is_in_no_later_drills_way() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        let apply = |kind| {
            let wanted = FaultSpec { direction: Direction::Both, ..FaultSpec::new(kind, "store") };
            let edge = edge(Role::Downstream, Some("10.9.0.2"), Some(9999));
            Plane::new(state.path()).prepare_blocking(&[(wanted, edge)]).unwrap().remove(0).apply_blocking().unwrap()
        };
        let kinds = || [rate(), FaultKind::Partition, FaultKind::HttpStatus { status: 503, share: 1.0 }];
        run("tc", &["qdisc", "add", "dev", "v0", "clsact"]);
        for kind in kinds() {
            let fault = apply(kind.clone());
            // Without a priority: the kernel takes the one below the lowest, which is ours.
            for hook in ["ingress", "egress"] {
                run("tc", &["filter", "add", "dev", "v0", hook, "protocol", "ip", "u32", "match", "u32", "0", "0", "flowid", "1:1"]);
            }
            assert!(fault.remove_blocking().error.is_none());
            let with_theirs = scene.dump();
            for next in kinds() {
                assert!(apply(next.clone()).remove_blocking().error.is_none(), "{next:?} after {kind:?}");
            }
            assert_eq!(scene.dump(), with_theirs);
        }
    });
}

#[test]
fn our_device_goes_also_after_somebody_has_renamed_it() {
    in_namespace(|| {
        let scene = Scene::new();
        let before = scene.dump();
        for is_killed in [false, true] {
            let path = scene.agent.write(&playbook(["250ms", "60s", "250ms"]));
            let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
            drill.wait_for("fault:");
            let links = run("ip", &["-o", "link", "show", "type", "ifb"]);
            let ours = links.split(": ").nth(1).unwrap();
            // Kernels before 6.2 rename only what is down.
            for step in [["dev", ours, "down"], ["dev", ours, "name"]] {
                let name = if step[2] == "name" { Some("mine0") } else { None };
                run("ip", &["link", "set"].into_iter().chain(step).chain(name).collect::<Vec<_>>());
            }
            if is_killed {
                drill.signal(Signal::SIGKILL);
                drill.end();
                let journals = journals(&scene.agent.state_dir());
                // By the journal, and without it.
                assert!(!journals.is_empty());
                for journal in &journals[1..] {
                    std::fs::remove_file(journal).unwrap();
                }
                scene.clean();
            } else {
                drill.signal(Signal::SIGTERM);
                drill.end();
            }
            scene.assert_restored(&before, &format!("killed: {is_killed}"));
            assert!(scene.agent.has_no_journal());
        }
    });
}

#[test]
fn faults_are_told_in_the_order_of_the_playbook() {
    in_namespace(|| {
        let scene = Scene::new();
        let result = scene.agent.drill(&playbook(["250ms", "500ms", "250ms"])).end();
        let told: Vec<&str> = (0..3).filter_map(|index| result.json["faults"][index]["kind"].as_str()).collect();
        assert_eq!(told, ["partition", "rate", "refuse"], "{:#}", result.json);
    });
}

#[test]
fn clean_tells_of_refused_connections_and_ends_them_when_forced() {
    in_namespace(|| {
        let scene = Scene::new();
        let text = playbook(["250ms", "60s", "250ms"]);
        let (head, _) = text.split_once("faults:").unwrap();
        let path = scene.agent.write(&format!("{head}faults:\n  - {{refuse: 100%, to: store}}\n"));
        let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
        drill.wait_for("fault:");
        wait_until("the refusing programs are told of", || scene.clean().starts_with("left the faults of process"));
        let forced = scene.command(&["clean", "--force"]).output().unwrap();
        let said = String::from_utf8_lossy(&forced.stdout);
        assert!(forced.status.success() && said.contains("removed refused connections (2 programs on cgroups)"), "{forced:?}");
        // What somebody has taken out is told by the drill, which ends.
        let ended = drill.end();
        assert!(ended.code == Some(4) && ended.stderr.contains("refuse"), "{ended:#?}");
        assert_eq!(scene.clean(), "nothing to remove\n");
    });
}

#[test]
fn clean_waits_for_a_drill_that_was_killed_this_instant() {
    in_namespace(|| {
        let scene = Scene::new();
        let before = scene.dump();
        for round in 0..4 {
            let path = scene.agent.write(&playbook(["250ms", "60s", "250ms"]));
            let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
            drill.wait_for("fault:");
            assert_ne!(scene.dump(), before);
            drill.signal(Signal::SIGKILL);
            // Nobody has waited for the process: the kernel has not ended it, and it has its locks.
            let said = if round % 2 == 0 {
                scene.clean()
            } else {
                let path = scene.agent.write(playbook(["250ms", "1s", "250ms"]).split("faults:").next().unwrap());
                let mut next = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
                next.wait_for("baseline:");
                next.signal(Signal::SIGTERM);
                let next = next.end();
                assert_eq!(next.code, Some(4), "{next:#?}");
                next.stderr
            };
            assert!(said.contains("removed "), "round {round}: {said}");
            scene.assert_restored(&before, &format!("round {round}: {said}"));
            assert!(scene.agent.has_no_journal(), "round {round}: {said}");
            drill.end();
        }
    });
}

#[test]
fn a_journal_that_is_no_text_is_no_obstacle_to_clean() {
    in_namespace(|| {
        let scene = Scene::new();
        let before = scene.dump();
        killed(&scene);
        for journal in journals(&scene.agent.state_dir()) {
            std::fs::write(journal, [0xff, 0xfe, 0x00, 0x80, b'\n', 0xc3]).unwrap();
        }
        let said = scene.clean();
        assert!(said.contains("which could not be read") && said.contains("of which there was no journal"), "{said}");
        scene.assert_restored(&before, "after clean");
        assert!(scene.agent.has_no_journal());
    });
}

#[test]
fn clean_reaches_what_was_left_in_another_namespace() {
    in_namespace(|| {
        let scene = Scene::new();
        let before = scene.dump();
        killed(&scene);
        assert_ne!(scene.dump(), before);
        let agent = scene.agent.share();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                in_namespace(move || {
                    let ended = agent.run(&["clean"]);
                    assert_eq!(ended.code, Some(0), "{ended:#?}");
                    assert!(ended.stdout.contains("on v0 (egress)"), "{ended:#?}");
                });
            });
        });
        scene.assert_restored(&before, "after clean from elsewhere");
        assert!(scene.agent.has_no_journal());
    });
}

#[test]
fn clean_in_another_pid_namespace_leaves_a_running_drill_alone() {
    in_namespace(|| {
        let scene = Scene::new();
        let path = scene.agent.write(&playbook(["250ms", "60s", "250ms"]));
        let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
        drill.wait_for("fault:");
        let during = scene.dump();
        let state = scene.agent.state_dir();
        let inside = ["--pid", "--fork", "--mount-proc", rig::agent::PROGRAM, "--state-dir", state.to_str().unwrap(), "clean"];
        let said = run("unshare", &inside);
        assert!(said.starts_with("left the faults of process") && !said.contains("removed"), "{said}");
        assert_same(&scene.dump(), &during, "after clean");
        drill.signal(Signal::SIGTERM);
        assert_eq!(drill.end().code, Some(4));
    });
}

fn rate() -> FaultKind {
    FaultKind::Rate(RateLimit { bytes_per_second: 125_000, overhead: 0, cell_size: 0, cell_overhead: 0 })
}

#[test]
fn traffic_that_is_not_selected_loses_no_packet_while_faults_come_and_go() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        // The kernel itself stops a device for a moment when it gets a clsact or loses it, and drops what is sent then.
        assert!(Tree::Clsact.plant());
        let probe = Probe::start(&scene.peer, 20_000);
        for round in 1..=10 {
            // Filters alone, and an ifb.
            for kind in [FaultKind::Partition, rate()] {
                let fault = apply(state.path(), kind, Direction::Both, edge(Role::Downstream, Some("10.9.0.2"), Some(9999)));
                wait_until("some thousand packets pass", || probe.arrived() > round * 4000);
                assert!(fault.remove_blocking().error.is_none());
            }
        }
        for (sent, arrived) in probe.stop() {
            assert!(sent >= 40_000, "{sent}");
            assert_eq!(arrived, sent);
        }
    });
}

#[test]
fn the_fault_ends_in_good_order_when_its_target_dies_or_its_interface_goes_meanwhile() {
    in_namespace(|| {
        for goes in ["target", "interface"] {
            let scene = Scene::new();
            let path = scene.agent.write(&playbook(["250ms", "60s", "250ms"]));
            let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
            drill.wait_for("fault:");
            if goes == "target" {
                // Nobody has its address any more, as when its host goes down; the link to where it was stays up.
                scene.peer.run(|| run("ip", &["address", "flush", "dev", "v1"]));
            } else {
                run("ip", &["link", "del", "v0"]);
            }
            drill.signal(Signal::SIGTERM);
            let ended = drill.end();
            assert_eq!(ended.code, Some(4), "{goes}: {ended:#?}");
            assert!(!run("ip", &["-o", "link"]).contains(": sd"), "{goes}: an ifb is left");
            assert!(scene.agent.has_no_journal(), "{goes}");
            let _ = Command::new("ip").args(["link", "del", "v0"]).output();
        }
    });
}

#[test]
fn a_drill_goes_on_to_its_end_when_the_processes_that_it_names_die_or_restart_meanwhile() {
    in_namespace(|| {
        let scene = Scene::new();
        let before = scene.dump();
        // Whose packets are meant, and whose network namespace: both are named by a process that dies in the fault phase. The server dies, and comes back.
        let mut target = scene.peer.run(|| Command::new("sleep").arg("60").spawn().unwrap());
        let server = scene.peer.run(|| Nginx::start(&["10.9.0.2:8099"]));
        let text = format!(
            "version: 1\nname: gone\nobserve:\n  downstream:\n    store: {{address: 10.9.0.2, port: 8099}}\n    here: {{address: 10.9.0.1, port: 80}}\n  window: 250ms\n\
             phases: {{baseline: 250ms, fault: 2s, recovery: 250ms}}\nfaults:\n  - {{partition: true, to: store}}\n  \
             - {{loss: 50%, to: here, interface: v1, netns: {{pid: {0}}}}}\n",
            target.id()
        );
        let path = scene.agent.write(&text);
        let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap()]));
        drill.wait_for("fault:");
        target.kill().unwrap();
        target.wait().unwrap();
        drop(server);
        let server = scene.peer.run(|| Nginx::start(&["10.9.0.2:8099"]));
        let ended = drill.end();
        // Nothing was measured, so that it cannot tell; but it came to its end.
        assert_eq!(ended.code, Some(3), "{ended:#?}");
        assert!(ended.stderr.contains("recovery:") && !ended.stderr.contains("error"), "{ended:#?}");
        wait_until("the server that came back is reached", || TcpStream::connect("10.9.0.2:8099").is_ok());
        drop(server);
        assert!(!scene.peer.run(|| run("tc", &["qdisc", "show", "dev", "v1"])).contains("clsact"));
        scene.assert_restored(&before, "after the drill");
        assert!(scene.agent.has_no_journal());
    });
}

#[test]
fn a_cgroup2_hierarchy_that_was_mounted_because_the_host_has_none_goes_with_the_command_or_with_clean() {
    let agent = Agent::new();
    let state = agent.state_dir();
    let program = agent.command(&[]).get_program().to_owned();
    // A host with the older hierarchies alone, as far as this mount namespace sees.
    let script = "grep ' - cgroup2 ' /proc/self/mountinfo | cut -d' ' -f5 | xargs -r umount; \
        \"$0\" --state-dir \"$1\" doctor >&2; echo doctor: $(ls -A \"$1\"); \
        \"$0\" --state-dir \"$1\" observe --ingress web=:1 --for 1ms >&2; echo observe: $(ls -A \"$1\") $(grep -c ' - cgroup2 ' /proc/self/mountinfo); \
        \"$0\" --state-dir \"$1\" observe --ingress web=:1 >&2 & \
        until [ -e \"$1/cgroup2/cgroup.procs\" ]; do sleep 0.01; done; kill -9 $!; wait; echo killed: $(ls -A \"$1\"); \
        \"$0\" --state-dir \"$1\" clean; echo clean: $(ls -A \"$1\") $(grep -c ' - cgroup2 ' /proc/self/mountinfo)";
    let ended = Command::new("unshare")
        .args(["--mount", "--net", "--propagation", "private", "sh", "-c", script])
        .arg(program)
        .arg(&state)
        .output();
    let ended = ended.unwrap();
    let told = String::from_utf8_lossy(&ended.stdout);
    let removed = "removed the cgroup2 hierarchy that was mounted in the state directory";
    assert_eq!(told, format!("doctor:\nobserve: 0\nkilled: cgroup2\n{removed}\nclean: 0\n"), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn the_interface_is_the_routes_whatever_its_name_and_its_faults_go_even_if_it_is_renamed_meanwhile() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        run("ip", &["link", "set", "v0", "name", "uplink7"]);
        let before = scene.dump();
        let fault = apply(state.path(), FaultKind::Partition, Direction::Both, edge(Role::Downstream, Some("10.9.0.2"), None));
        assert!(run("tc", &["filter", "show", "dev", "uplink7", "egress"]).contains("stormdrill:"));
        run("ip", &["link", "set", "uplink7", "name", "uplink8"]);
        assert!(fault.remove_blocking().error.is_none());
        run("ip", &["link", "set", "uplink8", "name", "uplink7"]);
        scene.assert_restored(&before, "after the removal");
    });
}

#[test]
fn a_filter_or_a_tcx_program_of_someone_else_that_hides_the_traffic_makes_the_drill_vacuous() {
    in_namespace(|| {
        let scene = Scene::new();
        run("tc", &["qdisc", "add", "dev", "v0", "clsact"]);
        let is_vacuous = |context: &str| {
            let before = scene.dump();
            let path = scene.agent.write(&format!("{}expect:\n  - store success ratio >= 0%\n", playbook(["500ms", "1s", "500ms"])));
            let json = scene.agent.path("result.json");
            let mut drill = Process::start(&mut scene.command(&["run", path.to_str().unwrap(), "--json", json.to_str().unwrap()]));
            drill.wait_for("fault:");
            assert!(is_reachable(), "{context}: the partition does not hold");
            let ended = drill.end();
            assert_eq!(ended.code, Some(3), "{context}: {ended:#?}");
            let result: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
            assert_eq!(result["verdict"], "vacuous", "{context}: {ended:#?}");
            assert_eq!(result["faults"][0]["packets_selected"], 0, "{context}");
            // The reason names the counter and what may be in front of it, in the result and to the reader.
            let reason = result["expectations"][0]["reason"].as_str().unwrap_or_default();
            assert!(reason.contains("another tc program"), "{context}: {reason}");
            assert!(ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ").contains("another tc program"), "{context}: {ended:#?}");
            scene.assert_restored(&before, context);
        };
        // Kernels before 6.6 have no tcx.
        if let Some(programs) = Accepting::on("v0") {
            is_vacuous("tcx");
            drop(programs);
        }
        // Says TC_ACT_OK to everything, which ends the classification.
        for hook in ["ingress", "egress"] {
            run("tc", &["filter", "add", "dev", "v0", hook, "pref", "1", "bpf", "direct-action", "bytecode", "1,6 0 0 0,"]);
        }
        is_vacuous("filter");
    });
}

#[test]
fn a_step_that_the_kernel_refuses_is_explained_and_leaves_nothing_half_applied() {
    in_namespace(|| {
        let scene = Scene::new();
        let state = tempfile::tempdir().unwrap();
        run("tc", &["qdisc", "add", "dev", "v0", "clsact"]);
        // Whatever name the next hook gets, its place among the filters is taken: priority and handle are made from it.
        let before_any = scene.dump();
        for slot in 0..=255_u32 {
            let handle = format!("{:#x}", std::process::id() << 8 | slot);
            run("tc", &["filter", "add", "dev", "v0", "egress", "pref", "64768", "handle", &handle, "bpf", "bytecode", "1,6 0 0 0,"]);
        }
        let before = scene.dump();
        let wanted = FaultSpec { direction: Direction::Egress, ..FaultSpec::new(rate(), "store") };
        let prepared =
            Plane::new(state.path()).prepare_blocking(&[(wanted, edge(Role::Downstream, Some("10.9.0.2"), Some(9999)))]).unwrap();
        let error = prepared.into_iter().next().unwrap().apply_blocking().unwrap_err();
        let text = stormdrill::report::log::chain(&error);
        assert!(text.contains("add the egress filter of interface v0") && text.contains("os error 17"), "{text}");
        scene.assert_restored(&before, "after the refusal");
        assert!(lab::has_no_journal(Path::new(state.path())));
        run("tc", &["filter", "del", "dev", "v0", "egress", "pref", "64768"]);
        scene.assert_restored(&before_any, "without the obstacles");
        // The place among the filters is another protocol's, which shows before anything is measured.
        run("tc", &["filter", "add", "dev", "v0", "egress", "pref", "64768", "protocol", "ip", "bpf", "bytecode", "1,6 0 0 0,"]);
        let before = scene.dump();
        let wanted = FaultSpec { direction: Direction::Egress, ..FaultSpec::new(rate(), "store") };
        let refused = Plane::new(state.path()).prepare_blocking(&[(wanted, edge(Role::Downstream, Some("10.9.0.2"), Some(9999)))]);
        let text = stormdrill::report::log::chain(&refused.unwrap_err());
        assert!(text.contains("priority 64768 of the egress hook of v0 is taken by a bpf filter of someone else"), "{text}");
        scene.assert_restored(&before, "after the second refusal");
        assert!(lab::has_no_journal(Path::new(state.path())));
    });
}
