//! The AWS SDKs' shared configuration, `~/.aws/config`.
//!
//! Facts: the SDKs and Tools Reference Guide, "Retry behavior": three attempts in `standard` and `adaptive`, a number of each SDK's own in
//! `legacy`; botocore's `standard.py` and `quota.py` for the quota of 500 tokens, five a retry.

use std::ops::Range;

use super::Refused;
use super::finding::{Finding, Rule};
use super::kind::Kind;
use super::layer::{Answers, Policy, Tries};
use super::source::Source;

/// Attempts where only the mode is set.
const ATTEMPTS: u32 = 3;

/// A profile: its heading, and its settings with their places.
struct Profile<'a> {
    name: &'a str,
    heading: Range<usize>,
    settings: Vec<(&'a str, &'a str, Range<usize>)>,
}

pub(super) fn read(source: &mut Source<'_>) -> Result<Vec<Policy>, Refused> {
    let profiles = profiles(source)?;
    let policies = profiles.iter().map(|profile| policy(source, profile)).collect();
    source.about(None);
    Ok(policies)
}

/// Whether a text is such a file: it has a profile's heading on a line of its own.
pub(super) fn looks_like(text: &str) -> bool {
    text.lines().any(|line| heading(line.trim()).and_then(profile_name).is_some()) && text.lines().any(|line| line.contains('='))
}

fn heading(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']').map(str::trim)
}

fn profile_name(heading: &str) -> Option<&str> {
    if heading == "default" { Some(heading) } else { heading.strip_prefix("profile ").map(str::trim) }
}

fn profiles<'a>(source: &Source<'a>) -> Result<Vec<Profile<'a>>, Refused> {
    let mut profiles: Vec<Profile<'a>> = Vec::new();
    // Other sections (sso-session, services) are passed over with their lines.
    let mut inside = false;
    let mut start = 0;
    for whole in source.text().split_inclusive('\n') {
        let line = whole.trim_end();
        let range = start..start + line.len();
        start += whole.len();
        let text = line.trim();
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        if text.starts_with('[') {
            let Some(heading) = heading(text) else {
                return Err(source.refuse(range, "this heading is not closed"));
            };
            let name = profile_name(heading);
            inside = name.is_some();
            profiles.extend(name.map(|name| Profile { name, heading: range, settings: Vec::new() }));
        } else if let (true, false, Some(profile), Some((key, value))) =
            (inside, line.starts_with([' ', '\t']), profiles.last_mut(), text.split_once('='))
        {
            profile.settings.push((key.trim(), value.trim(), range));
        }
    }
    Ok(profiles)
}

fn policy(source: &mut Source<'_>, profile: &Profile<'_>) -> Policy {
    let place = source.place(profile.heading.clone());
    source.about(Some(place));
    let setting = |name: &str| profile.settings.iter().rev().find(|(key, ..)| key.eq_ignore_ascii_case(name));
    let mut policy = Policy::new(format!("profile {}", profile.name), place, Answers::Unknown);
    policy.retries = [Kind::Refused, Kind::ConnectTimeout, Kind::Reset, Kind::Timeout].into_iter().collect();
    policy.retries.add([429, 500, 502, 503, 504].map(Kind::Http));
    policy.words = "connection errors, 500, 502, 503, 504, throttling".to_owned();
    policy.marker = Some("amz-sdk-request");
    policy.backoff = Some("a random time, longer each time, at most 20s".to_owned());
    let attempts = setting("max_attempts").and_then(|(_, value, range)| {
        let read = value.parse::<u32>().ok().filter(|attempts| *attempts > 0);
        if read.is_none() {
            source.unreadable(range.clone(), "a number of attempts", "a whole number from 1, as in `max_attempts = 3`");
        }
        read
    });
    let mode = setting("retry_mode");
    let quota = match mode.map(|(_, value, _)| value.to_ascii_lowercase()).as_deref() {
        Some("standard" | "adaptive") => true,
        Some("legacy") | None => false,
        Some(_) => {
            let range = mode.map_or(profile.heading.clone(), |(.., range)| range.clone());
            source.unreadable(range, "a retry mode", "`retry_mode = standard`");
            false
        }
    };
    policy.tries = attempts.or_else(|| quota.then_some(ATTEMPTS)).map_or(Tries::Unlimited, Tries::AtMost);
    policy.budget = Some(if quota { "500 tokens, 5 a retry: 100 retries at once, then 20% of the successes" } else { "none" }.to_owned());
    if policy.tries == Tries::Unlimited {
        source.report(
            Finding::new(
                Rule::UnlimitedTries,
                place,
                "how often a call is tried is for each SDK and its version to decide: 3 to 11 times are known",
            )
            .label("neither `retry_mode` nor `max_attempts`, or the mode is legacy")
            .help("add:\n  retry_mode = standard\n  max_attempts = 3"),
        );
    }
    if !quota && policy.has_retries() {
        let at = mode.map_or(place, |(.., range)| source.place(range.clone()));
        let finding =
            Finding::new(Rule::NoBudget, at, "retries are not limited by a quota: in an outage every call makes all its attempts");
        source.report(finding.label("the mode is legacy, or not set").help("write:\n  retry_mode = standard"));
    }
    policy
}
