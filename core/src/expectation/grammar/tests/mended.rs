//! Corrected lines: each reads, each is another line, and none means something else than was written.
#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::super::{parse_expectation, parse_guard};
use super::edges;

/// The line with what an error proposes in its place.
fn corrected(line: &str, guard: bool) -> Option<String> {
    let error = if guard { parse_guard(line, &edges()).err() } else { parse_expectation(line, &edges()).err() }?;
    let range = error.replace_at.unwrap_or(error.range);
    Some(format!("{}{}{}", &line[..range.start], error.replace?, &line[range.end..]))
}

fn holds(line: &str) -> Result<(), TestCaseError> {
    for guard in [false, true] {
        if let Some(mended) = corrected(line, guard) {
            let again = if guard { parse_guard(&mended, &edges()).err() } else { parse_expectation(&mended, &edges()).err() };
            prop_assert!(again.is_none(), "{line:?} -> {mended:?}: {again:?}");
            prop_assert_ne!(mended.trim(), line.trim());
        }
        let error = if guard { parse_guard(line, &edges()).err() } else { parse_expectation(line, &edges()).err() };
        prop_assert!(error.is_none_or(|error| error.replace.is_some() || error.advice.is_some()), "{line:?}: nothing to do is said");
    }
    Ok(())
}

