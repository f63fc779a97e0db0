//! The mirror that this machine takes Debian packages from, read from its own apt sources, so that a site's mirror or proxy is used and no
//! host name stands in the project. Both of apt's formats are read: one line an entry, and deb822 stanzas.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Where packages come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mirror {
    /// The archive of the distribution itself.
    pub(super) archive: String,
    /// The archive of its security updates, which brings a stable suite's newest kernel. `None` where the system uses none.
    pub(super) security: Option<String>,
}

/// One binary-package source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    uri: String,
    suite: String,
}

/// Reads the system's mirror.
pub(super) fn of_system() -> Result<Mirror> {
    let mut sources = Vec::new();
    let mut files = vec![Path::new("/etc/apt/sources.list").to_path_buf()];
    if let Ok(folder) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(folder.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.sort();
    for file in files {
        // A file that cannot be read is one that apt does not use either.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => sources.extend(one_line(&text)),
            Some("sources") => sources.extend(deb822(&text)),
            _ => {}
        }
    }
    choose(&sources)
        .context("no Debian mirror in /etc/apt/sources.list or /etc/apt/sources.list.d: bring a kernel with --kernel-image and --modules")
}

/// Picks the two archives. Security suites are named apart ("bookworm-security", before that "buster/updates"); other archives in the same
/// sources (a vendor's own) are told from Debian's by their suites' names.
fn choose(sources: &[Source]) -> Option<Mirror> {
    let is_debian = |suite: &str| {
        let name = suite.split(['-', '/']).next().unwrap_or(suite);
        ["bullseye", "bookworm", "trixie", "forky", "sid", "stable", "oldstable", "oldoldstable", "testing", "unstable"].contains(&name)
    };
    let is_security = |suite: &str| suite.ends_with("-security") || suite.ends_with("/updates");
    let is_plain = |suite: &str| !suite.contains(['-', '/']);
    let archive = sources.iter().find(|source| is_debian(&source.suite) && is_plain(&source.suite))?;
    let security = sources.iter().find(|source| is_debian(&source.suite) && is_security(&source.suite));
    Some(Mirror { archive: archive.uri.clone(), security: security.map(|source| source.uri.clone()) })
}

/// `deb [options] URI SUITE COMPONENT…`
fn one_line(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some(rest) = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t'])) else { continue };
        let rest = rest.trim_start();
        let rest = match rest.strip_prefix('[').and_then(|options| options.split_once(']')) {
            Some((_, after)) => after,
            None => rest,
        };
        let mut words = rest.split_whitespace();
        if let (Some(uri), Some(suite)) = (words.next(), words.next()) {
            sources.push(Source { uri: uri.to_owned(), suite: suite.to_owned() });
        }
    }
    sources
}

/// Stanzas of `Key: value`, a value going on in lines that begin with a blank.
fn deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for stanza in lines.split(|line| line.trim().is_empty()) {
        let field = |wanted: &str| -> Vec<String> {
            let mut values = Vec::new();
            let mut inside = false;
            for line in stanza {
                let value = if line.starts_with([' ', '\t']) {
                    *line
                } else {
                    let Some((key, value)) = line.split_once(':') else { continue };
                    inside = key.eq_ignore_ascii_case(wanted);
                    value
                };
                if inside {
                    values.extend(value.split_whitespace().map(str::to_owned));
                }
            }
            values
        };
        let disabled = field("Enabled").first().is_some_and(|value| value.eq_ignore_ascii_case("no"));
        if disabled || !field("Types").iter().any(|kind| kind == "deb") {
            continue;
        }
        for uri in field("URIs") {
            sources.extend(field("Suites").into_iter().map(|suite| Source { uri: uri.clone(), suite }));
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(archive: &str, security: Option<&str>) -> Option<Mirror> {
        Some(Mirror { archive: archive.to_owned(), security: security.map(str::to_owned) })
    }

    #[test]
    fn deb822_stanzas_are_read() {
        let text = "Types: deb\n# a comment: with a colon\nURIs: http://mirror.test/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\n\
                    Types: deb deb-src\nURIs: http://mirror.test/security\nSuites:\n bookworm-security\nComponents: main\n";
        assert_eq!(choose(&deb822(text)), mirror("http://mirror.test/debian", Some("http://mirror.test/security")));
    }

    #[test]
    fn disabled_and_source_only_stanzas_are_left_out() {
        let text = "Enabled: no\nTypes: deb\nURIs: http://off.test/debian\nSuites: trixie\n\nTypes: deb-src\nURIs: http://src.test/debian\nSuites: trixie\n";
        assert!(deb822(text).is_empty());
    }

    #[test]
    fn one_line_sources_are_read() {
        let text = "# deb http://old.test/debian bullseye main\ndeb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian bullseye main contrib # why\n\
                    deb-src http://mirror.test/debian bullseye main\ndeb http://mirror.test/security bullseye-security main\n";
        assert_eq!(choose(&one_line(text)), mirror("http://mirror.test/debian", Some("http://mirror.test/security")));
    }

    #[test]
    fn another_vendors_archive_is_not_taken_for_debians() {
        let text = "deb http://vendor.test/apt cloud-tool main\ndeb http://mirror.test/debian sid main\n";
        assert_eq!(choose(&one_line(text)), mirror("http://mirror.test/debian", None));
        assert_eq!(choose(&one_line("deb http://vendor.test/apt nodistro main\n")), None);
        assert_eq!(choose(&[]), None);
    }
}
