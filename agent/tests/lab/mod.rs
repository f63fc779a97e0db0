//! What the fault tests share: a namespace with loopback up, a real nginx, a client that counts, and an independent reader of tc's state.

#![allow(dead_code, reason = "each test target uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use stormdrill::fault::clean::{Force, clean};
use stormdrill::fault::plane::{Applied, Plane};
use stormdrill::netns;
use stormdrill_core::edge::{Cidr, EdgeSpec, PortRange, Role};
use stormdrill_core::fault::{Direction, FaultKind, FaultSpec};
use stormdrill_core::stats::beta::{binomial_at_least, binomial_at_most};

/// The one of two amounts that this run asks for: `cargo xtask test` runs most kernels in short.
pub(crate) fn amount<T>(full: T, short: T) -> T {
    if std::env::var_os("STORMDRILL_SHORT").is_some() { short } else { full }
}

/// Runs a test in a scratch namespace whose loopback is up.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    netns::in_scratch(|| {
        run("ip", &["link", "set", "lo", "up"]);
        test();
    })
    .expect("privileged tests run as root");
}

/// A second namespace, joined to this one by a veth pair: here `v0` with 10.9.0.1 and fd09::1, there `v1` with .2 and ::2.
pub(crate) struct Peer {
    work: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self::with_queues(1)
    }

    /// The same, with so many queues on each end.
    pub(crate) fn with_queues(queues: u32) -> Self {
        let (work, jobs) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (ready, id) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            netns::in_scratch(move || {
                ready.send(nix::unistd::gettid()).unwrap();
                while let Ok(job) = jobs.recv() {
                    job();
                }
            })
            .unwrap();
        });
        let id = id.recv().unwrap().to_string();
        let peer = Self { work, thread: Some(thread) };
        let queues = queues.to_string();
        let (near, far) = (["numtxqueues", &queues, "numrxqueues", &queues], ["numtxqueues", &queues, "numrxqueues", &queues]);
        let all = [["link", "add", "v0"].as_slice(), &near, &["type", "veth", "peer", "name", "v1", "netns", &id], &far].concat();
        run("ip", &all);
        let set_up = |device: &str, number: &str| {
            run("ip", &["address", "add", &format!("10.9.0.{number}/24"), "dev", device]);
            run("ip", &["address", "add", &format!("fd09::{number}/64"), "dev", device, "nodad"]);
            run("ip", &["link", "set", device, "up"]);
        };
        set_up("v0", "1");
        peer.run(move || {
            run("ip", &["link", "set", "lo", "up"]);
            set_up("v1", "2");
        });
        // On a busy machine the kernel notices the carrier late, and what was dumped before would differ from what is dumped after.
        wait_until("the pair carries", || run("ip", &["-j", "link", "show", "dev", "v0"]).contains("\"operstate\":\"UP\""));
        peer
    }

    /// Runs a closure over there and waits for its result.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.work.send(Box::new(move || done.send(job()).unwrap())).unwrap();
        result.recv().expect("the job over there failed")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let (closed, _) = mpsc::channel();
        self.work = closed;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs a command that must succeed, and gives its output.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Links, qdiscs and filters of the namespace, as iproute2 dumps them: statistics left out.
pub(crate) fn dump() -> String {
    let mut text = run("ip", &["-j", "link"]);
    text.push_str(&run("tc", &["-j", "qdisc", "show"]));
    for line in run("ip", &["-o", "link"]).lines() {
        let name = line.split(": ").nth(1).unwrap().split('@').next().unwrap();
        for hook in ["ingress", "egress"] {
            // tc fails where there is no clsact; that is a state like any other.
            let output = Command::new("tc").args(["-j", "filter", "show", "dev", name, hook]).output().unwrap();
            text.push_str(&String::from_utf8(output.stdout).unwrap());
        }
    }
    text
}

pub(crate) fn edge(role: Role, address: Option<&str>, port: Option<u16>) -> EdgeSpec {
    EdgeSpec {
        name: "store".to_owned(),
        role,
        address: address.map(|text| {
            let (address, prefix) = text.split_once('/').unwrap_or((text, ""));
            let address: IpAddr = address.parse().unwrap();
            Cidr { address, prefix: prefix.parse().unwrap_or(if address.is_ipv4() { 32 } else { 128 }) }
        }),
        ports: port.map(|port| PortRange { first: port, last: port }),
        protocol: None,
    }
}

