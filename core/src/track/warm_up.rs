//! Times whose attempts are followed and not counted, since what they may repeat was not seen.

use std::collections::VecDeque;

use crate::edge::Protocol;

/// Events come late by a moment, and not by turns.
const KEPT: usize = 8;

/// The latest of those times.
#[derive(Debug, Default)]
pub(crate) struct WarmUps {
    spans: VecDeque<(u64, u64)>,
}

impl WarmUps {
    /// One begins, and lasts until `until_ns`.
    pub(crate) fn begin(&mut self, at_ns: u64, until_ns: u64) {
        if self.spans.len() == KEPT {
            self.spans.pop_front();
        }
        self.spans.push_back((at_ns, until_ns));
    }

    /// Whether an attempt falls into one. Of HTTP/2, everything is told at all times.
    pub(crate) fn covers(&self, protocol: Protocol, at_ns: u64) -> bool {
        !matches!(protocol, Protocol::Http2 | Protocol::Grpc) && self.spans.iter().any(|&(from, until)| (from..until).contains(&at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_with_a_turn_is_left_out_for_a_while_and_http2_never() {
        let mut warm_ups = WarmUps::default();
        assert!(!warm_ups.covers(Protocol::Http, 0));
        (1..20).for_each(|turn| warm_ups.begin(100 * turn, 100 * turn + 20));
        assert!(warm_ups.covers(Protocol::Http, 1900) && warm_ups.covers(Protocol::Redis, 1919));
        assert!(!warm_ups.covers(Protocol::Http, 1920) && !warm_ups.covers(Protocol::Http, 1899));
        assert!(warm_ups.covers(Protocol::Http, 1500));
        assert!(!warm_ups.covers(Protocol::Grpc, 1900) && !warm_ups.covers(Protocol::Http2, 1900));
    }
}
