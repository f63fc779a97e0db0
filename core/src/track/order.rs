//! Puts events into order of time.
//!
//! Each CPU writes its own events, and the ring is read in the order in which they were reserved, so that two events of
//! one connection may come a little out of order. Whether an attempt is a retry depends on what failed *before* it, so
//! events are held back until nothing older is to be expected.

use std::cmp::Ordering;

use crate::event::{ProbeEvent, ProbeEventKind};

/// So many events come in, beyond those held back, before some are let through.
const BATCH: usize = 4096;

/// An event that comes out of place by no more than so many others is put into its place at once.
const NEAR: usize = 32;

/// Without events, the clock stands in for them after so many holds.
const IDLE_HOLDS: u64 = 10;

/// Events not yet old enough to be looked at.
#[derive(Debug)]
pub(crate) struct Order {
    events: Vec<ProbeEvent>,
    /// They are in order.
    sorted: bool,
    hold_ns: u64,
    cap: usize,
    /// Length at which it pays to let some through.
    release_at: usize,
    latest_ns: u64,
    released_ns: u64,
    late: u64,
}

impl Order {
    /// Holds events back for `hold_ns`, and no more than `cap` of them.
    #[must_use]
    pub(crate) const fn new(hold_ns: u64, cap: usize) -> Self {
        Self { events: Vec::new(), sorted: true, hold_ns, cap, release_at: BATCH, latest_ns: 0, released_ns: 0, late: 0 }
    }

    /// Takes an event in. `true` if it is time to call [`Self::ripe`].
    pub(crate) fn push(&mut self, event: ProbeEvent) -> bool {
        self.late += u64::from(event.at_ns < self.released_ns);
        self.latest_ns = self.latest_ns.max(event.at_ns);
        let near = self.events.iter().rev().take(NEAR);
        let behind = near.take_while(|other| compare(other, &event).is_gt()).count();
        self.sorted &= behind < NEAR;
        self.events.insert(self.events.len() - behind, event);
        self.events.len() >= self.release_at.min(self.cap)
    }

    /// Lets the clock move on where events do not.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        let idle_ns = self.hold_ns.saturating_mul(IDLE_HOLDS - 1);
        self.latest_ns = self.latest_ns.max(now_ns.saturating_sub(idle_ns));
    }

    /// Takes out, in order, the events before which nothing more is expected, and adds them to those of a list.
    pub(crate) fn ripe(&mut self, into: &mut Vec<ProbeEvent>) {
        self.sort();
        let mut watermark_ns = self.latest_ns.checked_sub(self.hold_ns);
        if self.events.len() >= self.cap {
            let middle = self.events.len() / 2;
            watermark_ns = watermark_ns.max(Some(self.events[middle].at_ns));
        }
        let Some(watermark_ns) = watermark_ns else { return };
        let end = self.events.partition_point(|event| event.at_ns <= watermark_ns);
        into.extend(self.events.drain(..end));
        self.released_ns = self.released_ns.max(watermark_ns);
        self.release_at = 2 * self.events.len() + BATCH;
    }

    /// Takes out all events, in order.
    pub(crate) fn all(&mut self) -> Vec<ProbeEvent> {
        self.sort();
        self.released_ns = self.released_ns.max(self.latest_ns);
        std::mem::take(&mut self.events)
    }

    fn sort(&mut self) {
        if !self.sorted {
            self.events.sort_by(compare);
            self.sorted = true;
        }
    }

    /// Everything up to this instant has been let through, nanoseconds.
    #[must_use]
    pub(crate) const fn released_ns(&self) -> u64 {
        self.released_ns
    }

    /// Events that came after their time had been let through.
    #[must_use]
    pub(crate) const fn late(&self) -> u64 {
        self.late
    }
}

/// By time; at one instant an opening comes first, an end last, and a request before the answer to it.
fn compare(left: &ProbeEvent, right: &ProbeEvent) -> Ordering {
    left.at_ns.cmp(&right.at_ns).then_with(|| place(left).cmp(&place(right)))
}

fn place(event: &ProbeEvent) -> (u8, u64, u32, u32) {
    let (rank, index, offset) = match &event.kind {
        ProbeEventKind::Opened { .. } => (0, 0, 0),
        ProbeEventKind::RequestHead { index, piece } => (1, *index, piece.offset),
        ProbeEventKind::ResponseHead { index, piece, .. } => (2, *index, piece.offset),
        // Compression makes sense in the order of the bytes only, which is that of arrival.
        ProbeEventKind::Stream(_) => (1, 0, 0),
        ProbeEventKind::ConnectFailed { .. } => (3, 0, 0),
        ProbeEventKind::Upgraded { index } => (2, *index, 0),
        ProbeEventKind::TurnedAway { piece } => (3, 0, piece.offset),
        ProbeEventKind::AsksNoMore => (3, 0, 0),
        ProbeEventKind::Closed { .. } => (4, 0, 0),
    };
    (rank, event.conn.0, index, offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::{EdgeId, Role};
    use crate::event::{Close, ConnId};

    fn ripe(order: &mut Order) -> Vec<ProbeEvent> {
        let mut ripe = Vec::new();
        order.ripe(&mut ripe);
        ripe
    }

    fn event(at_ns: u64) -> ProbeEvent {
        let kind = ProbeEventKind::Closed { how: Close::Peer };
        ProbeEvent { at_ns, epoch: 0, conn: ConnId(at_ns), edge: EdgeId(0), role: Some(Role::Ingress), protocol: None, kind }
    }

    fn times(events: &[ProbeEvent]) -> Vec<u64> {
        events.iter().map(|event| event.at_ns).collect()
    }

    #[test]
    fn events_come_out_in_order_of_time_after_the_hold() {
        let mut order = Order::new(50, 1000);
        for at_ns in [30, 10, 80, 20, 100] {
            order.push(event(at_ns));
        }
        assert_eq!(times(&ripe(&mut order)), [10, 20, 30]);
        assert_eq!(order.released_ns(), 50);
        assert_eq!(times(&ripe(&mut order)), [0_u64; 0]);
        assert_eq!(times(&order.all()), [80, 100]);
        assert_eq!(order.late(), 0);
    }

    #[test]
    fn events_that_are_far_out_of_place_find_it_too() {
        let mut order = Order::new(50, 100_000);
        for at_ns in (0..500).rev().chain(500..900) {
            order.push(event(at_ns));
        }
        assert_eq!(times(&order.all()), (0..900).collect::<Vec<_>>());
    }

    #[test]
    fn the_clock_lets_events_through_when_no_others_follow() {
        let mut order = Order::new(50, 1000);
        order.push(event(100));
        order.tick(599);
        assert!(ripe(&mut order).is_empty());
        order.tick(600);
        assert_eq!(times(&ripe(&mut order)), [100]);
    }

    #[test]
    fn what_comes_too_late_is_let_through_and_counted() {
        let mut order = Order::new(50, 1000);
        order.push(event(200));
        ripe(&mut order);
        order.push(event(140));
        assert_eq!(order.late(), 1);
        assert_eq!(times(&ripe(&mut order)), [140]);
    }

    #[test]
    fn more_than_the_cap_is_never_held_back() {
        let mut order = Order::new(1_000_000, 100);
        let mut out = 0;
        for at_ns in 0..1000 {
            if order.push(event(at_ns)) {
                out += ripe(&mut order).len();
            }
            assert!(order.events.len() <= 100);
        }
        assert!(out >= 900, "{out}");
    }
}
