//! Locking without poisoning: what the lab locks is whole after every statement, so a panic elsewhere changes nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after another thread panicked with the lock held.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
