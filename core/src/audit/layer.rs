//! A layer of a request's path: what it retries, how often, for how long, and what it answers once it has given up.

use std::time::Duration;

use super::kind::{Kind, Kinds};
use super::{Format, Place};

/// One layer: one file, or what was stated on the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The file's name, or the stated name.
    pub name: String,
    /// What kind of file; `None` if it was stated.
    pub format: Option<Format>,
    /// Its routes. A request takes one of them.
    pub policies: Vec<Policy>,
}

/// How one route, location, backend or method retries.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// What it is in its file: `location /api (upstream backend)`.
    pub name: String,
    /// Where it is.
    pub place: Option<Place>,
    /// The kinds of failure after which another try is made.
    pub retries: Kinds,
    /// The same in the file's own words.
    pub words: String,
    /// How many tries there are for those kinds; one for all others.
    pub tries: Tries,
    /// What it answers when it has given up.
    pub answers: Answers,
    /// When a try is given up; `None` if the file does not say and there is no default.
    pub try_timeout: Option<Duration>,
    /// When all tries together are given up.
    pub total_timeout: Option<Duration>,
    /// How retries are limited beside their number, in words.
    pub budget: Option<String>,
    /// The pause before a retry, in words.
    pub backoff: Option<String>,
    /// Which requests are never repeated, in words.
    pub spares: Option<String>,
    /// The header that numbers the attempts, if one is sent.
    pub marker: Option<&'static str>,
}

/// How many tries, the first included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tries {
    /// At most this many, at least 1.
    AtMost(u32),
    /// Nothing in the file says.
    Unlimited,
}

impl Tries {
    /// The smaller of the two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        match (self, other) {
            (Self::AtMost(a), Self::AtMost(b)) => Self::AtMost(a.min(b)),
            (Self::AtMost(n), Self::Unlimited) | (Self::Unlimited, Self::AtMost(n)) => Self::AtMost(n),
            (Self::Unlimited, Self::Unlimited) => Self::Unlimited,
        }
    }

    /// Whether there is more than the first.
    #[must_use]
    pub fn retries(self) -> bool {
        self != Self::AtMost(1)
    }
}

/// What a layer answers after its last try failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// A gateway: its own statuses for failures without an answer, the last answer otherwise.
    Gateway {
        /// HTTP status for refused connections.
        refused: u16,
        /// HTTP status for broken connections and rejected calls.
        broken: u16,
        /// HTTP status when no connection was made in time.
        unconnected: u16,
        /// HTTP status when no answer came in time.
        late: u16,
    },
    /// Always this.
    Always(Kind),
    /// A program's own decision, which no configuration tells.
    Unknown,
}

impl Answers {
    /// What the layer above sees; `None` if that cannot be known.
    #[must_use]
    pub const fn after(self, kind: Kind) -> Option<Kind> {
        match self {
            Self::Unknown => None,
            Self::Always(kind) => Some(kind),
            Self::Gateway { refused, broken, unconnected, late } => Some(match kind {
                Kind::Refused => Kind::Http(refused),
                Kind::Reset | Kind::Rejected => Kind::Http(broken),
                Kind::ConnectTimeout => Kind::Http(unconnected),
                Kind::Timeout => Kind::Http(late),
                Kind::Http(_) | Kind::Grpc(_) => kind,
            }),
        }
    }
}

impl Policy {
    /// A policy that tries once.
    pub(super) fn new(name: impl Into<String>, place: impl Into<Option<Place>>, answers: Answers) -> Self {
        Self {
            name: name.into(),
            place: place.into(),
            retries: Kinds::default(),
            words: String::new(),
            tries: Tries::AtMost(1),
            answers,
            try_timeout: None,
            total_timeout: None,
            budget: None,
            backoff: None,
            spares: None,
            marker: None,
        }
    }

    /// Tries for one kind of failure. Calls that hang are also limited by time: a try is begun only while the total lasts.
    #[must_use]
    pub fn tries(&self, kind: Kind) -> Tries {
        if !self.retries.contains(kind) {
            return Tries::AtMost(1);
        }
        match (kind, self.try_timeout, self.total_timeout) {
            (Kind::Timeout, Some(each), Some(total)) => self.tries.min(Tries::AtMost(begun_within(each, total))),
            _ => self.tries,
        }
    }

    /// Whether anything is retried at all.
    #[must_use]
    pub fn has_retries(&self) -> bool {
        !self.retries.is_empty() && self.tries.retries()
    }

    /// Whether a try that hangs ends before the whole does: one that does not is never followed by another.
    pub(super) fn cuts_tries(&self) -> bool {
        self.try_timeout.is_some_and(|each| self.total_timeout.is_none_or(|total| each < total))
    }

    /// How long a caller may have to wait; `None` if nothing limits it.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        let tries = match self.tries(Kind::Timeout) {
            Tries::AtMost(tries) => self.try_timeout.and_then(|each| each.checked_mul(tries)),
            Tries::Unlimited => None,
        };
        match (tries, self.total_timeout) {
            (Some(tries), Some(total)) => Some(tries.min(total)),
            (tries, total) => tries.or(total),
        }
    }
}

/// How many tries of a length, each begun when the one before ended, are begun before a total is over. At least 1.
#[must_use]
pub fn begun_within(each: Duration, total: Duration) -> u32 {
    if each.is_zero() {
        return u32::MAX;
    }
    u32::try_from(total.as_nanos().div_ceil(each.as_nanos())).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_is_begun_only_while_the_total_lasts() {
        let seconds = Duration::from_secs;
        for (each, total, begun) in [(5, 15, 3), (5, 12, 3), (60, 3, 1), (1, 0, 1), (3, 3, 1), (3, 4, 2)] {
            assert_eq!(begun_within(seconds(each), seconds(total)), begun, "{each} {total}");
        }
        assert_eq!(begun_within(Duration::ZERO, seconds(1)), u32::MAX);
        assert_eq!(begun_within(Duration::from_nanos(1), Duration::MAX), u32::MAX);
    }

    #[test]
    fn a_total_limits_the_tries_of_calls_that_hang_and_not_of_those_that_fail_at_once() {
        let mut policy = Policy::new("p", None, Answers::Unknown);
        policy.retries = [Kind::Timeout, Kind::Reset].into_iter().collect();
        policy.tries = Tries::AtMost(5);
        policy.try_timeout = Some(Duration::from_secs(1));
        policy.total_timeout = Some(Duration::from_secs(2));
        assert_eq!(policy.tries(Kind::Timeout), Tries::AtMost(2));
        assert_eq!(policy.tries(Kind::Reset), Tries::AtMost(5));
        assert_eq!(policy.tries(Kind::Refused), Tries::AtMost(1));
        assert_eq!(policy.longest(), Some(Duration::from_secs(2)));
    }
}
