//! A steady stream of UDP packets each way between the two namespaces, every one of which is counted.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

use crate::lab::Peer;

/// A port that no fault of these tests selects.
const PORT: u16 = 9998;
const STEP: Duration = Duration::from_millis(1);

/// One direction's sender and receiver.
struct Stream {
    sender: JoinHandle<u64>,
    receiver: JoinHandle<()>,
}

/// Both directions, until it is stopped.
pub(crate) struct Probe {
    stop: Arc<AtomicBool>,
    streams: Vec<(Stream, Arc<AtomicU64>)>,
}

fn receive(socket: &UdpSocket, arrived: &AtomicU64, stop: &AtomicBool) {
    loop {
        // Before the wait: a silence is the end only if the sender had stopped when it began.
        let is_over = stop.load(Ordering::Relaxed);
        match socket.recv(&mut [0; 16]) {
            Ok(_) => {
                arrived.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) if is_over => break,
            Err(_) => {}
        }
    }
}

fn send(socket: &UdpSocket, target: &str, per_step: u64, stop: &AtomicBool) -> u64 {
    let (begin, mut sent) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        // Never more at once than a receiving queue of the kernel holds, even after a pause.
        let due = u64::try_from(begin.elapsed().as_micros() / STEP.as_micros()).unwrap() * per_step;
        for _ in 0..due.saturating_sub(sent).min(per_step * 10) {
            socket.send_to(b"packet", target).unwrap();
            sent += 1;
        }
        std::thread::sleep(STEP);
    }
    sent
}

fn bind(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, PORT)).unwrap();
    setsockopt(&socket, sockopt::RcvBufForce, &(64 << 20)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket
}

impl Probe {
    /// Sends so many packets a second each way.
    pub(crate) fn start(peer: &Peer, rate: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let there = peer.run(|| bind("10.9.0.2"));
        let here = bind("10.9.0.1");
        let per_step = rate / 1000;
        let stream = |from: &UdpSocket, to: &UdpSocket| {
            let target = to.local_addr().unwrap().to_string();
            let (from, to, stop, arrived) =
                (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(&stop), Arc::<AtomicU64>::default());
            let (counted, ended) = (Arc::clone(&arrived), Arc::clone(&stop));
            let receiver = std::thread::spawn(move || receive(&to, &counted, &ended));
            (Stream { sender: std::thread::spawn(move || send(&from, &target, per_step, &stop)), receiver }, arrived)
        };
        let streams = vec![stream(&here, &there), stream(&there, &here)];
        Self { stop, streams }
    }

    /// Packets that arrived so far, by the direction that had the fewest.
    pub(crate) fn arrived(&self) -> u64 {
        self.streams.iter().map(|(_, arrived)| arrived.load(Ordering::Relaxed)).min().unwrap()
    }

    /// Stops, and gives what was sent and what arrived each way.
    pub(crate) fn stop(self) -> Vec<(u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let finish = |(stream, arrived): (Stream, Arc<AtomicU64>)| {
            let sent = stream.sender.join().unwrap();
            stream.receiver.join().unwrap();
            (sent, arrived.load(Ordering::Relaxed))
        };
        self.streams.into_iter().map(finish).collect()
    }
}