#[test]
fn a_line_is_corrected_to_what_was_meant_or_not_at_all() {
    for (line, mended) in [
        ("retry ratio of frist <= 10%", Some("retry ratio of first <= 10%")),
        ("retry ratio of firsts <= 10%", Some("retry ratio of first <= 10%")),
        ("downstream QPS increases <= 20%", Some("downstream QPS increase <= 20%")),
        ("downstream QPS rises <= 20%", Some("downstream QPS increase <= 20%")),
        ("downstream QPS increase by at most 20%", Some("downstream QPS increase <= 20%")),
        ("downstream QPS decrease <= 20%", None),
        ("retry ratio recovers in 2 windows", Some("retry ratio recovers within 2 windows")),
        ("retry ratio recovers in two windws", Some("retry ratio recovers within 2 windows")),
        ("retry ratio recovery within 2 windows", Some("retry ratio recovers within 2 windows")),
        ("retry ratio recovers within two windows", Some("retry ratio recovers within 2 windows")),
        ("retry ratio recovers within 1.5 windows", None),
        ("retry ratio recovers within -1 windows", None),
        ("downstream QPS increase <= 1.2", Some("downstream QPS increase <= 1.2%")),
        ("retry ratio recovers within 1", Some("retry ratio recovers within 1 window")),
        ("latency 99 <= 1s", Some("latency p99 <= 1s")),
        ("latency 99th <= 1s", Some("latency p99 <= 1s")),
        ("p99 latency <= 1s", Some("latency p99 <= 1s")),
        ("web p99 latency <= 1s", Some("web latency p99 <= 1s")),
        ("p99 failure latency <= 1s", Some("failure latency p99 <= 1s")),
        ("p99 <= 1s", Some("latency p99 <= 1s")),
        ("web p99 <= 1s", Some("web latency p99 <= 1s")),
        ("latency p0 <= 1s", None),
        ("latency p0.0000000000000000000001 <= 1s", None),
        ("web not metastable", Some("not metastable")),
        ("not metstable", Some("not metastable")),
        ("is not metastable", Some("not metastable")),
        ("never metastable", Some("not metastable")),
        ("failure ratio <= 1%", Some("success ratio >= 99%")),
        ("web error rate < 0.5% during recovery", Some("web success ratio > 99.5% during recovery")),
        ("failure ratio <= 1s", None),
        ("availability >= 99%", Some("success ratio >= 99%")),
        ("max attempts <= 3", Some("attempts max <= 3")),
        ("web success ratio > = 60%", Some("web success ratio >= 60%")),
        ("web success ratio == 60%", Some("web success ratio >= 60%")),
        ("web success ratio 60%", Some("web success ratio >= 60%")),
        ("retry ratio = 60%", Some("retry ratio <= 60%")),
        ("web success ratio != 60%", None),
        ("web success ratio", Some("web success ratio >= 99%")),
        ("web success ratio between 60% and 80%", None),
        ("attempts max <= 99999999999999999999999", None),
        ("attempts max <= three", Some("attempts max <= 3")),
        ("attempts max <= -1", None),
        ("web goodput increase >= -5%", Some("web goodput >= 0.95x")),
        ("web goodput increase >= −5%", Some("web goodput >= 0.95x")),
        ("web goodput increase >= -150%", None),
        ("web success ratio >= 0.9x", None),
        ("web success ratio >= 160%", None),
        ("latency p99 <= 1,5s", Some("latency p99 <= 1.5s")),
        ("latency p99 <= 1,500s", None),
        ("latency p99 <= 1e3s", None),
        ("latency p99 <= 99999999h", None),
        ("latency p99 <= 100millis", Some("latency p99 <= 100ms")),
        ("downstream QPS <= 1e5", None),
        ("downstream QPS <= 0x10", None),
        ("downstream QPS <= -5", None),
        ("downstream QPS <= 200rps", Some("downstream QPS <= 200/s")),
        ("downstream QPS <= 20%", None),
        ("downstream QPS increase <= 200/s", None),
        ("retry ratio <= 2x", None),
        ("amplification <= 20%", None),
        ("amplification <= 120%", Some("amplification <= 1.2x")),
        ("amplification <= x1.3", Some("amplification <= 1.3x")),
        ("downstream QPS increase <= 20% in every windows", Some("downstream QPS increase <= 20% in every window")),
        ("downstream QPS increase <= 20% in the fault", Some("downstream QPS increase <= 20% during fault")),
        ("web success ratio >= 60% in every window during recovery", Some("web success ratio >= 60% during recovery in every window")),
        ("web success ratio >= 60% and retry ratio <= 1%", None),
        ("web sucess ratio >= 60% durin recovry", Some("web success ratio >= 60% during recovery")),
        ("web success ratio > 100%", Some("web success ratio >= 100%")),
        ("retry ratio of first <= 3", Some("retry ratio of first <= 3%")),
        ("retransmit ratio <= 1.5", Some("retransmit ratio <= 1.5%")),
        ("latency p99 <= 300", Some("latency p99 <= 300ms")),
        ("latency p99 <= 2", Some("latency p99 <= 2s")),
        ("latency p99 <= 0.25", Some("latency p99 <= 0.25s")),
        ("latency p99 <= .3s", Some("latency p99 <= 0.3s")),
        ("latency p99 <= 300 milliseconds", Some("latency p99 <= 300ms")),
        ("orphan work <= 3", Some("orphan work <= 3s")),
        ("downstream QPS per ingres <= 1.2", Some("downstream QPS per ingress <= 1.2")),
        ("store downstream qps per request <= 1.2", Some("store downstream QPS per ingress <= 1.2")),
        ("downstream QPS per ingress request <= 1.2", Some("downstream QPS per ingress <= 1.2")),
        ("connections opend <= 20", Some("connections opened <= 20")),
        ("connections open <= 20", Some("connections <= 20")),
        ("retries <= 5%", Some("retry ratio <= 5%")),
        ("web retries < 5%", Some("web retry ratio < 5%")),
        ("retries <= 3", None),
        ("retry rate <= 5%", Some("retry ratio <= 5%")),
        ("retry rate <= 5/s", None),
        ("errors <= 1%", Some("success ratio >= 99%")),
        ("errors <= 3", None),
        ("response time p95 <= 1s", Some("latency p95 <= 1s")),
        ("20% >= retry ratio", Some("retry ratio <= 20%")),
        ("99 % <= web success ratio during recovery", Some("web success ratio >= 99% during recovery")),
        ("20% >= retry ratio >= 1%", None),
        ("web success ratio >= 99%%", Some("web success ratio >= 99%")),
        ("web success ratio >= 99 percent", Some("web success ratio >= 99%")),
        ("downstream QPS <= 200 rps", Some("downstream QPS <= 200/s")),
        ("retry ratio <= 5%.", Some("retry ratio <= 5%")),
        ("retry ratio is below 5%", Some("retry ratio < 5%")),
        ("retry ratio must be <= 5%", Some("retry ratio <= 5%")),
        ("retry ratio must not exceed 5%", Some("retry ratio <= 5%")),
        ("success ratio of web >= 60%", Some("web success ratio >= 60%")),
        ("retry ratio of store <= 5%", Some("store retry ratio <= 5%")),
        ("retry ratio of first on store <= 5%", Some("store retry ratio of first <= 5%")),
        ("latency of web p99 <= 1s", Some("web latency p99 <= 1s")),
        ("downstream QPS <= +20%", Some("downstream QPS increase <= 20%")),
        ("downstream QPS increase <= +20%", Some("downstream QPS increase <= 20%")),
        ("retry ratio <= +2%", None),
        ("amplification increase <= 20%", Some("amplification <= 1.2x")),
        ("web goodput >= 95%", Some("web goodput >= 0.95x")),
        ("web goodput <= 95%", None),
        ("web goodput >= 95% of the baseline", Some("web goodput >= 0.95x")),
        ("downstream QPS <= 1.2x of baseline", Some("downstream QPS <= 1.2x")),
        // Neither the baseline's limit nor a share.
        ("retry ratio <= 20% of baseline", None),
        ("retry ratio <= 20% in baseline", Some("retry ratio <= 20% during baseline")),
        ("retry ratio <= 5% during the fault", Some("retry ratio <= 5% during fault")),
        ("downstream QPS <= 20% increase", Some("downstream QPS increase <= 20%")),
        ("web/success ratio >= 99%", Some("web success ratio >= 99%")),
        ("store.retry ratio <= 5%", Some("store retry ratio <= 5%")),
        ("store: retry ratio <= 5%", Some("store retry ratio <= 5%")),
        ("retry ratio of first attempts <= 5%", Some("retry ratio of first <= 5%")),
        ("success rate >= 99", Some("success ratio >= 99%")),
        ("retry ratio < 0%", Some("retry ratio <= 0%")),
    ] {
        assert_eq!(corrected(line, false).as_deref(), mended, "{line}");
        holds(line).expect(line);
    }
}

