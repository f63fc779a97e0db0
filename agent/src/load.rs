//! The playbook's own load: open loop, so a request starts on its schedule whatever became of the ones before it.
//!
//! A closed loop would slow down together with the service and hide the very storm that is looked for. How well
//! the schedule was kept is measured, and a drill whose load was not what it asked for is not judged as if it were.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use stormdrill_core::judge::{LoadHealth, MOST_LAG_NS};
use stormdrill_core::playbook::Load;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::{clock, priority};

/// Why a load could not start.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The URL has no usable address.
    #[error("load.url `{url}`: no address found; write `http://127.0.0.1:8080/path`")]
    NoAddress {
        /// The URL given.
        url: String,
    },
    /// The generator's thread or runtime could not be made.
    #[error("start the load generator")]
    Start(#[source] std::io::Error),
}

/// A load that runs on a thread of its own until it is stopped.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<LoadHealth>,
}

struct Target {
    address: SocketAddr,
    authority: String,
    path: String,
}

#[derive(Default)]
struct State {
    idle: Vec<SendRequest<Empty<Bytes>>>,
    lag_ns: Vec<u64>,
    scheduled: u64,
    sent: u64,
    answered: u64,
    local_errors: u64,
    in_flight: u64,
}

/// Starts the load. `tag` goes into each request's `x-request-id`, with its number.
///
/// # Errors
/// When the URL names no address that resolves, or a thread cannot be had.
pub fn start(load: &Load, tag: &str) -> Result<Running, LoadError> {
    let target = resolve(&load.url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LoadError::Start)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (rate, timeout, tag, seen) = (load.rate, load.timeout, tag.to_owned(), Arc::clone(&stop));
    let thread = std::thread::Builder::new()
        .name("load".to_owned())
        .spawn(move || {
            // A schedule that is kept is part of the measurement, and the generator needs little; how late it was is measured.
            priority::be_on_time(-15);
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, generate(target, rate, timeout, tag, &seen))
        })
        .map_err(LoadError::Start)?;
    Ok(Running { stop, thread })
}

impl Running {
    /// Ends the load and says how well it kept its schedule. Waits for the answers that are due, at most the timeout.
    #[must_use]
    pub fn stop(self) -> Option<LoadHealth> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok()
    }
}

fn resolve(url: &str) -> Result<Target, LoadError> {
    use std::net::ToSocketAddrs as _;
    let none = || LoadError::NoAddress { url: url.to_owned() };
    let uri: Uri = url.parse().map_err(|_| none())?;
    let authority = uri.authority().ok_or_else(none)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = authority.port_u16().unwrap_or(80);
    let address = (host, port).to_socket_addrs().map_err(|_| none())?.next().ok_or_else(none)?;
    let path = uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
    Ok(Target { address, authority: authority.to_string(), path })
}

async fn generate(target: Target, rate: f64, timeout: Duration, tag: String, stop: &AtomicBool) -> LoadHealth {
    let state = Rc::new(RefCell::new(State::default()));
    let target = Rc::new(target);
    let gap = Duration::from_secs_f64(1.0 / rate);
    let mut due = Instant::now();
    let mut number: u64 = 0;
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep_until(due).await;
        {
            let mut state = state.borrow_mut();
            state.scheduled += 1;
            state.lag_ns.push(u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX));
            state.in_flight += 1;
        }
        let (target, state, id) = (Rc::clone(&target), Rc::clone(&state), format!("{tag}-{number}"));
        tokio::task::spawn_local(async move {
            // What became of the request is the probe's to see, not the generator's to report.
            let _ = tokio::time::timeout(timeout, request(&target, &state, id)).await;
            state.borrow_mut().in_flight -= 1;
        });
        number += 1;
        due += gap;
    }
    let give_up = clock::monotonic_ns() + u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    while state.borrow().in_flight > 0 && clock::monotonic_ns() < give_up {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut state = state.borrow_mut();
    state.lag_ns.sort_unstable();
    let p99 = state.lag_ns.len().saturating_sub(1) * 99 / 100;
    LoadHealth {
        lag_p99_ns: state.lag_ns.get(p99).copied().unwrap_or(0),
        late: u64::try_from(state.lag_ns.iter().filter(|lag| **lag > MOST_LAG_NS).count()).unwrap_or(u64::MAX),
        scheduled: state.scheduled,
        sent: state.sent,
        answered: state.answered,
        local_errors: state.local_errors,
    }
}

/// One request on an idle connection, or a new one. The connection is kept only after a whole answer.
async fn request(target: &Target, state: &RefCell<State>, id: String) -> Option<()> {
    let mut sender = connection(target, state).await?;
    let request = Request::get(&target.path).header("host", &target.authority).header("x-request-id", id).body(Empty::new()).ok()?;
    state.borrow_mut().sent += 1;
    let answer = sender.send_request(request).await.ok()?;
    state.borrow_mut().answered += 1;
    answer.into_body().collect().await.ok()?;
    if sender.ready().await.is_ok() {
        state.borrow_mut().idle.push(sender);
    }
    Some(())
}

async fn connection(target: &Target, state: &RefCell<State>) -> Option<SendRequest<Empty<Bytes>>> {
    while let Some(sender) = take(state) {
        if sender.is_ready() {
            return Some(sender);
        }
    }
    let stream = match TcpStream::connect(target.address).await {
        Ok(stream) => stream,
        Err(error) => {
            let mut state = state.borrow_mut();
            // Out of ports or descriptors is the generator's own trouble; a refusal is the service's, and counts as sent.
            match error.raw_os_error() {
                Some(libc::EADDRNOTAVAIL | libc::EMFILE | libc::ENFILE) => state.local_errors += 1,
                _ => state.sent += 1,
            }
            return None;
        }
    };
    // Without it a request that follows another closely would wait for the peer's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    tokio::task::spawn_local(driver);
    Some(sender)
}

fn take(state: &RefCell<State>) -> Option<SendRequest<Empty<Bytes>>> {
    state.borrow_mut().idle.pop()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn a_url_gives_address_authority_and_path() {
        let target = resolve("http://127.0.0.1:8080/orders?x=1").unwrap();
        assert_eq!(target.address, "127.0.0.1:8080".parse().unwrap());
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("127.0.0.1:8080", "/orders?x=1"));
        assert_eq!(resolve("http://[::1]:81").unwrap().address, "[::1]:81".parse().unwrap());
        assert!(resolve("orders").is_err());
    }

    #[test]
    fn requests_start_on_schedule_though_the_server_never_answers() {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", server.local_addr().unwrap());
        let load = Load { url, rate: 200.0, timeout: Duration::from_millis(300) };
        let running = start(&load, "t").unwrap();
        let mut held = Vec::new();
        // Twenty connections while none is answered: a closed loop would have stopped at the first.
        for _ in 0..20 {
            held.push(server.accept().unwrap());
        }
        let health = running.stop().unwrap();
        assert!(health.scheduled >= 20 && health.local_errors == 0, "{health:?}");
    }
}
