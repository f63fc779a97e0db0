//! When a part of the lab ends: at SIGTERM, at SIGINT, or when its time is up.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the lab, caught from the moment this exists.
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Catches both signals. To be called before readiness is told, so that no early signal is fatal.
    ///
    /// # Errors
    /// What the kernel says when a handler cannot be set.
    pub fn catch() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns at the first signal, or after `limit`.
    pub async fn requested(&mut self, limit: Option<Duration>) {
        let time_is_up = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = time_is_up => {}
        }
    }
}
