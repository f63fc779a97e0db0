//! Whether shares are what was asked at the full speed of a real server. What is drawn by chance is held against its exact 99.9% interval; as that is left
//! once in a thousand by chance, it is measured a second time then.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use lab::{Nginx, apply, edge, in_namespace, is_plausible};
use stormdrill_core::edge::Role;
use stormdrill_core::fault::{Direction, FaultKind};

const SERVER: &str = "127.0.0.1:8081";
/// Enough that the server is never without a request.
const CONNECTIONS: usize = 16;
const THREADS: u64 = 2;

/// Sends so many requests over connections that are always busy, and gives how many answers were 503.
fn at_full_speed(requests: u64) -> u64 {
    let mut connections: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let stream = TcpStream::connect(SERVER).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream
        })
        .collect();
    let (mut sent, mut hit) = (0, 0);
    while sent < requests {
        let now = connections.len().min(usize::try_from(requests - sent).unwrap());
        for connection in &mut connections[..now] {
            connection.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
        }
        for connection in &mut connections[..now] {
            let mut answer = [0; 1024];
            let mut length = 0;
            while !answer[..length].ends_with(b"hello\n") {
                let read = connection.read(&mut answer[length..]).unwrap();
                assert!(read > 0, "the server closed the connection");
                length += read;
            }
            hit += u64::from(answer.starts_with(b"HTTP/1.1 503"));
        }
        sent += now as u64;
    }
    hit
}

#[test]
fn a_tenth_three_tenths_and_all_of_nginxs_answers_get_the_status_at_its_full_speed() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&[SERVER]);
        let requests = 40_000;
        for share in [0.1, 0.3, 1.0] {
            let measure = || {
                let kind = FaultKind::HttpStatus { status: 503, share };
                let mut fault = apply(state.path(), kind, Direction::Egress, edge(Role::Downstream, Some("127.0.0.1"), Some(8081)));
                let hit: u64 = lab::while_renewing(&mut [&mut fault], || {
                    std::thread::scope(|scope| {
                        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| at_full_speed(requests / THREADS))).collect();
                        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
                    })
                });
                let counts = fault.counts().unwrap()[0];
                assert_eq!((counts.selected, counts.hit), (requests, hit));
                assert!(fault.remove_blocking().error.is_none());
                hit
            };
            let hit = measure();
            assert!(is_plausible(hit, requests, share) || is_plausible(measure(), requests, share), "{share}: {hit} of {requests}");
        }
    });
}
