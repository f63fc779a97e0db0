//! Whole drills with packet faults, on kernels that have netem: `cargo xtask test --only vm_drill` boots them.
//!
//! The store is in a namespace of its own, behind a veth pair, as a dependency on another host would be. The load begins with the baseline:
//! before, the emulated processor has a minute's work with verifying the probe.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use lab::{Client, Peer, dump, in_namespace, run};
use rig::agent::{Agent, Drill};
use rig::json::{count, number, phase, text};
use rig::playbook::Playbook;
use serde_json::Value;

/// Where the store is: on the other side of the pair.
const STORE: &str = "10.9.0.2:8081";

/// A playbook over it. Nothing is behind the ingress edge.
fn playbook() -> Playbook {
    Playbook::of("8080", STORE).expect("store success ratio >= 99%")
}

/// A drill in its fault phase.
struct Running {
    drill: Drill,
    load: Trickle,
    peer: Peer,
    _agent: Agent,
}

/// The interface's own qdiscs: all but the hook that a drill may hang its filter on.
fn tree() -> Vec<String> {
    run("tc", &["-d", "qdisc", "show", "dev", "v0"]).lines().filter(|line| !line.contains("clsact")).map(str::to_owned).collect()
}

/// The drill's own device.
fn ifb() -> String {
    let links = run("ip", &["-o", "link", "show", "type", "ifb"]);
    let names: Vec<&str> = links.lines().filter_map(|line| line.split(": ").nth(1)).collect();
    assert_eq!(names.len(), 1, "{links}");
    names[0].to_owned()
}

/// The counters of netem on a device, as tc shows them: packets sent and dropped.
fn netem_of(device: &str) -> Option<(u64, u64)> {
    let shown: Value = serde_json::from_str(&run("tc", &["-s", "-j", "qdisc", "show", "dev", device])).unwrap();
    let netem = shown.as_array().unwrap().iter().find(|qdisc| qdisc["kind"] == "netem")?;
    Some((count(netem, "/packets"), count(netem, "/drops")))
}

impl Running {
    /// Starts a drill, and its load when it counts; returns in its fault phase.
    fn start(peer: Peer, playbook: &Playbook) -> Self {
        let agent = Agent::new();
        peer.run(|| lab::serve_http(STORE));
        let mut drill = agent.drill(&playbook.text());
        drill.wait_for_phase("baseline");
        let load = Trickle::start(STORE);
        drill.wait_for_phase("fault");
        Self { drill, load, peer, _agent: agent }
    }
}

#[test]
fn thirty_percent_loss_drops_on_the_ifb_and_the_senders_retransmissions_are_counted() {
    in_namespace(|| {
        let peer = Peer::new();
        // A tree of somebody's own: it must come through untouched.
        run("tc", &["qdisc", "add", "dev", "v0", "root", "handle", "1:", "htb", "default", "10"]);
        run("tc", &["class", "add", "dev", "v0", "parent", "1:", "classid", "1:10", "htb", "rate", "1gbit"]);
        let (before, tree_before) = (dump(), tree());
        let running = Running::start(peer, &playbook().phases(5, 20, 2).fault("{loss: 30%, to: store}"));
        assert_eq!(tree(), tree_before, "the interface's own qdiscs during the fault");
        assert_eq!(netem_of("v0"), None, "netem on the interface itself");
        let ifb = ifb();
        // Besides the requests: a share of thousands is told from 27 and from 33%.
        let arrived = lab::arriving(&running.peer, 4000, 8081, "10.9.0.2");
        let (sent, dropped) = netem_of(&ifb).unwrap();
        assert!(sent + dropped >= 4000 && sent >= arrived, "{sent} sent, {dropped} dropped, {arrived} arrived");
        let result = running.drill.end();
        assert_eq!(tree(), tree_before, "the interface's own qdiscs after the fault");
        assert_eq!(dump(), before);
        drop(running.load);

        let json = &result.json;
        assert_eq!(text(json, "/faults/0/backend"), "netem");
        let (selected, hit) = (count(json, "/faults/0/packets_selected"), count(json, "/faults/0/packets_hit"));
        assert!(selected >= sent + dropped && hit >= dropped, "{json:#}");
        assert_share("in the result", hit, selected);
        assert_share("by tc", dropped, sent + dropped);

        let retransmits = |name| count(phase(json, "store", name), "/tcp_retransmits");
        // A processor that was held up for long enough sends a segment again that was not lost.
        assert!(retransmits("baseline") <= 2, "{json:#}");
        // Each lost segment that carried a request is sent again; acknowledgements are not.
        let requests = count(phase(json, "store", "fault"), "/requests");
        assert!(requests > 20 && retransmits("fault") > requests / 5, "{} for {requests} requests", retransmits("fault"));
    });
}

