//! Reports made from a drill and from hostile names.

use super::result;
use crate::report::compare::{self, Change};
use crate::report::json::Run;
use crate::report::json::finding::FindingView;
use crate::report::{html, junit, markdown, risen, text};

fn run() -> Run {
    Run::of(&result())
}

/// A drill in whose texts every character that means something somewhere appears.
fn hostile() -> Run {
    let mut run = run();
    let text = "</code><script>alert(1)</script> & \"quoted\" | `tick` ]]> \u{0}\u{1b}[31m";
    run.drill.playbook = text.to_owned();
    run.drill.host = text.to_owned();
    run.drill.aborted = Some(text.to_owned());
    for edge in &mut run.edges {
        edge.name = text.to_owned();
    }
    run.findings = vec![FindingView { text: text.to_owned(), ..finding() }];
    for view in &mut run.expectations {
        view.text = text.to_owned();
        view.reason = Some(text.to_owned());
    }
    run
}

fn finding() -> FindingView {
    FindingView {
        kind: "unnamed_rise".to_owned(),
        edge: "db".to_owned(),
        caused_by: Vec::new(),
        factor: None,
        interval: [None, None],
        per_ingress: false,
        seen_after_s: None,
        retries_of_rise: None,
        text: String::new(),
    }
}

/// One that passed, with what its edges do not show of it.
fn passed() -> Run {
    let mut run = run();
    for view in &mut run.expectations {
        view.verdict = "pass".to_owned();
        view.reason = None;
    }
    run.verdict = Some("pass".to_owned());
    run
}

#[test]
fn every_report_says_what_was_injected_and_what_guarded_it() {
    let run = passed();
    let parameters = run.faults[0].parameters.clone().unwrap();
    assert!(parameters.contains('%'), "{parameters}");
    for report in [markdown::render(&run), junit::render(&run), html::render(&run), crate::report::json::write_run(&run)] {
        for said in [parameters.as_str(), "Half of the database", "5% for 3 windows"] {
            assert!(report.contains(said), "{said}: {report}");
        }
    }
    // An earlier version's result says neither, and claims neither.
    let mut older = run;
    (older.guards, older.drill.description, older.faults[0].parameters) = (None, None, None);
    let text = crate::report::json::write_run(&older);
    assert!(!["\"guards\"", "\"description\"", "\"parameters\""].iter().any(|key| text.contains(key)), "{text}");
    assert_eq!(crate::report::json::read_run(&text).unwrap(), older);
    assert!(!markdown::render(&older).contains("Guards") && !junit::render(&older).contains("guards:"));
}

#[test]
fn nothing_in_a_result_acts_on_a_terminal() {
    let mut run = hostile();
    run.drill.description = Some("one\u{1b}[2J\ntwo\u{202e}".to_owned());
    let text = "\u{1b}]0;title\u{7}\u{0}\u{2066}".to_owned();
    for phase in run.edges[0].phases.values_mut() {
        phase.status.insert(text.clone(), 1);
    }
    run.guards = Some(vec![text]);
    let shown = run.printable();
    assert_eq!(shown.drill.description.as_deref(), Some("one\u{FFFD}[2J\ntwo\u{FFFD}"));
    let written = format!("{shown:?}");
    assert!(!["\\u{1b}", "\\u{7}", "\\0", "\\u{202e}", "\\u{2066}"].iter().any(|bad| written.contains(bad)), "{written}");
    assert_eq!(run_of_numbers(&shown), run_of_numbers(&run));
    // Nor on a page, nor in what a CI system shows.
    run.expectations[0].reason = Some("a\u{1b}[31m\u{202e}b".to_owned());
    for report in [html::render(&run), junit::render(&run), markdown::render(&run)] {
        assert!(!["\u{1b}", "\u{7}", "\0", "\u{202e}", "\u{2066}"].iter().any(|bad| report.contains(bad)), "{report}");
    }
}

/// The numbers of a result, which no cleaning may touch.
fn run_of_numbers(run: &Run) -> (Vec<Option<f64>>, Vec<u64>) {
    (run.expectations.iter().map(|view| view.observed).collect(), run.windows.iter().map(|window| window.start_ns).collect())
}