pub(crate) fn spec(kind: FaultKind, direction: Direction) -> FaultSpec {
    FaultSpec { direction, ..FaultSpec::new(kind, "store") }
}

/// A real nginx that answers 200 to everything, in this namespace.
pub(crate) struct Nginx {
    child: Child,
    _dir: tempfile::TempDir,
}

impl Nginx {
    pub(crate) fn start(addresses: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listen: String = addresses.iter().map(|address| format!("listen {address};")).collect();
        let root = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log stderr warn;
             events {{ worker_connections 128; }}
             http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {root}; proxy_temp_path {root};
               fastcgi_temp_path {root}; uwsgi_temp_path {root}; scgi_temp_path {root};
               server {{ {listen}
                 location / {{ return 200 \"hello\\n\"; }}
                 location /none {{ return 204; }}
                 location /gone {{ return 410 \"gone\\n\"; }} }} }}"
        );
        let path = dir.path().join("nginx.conf");
        std::fs::write(&path, config).unwrap();
        let child = Command::new("nginx").arg("-c").arg(&path).arg("-e").arg("stderr").stdin(Stdio::null()).spawn().unwrap();
        let address = addresses[0].parse().unwrap();
        wait_until("nginx listens", || TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok());
        Self { child, _dir: dir }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition; the time limit is only there so that a broken test ends.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::yield_now();
    }
}

/// A keep-alive HTTP client.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn connect(address: &str) -> Self {
        let address: SocketAddr = address.parse().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    /// One that waits as long as a lossy path may take.
    pub(crate) fn patient(address: &str) -> Self {
        let client = Self::connect(address);
        client.stream.get_ref().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client
    }

    /// The status and body of one answer.
    pub(crate) fn get(&mut self, path: &str) -> (u16, String) {
        self.stream.get_mut().write_all(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let status = line.get(9..12).unwrap_or_else(|| panic!("status line {line:?}")).parse().unwrap();
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            if line == "\r\n" {
                break;
            }
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }

    /// How many of so many answers carry that status.
    pub(crate) fn count(&mut self, path: &str, answers: u64, status: u16) -> u64 {
        (0..answers).map(|_| u64::from(self.get(path).0 == status)).sum()
    }
}

/// Whether a count lies in the exact 99.9% interval of a binomial distribution.
#[expect(clippy::cast_precision_loss, reason = "counts of thousands")]
pub(crate) fn is_plausible(count: u64, of: u64, share: f64) -> bool {
    const EACH_TAIL: f64 = 0.0005;
    let (count, of) = (count as f64, of as f64);
    binomial_at_most(count, of, share) >= EACH_TAIL && binomial_at_least(count, of, share) >= EACH_TAIL
}

pub(crate) fn has_no_journal(state_dir: &Path) -> bool {
    std::fs::read_dir(state_dir).map_or(true, |mut entries| entries.next().is_none())
}

/// What `ethtool -K DEVICE tx on|off` does, without the tool.
pub(crate) fn set_checksum_offload(device: &str, is_on: bool) {
    const ETHTOOL_STXCSUM: u32 = 0x17;
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    #[repr(C)]
    struct Request {
        name: [u8; libc::IFNAMSIZ],
        value: *mut [u32; 2],
        rest: [u8; 16],
    }
    let mut value = [ETHTOOL_STXCSUM, u32::from(is_on)];
    let mut request = Request { name: [0; libc::IFNAMSIZ], value: &raw mut value, rest: [0; 16] };
    request.name[..device.len()].copy_from_slice(device.as_bytes());
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: the request has the layout and size of `struct ifreq`, and the value that it points to outlives the call.
    let result = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), SIOCETHTOOL, &raw mut request) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// A minimal HTTP server, for guests without nginx: every request gets 200 and a short body.
pub(crate) fn serve_http(address: &str) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || -> std::io::Result<()> {
                let stream = stream?;
                stream.set_nodelay(true)?;
                let mut reader = BufReader::new(stream);
                let mut line = String::new();
                while reader.read_line(&mut line)? > 0 {
                    if line == "\r\n" {
                        reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n")?;
                    }
                    line.clear();
                }
                Ok(())
            });
        }
    });
}

