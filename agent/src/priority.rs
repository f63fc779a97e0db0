//! Threads that have to run when their time has come, on a host that is busy.

/// Lets the calling thread, and those that it starts from now on, run before ordinary ones: `nice` is from -20, which is the most, to -1.
///
/// Without the privilege (`CAP_SYS_NICE`) it stays as it is; then a thread may be late, which is what its user measures.
pub fn be_on_time(nice: i32) {
    // SAFETY: no memory is involved; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
}
