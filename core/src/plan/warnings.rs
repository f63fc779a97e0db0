//! What of a playbook can be carried out and yet will not tell what its author wants to know.

use super::power::shortfalls;
use crate::expectation::Expectation;
use crate::expectation::bounds::{self, Bounds};
use crate::playbook::{Guard, Playbook};

/// One sentence each: too little traffic, demands that hold whatever happens, and lines that stand twice.
#[must_use]
pub fn warnings(playbook: &Playbook) -> Vec<String> {
    let short = shortfalls(playbook).into_iter().map(|line| format!("too little traffic to be sure of a verdict: {line}"));
    let known = foregone(playbook).into_iter().map(|line| format!("an expectation that demands nothing: {line}"));
    let due = due_at_once(playbook).into_iter().map(|line| format!("a guard that ends every drill: {line}"));
    short.chain(known).chain(due).chain(twice(playbook)).collect()
}

/// Expectations that hold whatever happens. (Those that could never pass are refused.)
#[must_use]
pub fn foregone(playbook: &Playbook) -> Vec<String> {
    let why = |line: &Expectation| bounds::foregone(line.metric, line.demand, &playbook.edges);
    playbook.expect.iter().filter_map(|line| Some(format!("{line}: holds whatever happens, since {}", why(line)?))).collect()
}

/// Guards that hold as soon as anything is measured.
pub(super) fn due_at_once(playbook: &Playbook) -> Vec<String> {
    let why = |guard: &Guard| {
        Bounds::of(guard.metric, false, &playbook.edges)
            .always(guard.op, guard.value)
            .map(|why| format!("{guard}: holds always, since {why}"))
    };
    playbook.guards.iter().filter_map(why).collect()
}

/// Lines that say the same, however they are written.
pub(super) fn twice(playbook: &Playbook) -> Vec<String> {
    let lists = [
        ("expect", playbook.expect.iter().map(ToString::to_string).collect::<Vec<_>>()),
        ("guards", playbook.guards.iter().map(ToString::to_string).collect()),
    ];
    let again = |(key, lines): (&str, Vec<String>)| {
        let repeated = lines.iter().enumerate().filter(|(index, line)| lines[..*index].iter().filter(|before| before == line).count() == 1);
        repeated.map(|(_, line)| format!("`{line}` stands twice in `{key}`")).collect::<Vec<_>>()
    };
    lists.into_iter().flat_map(again).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn playbook(expect: &str, guards: &str) -> Playbook {
        let text = format!(
            "version: 1\nname: a\nobserve:\n  ingress: {{web: {{port: 8080}}}}\n  downstream: {{db: {{port: 9000}}}}\n\
             phases: {{baseline: 60s, fault: 60s, recovery: 60s}}\nexpect: [{expect}]\nguards: [{guards}]\n"
        );
        crate::playbook::parse(&text).unwrap()
    }

    #[test]
    fn a_demand_that_always_holds_is_called_so() {
        for (line, why) in [
            ("success ratio >= 0%", "nothing measured is below zero"),
            ("retry ratio <= 100%", "no share is above 100%"),
            ("goodput >= 0/s", "nothing measured is below zero"),
            ("goodput >= 0x", "nothing measured is below zero"),
            ("cost per success >= 1x", "each success costs one attempt at least"),
            ("attempts max >= 1", "each request has one attempt at least"),
            ("retry peak to mean > 0.5x", "the fullest 10 ms hold no less than the mean"),
            ("layers retrying <= 1", "only 1 downstream edge is observed"),
            ("success ratio recovers to 0% within 2 windows", "nothing measured is below zero"),
            ("retry ratio recovers to 100% within 2 windows", "no share is above 100%"),
        ] {
            assert_eq!(foregone(&playbook(line, "")), [format!("{line}: holds whatever happens, since {why}")], "{line}");
        }
        // Of first attempts there may be more retries than there are of them.
        for line in [
            "retry ratio of first <= 100%",
            "success ratio >= 100%",
            "retry ratio <= 0%",
            "downstream QPS increase >= 0%",
            "retry ratio recovers to 5% within 2 windows",
            "retry ratio of first recovers to 100% within 2 windows",
            "not metastable",
        ] {
            assert_eq!(warnings(&playbook(line, "")), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn a_guard_that_always_holds_is_called_so() {
        let said = warnings(&playbook("", "success ratio >= 0%, attempts max >= 1 for 3 windows, retry ratio > 50%"));
        let first = "a guard that ends every drill: success ratio >= 0% for 1 window: holds always, since nothing measured is below zero";
        assert_eq!((said.len(), said[0].as_str()), (2, first), "{said:?}");
    }

    #[test]
    fn a_line_that_stands_twice_is_told_once() {
        let said = warnings(&playbook("retry ratio <= 20%, Retry_Ratio <= 0.2, retry ratio ≤ 20 %, db retry ratio <= 20%", ""));
        assert_eq!(said, ["`retry ratio <= 20%` stands twice in `expect`"]);
        let said = warnings(&playbook("", "success ratio < 5%, success ratio < 5% for 1 window"));
        assert_eq!(said, ["`success ratio < 5% for 1 window` stands twice in `guards`"]);
    }
}
