//! What the allocator keeps.

/// Gives memory that was freed back to the system: after something large that is not done again. glibc's allocator keeps tens of megabytes of what the verification of the kernel programs
/// needed; others give it back by themselves.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: no memory that is in use is involved, and the call is thread-safe.
        unsafe { libc::malloc_trim(0) };
    }
}
