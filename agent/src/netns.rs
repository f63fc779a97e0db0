//! Threads in network namespaces of their own.
//!
//! A thread that has changed its namespace never goes back to a pool: it ends with the closure. A namespace without a thread, process
//! or mount is gone, with all that was made in it.

use std::io;
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Runs a closure on a thread in a new, empty network namespace that ends with it. Needs `CAP_SYS_ADMIN`.
///
/// # Errors
/// `EPERM` without the privilege, or what kept the thread from starting.
pub fn in_scratch<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("scratch-netns".to_owned()).spawn_scoped(scope, || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })?;
        match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