#[test]
fn where_two_readings_are_likely_both_are_offered() {
    for (line, advice) in [
        ("retry ratio of first <= 3", "write `3%` or `300%`"),
        ("retransmit ratio <= 1.5", "write `1.5%` or `150%`"),
        ("latency p99 <= 300", "write `300ms` or `300s`"),
        ("latency p99 <= 3", "write `3s` or `3ms`"),
        ("orphan work <= 3", "write `3s` or `3ms`"),
        // Behind another slip in the same line, too.
        ("p99 latency <= 300", "write `300ms` or `300s`"),
        ("latncy p99 <= 300", "did you mean `latency p99`? Write `300ms` or `300s`"),
        ("downstream QPS increase <= 1.2", "write `1.2%`, or `20%` for 1.2 times as much"),
        ("retry ratio recovers within 20", "write `20 windows` or `20s`"),
        ("retry ratio recovers within 1", "write `1 window` or `1s`"),
    ] {
        assert_eq!(parse_expectation(line, &edges()).unwrap_err().advice.as_deref(), Some(advice), "{line}");
    }
}

#[test]
fn a_guard_is_corrected_to_what_was_meant() {
    for (line, mended) in [
        ("web success ratio < 20% for three windows", Some("web success ratio < 20% for 3 windows")),
        ("web success ratio < 20% fo 3 windows", Some("web success ratio < 20% for 3 windows")),
        ("web success ratio < 20% within 3 windows", Some("web success ratio < 20% for 3 windows")),
        ("web success ratio 20% for 3 windows", Some("web success ratio < 20% for 3 windows")),
        ("retry ratio 20%", Some("retry ratio > 20%")),
        ("retry ratio > 100%", Some("retry ratio >= 100%")),
        ("20% > web success ratio for 3 windows", Some("web success ratio < 20% for 3 windows")),
        ("success ratio of web < 20% for 3 windows", Some("web success ratio < 20% for 3 windows")),
        ("latency p99 > 500 for 2 windows", Some("latency p99 > 500ms for 2 windows")),
        ("web success ratio < 0%", Some("web success ratio <= 0%")),
        // A guard knows no factor of the baseline.
        ("web goodput > 95%", None),
        ("web success ratio < 20% 3 windows", Some("web success ratio < 20% for 3 windows")),
    ] {
        assert_eq!(corrected(line, true).as_deref(), mended, "{line}");
        holds(line).expect(line);
    }
}

