//! The faults of one drill, from prepared to gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use stormdrill_core::fault::{FaultCounts, FaultOutcome, FaultSpec};
use tokio::task::JoinHandle;

use crate::clock;
use crate::fault::lease::Leases;
use crate::fault::plane::{Applied, FaultError, Prepared};

type Sums = BTreeMap<&'static str, FaultCounts>;

/// All faults of a drill; they come and go together.
#[derive(Debug)]
pub struct Faults {
    prepared: Vec<Prepared>,
    /// Shared with whoever looks at them on a blocking thread.
    applied: Arc<Mutex<Vec<Applied>>>,
    leases: Leases,
    look: Option<JoinHandle<Look>>,
    /// What was counted when somebody looked last.
    counted: Sums,
    outcomes: Vec<FaultOutcome>,
}

/// What the kernel has of the faults.
#[derive(Debug)]
struct Look {
    /// The first one that somebody else has taken out.
    missing: Result<Option<String>, FaultError>,
    counted: Sums,
}

impl Faults {
    /// Faults that were prepared; nothing is changed yet.
    #[must_use]
    pub fn new(prepared: Vec<Prepared>) -> Self {
        Self { prepared, applied: Arc::default(), leases: Leases::default(), look: None, counted: Sums::new(), outcomes: Vec::new() }
    }

    /// Puts all of them in place; gives the instant at which the last one was.
    ///
    /// # Errors
    /// When one cannot be applied. Those before it are in place until [`Self::remove`] is called.
    pub(super) async fn apply(&mut self) -> Result<u64, FaultError> {
        for prepared in std::mem::take(&mut self.prepared) {
            let applied = prepared.apply().await?;
            self.leases.extend(applied.leases());
            self.applied.lock().unwrap_or_else(PoisonError::into_inner).push(applied);
            // The first fault's lease must not run out while the last one is built.
            self.renew()?;
        }
        Ok(clock::monotonic_ns())
    }

    /// Renews every lease.
    ///
    /// # Errors
    /// When one cannot be renewed; it then ends by itself.
    pub(super) fn renew(&self) -> Result<(), FaultError> {
        self.leases.renew()
    }

    /// Begins to look at what the kernel has of them, unless somebody is still at it: the kernel answers when nobody changes its interfaces, and on a host
    /// that makes containers this takes seconds at times.
    pub(super) fn begin_look(&mut self) {
        if self.look.is_none() {
            let applied = Arc::clone(&self.applied);
            self.look = Some(tokio::task::spawn_blocking(move || look(&mut applied.lock().unwrap_or_else(PoisonError::into_inner))));
        }
    }

    /// The first fault that somebody else has taken out of the kernel, by its playbook key and target, once the look has ended.
    ///
    /// # Errors
    /// When the kernel's filters cannot be read.
    pub(super) async fn missing(&mut self) -> Result<Option<String>, FaultError> {
        let Some(ended) = self.look.take_if(|look| look.is_finished()) else { return Ok(None) };
        let Look { missing, counted } = ended.await.map_err(|_| FaultError::Panicked)?;
        self.counted = counted;
        missing
    }

    /// What the kernel counted when somebody looked last, and of those that are gone in all, summed by the fault's kind.
    pub(super) fn counts(&self) -> Sums {
        let mut sums = self.counted.clone();
        self.outcomes.iter().for_each(|outcome| add(&mut sums, &outcome.spec, outcome.counts));
        sums
    }

    /// Removes all of them, those after a failure too; gives the instant at which the last one was gone.
    ///
    /// # Errors
    /// When something is left in the kernel.
    pub(super) async fn remove(&mut self) -> Result<u64, FaultError> {
        // At once, whoever keeps the kernel from taking the rest out. What goes wrong with it goes wrong again below, and is told there.
        let _ = std::mem::take(&mut self.leases).end();
        if let Some(look) = self.look.take() {
            // It has the faults; what it saw is told by their removal.
            let _ = look.await;
        }
        self.counted.clear();
        let applied = std::mem::take(&mut *self.applied.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut failed, mut outcomes) = (None, Vec::new());
        for applied in applied.into_iter().rev() {
            let removal = applied.remove().await;
            outcomes.push(removal.outcomes);
            failed = failed.or(removal.error);
        }
        // The last was removed first; they are told in the order of the playbook.
        self.outcomes.extend(outcomes.into_iter().rev().flatten());
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

/// Asks the kernel. Counters that cannot be read are left out: they are for show here, and their totals are read again at the removal.
fn look(faults: &mut [Applied]) -> Look {
    let mut counted = Sums::new();
    for applied in &mut *faults {
        let counts = applied.counts().unwrap_or_default();
        applied.specs().iter().zip(counts).for_each(|(spec, counts)| add(&mut counted, spec, counts));
    }
    Look { missing: missing(faults), counted }
}

fn missing(faults: &mut [Applied]) -> Result<Option<String>, FaultError> {
    for applied in faults {
        if !applied.is_in_place()? {
            return Ok(applied.specs().first().map(|spec| format!("{} to {}", spec.kind.as_str(), spec.to)));
        }
    }
    Ok(None)
}

fn add(sums: &mut Sums, spec: &FaultSpec, counts: FaultCounts) {
    let sum = sums.entry(spec.kind.as_str()).or_default();
    sum.selected += counts.selected;
    sum.hit += counts.hit;
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn a_kernel_that_does_not_answer_holds_up_neither_the_leases_nor_the_drill() {
        let mut faults = Faults::new(Vec::new());
        let (applied, begin) = (Arc::clone(&faults.applied), clock::monotonic_ns());
        // Somebody who asks the kernel has them, and gets no answer.
        let both = Arc::new(Barrier::new(2));
        let there = Arc::clone(&both);
        let asking = std::thread::spawn(move || {
            let _asking = applied.lock().unwrap();
            there.wait();
            there.wait();
        });
        both.wait();
        faults.begin_look();
        faults.begin_look();
        assert_eq!(faults.missing().await.unwrap(), None);
        faults.renew().unwrap();
        assert!(faults.counts().is_empty() && faults.look.is_some());
        both.wait();
        asking.join().unwrap();
        // The removal waits for its turn.
        assert!(faults.remove().await.unwrap() > begin);
        assert!(faults.look.is_none());
    }
}
