//! `docs/seeds.md`, from what the runs left as JSON.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::claims::{ARTICLES, CLAIMS};
use super::result::{Section, Table, Verdict};
use super::systems;
use crate::{paths, say};

/// Where the last whole run of each system is kept.
pub(crate) fn results() -> PathBuf {
    paths::workspace().join("docs/seeds")
}

/// Writes the page.
pub(crate) fn page() -> Result<()> {
    let mut sections: Vec<Section> = Vec::new();
    for system in systems::ALL {
        let path = results().join(system.name).with_extension("json");
        let Ok(text) = fs::read_to_string(&path) else {
            say::step(format!("no results of {} yet: run `cargo xtask seeds --only {}`", system.name, system.name));
            continue;
        };
        sections.push(serde_json::from_str(&text).with_context(|| format!("{} is not what a run writes", path.display()))?);
    }
    let page = paths::workspace().join("docs/seeds.md");
    fs::write(&page, text(&sections)).with_context(|| format!("cannot write {}", page.display()))?;
    say::step(format!("wrote {}", page.display()));
    Ok(())
}

fn text(sections: &[Section]) -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("\n## The claims\n\n");
    for (letter, about) in ARTICLES {
        page.push_str(&format!("Claims {letter} are of an article {about}.\n"));
    }
    page.push('\n');
    page.push_str(&claims(sections));
    for section in sections {
        page.push_str(&describe(section));
    }
    page
}

const INTRODUCTION: &str = "# The systems behind the advice

Four articles say how retries multiply, how nginx, Envoy, gRPC, Redis and MySQL behave, and what to do about it. Here each of their claims that a
machine of one's own can check has been tried on the real system, with stormdrill injecting the fault and counting. This page is written by
`cargo xtask seeds` from what its runs left in `docs/seeds/`: every measured number is one of a run, and none is copied from an article. `cargo xtask seeds --only
NAME` repeats one section. The playbooks of the drills are then in `target/seeds/NAME/`.

*Reproduced* means that the real system did what the claim says; *in part* and *refuted* say beside it what it did instead.
";

fn claims(sections: &[Section]) -> String {
    let mut table = Table::new("", &["", "claim", "what was run", "the article's figure", "measured", "verdict"]);
    let mut tally = [0_usize; 4];
    for claim in &CLAIMS {
        let found: Vec<_> = sections
            .iter()
            .flat_map(|section| section.findings.iter().filter(|finding| finding.id == claim.id).map(move |finding| (section, finding)))
            .collect();
        let mut names: Vec<String> = found.iter().map(|(section, _)| format!("`cargo xtask seeds --only {}`", section.name)).collect();
        names.dedup();
        let measured = found.iter().map(|(_, finding)| finding.measured.clone()).collect::<Vec<_>>().join("; ");
        let verdict = overall(found.iter().map(|(_, finding)| finding.verdict));
        tally[match verdict {
            Some(Verdict::Reproduced) => 0,
            Some(Verdict::Partly) => 1,
            Some(Verdict::Refuted) => 2,
            None => 3,
        }] += 1;
        let (ran, measured) = if found.is_empty() { ("-".to_owned(), claim.unchecked.to_owned()) } else { (names.join(", "), measured) };
        let verdict = verdict.map_or("not checked", Verdict::text);
        table.row([claim.id.to_owned(), claim.text.to_owned(), ran, claim.figure.to_owned(), measured, verdict.to_owned()]);
    }
    let [reproduced, partly, refuted, open] = tally;
    format!(
        "Of {} claims {reproduced} were reproduced, {partly} in part, {refuted} refuted, and {open} not checked, for the reason that stands there.\n\n{}",
        CLAIMS.len(),
        markdown(&table)
    )
}

/// One refutation among several findings makes it part of a claim.
fn overall(verdicts: impl Iterator<Item = Verdict>) -> Option<Verdict> {
    verdicts.reduce(|all, one| if all == one { all } else { Verdict::Partly })
}

fn describe(section: &Section) -> String {
    let kernel = if section.kernel.is_empty() { String::new() } else { format!("; the host's kernel was {}", section.kernel) };
    let versions = section.versions.join(", ");
    let mut text = format!("\n## {}\n\n`cargo xtask seeds --only {}`; {versions}{kernel}.\n", section.title, section.name);
    for paragraph in &section.story {
        text.push_str(&format!("\n{paragraph}\n"));
    }
    for table in &section.tables {
        text.push_str(&format!("\n**{}**\n\n{}", table.title, markdown(table)));
    }
    if !section.counts.is_empty() {
        let mut table = Table::new("", &["counted", "by stormdrill", "by the system", "where it says so"]);
        for count in &section.counts {
            table.row([count.what.clone(), count.ours.to_string(), count.theirs.to_string(), count.source.clone()]);
        }
        text.push_str(&format!("\n**Our counts beside the system's own**\n\n{}", markdown(&table)));
    }
    if !section.drills.is_empty() {
        let mut table = Table::new("", &["drilled", "verdict", "expectation", "observed", "its verdict"]);
        for drill in &section.drills {
            for (index, line) in drill.lines.iter().enumerate() {
                let first = |text: &str| if index == 0 { text.to_owned() } else { String::new() };
                let what = format!("{} (`{}`)", drill.what, drill.playbook);
                table.row([first(&what), first(&drill.verdict), format!("`{}`", line.text), line.observed.clone(), line.verdict.clone()]);
            }
        }
        text.push_str(&format!("\n**Drills**\n\n{}", markdown(&table)));
    }
    for paragraph in &section.advice {
        text.push_str(&format!("\n{paragraph}\n"));
    }
    text
}

fn markdown(table: &Table) -> String {
    let line = |cells: &[String]| {
        format!("| {} |\n", cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', " ")).collect::<Vec<_>>().join(" | "))
    };
    let mut text = line(&table.columns);
    text.push_str(&format!("|{}\n", "---|".repeat(table.columns.len())));
    table.rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_with_a_finding_shows_it_and_one_without_says_why() {
        let mut section = Section { name: "layers".into(), ..Section::default() };
        section.find("B1", Verdict::Reproduced, "81.0 calls");
        let table = claims(&[section]);
        assert!(table.contains("| B1 |") && table.contains("| 81.0 calls | reproduced |"), "{table}");
        assert!(table.contains("| D10 |") && table.contains("missing from the article's text | not checked |"), "{table}");
        assert!(table.starts_with(&format!("Of {} claims 1 were reproduced", CLAIMS.len())), "{table}");
    }

    #[test]
    fn findings_that_disagree_make_part_of_a_claim() {
        assert_eq!(overall([Verdict::Reproduced, Verdict::Reproduced].into_iter()), Some(Verdict::Reproduced));
        assert_eq!(overall([Verdict::Reproduced, Verdict::Refuted].into_iter()), Some(Verdict::Partly));
        assert_eq!(overall(std::iter::empty()), None);
    }

    #[test]
    fn a_cell_cannot_break_its_table() {
        let mut table = Table::new("", &["a"]);
        table.row(["x|y\nz".to_owned()]);
        assert_eq!(markdown(&table), "| a |\n|---|\n| x\\|y z |\n");
    }
}
