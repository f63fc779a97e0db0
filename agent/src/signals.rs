//! Signals end a drill in good order. A second one does not skip the removal of the faults.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Sends a reason into the returned channel for each SIGINT, SIGTERM or SIGHUP. Must be called within a runtime.
///
/// # Errors
/// When a handler cannot be installed.
pub fn reasons() -> io::Result<mpsc::Receiver<String>> {
    let (sender, receiver) = mpsc::channel(8);
    for (name, kind) in [("SIGINT", SignalKind::interrupt()), ("SIGTERM", SignalKind::terminate()), ("SIGHUP", SignalKind::hangup())] {
        let mut stream = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                // A full channel means that nobody has acted on eight signals yet; one more says nothing new.
                let _ = sender.try_send(name.to_owned());
            }
        });
    }
    Ok(receiver)
}