#[test]
fn a_guard_that_is_reversed_is_not_made_one_that_trips_on_a_healthy_service() {
    for (line, sign) in [
        ("attempts max < 1", ">"),
        ("attempts max <= 0", ">"),
        ("cost per success < 1", ">"),
        ("retry peak to mean < 1 for 3 windows", ">"),
        ("retry ratio < 0%", ">"),
        ("success ratio > 100%", "<"),
        ("explicit failure ratio > 100%", "<"),
    ] {
        assert_eq!(corrected(line, true), None, "{line}");
        let advice = parse_guard(line, &edges()).unwrap_err().advice.unwrap();
        assert!(advice.contains("probably reversed") && advice.ends_with(&format!("is guarded by `{sign}`")), "{line}: {advice}");
    }
}

#[test]
fn where_no_line_is_proposed_the_form_is_shown() {
    for (line, advice) in [
        ("web success ratio >= 0.9x", "write it as in `success ratio >= 99%`"),
        ("amplification <= 20%", "write it as in `amplification <= 1.2`"),
        ("latency p90 <= 1e3s", "write it as in `latency p90 <= 3s`"),
        ("downstream QPS increase <= 200/s", "write it as in `downstream QPS increase <= 20%`"),
    ] {
        assert_eq!(parse_expectation(line, &edges()).unwrap_err().advice.as_deref(), Some(advice), "{line}");
    }
}

const GOOD: [&str; 12] = [
    "web success ratio >= 60% during recovery in every window",
    "downstream QPS increase <= 20%",
    "retry ratio of first recovers to 1% within 3 windows",
    "store failure latency p99.9 <= 1.5s",
    "not metastable",
    "web goodput >= 0.95x in every window",
    "layers retrying <= 1",
    "attempts max <= 3",
    "store downstream QPS per ingress <= 1.2x",
    "web success ratio < 20% for 3 windows",
    "latency p99 recovers within 90s",
    "order-db amplification <= 1.5 during fault",
];

proptest! {
    #[test]
    fn what_is_proposed_for_a_slip_reads(
        line in proptest::sample::select(&GOOD[..]),
        slips in proptest::collection::vec((any::<prop::sample::Index>(), 0..4, "[a-z0-9 %.,<=>-]"), 1..5),
    ) {
        let mut letters: Vec<char> = line.chars().collect();
        for (at, how, other) in slips {
            if letters.len() < 2 {
                break;
            }
            let at = at.index(letters.len() - 1);
            match how {
                0 => { letters.remove(at); }
                1 => letters.swap(at, at + 1),
                2 => letters.insert(at, other.chars().next().unwrap_or('x')),
                _ => letters[at] = other.chars().next().unwrap_or('x'),
            }
        }
        holds(&letters.iter().collect::<String>())?;
    }

    #[test]
    fn what_is_proposed_for_words_in_any_order_reads(words in proptest::collection::vec(proptest::sample::select(vec![
        "web", "store", "success", "ratio", "latency", "p99", "99", "retry", "of", "first", "frist", "increase", "recovers", "in", "within", "two",
        "2", "windows", "window", "every", "during", "fault", "<=", ">=", "=", ">", "20%", "-5%", "1.2x", "1e3s", "for", "fo", "not", "metastable",
        "failure", "goodput", "attempts", "max", "three", "is", "below", "+20%", "99%%", "300", "all", "qps", "per", "ingress",
    ]), 1..9)) {
        holds(&words.join(" "))?;
    }
}
