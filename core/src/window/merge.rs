//! One window out of several: the totals of an observation that may go on for days.

use std::collections::BTreeMap;

use super::{EdgeWindow, Retries, Window};

/// Durations kept of each kind. Beyond it every second one is let go, so that what is kept stays spread over all the time.
const DURATIONS: usize = 1 << 16;

impl Window {
    /// Adds a later window's counts to this one, which then lasts until that one's end. The edges are the same.
    pub fn absorb(&mut self, later: Self) {
        let (before, more) = (self.seconds(), later.seconds());
        if before + more > 0.0 {
            self.sampling = (before * self.sampling + more * later.sampling) / (before + more);
        }
        self.end_ns = self.end_ns.max(later.end_ns);
        self.events_lost += later.events_lost;
        for (edge, more) in self.edges.iter_mut().zip(later.edges) {
            edge.absorb(more);
        }
    }
}

impl EdgeWindow {
    fn absorb(&mut self, later: Self) {
        self.counts = self.counts.plus(&later.counts);
        self.attempts += later.attempts;
        self.retries = Retries {
            marker: self.retries.marker + later.retries.marker,
            id: self.retries.id + later.retries.id,
            matched: self.retries.matched + later.retries.matched,
        };
        self.uncompared += later.uncompared;
        self.hedges += later.hedges;
        self.replays += later.replays;
        self.non_idempotent_retries += later.non_idempotent_retries;
        self.nonretryable_retries += later.nonretryable_retries;
        self.retry_after_violations += later.retry_after_violations;
        self.accountable += later.accountable;
        self.late_starts += later.late_starts;
        self.orphan_ns = self.orphan_ns.saturating_add(later.orphan_ns);
        self.burst = self.burst.and(later.burst);
        add(&mut self.protocols, later.protocols);
        add(&mut self.told_status, later.told_status);
        add(&mut self.turned_away, later.turned_away);
        extend(&mut self.gaps_ns, &later.gaps_ns);
        extend(&mut self.first_gaps_ns, &later.first_gaps_ns);
        add(&mut self.status, later.status);
        add(&mut self.kernel_status, later.kernel_status);
        add(&mut self.failures, later.failures);
        add(&mut self.connect_failures, later.connect_failures);
        self.pending += later.pending;
        self.attempts_max = self.attempts_max.max(later.attempts_max);
        extend(&mut self.latency_ns, &later.latency_ns);
        extend(&mut self.waited_ns, &later.waited_ns);
        extend(&mut self.failure_latency_ns, &later.failure_latency_ns);
    }
}

fn add<K: Ord>(total: &mut BTreeMap<K, u64>, more: BTreeMap<K, u64>) {
    for (key, count) in more {
        *total.entry(key).or_default() += count;
    }
}

fn extend(total: &mut Vec<u64>, more: &[u64]) {
    total.extend_from_slice(more);
    while total.len() > DURATIONS {
        let mut keep = false;
        total.retain(|_| {
            keep = !keep;
            keep
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::{EdgeCounts, PhaseName};

    fn window(end_ns: u64, requests: u64, durations: usize) -> Window {
        let edge = EdgeWindow {
            counts: EdgeCounts { requests, ..EdgeCounts::default() },
            status: BTreeMap::from([("200".to_owned(), requests)]),
            latency_ns: vec![end_ns; durations],
            ..EdgeWindow::default()
        };
        Window {
            epoch: 0,
            phase: PhaseName::All,
            start_ns: end_ns - 1,
            end_ns,
            edges: vec![edge],
            events_lost: 1,
            sampling: if end_ns == 9 { 0.5 } else { 1.0 },
        }
    }

    #[test]
    fn counts_add_up_and_the_first_start_stays() {
        let mut total = window(1, 3, 3);
        total.absorb(window(9, 4, 4));
        assert_eq!((total.start_ns, total.end_ns, total.events_lost), (0, 9, 2));
        assert!((total.sampling - 0.75).abs() < 1e-9);
        let edge = &total.edges[0];
        assert_eq!((edge.counts.requests, edge.status["200"], edge.latency_ns.len()), (7, 7, 7));
    }

    #[test]
    fn durations_stay_bounded_and_come_from_the_whole_time() {
        let mut total = window(1, 0, DURATIONS);
        for end_ns in 2..20 {
            total.absorb(window(end_ns, 0, DURATIONS / 2));
        }
        let kept = &total.edges[0].latency_ns;
        assert!(kept.len() <= DURATIONS, "{}", kept.len());
        assert!(kept.contains(&1) && kept.contains(&19));
    }
}