/// 27 to 33% of four thousand packets and more, which is four standard deviations.
fn assert_share(whose: &str, part: u64, whole: u64) {
    assert!(part * 100 >= whole * 27 && part * 100 <= whole * 33, "{whose}: {part} of {whole}");
}

#[test]
fn a_delay_of_100_ms_adds_100_ms() {
    in_namespace(|| {
        let peer = Peer::new();
        let (before, tree_before) = (dump(), tree());
        let running = Running::start(peer, &playbook().phases(6, 8, 4).fault("{delay: 100ms, to: store}"));
        assert_eq!(tree(), tree_before, "the interface's own qdiscs during the fault");
        let result = running.drill.end();
        assert_eq!((tree(), dump()), (tree_before, before));
        drop(running.load);
        let json = &result.json;
        let added = quietest(json, "fault") - quietest(json, "baseline");
        assert!((added - 100.0).abs() <= 5.0, "{added} ms: {json:#}");
        let left = quietest(json, "recovery") - quietest(json, "baseline");
        assert!(left.abs() <= 5.0, "{left} ms are left: {json:#}");
        assert!(number(phase(json, "store", "fault"), "/latency_ms/p50") >= 100.0);
        assert_eq!(json["faults"][0]["effective"], true);
    });
}

/// A request now and then, on one connection, until it is dropped. Server and client do next to nothing: the emulated processor's time for
/// anything more would be in the numbers.
struct Trickle {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Trickle {
    fn start(address: &'static str) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut client = Client::connect(address);
            while stopped.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
                assert_eq!(client.get("/").0, 200);
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Trickle {
    fn drop(&mut self) {
        drop(self.stop.take());
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}

/// The least median latency of the store in any of a phase's windows of a few answers each, milliseconds: in most of them the emulated
/// processor was busy with other things.
fn quietest(json: &Value, phase: &str) -> f64 {
    let windows = json["windows"].as_array().unwrap().iter().filter(|window| window["phase"] == phase);
    let stores = windows.map(|window| window["edges"].as_array().unwrap().iter().find(|edge| edge["name"] == "store").unwrap());
    stores.filter_map(|store| store["latency_ms"]["p50"].as_f64()).fold(f64::INFINITY, f64::min)
}

/// Takes netem out of the guest's kernel, and its file away, so that nothing can load it again until this is dropped.
struct WithoutNetem {
    module: PathBuf,
}

impl WithoutNetem {
    fn new() -> Self {
        let release = run("uname", &["-r"]);
        let found = run("find", &[&format!("/lib/modules/{}", release.trim()), "-name", "sch_netem.ko"]);
        let module = PathBuf::from(found.trim());
        assert!(module.is_file(), "no module in {found:?}");
        // Namespaces of other tests end a little after them, and netem with them.
        lab::wait_until("netem is out of use", || std::process::Command::new("rmmod").arg("sch_netem").output().unwrap().status.success());
        std::fs::rename(&module, Self::elsewhere()).unwrap();
        Self { module }
    }

    fn elsewhere() -> PathBuf {
        PathBuf::from("/tmp/sch_netem.ko")
    }
}

impl Drop for WithoutNetem {
    fn drop(&mut self) {
        std::fs::rename(Self::elsewhere(), &self.module).unwrap();
        run("insmod", &[self.module.to_str().unwrap()]);
    }
}

#[test]
fn without_netem_a_delay_is_refused_before_anything_is_changed() {
    let _without = WithoutNetem::new();
    in_namespace(|| {
        let (_peer, agent) = (Peer::new(), Agent::new());
        let before = dump();
        let ended = agent.drill(&playbook().fault("{delay: 100ms, to: store}").text()).end_without_result();
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(!ended.stderr.contains("baseline:"), "it began: {ended:#?}");
        let release = run("uname", &["-r"]);
        assert!(ended.stderr.contains("sch_netem") && ended.stderr.contains(release.trim()), "{ended:#?}");
        // The programs that read within TLS are others than those that everything else needs.
        let doctor = agent.run(&["doctor"]);
        assert!(doctor.stdout.lines().any(|line| line.starts_with("ok ") && line.contains(" uprobes ")), "{doctor:#?}");
        // doctor and plan say it as well, and what would be there instead.
        for (command, code) in [(["doctor"].as_slice(), 0), (&["plan", agent.path("playbook.yaml").to_str().unwrap()], 0)] {
            let told = agent.run(command);
            assert_eq!(told.code, Some(code), "{told:#?}");
            assert!(told.stdout.contains("sch_netem") && told.stdout.contains(release.trim()), "{told:#?}");
        }
        assert_eq!(dump(), before);
        assert!(agent.has_no_journal());
        let planned = agent.write(&playbook().fault("{loss: 30%, to: store}").text());
        let planned = agent.run(&["plan", planned.to_str().unwrap()]);
        assert!(planned.stdout.contains("by       ebpf-drop"), "{planned:#?}");
    });
}

/// Requests of many segments, one after the other, until it is dropped; it gives how many.
struct Spread {
    stop: Sender<()>,
    thread: JoinHandle<u64>,
}

impl Spread {
    fn start(address: &'static str) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut requests = 0;
            while stopped.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
                stream.write_all(b"GET / HTTP/1.1\r\n").unwrap();
                for part in 0..30 {
                    stream.write_all(format!("x-part-{part}: {}\r\n", "x".repeat(40)).as_bytes()).unwrap();
                }
                stream.write_all(b"\r\n").unwrap();
                // `serve_http` answers with as many bytes.
                stream.read_exact(&mut [0; 44]).unwrap();
                requests += 1;
            }
            requests
        });
        Self { stop, thread }
    }

