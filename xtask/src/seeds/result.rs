//! What a system's run found, as data: it is written as JSON, and the page is made of nothing else.

use serde::{Deserialize, Serialize};

/// What one system's drills showed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) title: String,
    /// What ran, with versions.
    pub(crate) versions: Vec<String>,
    /// The release of the host's kernel at the time.
    #[serde(default)]
    pub(crate) kernel: String,
    /// Paragraphs before the tables.
    pub(crate) story: Vec<String>,
    pub(crate) tables: Vec<Table>,
    /// What was learnt about the articles' claims.
    pub(crate) findings: Vec<Finding>,
    pub(crate) drills: Vec<Drill>,
    /// Our counts beside the system's own.
    pub(crate) counts: Vec<Count>,
    /// What to configure so that the drill passes: paragraphs of Markdown.
    pub(crate) advice: Vec<String>,
    /// What went wrong besides drills and counts: such a section is not kept either.
    #[serde(skip)]
    pub(crate) wrong: Vec<String>,
    /// Why nothing was run, if so: such a section is not kept.
    #[serde(skip)]
    pub(crate) skipped: Option<String>,
}

/// Numbers in rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// What a run says about one claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Finding {
    /// Of the list in `claims.rs`.
    pub(crate) id: String,
    pub(crate) measured: String,
    pub(crate) verdict: Verdict,
}

/// What a run says of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Reproduced,
    /// Part of it, as the measured text says.
    Partly,
    Refuted,
}

/// One drill: its playbook's expectations, and whether its verdict was the one that it should be.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Drill {
    /// The configuration that was drilled.
    pub(crate) what: String,
    /// The file, from the project's root.
    pub(crate) playbook: String,
    /// The verdict that this configuration deserves.
    pub(crate) expected: String,
    pub(crate) verdict: String,
    pub(crate) lines: Vec<Line>,
    /// Whether its result has requests at the ingress and downstream and the share of retries, in every window.
    #[serde(skip)]
    pub(crate) has_series: bool,
}

/// One expectation of a drill.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) text: String,
    pub(crate) verdict: String,
    pub(crate) observed: String,
    pub(crate) reason: String,
}

/// The same thing counted twice: in the kernel by stormdrill, and by the system itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) what: String,
    pub(crate) ours: u64,
    /// Where the other number is from.
    pub(crate) source: String,
    pub(crate) theirs: u64,
}

impl Section {
    /// What did not come out as it must.
    pub(crate) fn problems(&self) -> Vec<String> {
        let drills = self.drills.iter().filter(|drill| drill.verdict != drill.expected).map(|drill| {
            let lines = drill.lines.iter().map(|line| format!("{}: {} ({})", line.text, line.verdict, line.reason)).collect::<Vec<_>>();
            format!("{} came out {} and not {}: {}", drill.what, drill.verdict, drill.expected, lines.join("; "))
        });
        let counts = self.counts.iter().filter(|count| count.ours != count.theirs);
        let counts = counts.map(|count| format!("{}: we counted {}, {} says {}", count.what, count.ours, count.source, count.theirs));
        // A run without a drill and without a count cannot go wrong, so it says nothing.
        let empty = (self.drills.is_empty() && self.counts.is_empty()).then(|| "nothing was asserted".to_owned());
        drills.chain(counts).chain(self.wrong.clone()).chain(empty).collect()
    }

    /// One of which nothing was run.
    pub(crate) fn skip(why: &str) -> Self {
        Self { skipped: Some(why.to_owned()), ..Self::default() }
    }

    /// Adds what was learnt about a claim.
    pub(crate) fn find(&mut self, id: &str, verdict: Verdict, measured: impl Into<String>) {
        self.findings.push(Finding { id: id.to_owned(), measured: measured.into(), verdict });
    }

    /// Adds a number that two counted.
    pub(crate) fn count(&mut self, what: impl Into<String>, ours: u64, source: &str, theirs: u64) {
        self.counts.push(Count { what: what.into(), ours, source: source.to_owned(), theirs });
    }
}

impl Table {
    pub(crate) fn new(title: &str, columns: &[&str]) -> Self {
        Self { title: title.to_owned(), columns: columns.iter().map(|&column| column.to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl Verdict {
    /// Reproduced or refuted.
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Reproduced } else { Self::Refuted }
    }

    /// Reproduced if both halves of a claim hold, in part if one does.
    pub(crate) fn of_two(one: bool, other: bool) -> Self {
        match (one, other) {
            (true, true) => Self::Reproduced,
            (false, false) => Self::Refuted,
            _ => Self::Partly,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Partly => "in part",
            Self::Refuted => "refuted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_verdict_and_an_unequal_count_are_problems() {
        let mut section = Section::default();
        assert_eq!(section.problems(), ["nothing was asserted"]);
        section.count("calls", 3, "the log", 3);
        assert!(section.problems().is_empty());
        section.count("calls", 3, "the log", 4);
        let drill = Drill {
            what: "x".into(),
            playbook: String::new(),
            expected: "pass".into(),
            verdict: "fail".into(),
            lines: Vec::new(),
            has_series: true,
        };
        section.drills.push(drill);
        section.wrong.push("a drill that did not end".into());
        assert_eq!(section.problems().len(), 3);
    }
}