#[test]
fn small_numbers_are_not_rounded_away() {
    let mut run = passed();
    let view = &mut run.expectations[0];
    (view.unit, view.observed, view.limit) = ("1/s".to_owned(), Some(0.05), Some(0.04));
    view.interval = Some([Some(0.001_234), Some(0.2)]);
    let row = text::row(&run.expectations[0]);
    assert_eq!([row[2].as_str(), &row[3], &row[4]], ["0.05/s", "0.04/s", "0.0012/s to 0.2/s"]);
    assert_eq!(text::quantity(0.000_432_1, "s"), "0.00043 s");
    assert_eq!(text::quantity(0.000_012, "ratio"), "0.0012%");
}

#[test]
fn a_bar_that_no_number_can_place_is_not_drawn() {
    let mut run = passed();
    let view = &mut run.expectations[0];
    (view.observed, view.limit, view.interval) = (Some(0.0), Some(1e308), Some([Some(-1e308), Some(1e308)]));
    assert!(!html::render(&run).contains("NaN"));
}

#[test]
fn junit_has_the_numbers_of_what_passed() {
    let text = junit::render(&passed());
    let out = text.split("<system-out>").nth(1).unwrap();
    for said in ["pass: ", "observed 200%, limit 20%, 90% interval ", ", windows 0-11 (fault)"] {
        assert!(out.contains(said), "{said}: {out}");
    }
}

/// The elements that an XML text opens, in order; panics if they are not closed in turn.
fn elements(xml: &str) -> Vec<String> {
    let (mut open, mut seen) = (Vec::new(), Vec::new());
    for tag in xml.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "{xml}");
        } else if !tag.starts_with('?') {
            let name = tag.split([' ', '/']).next().unwrap().to_owned();
            seen.push(name.clone());
            if !tag.ends_with('/') {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "{open:?}");
    seen
}

#[test]
fn junit_counts_each_verdict_as_what_it_is() {
    let mut run = run();
    let first = run.expectations[0].clone();
    run.expectations = ["pass", "fail", "inconclusive", "vacuous", "invalid"]
        .into_iter()
        .map(|verdict| crate::report::json::ExpectationView { verdict: verdict.to_owned(), ..first.clone() })
        .collect();
    let xml = junit::render(&run);
    assert!(xml.contains("tests=\"6\" failures=\"1\" errors=\"2\" skipped=\"1\" time=\"150.000\""), "{xml}");
    assert!(xml.contains("timestamp=\"2026-01-01T00:00:00\" hostname=\"lab\""), "{xml}");
    assert!(xml.contains("observed 200%, limit 20%, 90% interval 17"), "{xml}");
    let seen = elements(&xml);
    assert_eq!(seen[..3], ["testsuites", "testsuite", "properties"]);
    assert_eq!(seen.iter().filter(|name| *name == "testcase").count(), 6);
    run.drill.aborted = Some("guard `x`".to_owned());
    assert!(junit::render(&run).contains("errors=\"3\""));
}

#[test]
fn no_name_breaks_out_of_a_report() {
    let run = hostile();
    elements(&junit::render(&run));
    assert!(!junit::render(&run).chars().any(|c| c.is_control() && c != '\n'));
    let page = html::render(&run);
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
    let comment = markdown::render(&run);
    assert!(!comment.contains("<script") && !comment.contains("]]>"), "{comment}");
    // Each row of a table has as many cells as its head.
    let cells = |line: &str| line.replace("\\|", "").matches('|').count();
    let table: Vec<usize> = comment.lines().filter(|line| line.starts_with('|')).take(4).map(cells).collect();
    assert_eq!(table, [8; 4], "{comment}");
}

