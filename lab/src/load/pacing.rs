//! Starting the requests when they are due.
//!
//! The open loop is paced by a thread that sleeps, because the runtime's timer rounds up to whole milliseconds: at 15,000
//! requests a second that would be bursts of fifteen. The thread only starts tasks; it never waits for one.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::schedule::{Arrivals, Schedule};
use super::{Client, Pace};

/// The longest that the thread sleeps before it looks whether it should stop.
const LOOK: Duration = Duration::from_millis(20);

/// Tells the pacing to start nothing more. So does dropping it.
#[derive(Debug)]
pub(super) struct Quit(watch::Sender<bool>);

impl Quit {
    pub(super) fn new() -> (Self, Quitting) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Quitting(receiver))
    }

    pub(super) fn tell(&self) {
        self.0.send_replace(true);
    }
}

/// The other end of [`Quit`].
#[derive(Clone, Debug)]
pub(super) struct Quitting(watch::Receiver<bool>);

impl Quitting {
    fn is_told(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

/// Starts all requests, waits until all have ended, and returns how long starting them took.
pub(super) async fn pace(client: Arc<Client>, quitting: Quitting) -> Duration {
    let Pace::Open { rate, arrivals } = client.config.pace else { return one_by_one(&client, &quitting).await };
    let origin = client.clock.now();
    let (under_way, mut all_ended) = mpsc::channel::<()>(1);
    let runtime = Handle::current();
    let pacer = Arc::clone(&client);
    let span = tokio::task::spawn_blocking(move || on_schedule(&pacer, &quitting, rate, arrivals, &runtime, &under_way));
    // Should the thread have panicked, what was recorded is still true.
    let span = span.await.unwrap_or_else(|_| client.clock.now() - origin);
    // Each request holds the other end until it has ended.
    let _ = all_ended.recv().await;
    span
}

fn on_schedule(
    client: &Arc<Client>,
    quitting: &Quitting,
    rate: f64,
    arrivals: Arrivals,
    runtime: &Handle,
    under_way: &mpsc::Sender<()>,
) -> Duration {
    let mut schedule = Schedule::new(rate, arrivals, client.config.seed);
    let limit = client.config.count.unwrap_or(u64::MAX);
    let duration = client.config.duration.unwrap_or(Duration::MAX);
    let origin = client.clock.now();
    for number in 1..=limit {
        let due = schedule.next_offset();
        if !wait_until(client, quitting, origin.saturating_add(due.min(duration))) {
            return client.clock.now() - origin;
        }
        if due >= duration {
            return duration;
        }
        client.record.scheduled();
        let (client, under_way) = (Arc::clone(client), under_way.clone());
        runtime.spawn(async move {
            client.request(number, origin + due).await;
            drop(under_way);
        });
    }
    // The last request's own share of the time belongs to the schedule: ten at 10/s take one second, not 0.9.
    (client.clock.now() - origin).max(schedule.length(limit))
}

/// Sleeps until `at`; `false` if told to stop before.
fn wait_until(client: &Client, quitting: &Quitting, at: Duration) -> bool {
    loop {
        if quitting.is_told() {
            return false;
        }
        let wait = at.saturating_sub(client.clock.now());
        if wait.is_zero() {
            return true;
        }
        client.clock.block_for(wait.min(LOOK));
    }
}

async fn one_by_one(client: &Client, quitting: &Quitting) -> Duration {
    let origin = client.clock.now();
    let limit = client.config.count.unwrap_or(u64::MAX);
    let duration = client.config.duration.unwrap_or(Duration::MAX);
    for number in 1..=limit {
        let now = client.clock.now();
        if now - origin >= duration || quitting.is_told() {
            break;
        }
        client.record.scheduled();
        client.request(number, now).await;
    }
    client.clock.now() - origin
}
