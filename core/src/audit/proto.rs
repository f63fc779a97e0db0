//! Durations and numbers as protobuf's JSON writes them.

use std::time::Duration;

use super::source::Source;
use super::tree::Node;
use crate::units::duration as units;

/// Reads `0.5s`, and the longer units that Istio and Spring take (`500ms`, `1m`, `1m30s`). `None` if it is absent or cannot be read.
pub(super) fn duration(source: &mut Source<'_>, node: Option<&Node>) -> Option<Duration> {
    let node = node?;
    let read = match node.text() {
        Some(text) => parse(text),
        // A parsed message instead of its JSON: {seconds: 1, nanos: 500000000}.
        None => {
            let part = |key| node.get(key).map_or(Some(0), |part| part.text()?.parse::<u64>().ok());
            let known = node.entry("seconds").is_some() || node.entry("nanos").is_some();
            let nanos = part("nanos").and_then(|nanos| u32::try_from(nanos).ok()).filter(|nanos| *nanos < 1_000_000_000);
            part("seconds").zip(nanos).map(|(seconds, nanos)| Duration::new(seconds, nanos)).filter(|_| known)
        }
    };
    if read.is_none() {
        source.unreadable(node.range.clone(), "a duration", "one as in `0.5s`");
    }
    read
}

/// One or more numbers with units, largest first: `1m30s`.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let end = rest[unit..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |next| unit + next);
        total = total.checked_add(units::parse(&rest[..end]).ok()?)?;
        rest = &rest[end..];
    }
    Some(total)
}

/// Reads a whole number, wrapped (`{value: 3}`) or not. `None` if it is absent or cannot be read.
pub(super) fn number(source: &mut Source<'_>, node: Option<&Node>) -> Option<u32> {
    let node = node?.unwrapped();
    let read = node.text().and_then(|text| text.parse().ok());
    if read.is_none() {
        source.unreadable(node.range.clone(), "a whole number", "one as in `2`");
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_all_these_systems_are_read() {
        let millis = |millis| Some(Duration::from_millis(millis));
        for (text, read) in [
            ("0.5s", millis(500)),
            ("500ms", millis(500)),
            ("1m30s", millis(90_000)),
            ("0s", millis(0)),
            ("5", None),
            ("", None),
            ("1s5", None),
            ("s", None),
        ] {
            assert_eq!(parse(text), read, "{text}");
        }
    }
}
