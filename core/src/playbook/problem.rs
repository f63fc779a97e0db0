//! What is wrong with a playbook: where, why, and the line as it should be.

use std::ops::Range;

/// One thing that is wrong. All texts are lower-case fragments without a final period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The kind, stable across versions.
    pub code: Code,
    /// The headline.
    pub message: String,
    /// Which text it is in, and where.
    pub place: Place,
    /// What to say at the place itself.
    pub label: String,
    /// What to do, ending in the corrected line where one can be proposed.
    pub help: Option<String>,
}

/// A stretch of the playbook, or of one override.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The text.
    pub source: Source,
    /// First byte.
    pub start: usize,
    /// End, exclusive; never before `start`, and on a character boundary.
    pub end: usize,
}

/// The texts that a problem can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The playbook.
    File,
    /// An override by its position, read as `path=value`.
    Set(usize),
}

impl Place {
    /// Line and column of the first byte, both from one, the column in characters. `text` is the source's text.
    #[must_use]
    pub fn line_and_column(&self, text: &str) -> (usize, usize) {
        let before = text.get(..self.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// The kinds of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Not YAML, or YAML that no playbook needs (several documents, endless aliases).
    Syntax,
    /// A key that does not exist.
    UnknownKey,
    /// The same key twice in one mapping.
    DuplicateKey,
    /// A key that must be there is not.
    MissingKey,
    /// A list where a value belongs, and the like.
    WrongShape,
    /// A value that cannot be read.
    BadValue,
    /// A value that can be read and makes no sense.
    OutOfRange,
    /// A name that nothing has.
    UnknownName,
    /// Two parts that exclude each other.
    Conflict,
    /// A metric that does not exist.
    UnknownMetric,
    /// Known to stormdrill, but not to this version.
    NotInThisVersion,
    /// An override that leads nowhere.
    BadOverride,
}

impl Code {
    /// The word shown beside a diagnostic and in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::UnknownKey => "unknown-key",
            Self::DuplicateKey => "duplicate-key",
            Self::MissingKey => "missing-key",
            Self::WrongShape => "wrong-shape",
            Self::BadValue => "bad-value",
            Self::OutOfRange => "out-of-range",
            Self::UnknownName => "unknown-name",
            Self::Conflict => "conflict",
            Self::UnknownMetric => "unknown-metric",
            Self::NotInThisVersion => "not-in-this-version",
            Self::BadOverride => "bad-override",
        }
    }
}

/// The problems found so far, and the texts they are in.
#[derive(Debug)]
pub(super) struct Problems<'a> {
    file: &'a str,
    overrides: &'a [String],
    found: Vec<Problem>,
}

/// The label of a decimal comma that ends a value.
pub(super) const COMMA: &str = "a decimal comma";

/// A problem in the making; it is kept when `report` is called.
#[derive(Debug)]
#[must_use = "a problem counts only once it is reported"]
pub(super) struct Draft {
    code: Code,
    message: String,
    place: Place,
    label: String,
    advice: Option<String>,
    mend: Option<(Place, String)>,
}

impl Draft {
    pub(super) fn new(code: Code, place: &Place, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, label: "here".to_owned(), message, place: place.clone(), advice: None, mend: None }
    }

    /// What to say at the place, instead of "here".
    pub(super) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// What to do about it.
    pub(super) fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Proposes the line with the problem's place replaced.
    pub(super) fn replace(mut self, text: impl Into<String>) -> Self {
        self.mend = Some((self.place.clone(), text.into()));
        self
    }

    /// Proposes the line with another place replaced.
    pub(super) fn replace_at(mut self, place: Place, text: impl Into<String>) -> Self {
        self.mend = Some((place, text.into()));
        self
    }
}

impl<'a> Problems<'a> {
    pub(super) const fn new(file: &'a str, overrides: &'a [String]) -> Self {
        Self { file, overrides, found: Vec::new() }
    }

    pub(super) fn report(&mut self, draft: Draft) {
        let mended = draft.mend.and_then(|(place, text)| self.mended_line(&place, &text));
        let help = match (draft.advice, mended) {
            (Some(advice), Some(line)) if advice.ends_with('?') => Some(format!("{advice}\n  {line}")),
            (Some(advice), Some(line)) => Some(format!("{advice}:\n  {line}")),
            (None, Some(line)) => Some(format!("write:\n  {line}")),
            (advice, None) => advice,
        };
        let Draft { code, message, place, label, .. } = draft;
        self.found.push(Problem { code, message, place, label, help });
    }

    /// The first problem that a check finds, which is not kept.
    pub(super) fn tried(&self, check: impl FnOnce(&mut Self)) -> Option<Problem> {
        let mut other = Self::new(self.file, self.overrides);
        check(&mut other);
        other.found.into_iter().next()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) const fn count(&self) -> usize {
        self.found.len()
    }

    /// The problems, in the order in which a reader meets them.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        // What a comma has cut off is told with what follows it.
        let commas: Vec<Place> = self.found.iter().filter(|problem| problem.label == COMMA).map(|problem| problem.place.clone()).collect();
        let is_part =
            |place: &Place| commas.iter().any(|whole| (whole.source, whole.start) == (place.source, place.start) && whole.end > place.end);
        self.found.retain(|problem| !is_part(&problem.place));
        self.found.sort_by(|a, b| a.place.cmp(&b.place));
        self.found
    }

    /// The text that a place lies in.
    pub(super) fn text(&self, place: &Place) -> Option<&'a str> {
        let text = match place.source {
            Source::File => self.file,
            Source::Set(index) => self.overrides.get(index)?,
        };
        text.get(place.start..place.end)
    }

    /// The line around a place with the place replaced; `None` if it spans lines, or is too long to show.
    fn mended_line(&self, place: &Place, replacement: &str) -> Option<String> {
        let text = match place.source {
            Source::File => self.file,
            Source::Set(index) => self.overrides.get(index)?,
        };
        let before = text.get(..place.start)?;
        let after = text.get(place.end..)?;
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = after.find(['\n', '\r']).unwrap_or(after.len());
        let inside: Range<usize> = place.start..place.end;
        if text.get(inside)?.contains('\n') {
            return None;
        }
        // In braces a decimal comma ends the value, and what follows it would stay behind.
        if after.strip_prefix(',').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            return None;
        }
        let line = format!("{}{replacement}{}", &before[start..], &after[..end]);
        let line = line.trim();
        (line.chars().count() <= 160).then(|| line.to_owned())
    }
}
