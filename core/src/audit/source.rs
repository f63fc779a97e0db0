//! A text that is being read, and what was found in it so far.

use std::collections::HashMap;
use std::ops::Range;

use super::finding::{Finding, Rule};
use super::{Place, Refused};

/// The text of one input.
#[derive(Debug)]
pub(super) struct Source<'a> {
    input: usize,
    text: &'a str,
    findings: Vec<Found>,
    /// Positions in `findings` by place and rule: a dump of a mesh has tens of thousands.
    by_place: HashMap<(Option<Place>, Rule), Vec<usize>>,
    /// The route that is being looked at: findings belong to it.
    policy: Option<Place>,
}

/// A finding, and the route that it is about; `None` if it concerns the whole file.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) policy: Option<Place>,
    pub(super) finding: Finding,
}

impl<'a> Source<'a> {
    pub(super) fn new(input: usize, text: &'a str) -> Self {
        Self { input, text, findings: Vec::new(), by_place: HashMap::new(), policy: None }
    }

    pub(super) const fn text(&self) -> &'a str {
        self.text
    }

    /// A place, on character boundaries whatever the caller says.
    pub(super) fn place(&self, range: Range<usize>) -> Place {
        let start = self.text.floor_char_boundary(range.start.min(self.text.len()));
        let end = self.text.floor_char_boundary(range.end.min(self.text.len())).max(start);
        Place { input: self.input, start, end }
    }

    /// Files all that follows under a route, or under the whole file.
    pub(super) const fn about(&mut self, policy: Option<Place>) {
        self.policy = policy;
    }

    /// Takes a finding. The same one may come from many routes that inherit a line: it is kept once, as the file's.
    pub(super) fn report(&mut self, finding: Finding) {
        let here = self.by_place.entry((finding.place, finding.rule)).or_default();
        match here.iter().find(|at| self.findings[**at].finding == finding) {
            Some(at) if self.findings[*at].policy == self.policy => {}
            Some(at) => self.findings[*at].policy = None,
            None => {
                here.push(self.findings.len());
                self.findings.push(Found { policy: self.policy, finding });
            }
        }
    }

    /// Reports a value that cannot be read.
    pub(super) fn unreadable(&mut self, range: Range<usize>, what: &str, wanted: &str) {
        let place = self.place(range);
        let found = crate::wording::excerpt(self.text.get(place.start..place.end).unwrap_or_default());
        let message = format!("`{found}` cannot be read as {what}");
        self.report(Finding::new(Rule::Unreadable, place, message).label("the default is assumed").help(format!("write {wanted}")));
    }

    pub(super) fn refuse(&self, range: Range<usize>, message: impl Into<String>) -> Refused {
        Refused { place: self.place(range), message: message.into(), label: "here".to_owned(), help: None }
    }

    pub(super) fn into_findings(self) -> Vec<Found> {
        self.findings
    }
}

impl Refused {
    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(super) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }
}