    fn end(self) -> u64 {
        drop(self.stop);
        self.thread.join().unwrap()
    }
}

#[test]
fn a_jitter_that_lets_packets_overtake_each_other_makes_tcp_send_again_and_no_retry() {
    in_namespace(|| {
        let (peer, agent) = (Peer::new(), Agent::new());
        peer.run(|| lab::serve_http(STORE));
        let text = playbook().phases(3, 8, 2).fault("{delay: {time: 50ms, jitter: 49ms}, to: store}").text();
        let planned = agent.run(&["plan", agent.write(&text).to_str().unwrap()]);
        assert!(
            planned.stdout.contains("jitter lets packets overtake each other; TCP may send some again, which are no retries"),
            "{planned:#?}"
        );
        let mut drill = agent.drill(&text);
        drill.wait_for_phase("baseline");
        let load = Spread::start(STORE);
        let result = drill.end();
        let sent = load.end();
        let json = &result.json;
        let fault = phase(json, "store", "fault");
        assert!(count(fault, "/tcp_retransmits") > 0, "TCP sent nothing again: {json:#}");
        let mut requests = 0;
        for name in ["baseline", "fault", "recovery"] {
            let phase = phase(json, "store", name);
            requests += count(phase, "/requests");
            let retries: u64 = ["marker", "id", "matched"].iter().map(|evidence| count(phase, &format!("/retries/{evidence}"))).sum();
            assert_eq!(retries, 0, "{name}: {json:#}");
        }
        // The load goes on for a moment after the last window.
        assert!(requests > 5 && requests <= sent, "{requests} of {sent}: {json:#}");
    });
}
