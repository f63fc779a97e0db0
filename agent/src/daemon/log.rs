//! What happens in a drill, as numbered events that any number of readers follow at their own pace.
//!
//! Readers keep only their place: a slow one costs no memory, and finds the oldest events gone once there are too many.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Events that are kept of one drill; at a window a second, more than half an hour.
const MAX_EVENTS: usize = 2_000;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// Its number, from 1 without gaps.
    pub id: u64,
    /// `phase`, `window`, `note` or `end`.
    pub kind: &'static str,
    /// JSON on one line.
    pub data: String,
}

/// What a reader finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The next event.
    Event(LogEvent),
    /// Nothing yet.
    Wait,
    /// Nothing any more.
    End,
}

/// The events of one drill.
#[derive(Debug)]
pub struct EventLog {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<LogEvent>,
    last: u64,
    is_closed: bool,
}

impl EventLog {
    /// A log without events.
    #[must_use]
    pub fn new() -> Self {
        Self { inner: Mutex::default(), changed: watch::Sender::new(0) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event and wakes its readers.
    pub fn push(&self, kind: &'static str, data: String) {
        let mut inner = self.inner();
        inner.last += 1;
        let id = inner.last;
        inner.events.push_back(LogEvent { id, kind, data });
        if inner.events.len() > MAX_EVENTS {
            inner.events.pop_front();
        }
        drop(inner);
        self.changed.send_replace(id);
    }

    /// Nothing will be added any more.
    pub fn close(&self) {
        let mut inner = self.inner();
        inner.is_closed = true;
        let last = inner.last;
        drop(inner);
        self.changed.send_replace(last);
    }

    /// The first event after number `seen`. A number that was not given out yet is from a life before this daemon's: it starts from the oldest.
    #[must_use]
    pub fn after(&self, seen: u64) -> Next {
        let inner = self.inner();
        let seen = if seen > inner.last { 0 } else { seen };
        match inner.events.iter().find(|event| event.id > seen) {
            Some(event) => Next::Event(event.clone()),
            None if inner.is_closed => Next::End,
            None => Next::Wait,
        }
    }

    /// Changes with every event, and at the end.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Waits until nothing will be added any more.
    pub async fn ended(&self) {
        let mut changed = self.subscribe();
        while !self.inner().is_closed {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Default for EventLog {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(next: Next) -> Option<u64> {
        match next {
            Next::Event(event) => Some(event.id),
            Next::Wait | Next::End => None,
        }
    }

    #[test]
    fn a_reader_goes_on_behind_what_it_has_seen() {
        let log = EventLog::new();
        log.push("phase", "1".to_owned());
        log.push("note", "2".to_owned());
        assert_eq!(id(log.after(0)), Some(1));
        assert_eq!(id(log.after(1)), Some(2));
        assert_eq!(log.after(2), Next::Wait);
        log.close();
        assert_eq!(log.after(2), Next::End);
        assert_eq!(id(log.after(77)), Some(1), "a number from another life");
    }

    #[test]
    fn old_events_go_and_numbers_stay() {
        let log = EventLog::new();
        for _ in 0..MAX_EVENTS + 5 {
            log.push("note", String::new());
        }
        assert_eq!(id(log.after(0)), Some(6));
    }
}
