//! Sections, and what they inherit: a proxy has the lines of its `defaults`, and its own override them.

use super::super::Refused;
use super::super::source::Source;
use super::lines::Line;

/// The sections that are looked at; all others are passed over with their lines.
const KINDS: [&str; 5] = ["global", "defaults", "frontend", "backend", "listen"];

/// A section and its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    /// `backend` and so on; something else for a section that is not looked at.
    pub(super) kind: String,
    pub(super) name: String,
    /// The line that opens it.
    pub(super) head: Line,
    pub(super) lines: Vec<Line>,
}

/// A section starts at the line's start; a keyword that is also a section's name never stands there.
pub(super) fn read(source: &Source<'_>, lines: Vec<Line>) -> Result<Vec<Section>, Refused> {
    let mut sections: Vec<Section> = Vec::new();
    for line in lines {
        let start = line.range().start;
        let first_column = start == 0 || source.text()[..start].ends_with('\n');
        // Some indent everything, sections too.
        if KINDS.contains(&line.word(0)) || (first_column && !sections.is_empty() && is_other_section(line.word(0))) {
            sections.push(Section { kind: line.word(0).to_owned(), name: line.word(1).to_owned(), head: line, lines: Vec::new() });
            continue;
        }
        match sections.last_mut() {
            Some(section) => section.lines.push(line),
            None if is_other_section(line.word(0)) || line.word(0).starts_with('.') => {
                sections.push(Section { kind: "other".to_owned(), name: String::new(), head: line, lines: Vec::new() });
            }
            None => {
                return Err(
                    source.refuse(line.range(), format!("`{}` stands outside of any section", crate::wording::excerpt(line.word(0))))
                );
            }
        }
    }
    Ok(sections)
}

fn is_other_section(word: &str) -> bool {
    [
        "resolvers",
        "peers",
        "mailers",
        "userlist",
        "cache",
        "program",
        "http-errors",
        "ring",
        "log-forward",
        "fcgi-app",
        "crt-store",
        "traces",
    ]
    .contains(&word)
}

/// The lines in force for a proxy: those of its defaults, then its own.
pub(super) fn in_force<'a>(proxy: &'a Section, sections: &'a [Section]) -> Vec<&'a Line> {
    let from = proxy.head.words().windows(2).find(|pair| pair[0].text == "from").map(|pair| pair[1].text.as_str());
    let before = sections.iter().take_while(|section| !std::ptr::eq(*section, proxy)).filter(|section| section.kind == "defaults");
    // The last of them in the file, or the one that is named.
    let defaults = before.filter(|section| from.is_none_or(|name| section.name == name)).last();
    defaults.into_iter().flat_map(|defaults| &defaults.lines).chain(&proxy.lines).collect()
}
