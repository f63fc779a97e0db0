//! What depends on time: hanging services, deadlines, queues, closed connections.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;
use std::time::Duration;

use stormdrill_lab::chain::{ChainConfig, Deadlines};
use stormdrill_lab::load::{self, LoadConfig};
use stormdrill_lab::rig::RunningRig;
use stormdrill_lab::store::capacity::Queue;
use stormdrill_lab::store::{Expired, RunningStore, StoreConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const DRAIN: Duration = Duration::from_secs(5);
const HANGS: Duration = Duration::from_secs(3600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_load_goes_on_while_the_server_hangs() {
    let store = RunningStore::start(StoreConfig { delay: HANGS, ..StoreConfig::default() }).await.unwrap();
    let config = LoadConfig { count: Some(200), timeout: ms(1500), ..LoadConfig::open(store.listening().address(), 400.0) };
    let load = load::run(config, std::future::pending()).await;
    // The timed-out connections are closed, and the store notices.
    until(|| store.report().client_gone == 200).await;
    let store = store.stop(DRAIN).await;
    assert_eq!((load.scheduled, load.timeouts, load.ok), (200, 200, 0));
    // All in half a second's schedule, each on a connection of its own since none was answered. A closed loop would have
    // sent one every 1.5 s.
    assert_eq!((load.downstream.connections, store.requests), (200, 200));
    assert!(load.seconds < 10.0, "{}", load.seconds);
    assert!(load.latency_ms.p50 >= Some(1499.0), "{:?}", load.latency_ms);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_try_starts_after_the_deadline() {
    let hangs = StoreConfig { delay: HANGS, ..StoreConfig::default() };
    let chain = ChainConfig {
        tries: 100,
        timeout: ms(40),
        deadlines: Deadlines::PassedOn { default: ms(100) },
        ..ChainConfig::naive(1, ([127, 0, 0, 1], 0).into())
    };
    let rig = RunningRig::start(hangs, chain).await.unwrap();
    let load = load::run(LoadConfig::closed(rig.entry(), 3), std::future::pending()).await;
    let rig = rig.stop(DRAIN).await;
    let layer = &rig.chain.layers[0];
    // 40 + 40 + the remaining 20 ms; on a slow machine fewer.
    assert!((3..=9).contains(&layer.downstream.tries), "{}", layer.downstream.tries);
    assert_eq!(layer.downstream.deadline_refusals, 3);
    assert_eq!((load.answers["504"], layer.answers["504"]), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_callers_deadline_is_passed_on_and_shrinks() {
    let (listener, mut heads) = raw_server(|_| "HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").await;
    let chain = ChainConfig { deadlines: Deadlines::PassedOn { default: ms(60_000) }, ..ChainConfig::naive(2, listener) };
    let chain = stormdrill_lab::chain::RunningChain::start(&chain).await.unwrap();
    let config = LoadConfig { deadline: true, timeout: ms(20_000), ..LoadConfig::closed(chain.entry(), 1) };
    load::run(config, std::future::pending()).await;
    let mut before = u64::MAX;
    for _ in 0..9 {
        let head = heads.recv().await.unwrap();
        let left: u64 = header(&head, "x-envoy-expected-rq-timeout-ms").parse().unwrap();
        assert!(left <= before && left <= 20_000, "{left} after {before}");
        before = left;
        let at: f64 = header(&head, "x-request-deadline").parse().unwrap();
        assert!(at > 1.6e9, "{at}");
    }
    assert!(chain.stop(DRAIN).await.layers.iter().all(|layer| layer.answers["503"] > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_whose_caller_is_gone_gives_up_and_closes_its_own_call() {
    let hangs = StoreConfig { delay: HANGS, ..StoreConfig::default() };
    let chain = ChainConfig { timeout: HANGS, ..ChainConfig::naive(2, ([127, 0, 0, 1], 0).into()) };
    let rig = RunningRig::start(hangs, chain).await.unwrap();
    let config = LoadConfig { timeout: ms(500), ..LoadConfig::closed(rig.entry(), 4) };
    let load = load::run(config, std::future::pending()).await;
    until(|| rig.report().store.client_gone == 4).await;
    let rig = rig.stop(DRAIN).await;
    assert_eq!(load.timeouts, 4);
    for layer in &rig.chain.layers {
        assert_eq!((layer.requests, layer.callers_gone, layer.downstream.abandoned), (4, 4, 4), "{}", layer.name);
    }
    assert_eq!((rig.store.requests, rig.store.client_gone), (4, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferring_store_works_for_clients_that_are_gone_unless_it_drops_what_is_expired() {
    for (expired, drops) in [(Expired::Serve, false), (Expired::Drop, true)] {
        let config = StoreConfig { capacity: Some(20.0), queue: Queue::Defer, expired, ..StoreConfig::default() };
        let store = RunningStore::start(config).await.unwrap();
        // Three seconds of work at once, for clients that wait one.
        let config =
            LoadConfig { count: Some(60), timeout: ms(1000), deadline: true, ..LoadConfig::open(store.listening().address(), 10_000.0) };
        let load = load::run(config, std::future::pending()).await;
        let store = store.stop(DRAIN).await;
        assert!(load.ok <= 20, "{}", load.ok);
        assert_eq!(store.requests, 60);
        assert!(store.expired >= 38, "{}", store.expired);
        // The place of a client that left is not given to the next: the queue holds everybody.
        assert_eq!(store.queue_peak > 30, !drops, "{}", store.queue_peak);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejecting_store_answers_at_once() {
    let config = StoreConfig { capacity: Some(10.0), ..StoreConfig::default() };
    let store = RunningStore::start(config).await.unwrap();
    let load = load::run(LoadConfig::closed(store.listening().address(), 50), std::future::pending()).await;
    let store = store.stop(DRAIN).await;
    assert!(load.ok >= 1 && store.rejected > 0);
    assert_eq!((load.ok + store.rejected, store.responses["503"]), (50, store.rejected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_server_closed_costs_neither_an_error_nor_an_attempt() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (closed, mut is_closed) = mpsc::channel(1);
    let server = tokio::spawn(async move {
        let mut served = 0;
        while served < 10 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 4096];
            assert!(stream.read(&mut head).await.unwrap() > 0);
            // Keep-alive is promised, and broken.
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            served += 1;
            drop(stream);
            closed.send(()).await.unwrap();
        }
        served
    });
    let pool = stormdrill_lab::pool::Pool::new(address, stormdrill_lab::pool::Reuse::KeepAlive, 10);
    for _ in 0..10 {
        let mut request = hyper::Request::new(http_body_util::Full::default());
        request.headers_mut().insert("host", "a".parse().unwrap());
        let answer = pool.send(request, HANGS).await.unwrap();
        assert_eq!(answer.status(), 200);
        is_closed.recv().await.unwrap();
    }
    assert_eq!(server.await.unwrap(), 10);
    let counts = pool.counts();
    assert_eq!((counts.sent.get(), counts.opened.get(), counts.replays.get()), (10, 10, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_and_a_refusal_are_failed_attempts() {
    let (listener, mut heads) = raw_server(|_| "").await;
    let load = load::run(LoadConfig { tries: 3, ..LoadConfig::closed(listener, 2) }, std::future::pending()).await;
    assert_eq!((load.resets, load.attempts, load.downstream.resets), (2, 6, 6));
    for _ in 0..6 {
        heads.recv().await.unwrap();
    }
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let load = load::run(LoadConfig { tries: 3, ..LoadConfig::closed(unused, 2) }, std::future::pending()).await;
    assert_eq!((load.connect_errors, load.attempts, load.downstream.tries), (2, 0, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_that_is_told_to_stop_reports_what_it_did() {
    let store = RunningStore::start(StoreConfig::default()).await.unwrap();
    let (told, stop) = tokio::sync::oneshot::channel::<()>();
    let config = LoadConfig::open(store.listening().address(), 200.0);
    let running = tokio::spawn(load::run(config, async move {
        let _ = stop.await;
    }));
    until(|| store.report().requests >= 5).await;
    told.send(()).unwrap();
    let load = running.await.unwrap();
    assert_eq!(load.ok, load.scheduled);
    assert_eq!(store.stop(DRAIN).await.requests, load.attempts);
}

/// Waits for a condition that must come about.
async fn until(condition: impl Fn() -> bool) {
    let comes_about = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(ms(60_000), comes_about).await.unwrap();
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}:"))).unwrap();
    line.split_once(':').unwrap().1.trim()
}

/// A server that answers each request's head with fixed bytes, closing the connection after an empty answer; and the heads.
async fn raw_server(answer: fn(&str) -> &'static str) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, heads) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut bytes = vec![0; 16_384];
                while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                    let head = String::from_utf8_lossy(&bytes[..read]).into_owned();
                    let answer = answer(&head);
                    let _ = seen.send(head);
                    if answer.is_empty() || stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, heads)
}
