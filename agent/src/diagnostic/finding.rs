//! Findings of an audit, and files that it refused, shown like the problems of a playbook.

use std::fmt;

use miette::{Diagnostic, LabeledSpan, Severity, SourceCode};
use stormdrill_core::audit::finding::{self, Finding};
use stormdrill_core::audit::{Place, Refused};

use super::{Lines, MAX_LINE, Style, handler};

/// Renders a finding; ends in a newline. `texts` are the inputs' names and texts.
#[must_use]
pub fn finding(finding: &Finding, texts: &[(String, String)], style: Style) -> String {
    let severity = match finding.rule.severity() {
        finding::Severity::Error => Severity::Error,
        finding::Severity::Warning => Severity::Warning,
        finding::Severity::Note => Severity::Advice,
    };
    let Finding { rule, place, message, label, help } = finding;
    // The severity in words too: signs are not for everybody.
    let code = format!("{}: {}", rule.severity().as_str(), rule.as_str());
    show(Shown::new(code, severity, *place, message, label, help.clone(), texts), style)
}

/// Renders why a file could not be audited; ends in a newline.
#[must_use]
pub fn refused(refused: &Refused, texts: &[(String, String)], style: Style) -> String {
    let Refused { place, message, label, help } = refused;
    show(Shown::new("error: unreadable".to_owned(), Severity::Error, Some(*place), message, label, help.clone(), texts), style)
}

fn show(shown: Shown, style: Style) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail; the headline is the least that has to be said.
    if handler(style).render_report(&mut out, &shown).is_err() {
        out.push_str(&shown.message);
        out.push('\n');
    }
    out.push('\n');
    out
}

/// What miette is given.
#[derive(Debug)]
struct Shown {
    code: String,
    severity: Severity,
    message: String,
    help: Option<String>,
    source: Option<(Lines, LabeledSpan)>,
}

impl Shown {
    fn new(
        code: String,
        severity: Severity,
        place: Option<Place>,
        message: &str,
        label: &str,
        help: Option<String>,
        texts: &[(String, String)],
    ) -> Self {
        let Some((place, (name, text))) = place.and_then(|place| Some((place, texts.get(place.input)?))) else {
            return Self { code, severity, message: format!("{message} ({label})"), help, source: None };
        };
        let (start, end) = (place.start.min(text.len()), place.end.min(text.len()));
        let line_start = text.get(..start).unwrap_or_default().rfind('\n').map_or(0, |at| at + 1);
        let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        if line.len() > MAX_LINE || text.is_empty() {
            let (number, column) = place.line_and_column(text);
            return Self { code, severity, message: format!("{name}:{number}:{column}: {message} ({label})"), help, source: None };
        }
        let lines = Lines { name: name.clone(), text: text.clone() };
        let label = LabeledSpan::new(Some(label.to_owned()), start, end - start);
        Self { code, severity, message: message.to_owned(), help, source: Some((lines, label)) }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Shown {}

impl Diagnostic for Shown {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code.as_str()))
    }

    fn severity(&self) -> Option<Severity> {
        Some(self.severity)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|(lines, _)| lines as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.source.as_ref().map(|(_, label)| Box::new(std::iter::once(label.clone())) as Box<dyn Iterator<Item = LabeledSpan>>)
    }
}
