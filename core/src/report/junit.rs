//! The report as JUnit XML, for CI systems that show test results.
//!
//! | verdict | element | because |
//! |---|---|---|
//! | pass | none | |
//! | fail | `failure` | a limit was broken |
//! | inconclusive | `skipped` | the test was run with too little traffic to say anything |
//! | vacuous, invalid | `error` | the drill itself did not work: nothing was injected, or not measured right |
//!
//! A viewer that shows skipped tests in green does not turn the job green: the exit code is 3. One more test case says
//! whether the drill ran to its end, so that an aborted drill is an error even where all that was judged passed.
//!
//! The elements, their order and their attributes satisfy both the Ant schema (windyroad/JUnit-Schema), which demands the most,
//! and the readers of Jenkins and GitLab.

use std::fmt::Write as _;

use super::json::{ExpectationView, Run};
use super::markup::xml;
use super::{rows, text};

/// The whole of it.
#[must_use]
pub fn render(run: &Run) -> String {
    let cases: Vec<Case> = std::iter::once(ran(run)).chain(run.expectations.iter().map(Case::of)).collect();
    let count = |kind: Kind| cases.iter().filter(|case| case.kind == kind).count();
    let time = run.seconds();
    let drill = &run.drill;
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "  <testsuite name=\"{}\" package=\"stormdrill\" id=\"0\" timestamp=\"{}\" hostname=\"{}\" tests=\"{}\" failures=\"{}\" \
         errors=\"{}\" skipped=\"{}\" time=\"{time:.3}\">",
        xml(&drill.playbook),
        xml(local(&drill.started_at)),
        xml(if drill.host.is_empty() { "localhost" } else { &drill.host }),
        cases.len(),
        count(Kind::Failure),
        count(Kind::Error),
        count(Kind::Skipped),
    );
    out.push_str("    <properties>\n");
    for (name, value) in [("drill", &drill.id), ("kernel", &drill.kernel), ("version", &drill.version)] {
        let _ = writeln!(out, "      <property name=\"{name}\" value=\"{}\"/>", xml(value));
    }
    out.push_str("    </properties>\n");
    for case in &cases {
        case.write(&drill.playbook, if case.whole_drill { time } else { 0.0 }, &mut out);
    }
    let _ = writeln!(out, "    <system-out>{}</system-out>", xml(&about(run).join("\n")));
    out.push_str("    <system-err></system-err>\n  </testsuite>\n</testsuites>\n");
    out
}

/// What was done, the numbers of every expectation, and what was found that no test case asks for.
///
/// It belongs to the suite: Ant's schema allows no output in a test case, and nothing at all in one that passed.
fn about(run: &Run) -> Vec<String> {
    let description = run.drill.description.iter().flat_map(|text| text.lines()).map(str::to_owned);
    let faults = run.faults.iter().map(|fault| format!("fault: {}", rows::injected(fault)));
    let guards = rows::guards(run).map(|guards| format!("guards: {guards}"));
    let cases = run.expectations.iter().map(|view| format!("{}: {} ({})", view.verdict, view.text, details(view)));
    description.chain(faults).chain(guards).chain(cases).chain(run.findings.iter().map(|finding| finding.text.clone())).collect()
}

/// The schema's time has no zone; ours is UTC.
fn local(rfc3339: &str) -> &str {
    rfc3339.get(..19).unwrap_or(rfc3339)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Passed,
    Failure,
    Error,
    Skipped,
}

struct Case {
    name: String,
    kind: Kind,
    /// What happened, on one line.
    message: String,
    /// The word for it.
    verdict: String,
    /// Observed value, limit, interval, windows.
    details: String,
    whole_drill: bool,
}

fn ran(run: &Run) -> Case {
    let (kind, message) = match &run.drill.aborted {
        Some(reason) => (Kind::Error, reason.clone()),
        None => (Kind::Passed, String::new()),
    };
    Case {
        name: "the drill ran to its end".to_owned(),
        kind,
        details: message.clone(),
        message,
        verdict: "aborted".to_owned(),
        whole_drill: true,
    }
}

fn details(view: &ExpectationView) -> String {
    let [_, _, observed, limit, interval, windows, _] = text::row(view);
    // A fact has none.
    let interval = view.interval.map(|_| format!(", 90% interval {interval}")).unwrap_or_default();
    format!("observed {observed}, limit {limit}{interval}, windows {windows}")
}

impl Case {
    fn of(view: &ExpectationView) -> Self {
        let kind = match view.verdict.as_str() {
            "pass" => Kind::Passed,
            "fail" => Kind::Failure,
            "inconclusive" => Kind::Skipped,
            _ => Kind::Error,
        };
        Self {
            name: view.text.clone(),
            kind,
            message: view.reason.clone().unwrap_or_else(|| view.verdict.clone()),
            verdict: view.verdict.clone(),
            details: details(view),
            whole_drill: false,
        }
    }

    fn write(&self, playbook: &str, time: f64, out: &mut String) {
        let head = format!("    <testcase name=\"{}\" classname=\"stormdrill.{}\" time=\"{time:.3}\"", xml(&self.name), xml(playbook));
        let (message, verdict, details) = (xml(&self.message), xml(&self.verdict), xml(&self.details));
        let _ = match self.kind {
            Kind::Passed => writeln!(out, "{head}/>"),
            Kind::Skipped => writeln!(out, "{head}>\n      <skipped message=\"{verdict}: {message}\">{details}</skipped>\n    </testcase>"),
            Kind::Failure => {
                writeln!(out, "{head}>\n      <failure type=\"{verdict}\" message=\"{message}\">{details}</failure>\n    </testcase>")
            }
            Kind::Error => {
                writeln!(out, "{head}>\n      <error type=\"{verdict}\" message=\"{message}\">{details}</error>\n    </testcase>")
            }
        };
    }
}