#[test]
fn the_page_needs_nothing_beside_itself() {
    let page = html::render(&run());
    for outside in ["<script", "<link", "<img", "@import", "url(", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("://").count(), page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    for number in ["200%", "17", "baseline", "recovery", "prefers-color-scheme: dark"] {
        assert!(page.contains(number), "{number}");
    }
    assert_eq!(page.matches("<figure>").count(), 5);
}

#[test]
fn the_table_below_a_stacked_chart_has_each_outcomes_own_share() {
    let mut run = run();
    for edge in run.windows.iter_mut().flat_map(|window| &mut window.edges).filter(|edge| edge.name == "db") {
        edge.status = [("200".to_owned(), 60), ("404".to_owned(), 10), ("503".to_owned(), 20)].into();
        edge.failures = [("client_abort".to_owned(), 10), ("status".to_owned(), 20)].into();
    }
    let page = html::render(&run);
    let figure = page.split("What became of downstream requests").nth(1).unwrap().split("</figure>").next().unwrap();
    let (chart, table) = figure.split_once("<details>").unwrap();
    let cells = |row: &str| -> Vec<String> { row.split("</td>").filter_map(|cell| Some(cell.rsplit_once("<td>")?.1.to_owned())).collect() };
    let row = cells(table.split("<tbody>").nth(1).unwrap().split("</tr>").next().unwrap());
    assert_eq!(row[2..], ["10.0 %", "20.0 %", "10.0 %", "60.0 %"]);
    // Drawn they are one above the other: the first fills the whole height.
    let tops: Vec<&str> = chart.split("<polygon").skip(1).collect();
    assert_eq!(tops.len(), 4);
    let least = |area: &str| {
        let points = area.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        points.split_whitespace().filter_map(|point| point.split_once(',')?.1.parse::<u32>().ok()).min()
    };
    let tops: Vec<u32> = tops.iter().filter_map(|area| least(area)).collect();
    assert!(tops.windows(2).all(|pair| pair[0] < pair[1]), "{tops:?}");
}

#[test]
fn pauses_before_retries_are_drawn_where_there_are_any() {
    let mut run = run();
    let gap = |up_to_ms, count| crate::report::json::retrying::Gap { up_to_ms, count };
    let retrying = &mut run.edges[1].phases.get_mut("fault").unwrap().retrying.as_mut().unwrap();
    retrying.gaps = vec![gap(Some(100.0), 40), gap(Some(2000.0), 10), gap(None, 1)];
    retrying.backoff_jitter = Some(0.25);
    let page = html::render(&run);
    for shown in ["Pauses before retries", "up to 100 ms", "up to 2 s", "longer", "width=\"250.0\"", "under the fault: 0.25"] {
        assert!(page.contains(shown), "{shown}");
    }
    // How pauses are spread that are none says nothing.
    run.edges[1].phases.get_mut("fault").unwrap().retrying.as_mut().unwrap().gaps = vec![gap(Some(1.0), 40), gap(Some(100.0), 10)];
    let page = html::render(&run);
    assert!(page.contains("come at once") && !page.contains("under the fault: 0.25"), "{page}");
}

#[test]
fn the_dark_page_replaces_every_colour_of_the_charts() {
    let page = html::render(&run());
    let dark = page.split("prefers-color-scheme: dark").nth(1).unwrap().split("</style>").next().unwrap().to_uppercase();
    let body = page.split("</style>").nth(1).unwrap();
    for part in body.split("fill=\"#").chain(body.split("stroke=\"#")).skip(1) {
        if let Some(colour) = part.get(..6).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit())) {
            assert!(dark.contains(&format!("#{}", colour.to_uppercase())), "#{colour}");
        }
    }
}

#[test]
fn reports_are_made_of_nothing_too() {
    let mut run = run();
    run.windows.clear();
    run.edges.clear();
    run.phases.clear();
    run.faults.clear();
    run.expectations.clear();
    run.verdict = None;
    elements(&junit::render(&run));
    assert!(html::render(&run).contains("no verdict"));
    assert!(markdown::render(&run).contains("NO VERDICT"));
}

#[test]
fn a_rise_is_listed_unless_an_expectation_names_the_edge() {
    let mut run = run();
    run.expectations[0].text = "db-replica amplification <= 2".to_owned();
    let risen = risen::unnamed(&run);
    assert_eq!(risen.len(), 1);
    assert!((risen[0].factor.unwrap() - 3.0).abs() < 1e-9 && risen[0].interval.lo > 2.5 && risen[0].per_ingress);
    run.findings = FindingView::all(&run);
    assert_eq!(run.findings.len(), 1, "no cascade: the fault is aimed at it");
    assert!(markdown::render(&run).contains("db rose to 3x of its baseline per ingress request"));
    run.expectations[0].text = "DB amplification <= 2".to_owned();
    assert_eq!(risen::unnamed(&run), []);
    // What is expected of all that is downstream is about the only edge.
    let mut only = run.clone();
    only.expectations[0].text = "downstream QPS increase <= 20%".to_owned();
    assert_eq!(risen::unnamed(&only), []);
    let mut other = only.edges.iter().find(|edge| edge.name == "db").unwrap().clone();
    other.name = "other".to_owned();
    only.edges.push(other);
    assert_eq!(risen::unnamed(&only).len(), 1);
    // Five requests more are no rise.
    let mut calm = run;
    calm.expectations.clear();
    for window in calm.windows.iter_mut().filter(|window| window.phase == "fault") {
        window.edges[1].requests = 105;
    }
    assert_eq!(risen::unnamed(&calm), []);
}

