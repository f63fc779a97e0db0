//! The faults of one drill, from prepared to gone.

use std::collections::BTreeMap;

use stormdrill_core::fault::{FaultCounts, FaultKind, FaultOutcome};

use crate::clock;
use crate::fault::plane::{Applied, FaultError, Prepared};

/// All faults of a drill; they come and go together.
#[derive(Debug)]
pub struct Faults {
    prepared: Vec<Prepared>,
    applied: Vec<Applied>,
    outcomes: Vec<FaultOutcome>,
}

impl Faults {
    /// Faults that were prepared; nothing is changed yet.
    #[must_use]
    pub const fn new(prepared: Vec<Prepared>) -> Self {
        Self { prepared, applied: Vec::new(), outcomes: Vec::new() }
    }

    /// Puts all of them in place; gives the instant at which the last one was.
    ///
    /// # Errors
    /// When one cannot be applied. Those before it are in place until [`Self::remove`] is called.
    pub(super) async fn apply(&mut self) -> Result<u64, FaultError> {
        for prepared in std::mem::take(&mut self.prepared) {
            self.applied.push(prepared.apply().await?);
            // The first fault's lease must not run out while the last one is built.
            self.renew()?;
        }
        Ok(clock::monotonic_ns())
    }

    /// Renews every lease.
    ///
    /// # Errors
    /// When one cannot be renewed; it then ends by itself.
    pub(super) fn renew(&mut self) -> Result<(), FaultError> {
        self.applied.iter_mut().try_for_each(Applied::renew)
    }

    /// The first fault that somebody else has taken out of the kernel, by its playbook key and target.
    ///
    /// # Errors
    /// When the kernel's filters cannot be read.
    pub(super) fn missing(&mut self) -> Result<Option<String>, FaultError> {
        for applied in &mut self.applied {
            if !applied.is_in_place()? {
                return Ok(applied.specs().first().map(|spec| format!("{} to {}", spec.kind.as_str(), spec.to)));
            }
        }
        Ok(None)
    }

    /// What the kernel counted so far, summed by the fault's kind. Counters that cannot be read are left out: they are for show here, and
    /// their totals are read again at the removal.
    pub(super) fn counts(&mut self) -> BTreeMap<&'static str, FaultCounts> {
        let mut sums: BTreeMap<&'static str, FaultCounts> = BTreeMap::new();
        let mut add = |kind: &FaultKind, counts: FaultCounts| {
            let sum = sums.entry(kind.as_str()).or_default();
            sum.selected += counts.selected;
            sum.hit += counts.hit;
        };
        for applied in &mut self.applied {
            let counts = applied.counts().unwrap_or_default();
            applied.specs().iter().zip(counts).for_each(|(spec, counts)| add(&spec.kind, counts));
        }
        self.outcomes.iter().for_each(|outcome| add(&outcome.spec.kind, outcome.counts));
        sums
    }

    /// Removes all of them, those after a failure too; gives the instant at which the last one was gone.
    ///
    /// # Errors
    /// When something is left in the kernel.
    pub(super) async fn remove(&mut self) -> Result<u64, FaultError> {
        let mut failed = None;
        for applied in std::mem::take(&mut self.applied).into_iter().rev() {
            let removal = applied.remove().await;
            self.outcomes.extend(removal.outcomes);
            failed = failed.or(removal.error);
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(clock::monotonic_ns()),
        }
    }

    /// What came of those that were removed.
    #[must_use]
    pub(super) fn into_outcomes(self) -> Vec<FaultOutcome> {
        self.outcomes
    }
}