/// Sends packets to the peer and gives how many arrived.
pub(crate) fn arriving(peer: &Peer, packets: u32, port: u16, target: &'static str) -> u64 {
    let receiver = peer.run(move || {
        let socket = UdpSocket::bind((target, port)).unwrap();
        setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    });
    let local = if target.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let sender = UdpSocket::bind(local).unwrap();
    for _ in 0..packets {
        sender.send_to(b"packet", (target, port)).unwrap();
    }
    peer.run(move || {
        let mut arrived = 0;
        while receiver.recv(&mut [0; 16]).is_ok() {
            arrived += 1;
        }
        arrived
    })
}

/// The fastest of some pings, milliseconds.
pub(crate) fn ping(target: &str) -> f64 {
    let text = run("ping", &["-c", "5", "-i", "0.2", "-W", "5", target]);
    let times = text.lines().filter_map(|line| line.split_once("time=")?.1.split_whitespace().next()?.parse::<f64>().ok());
    times.fold(f64::INFINITY, f64::min)
}

/// What the process in [`hold`] does with its fault until it is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Keep it.
    Renew,
    /// Apply and remove it, over and over.
    Flap,
}

/// A fault's process, which is this test program again, running its test `holder`.
pub(crate) fn hold(state_dir: &Path, habit: Habit) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder"])
        .env("STORMDRILL_TEST_HOLD", state_dir)
        .env("STORMDRILL_TEST_HABIT", format!("{habit:?}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The body of a test `holder`: does nothing unless it was started by [`hold`], and then does not return.
pub(crate) fn holder(kind: &FaultKind, direction: Direction, edge: &EdgeSpec) {
    let Ok(state_dir) = std::env::var("STORMDRILL_TEST_HOLD") else {
        return;
    };
    let flaps = std::env::var("STORMDRILL_TEST_HABIT").is_ok_and(|habit| habit == format!("{:?}", Habit::Flap));
    loop {
        let mut fault = apply(state_dir.as_ref(), kind.clone(), direction, edge.clone());
        if flaps {
            // In place for about as long as it takes to build, so that kills at spread moments meet every stage.
            std::thread::sleep(Duration::from_millis(20));
            assert!(fault.remove_blocking().error.is_none());
            continue;
        }
        loop {
            fault.renew().unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Kills a flapping holder at so many moments, and looks after each whether `clean` leaves the tables as they were.
pub(crate) fn survives_kills(times: u32) {
    let state = tempfile::tempdir().unwrap();
    let before = dump();
    let mut left = 0;
    for round in 0..times {
        let child = hold(state.path(), Habit::Flap);
        wait_until("the first fault", || !has_no_journal(state.path()));
        // Spread over some rounds of applying and removing, which take tens of milliseconds: moments that repeat, not a wait for anything.
        std::thread::sleep(Duration::from_micros(u64::from(round) * 90_000 / u64::from(times)));
        kill(child);
        left += u32::from(dump() != before);
        let report = clean(state.path(), Force::No).unwrap();
        assert!(report.is_clean(), "round {round}: {:?}", report.problems);
        assert_eq!(dump(), before, "round {round}");
        assert!(has_no_journal(state.path()), "round {round}");
    }
    assert!(left > 0, "no kill met a fault in place");
}

pub(crate) fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Applies one fault.
pub(crate) fn apply(state_dir: &Path, kind: FaultKind, direction: Direction, edge: EdgeSpec) -> Applied {
    let mut prepared = Plane::new(state_dir).prepare_blocking(&[(spec(kind, direction), edge)]).unwrap();
    assert_eq!(prepared.len(), 1);
    prepared.remove(0).apply_blocking().unwrap()
}

/// Renews faults in the background, as the agent does, while the work is done.
pub(crate) fn while_renewing<T>(faults: &mut [&mut Applied], work: impl FnOnce() -> T) -> T {
    for fault in &mut *faults {
        fault.renew().unwrap();
    }
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Often: after a guest was halted by its host, little may pass before the next time.
            while is_done.recv_timeout(Duration::from_millis(50)) == Err(mpsc::RecvTimeoutError::Timeout) {
                for fault in &mut *faults {
                    fault.renew().unwrap();
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}