#[test]
fn a_drill_compared_with_itself_shows_no_difference() {
    let run = run();
    let rows = compare::rows(&run, &run);
    assert!(rows.iter().all(|row| matches!(row.change, Change::Same | Change::Unknown)), "{rows:?}");
    let named: Vec<&str> = rows.iter().map(|row| row.what.as_str()).collect();
    for what in ["verdict", "db: latency p99", "web: latency p50", "db: requests per ingress request", "db: retries after the fault"] {
        assert!(named.contains(&what), "{what}: {named:?}");
    }
}

#[test]
fn fewer_requests_in_an_outage_are_not_called_better() {
    let what = "db: requests per ingress request";
    let change = |before: &Run, after: &Run| compare::rows(before, after).into_iter().find(|row| row.what == what).map(|row| row.change);
    let before = run();
    let mut after = before.clone();
    for window in after.windows.iter_mut().filter(|window| window.phase == "fault") {
        window.edges[1].requests /= 5;
    }
    assert_eq!(change(&before, &after), Some(Change::Better));
    *after.edges[0].phases.get_mut("fault").unwrap().failures.get_mut("hang").unwrap() = 500;
    assert_eq!(change(&before, &after), Some(Change::Unknown));
}

#[test]
fn a_comparison_says_what_got_better_and_what_worse() {
    let before = run();
    let mut after = before.clone();
    after.expectations[0].verdict = "pass".to_owned();
    let fault = after.edges[1].phases.get_mut("fault").unwrap();
    fault.retries.matched = 0;
    *fault.failures.get_mut("hang").unwrap() = 900;
    let change = |rows: &[compare::Row], what: &str| rows.iter().find(|row| row.what == what).map(|row| row.change);
    let rows = compare::rows(&before, &after);
    assert_eq!(change(&rows, &before.expectations[0].text), Some(Change::Better));
    assert_eq!(change(&rows, "db: retries"), Some(Change::Better));
    assert_eq!(change(&rows, "db: failed"), Some(Change::Worse));
    assert_eq!(change(&compare::rows(&after, &before), "db: failed"), Some(Change::Better));
    assert_eq!(change(&rows, "db: latency p99"), Some(Change::Same));
    assert_eq!(change(&rows, "db: late starts per request"), None, "there were none");
    // Twice as slow, with intervals; without one, as results of earlier versions are, nothing is said.
    let fault = after.edges[1].phases.get_mut("fault").unwrap();
    fault.latency_ms.p50 = Some(10.0);
    fault.latency_interval_ms.as_mut().unwrap().p50 = [Some(9.0), Some(11.0)];
    fault.retrying.as_mut().unwrap().late_starts = 40;
    assert_eq!(change(&compare::rows(&before, &after), "db: latency p50"), Some(Change::Worse));
    assert_eq!(change(&compare::rows(&after, &before), "db: latency p50"), Some(Change::Better));
    assert_eq!(change(&compare::rows(&before, &after), "db: late starts per request"), Some(Change::Worse));
    after.edges[1].phases.get_mut("fault").unwrap().latency_interval_ms = None;
    assert_eq!(change(&compare::rows(&before, &after), "db: latency p50"), Some(Change::Unknown));
}

#[test]
fn a_comparison_says_that_a_drill_was_ended_early_or_vacuous() {
    let before = run();
    let mut after = before.clone();
    after.edges[1].phases.get_mut("fault").unwrap().retries.matched = 0;
    let cells = |before: &Run, after: &Run, what: &str| {
        compare::rows(before, after).iter().find(|row| row.what == what).map(compare::Row::cells).unwrap()
    };
    assert_eq!(cells(&before, &after, "db: retries")[3], "better");
    after.drill.aborted = Some("guard `x`".to_owned());
    assert_eq!(cells(&before, &after, "db: retries")[3], "after ended early: better");
    assert_eq!(cells(&before, &after, "verdict")[2], "fail (ended early)");
    assert_eq!(cells(&before, &after, "db: latency p99")[3], "no difference shown");
    after.verdict = Some("vacuous".to_owned());
    assert_eq!(cells(&before, &after, "db: retries")[3], "after ended early and vacuous: better");
    assert_eq!(cells(&after, &before, "db: retries")[3], "before ended early and vacuous: worse");
    assert_eq!(cells(&after, &before, "verdict")[3], "before ended early and vacuous: worse");
}

