//! The leases of faults, apart from what else there is to do about them: whoever reads filters and qdiscs waits for the kernel's lock on them,
//! for seconds on a host that makes many network namespaces, and no lease may run out meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use stormdrill_wire::fault::LEASE_NS;

use super::object::{Object, ObjectError};
use super::plane::FaultError;
use crate::clock::monotonic_ns;

/// The leases of faults that are in the kernel, for as long as they are there. Keeps nothing there.
#[derive(Debug, Clone, Default)]
pub struct Leases(Vec<Weak<Mutex<Object>>>);

impl Leases {
    pub(super) fn of<'a>(objects: impl IntoIterator<Item = &'a Arc<Mutex<Object>>>) -> Self {
        Self(objects.into_iter().map(Arc::downgrade).collect())
    }

    /// Renews those of faults that are still there. Takes microseconds.
    ///
    /// # Errors
    /// When a map cannot be written; the fault then ends by itself.
    pub fn renew(&self) -> Result<(), FaultError> {
        let expiry = monotonic_ns() + LEASE_NS;
        for object in self.0.iter().filter_map(Weak::upgrade) {
            locked(&object).lease_until(expiry)?;
        }
        Ok(())
    }

    /// Ends them: no packet and no connection is selected any more.
    ///
    /// # Errors
    /// When a map cannot be written; the fault then ends when its lease has run out.
    pub fn end(&self) -> Result<(), FaultError> {
        self.0.iter().filter_map(Weak::upgrade).try_for_each(|object| Ok(end(&object)?))
    }

    /// Adds others.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

/// The object of a hook, to which two threads come.
pub(super) fn locked(object: &Mutex<Object>) -> MutexGuard<'_, Object> {
    // Whoever panicked with it left a map written or not, and either is a state like any other.
    object.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a lease.
pub(super) fn end(object: &Mutex<Object>) -> Result<(), ObjectError> {
    locked(object).lease_until(0)
}
