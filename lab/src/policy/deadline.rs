//! A deadline: the instant at which the caller gives up, after which no attempt may start.

use std::time::Duration;

/// An instant on the lab's clock (see [`crate::clock::Clock`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Duration);

impl Deadline {
    /// The deadline `span` after `now`.
    #[must_use]
    pub fn after(now: Duration, span: Duration) -> Self {
        Self(now.saturating_add(span))
    }

    /// Reads a relative deadline, in milliseconds from `now`. `None` for anything but a whole number.
    #[must_use]
    pub fn from_relative(milliseconds: &str, now: Duration) -> Option<Self> {
        let span: u64 = milliseconds.trim().parse().ok()?;
        Some(Self::after(now, Duration::from_millis(span)))
    }

    /// Reads an absolute deadline in seconds since the Unix epoch, with or without a fraction; `unix` is `now` as such a
    /// time. One that is over becomes `now`. `None` for what is no such number.
    #[must_use]
    pub fn from_absolute(seconds: &str, now: Duration, unix: Duration) -> Option<Self> {
        let seconds: f64 = seconds.trim().parse().ok()?;
        let at = Duration::try_from_secs_f64(seconds).ok()?;
        // Rounded to whole microseconds: a double holds no more at today's date.
        let span = at.saturating_sub(unix).as_secs_f64() * 1e6;
        Some(Self::after(now, Duration::from_secs_f64(span.round() / 1e6)))
    }

    /// The time that is left at `now`; `None` once it is over.
    #[must_use]
    pub fn remaining(self, now: Duration) -> Option<Duration> {
        self.0.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// The instant itself, on the lab's clock.
    #[must_use]
    pub fn instant(self) -> Duration {
        self.0
    }

    /// The remaining time for the relative header, in whole milliseconds: rounded down, but never 0, which some read as
    /// "no limit".
    #[must_use]
    pub fn relative_ms(self, now: Duration) -> u64 {
        u64::try_from(self.0.saturating_sub(now).as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// The absolute header's text, with milliseconds; `unix` is `now` as time since the Unix epoch.
    #[must_use]
    pub fn absolute_text(self, now: Duration, unix: Duration) -> String {
        let at = (unix + self.0).saturating_sub(now);
        format!("{}.{:03}", at.as_secs(), at.subsec_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const UNIX: Duration = Duration::from_secs(1_800_000_000);

    #[test]
    fn nothing_is_left_at_the_deadline_itself() {
        let deadline = Deadline::after(NOW, Duration::from_millis(10));
        assert_eq!(deadline.remaining(NOW), Some(Duration::from_millis(10)));
        assert_eq!(deadline.remaining(NOW + Duration::from_millis(10)), None);
        assert_eq!(deadline.remaining(NOW + Duration::from_secs(1)), None);
    }

    #[test]
    fn both_forms_are_read() {
        let expected = Some(Deadline::after(NOW, Duration::from_millis(1500)));
        assert_eq!(Deadline::from_relative("1500", NOW), expected);
        assert_eq!(Deadline::from_absolute("1800000001.5", NOW, UNIX), expected);
    }

    #[test]
    fn an_absolute_deadline_in_the_past_is_over_now() {
        let over = Deadline::from_absolute("1700000000", NOW, UNIX);
        assert_eq!(over.map(|deadline| deadline.remaining(NOW)), Some(None));
    }

    #[test]
    fn what_is_no_deadline_is_none() {
        for text in ["", "soon", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(Deadline::from_relative(text, NOW), None, "{text}");
        }
        for text in ["", "tomorrow", "-1", "NaN", "inf", "1e300"] {
            assert_eq!(Deadline::from_absolute(text, NOW, UNIX), None, "{text}");
        }
    }

    #[test]
    fn the_rest_of_a_millisecond_is_not_announced_as_no_limit() {
        let deadline = Deadline::after(NOW, Duration::from_micros(300));
        assert_eq!(deadline.relative_ms(NOW), 1);
        assert_eq!(Deadline::after(NOW, Duration::from_micros(2900)).relative_ms(NOW), 2);
    }
}