#[test]
fn facts_are_compared_though_they_have_no_interval() {
    let mut before = run();
    let view = &mut before.expectations[0];
    (view.text, view.unit) = ("attempts max <= 9".to_owned(), "count".to_owned());
    (view.verdict, view.observed, view.interval) = ("pass".to_owned(), Some(9.0), None);
    let mut after = before.clone();
    after.expectations[0].observed = Some(3.0);
    let change =
        |before: &Run, after: &Run| compare::rows(before, after).iter().find(|row| row.what == "attempts max <= 9").map(|row| row.change);
    assert_eq!(change(&before, &after), Some(Change::Better));
    assert_eq!(change(&after, &before), Some(Change::Worse));
    // Results of earlier versions had the number at both ends.
    before.expectations[0].interval = Some([Some(9.0), Some(9.0)]);
    assert_eq!(change(&before, &after), Some(Change::Better));
    assert_eq!(change(&before, &before), Some(Change::Same));
    let page = html::render(&after);
    let card = page.split("attempts max").nth(1).unwrap().split("</article>").next().unwrap();
    assert!(!card.contains("<dt>90% interval") && card.contains("windows"), "{card}");
    assert!(!junit::render(&after).contains("limit 0.2, 90% interval -"));
}

#[test]
fn tables_that_scroll_can_be_reached_and_are_shaded_where_there_is_more() {
    let page = html::render(&run());
    assert_eq!(page.matches("<div class=\"scroll\" tabindex=\"0\">").count(), page.matches("<div class=\"scroll\"").count());
    let style = page.split("</style>").next().unwrap();
    let scroll = style.split(".scroll {").nth(1).unwrap().split('}').next().unwrap();
    assert!(scroll.contains("overflow-x: auto") && scroll.contains("local") && scroll.contains("scroll;"), "{scroll}");
}

#[test]
fn a_comparison_says_that_a_storm_is_over() {
    let (storm, calm) = (run(), {
        let mut calm = run();
        for window in calm.windows.iter_mut().filter(|window| window.phase == "fault") {
            window.edges[1].requests = 100;
        }
        calm
    });
    let rows = compare::rows(&storm, &calm);
    let row = rows.iter().find(|row| row.what == "db: requests per ingress request").unwrap();
    assert_eq!((row.before.as_str(), row.after.as_str(), row.change), ("3.000", "1.000", Change::Better));
    let mut cascade = run();
    cascade.findings = vec![FindingView { kind: "cascade".to_owned(), factor: Some(4.0), ..finding() }];
    let rows = compare::rows(&run(), &cascade);
    let row = rows.iter().find(|row| row.what == "cascade to db").unwrap();
    assert_eq!((row.before.as_str(), row.after.as_str(), row.change), ("none", "4x", Change::Worse));
}

/// Every number in a value, by its place.
fn numbers(value: &serde_json::Value, at: String, out: &mut Vec<String>) {
    match value {
        serde_json::Value::Number(_) => out.push(at),
        serde_json::Value::Array(items) => items.iter().enumerate().for_each(|(key, item)| numbers(item, format!("{at}/{key}"), out)),
        serde_json::Value::Object(items) => items.iter().for_each(|(key, item)| numbers(item, format!("{at}/{key}"), out)),
        _ => {}
    }
}

#[test]
fn no_number_in_a_result_makes_a_report_panic() {
    let good: serde_json::Value = serde_json::from_str(include_str!("measured.json")).unwrap();
    let mut places = Vec::new();
    numbers(&good, String::new(), &mut places);
    let extremes = [serde_json::json!(u64::MAX), serde_json::json!(0), serde_json::json!(1e308), serde_json::json!(-1e-308)];
    let mut shown = 0;
    let each = |of: usize| places.iter().enumerate().filter(move |(index, _)| index % of == 0);
    for (extreme, place) in each(1).map(|(_, place)| (0, place)).chain(each(11).map(|(index, place)| (index / 11 % 4, place))) {
        let mut bad = good.clone();
        *bad.pointer_mut(place).unwrap() = extremes[extreme].clone();
        let Ok(run) = crate::report::json::read_run(&bad.to_string()) else { continue };
        shown += html::render(&run).len() + junit::render(&run).len() + markdown::render(&run).len();
        assert!(!compare::rows(&run, &run).is_empty());
    }
    assert!(shown > 0);
}
