//! What a location inherits: a setting holds in its block and in every block within, unless it is set there again.

use std::ops::Range;
use std::time::Duration;

use super::super::proto;
use super::super::source::Source;
use super::syntax::{Directive, Word};

/// The modules that pass requests on, by the prefix of their directives.
pub(super) const MODULES: [&str; 6] = ["proxy", "grpc", "fastcgi", "uwsgi", "scgi", "memcached"];

/// A setting as it is in force: its arguments, and where it was written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    pub(super) arguments: Vec<Word>,
    pub(super) range: Range<usize>,
}

/// The settings in force in a block, by name; inner ones replace outer ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings(Vec<(String, Setting)>);

impl Settings {
    /// The settings of a block within.
    pub(super) fn within(&self, block: &[Directive]) -> Self {
        let mut inner = self.clone();
        for directive in block.iter().filter(|directive| directive.block.is_none()) {
            let name = directive.name();
            if !MODULES.iter().any(|module| name.starts_with(module)) {
                continue;
            }
            let setting = Setting { arguments: directive.arguments().to_vec(), range: directive.range() };
            match inner.0.iter_mut().find(|(known, _)| known == name) {
                Some((_, old)) => *old = setting,
                None => inner.0.push((name.to_owned(), setting)),
            }
        }
        inner
    }

    pub(super) fn get(&self, module: &str, name: &str) -> Option<&Setting> {
        self.0
            .iter()
            .find(|(known, _)| known.strip_prefix(module).and_then(|rest| rest.strip_prefix('_')) == Some(name))
            .map(|(_, setting)| setting)
    }

    /// A time, or the default.
    pub(super) fn time(&self, source: &mut Source<'_>, module: &str, name: &str, default: Duration) -> Duration {
        let Some(word) = self.get(module, name).and_then(|setting| setting.arguments.first()) else {
            return default;
        };
        time(&word.text).unwrap_or_else(|| {
            source.unreadable(word.range.clone(), "a time", "one as in `5s`");
            default
        })
    }
}

/// nginx's times: `5`, `5s`, `500ms`, `1m 30s`; a number alone is seconds.
pub(super) fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(u64::from(seconds)));
    }
    let long = text.strip_suffix('d').map(|days| (days, 24)).or_else(|| text.strip_suffix('w').map(|weeks| (weeks, 24 * 7)));
    if let Some((count, hours)) = long {
        return Some(Duration::from_secs(count.parse::<u64>().ok()?.checked_mul(hours * 3600)?));
    }
    text.split_whitespace().try_fold(Duration::ZERO, |sum, part| sum.checked_add(proto::parse(part)?)).filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nginxs_own() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (text, read) in [
            ("5", seconds(5)),
            ("5s", seconds(5)),
            ("1m 30s", seconds(90)),
            ("1m30s", seconds(90)),
            ("2d", seconds(172_800)),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(time(text), read, "{text}");
        }
    }
}
