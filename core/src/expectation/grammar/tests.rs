//! The grammar's promises: what reads, what it means, and that what is printed reads back.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use proptest::prelude::*;

use super::super::bounds::Bounds;
use super::super::metric::{Recovery, Row, Unit};
use super::super::{Demand, Expectation, Metric, Op, RetryBase, Within};
use super::{GrammarErrorKind, parse_expectation, parse_guard};
use crate::edge::{EdgeSpec, Role};
use crate::playbook::Guard;
use crate::window::PhaseName;

mod mended;

/// Names that are words of metrics are edges as well.
fn edges() -> Vec<EdgeSpec> {
    let names = [
        ("web", Role::Ingress),
        ("store", Role::Downstream),
        ("order-db", Role::Downstream),
        ("retry", Role::Downstream),
        ("retry-ratio", Role::Downstream),
        ("downstream", Role::Downstream),
        ("success", Role::Ingress),
    ];
    let edge = |(name, role): (&str, Role)| EdgeSpec { name: name.to_owned(), role, address: None, ports: None, protocol: None };
    names.into_iter().map(edge).collect()
}

const LIMIT: Demand = Demand::Limit { op: Op::AtMost, value: 0.2, increase: false, phase: PhaseName::Fault, every_window: false };

fn limit(op: Op, value: f64) -> Demand {
    Demand::Limit { op, value, increase: false, phase: PhaseName::Fault, every_window: false }
}

#[track_caller]
fn reads(line: &str, edge: Option<&str>, metric: Metric, demand: Demand) {
    let expected = Expectation { text: line.trim().to_owned(), edge: edge.map(str::to_owned), metric, demand };
    assert_eq!(parse_expectation(line, &edges()), Ok(expected));
}

#[test]
fn the_two_sentences_read_letter_for_letter() {
    let demand = Demand::Limit { op: Op::AtMost, value: 0.2, increase: true, phase: PhaseName::Fault, every_window: false };
    reads("downstream QPS increase ≤ 20%", None, Metric::DownstreamQps, demand);
    let demand = Demand::Recovers { to: None, within: Within::Windows(2) };
    reads("retry ratio recovers within 2 windows", None, Metric::RetryRatio { of: RetryBase::All }, demand);
}

#[test]
fn case_spaces_underscores_and_signs_do_not_matter() {
    for line in [
        "retry ratio <= 20%",
        "retry ratio ≤ 20%",
        "Retry_Ratio<=20 %",
        "  RETRY-RATIO   of all ≤20%  ",
        "retry ratio <= 0.2",
        "retry ratio <= 20% during fault",
        "retry ratio <= 20% DURING Fault",
    ] {
        // `retry-ratio` is an edge here too, but no metric follows it.
        reads(line, None, Metric::RetryRatio { of: RetryBase::All }, LIMIT);
    }
}

#[test]
fn an_edge_is_an_edge_only_before_a_metric() {
    let all = Metric::RetryRatio { of: RetryBase::All };
    reads("retry ratio <= 20%", None, all, LIMIT);
    reads("retry retry ratio <= 20%", Some("retry"), all, LIMIT);
    reads("retry-ratio retry ratio <= 20%", Some("retry-ratio"), all, LIMIT);
    reads("retry-ratio retry-ratio <= 20%", Some("retry-ratio"), all, LIMIT);
    reads("downstream qps <= 0.2/s", None, Metric::DownstreamQps, LIMIT);
    reads("downstream downstream qps <= 0.2", Some("downstream"), Metric::DownstreamQps, LIMIT);
    reads("success ratio >= 60%", None, Metric::SuccessRatio, limit(Op::AtLeast, 0.6));
    reads("success success ratio >= 60%", Some("success"), Metric::SuccessRatio, limit(Op::AtLeast, 0.6));
    reads("Order-DB amplification < 1.2x", Some("order-db"), Metric::Amplification, limit(Op::Less, 1.2));
}

#[test]
fn every_form_reads() {
    let first = Metric::RetryRatio { of: RetryBase::First };
    reads("retry ratio of first <= 20%", None, first, LIMIT);
    let p99 = Metric::FailureLatency { quantile: 0.99 };
    reads("web failure latency p99 <= 1s", Some("web"), p99, limit(Op::AtMost, 1.0));
    let p999 = Metric::FailureLatency { quantile: 0.999 };
    reads("failure_latency_p99.9 > 250us", None, p999, limit(Op::Greater, 0.00025));
    let demand = Demand::Limit { op: Op::AtMost, value: 500.0, increase: false, phase: PhaseName::Recovery, every_window: true };
    reads("ingress QPS <= 500/s during recovery in every window", None, Metric::IngressQps, demand);
    let demand = Demand::Recovers { to: Some(0.05), within: Within::Time(Duration::from_millis(1500)) };
    reads("store retry ratio recovers to 5% within 1.5s", Some("store"), Metric::RetryRatio { of: RetryBase::All }, demand);
}

#[test]
fn the_other_metrics_read_and_a_factor_is_of_the_baseline() {
    reads("latency p99 <= 250ms", None, Metric::Latency { quantile: 0.99 }, limit(Op::AtMost, 0.25));
    reads("web goodput >= 90/s", Some("web"), Metric::Goodput, limit(Op::AtLeast, 90.0));
    reads("explicit failure ratio >= 99%", None, Metric::ExplicitFailureRatio, limit(Op::AtLeast, 0.99));
    reads("attempts_max <= 3", None, Metric::AttemptsMax, limit(Op::AtMost, 3.0));
    reads("layers retrying <= 1", None, Metric::LayersRetrying, limit(Op::AtMost, 1.0));
    reads("store cost per success <= 1.2x", Some("store"), Metric::CostPerSuccess, limit(Op::AtMost, 1.2));
    reads("store connections opened <= 20", Some("store"), Metric::ConnectionsOpened, limit(Op::AtMost, 20.0));
    reads("store connect failures <= 0", Some("store"), Metric::ConnectFailures, limit(Op::AtMost, 0.0));
    reads("retransmit ratio <= 5%", None, Metric::RetransmitRatio, limit(Op::AtMost, 0.05));
    reads("store downstream QPS per ingress <= 1.5x", Some("store"), Metric::DownstreamPerIngress, limit(Op::AtMost, 1.5));
    let relative = |op, value| Demand::Limit { op, value, increase: true, phase: PhaseName::Fault, every_window: false };
    reads("downstream QPS per ingress increase <= 20%", None, Metric::DownstreamPerIngress, relative(Op::AtMost, 0.2));
    reads("downstream QPS <= 1.2x", None, Metric::DownstreamQps, relative(Op::AtMost, 0.2));
    reads("web goodput >= 0.95 x", Some("web"), Metric::Goodput, relative(Op::AtLeast, -0.05));
    reads("web latency p50 <= 3x", Some("web"), Metric::Latency { quantile: 0.5 }, relative(Op::AtMost, 2.0));
    let demand = Demand::Recovers { to: None, within: Within::Windows(3) };
    reads("web goodput recovers within 3 windows", Some("web"), Metric::Goodput, demand);
    assert_eq!(parse_expectation("goodput >= 0.95x", &edges()).unwrap().to_string(), "goodput >= 0.95x");
}

#[test]
fn what_may_exceed_all_has_limits_beyond_it() {
    let first = Metric::RetryRatio { of: RetryBase::First };
    reads("retry ratio of first <= 150%", None, first, limit(Op::AtMost, 1.5));
    reads("store retry ratio of first > 100%", Some("store"), first, limit(Op::Greater, 1.0));
    reads("retransmit ratio <= 205%", None, Metric::RetransmitRatio, limit(Op::AtMost, 2.05));
    let demand = Demand::Recovers { to: Some(1.5), within: Within::Windows(2) };
    reads("retry ratio of first recovers to 150% within 2 windows", None, first, demand);
    assert!((parse_guard("retry ratio of first > 200% for 2 windows", &edges()).unwrap().value - 2.0).abs() < 1e-12);
    for line in ["retry ratio <= 150%", "retry ratio of all <= 150%", "success ratio >= 150%", "explicit failure ratio >= 101%"] {
        assert!(parse_expectation(line, &edges()).unwrap_err().message.ends_with("is too large"), "{line}");
    }
}

#[test]
fn what_nothing_satisfies_is_refused() {
    let one: Vec<EdgeSpec> = edges().into_iter().filter(|edge| ["web", "store"].contains(&edge.name.as_str())).collect();
    for (line, why, mended) in [
        ("cost per success < 1", "each success costs one attempt at least", Some("cost per success <= 1")),
        ("cost per success <= 0.5", "each success costs one attempt at least", None),
        ("attempts max < 1", "each request has one attempt at least", Some("attempts max <= 1")),
        ("attempts max <= 0", "each request has one attempt at least", None),
        ("retry peak to mean < 1", "the fullest 10 ms hold no less than the mean", Some("retry peak to mean <= 1")),
        ("layers retrying > 1", "only 1 downstream edge is observed", Some("layers retrying >= 1")),
        ("layers retrying >= 2", "only 1 downstream edge is observed", None),
        ("downstream QPS < 0x", "nothing measured is below zero", None),
        ("latency p99 < 0x", "nothing measured is below zero", None),
        ("connections opened < 0x", "nothing measured is below zero", None),
        ("latency p99 <= 0s", "no answer comes in no time", None),
        ("latency p99 recovers to 0s within 2 windows", "no answer comes in no time", None),
        ("amplification < 0x", "nothing measured is below zero", Some("amplification <= 0x")),
    ] {
        let error = parse_expectation(line, &one).unwrap_err();
        assert_eq!((error.kind, error.message), (GrammarErrorKind::OutOfRange, format!("{why}: this could never pass")), "{line}");
        let range = error.replace_at.unwrap_or(error.range);
        let write = error.replace.map(|text| format!("{}{text}{}", &line[..range.start], &line[range.end..]));
        assert_eq!(write.as_deref(), mended, "{line}");
    }
    assert!(parse_guard("layers retrying > 1", &one).unwrap_err().message.ends_with("this guard could never trip"));
    for line in ["cost per success <= 1", "attempts max <= 1", "layers retrying >= 1", "downstream QPS <= 0x", "goodput >= 0.95x"] {
        assert!(parse_expectation(line, &one).is_ok(), "{line}");
    }
    assert!(parse_expectation("layers retrying > 1", &edges()).is_ok());
}

#[test]
fn metastability_is_a_verdict_and_takes_neither_edge_nor_limit() {
    let demand = Demand::Limit { op: Op::AtMost, value: 0.0, increase: false, phase: PhaseName::Recovery, every_window: false };
    reads("not metastable", None, Metric::Metastable, demand);
    reads("Not_Metastable ", None, Metric::Metastable, demand);
    assert_eq!(parse_expectation("not metastable", &edges()).unwrap().to_string(), "not metastable");
    for line in ["metastable <= 0", "web metastable <= 0", "not metastable during fault"] {
        assert!(parse_expectation(line, &edges()).is_err(), "{line}");
    }
    assert!(parse_guard("not metastable", &edges()).is_err());
    let downstream: Vec<EdgeSpec> = edges().into_iter().filter(|edge| edge.role == Role::Downstream).collect();
    assert_eq!(parse_expectation("not metastable", &downstream).unwrap_err().kind, GrammarErrorKind::NotAllowed);
}

#[test]
fn guards_read() {
    let guard = parse_guard("web success ratio < 20% for 3 windows", &edges()).unwrap();
    let expected = Guard {
        text: "web success ratio < 20% for 3 windows".to_owned(),
        edge: Some("web".to_owned()),
        metric: Metric::SuccessRatio,
        op: Op::Less,
        value: 0.2,
        windows: 3,
    };
    assert_eq!(guard, expected);
    assert_eq!(parse_guard("success ratio < 20%", &edges()).unwrap().windows, 1);
}

#[test]
fn what_does_not_read_is_refused_at_its_place_with_what_to_write() {
    use GrammarErrorKind::*;
    for (line, kind, at, message, mended) in [
        ("", Syntax, "", "the line is empty", None),
        ("web sucess ratio >= 60%", UnknownMetric, "sucess ratio", "there is no metric `sucess ratio`", Some("success ratio")),
        ("web qps >= 60", UnknownMetric, "qps", "there is no metric `qps`", Some("ingress QPS")),
        ("happiness >= 60%", UnknownMetric, "happiness", "there is no metric `happiness`", None),
        (
            "failure latncy p99 <= 1s",
            UnknownMetric,
            "failure latncy p99",
            "there is no metric `failure latncy p99`",
            Some("failure latency p99"),
        ),
        ("order_db amplification <= 1.2", UnknownName, "order_db", "there is no edge `order-db`", Some("order-db")),
        ("database amplification <= 1.2", UnknownName, "database", "there is no edge `database`", None),
        ("recovery windows <= 1", NotInThisVersion, "recovery windows", "`recovery windows` is not in this version of stormdrill", None),
        ("store layers retrying <= 1", NotAllowed, "layers retrying", "`layers retrying` is of the whole drill, not of `store`", None),
        (
            "ingress QPS recovers within 2 windows",
            NotInThisVersion,
            "recovers",
            "`ingress QPS recovers` is not in this version of stormdrill",
            None,
        ),
        ("web amplification <= 1.2", NotAllowed, "amplification", "`web` is an ingress edge, which has no amplification", None),
        ("retry ratio increase <= 20%", NotAllowed, "increase", "`retry ratio` has no `increase`", None),
        (
            "downstream qps increase <= 20% during baseline",
            NotAllowed,
            "baseline",
            "an increase during the baseline is measured against itself",
            Some("fault"),
        ),
        (
            "amplification <= 1.2 during baseline in every window",
            NotAllowed,
            "baseline",
            "`amplification` during the baseline is measured against itself",
            Some("fault"),
        ),
        ("connect failures <= -1", Value, "-1", "`-1` is negative", None),
        ("attempts max <= -1.5", Value, "-1.5", "`-1.5` is negative", None),
        ("retry ratio <= 3s", Value, "3s", "`retry ratio` is a share, not `3s`", None),
        ("retry ratio <= 30", Value, "30", "`30` has no unit", Some("30%")),
        ("retry ratio <= 130%", Value, "130%", "`130%` is too large", None),
        ("retry ratio <= -3%", Value, "-3%", "`-3%` is negative", None),
        ("retry ratio <= NaN%", Value, "NaN%", "`nan%` is not a finite number", None),
        ("retry ratio <= many", Value, "many", "`many` cannot be read here", None),
        ("amplification <= 120%", Value, "120%", "`amplification` is a factor, not `120%`", Some("1.2x")),
        ("downstream qps increase <= 20", Value, "20", "`20` has no unit", Some("20%")),
        ("retry ratio <= 1.2x", Value, "1.2x", "`retry ratio` is a share, not `1.2x`", None),
        ("downstream qps increase <= 1.2x", Value, "1.2x", "`1.2x` has a unit that is not known here", Some("20%")),
        ("downstream qps <= 20%", Value, "20%", "`downstream QPS` is a rate, not `20%`", None),
        ("failure latency p99 <= 3", Value, "3", "`3` has no unit", Some("3s")),
        ("failure latency p0 <= 3s", Value, "p0", "`p0` is no quantile", None),
        ("failure latency p100 <= 3s", Value, "p100", "`p100` is no quantile", None),
        ("failure latency <= 3s", Syntax, "", "a quantile belongs before `<=`", Some("p99 ")),
        ("retry ratio of 3%", Syntax, "", "`first` or `all` belongs before `3%`", Some("first <= ")),
        ("retry ratio 3%", Syntax, "", "a comparison belongs before `3%`", Some("<= ")),
        ("retry ratio", Syntax, "", "a comparison is missing", Some(" <= 20%")),
        ("retry ratio <=", Syntax, "", "a value is missing", Some(" 20%")),
        ("retry ratio == 3%", Syntax, "==", "`==` is no comparison here", Some("<=")),
        ("retry ratio => 3%", Syntax, "=>", "`=>` is no comparison here", Some(">=")),
        ("retry ratio no more than 3%", Syntax, "no more than", "a comparison is written as a sign", Some("<=")),
        ("retry ratio <= 3% during fualt", UnknownName, "fualt", "there is no phase `fualt`", Some("fault")),
        ("retry ratio <= 3% always", Syntax, "always", "`always` cannot be understood here", None),
        ("retry ratio recovers", Syntax, "", "`within` is missing", Some(" within 2 windows")),
        ("retry ratio recovers within 2", Value, "2", "`2` is no number of windows", Some("2 windows")),
        ("retry ratio recovers within 0 windows", OutOfRange, "0 windows", "no window is no time at all", Some("1 window")),
        ("retry ratio recovers within 2 windws", Value, "2 windws", "`2 windws` is no number of windows", Some("2 windows")),
        ("retry ratio recovers within 0s", Value, "0s", "`0s` is zero", Some("1 window")),
    ] {
        let error = parse_expectation(line, &edges()).unwrap_err();
        let place = &line[error.range.clone()];
        assert_eq!((error.kind, place, error.message.as_str(), error.replace.as_deref()), (kind, at, message, mended), "{line}");
    }
}

#[test]
fn guards_know_neither_increase_nor_recovery() {
    for line in ["downstream qps increase > 20%", "retry ratio recovers within 2 windows"] {
        assert_eq!(parse_guard(line, &edges()).unwrap_err().kind, GrammarErrorKind::NotAllowed, "{line}");
    }
    let error = parse_guard("success ratio < 20% for 30s", &edges()).unwrap_err();
    assert_eq!((error.kind, error.replace.as_deref()), (GrammarErrorKind::Value, None));
}

#[test]
fn amplification_needs_an_ingress_edge() {
    let downstream: Vec<EdgeSpec> = edges().into_iter().filter(|edge| edge.role == Role::Downstream).collect();
    let error = parse_expectation("amplification <= 1.2", &downstream).unwrap_err();
    assert_eq!(error.kind, GrammarErrorKind::NotAllowed);
    let error = parse_expectation("ingress qps <= 1.2", &downstream).unwrap_err();
    assert_eq!(error.kind, GrammarErrorKind::NotAllowed);
}

fn metric() -> impl Strategy<Value = Metric> {
    prop_oneof![
        Just(Metric::DownstreamQps),
        Just(Metric::IngressQps),
        Just(Metric::Amplification),
        prop_oneof![Just(RetryBase::All), Just(RetryBase::First)].prop_map(|of| Metric::RetryRatio { of }),
        Just(Metric::SuccessRatio),
        (1_u32..1000).prop_map(|mille| Metric::FailureLatency { quantile: f64::from(mille) / 1000.0 }),
        (1_u32..1000).prop_map(|mille| Metric::Latency { quantile: f64::from(mille) / 1000.0 }),
        proptest::sample::select(vec![
            Metric::DownstreamPerIngress,
            Metric::Goodput,
            Metric::ExplicitFailureRatio,
            Metric::AttemptsMax,
            Metric::LayersRetrying,
            Metric::CostPerSuccess,
            Metric::Connections,
            Metric::ConnectionsOpened,
            Metric::ConnectFailures,
            Metric::RetransmitRatio,
        ]),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Less), Just(Op::AtMost), Just(Op::Greater), Just(Op::AtLeast)]
}

fn phase() -> impl Strategy<Value = PhaseName> {
    prop_oneof![Just(PhaseName::Baseline), Just(PhaseName::Fault), Just(PhaseName::Recovery)]
}

fn within() -> impl Strategy<Value = Within> {
    prop_oneof![(1_u32..).prop_map(Within::Windows), (1_u64..).prop_map(|nanos| Within::Time(Duration::from_nanos(nanos))),]
}

/// A limit that the metric can have.
fn value(metric: Metric, millionths: u32) -> f64 {
    let value = f64::from(millionths) / 1e6;
    match metric {
        Metric::RetryRatio { of: RetryBase::All } | Metric::SuccessRatio | Metric::ExplicitFailureRatio => value.fract(),
        Metric::FailureLatency { .. } | Metric::Latency { .. } => Duration::from_micros(millionths.into()).as_secs_f64(),
        _ => value,
    }
}

fn named_edge(metric: Metric, named: bool) -> Option<String> {
    let name = match metric {
        Metric::IngressQps | Metric::SuccessRatio => "web",
        _ => "retry-ratio",
    };
    (named && !metric.is_of_drill()).then(|| name.to_owned())
}

fn expectation() -> impl Strategy<Value = Expectation> {
    let parts = (metric(), any::<bool>(), any::<u32>(), any::<bool>(), op(), phase(), any::<[bool; 3]>(), within());
    parts.prop_map(|(metric, named, millionths, form, op, phase, [increase, every_window, to], within)| {
        let value = value(metric, millionths);
        let row = Row::of(metric);
        let increase = increase && row.increase && phase != PhaseName::Baseline;
        // Of an increase below zero, which is written as a factor, only a metric that is no factor itself is capable.
        let less = increase && every_window && row.unit != Unit::Factor && value <= 1.0;
        let value = if less { (-value * 1e6).round() / 1e6 } else { value };
        let demand = if form && row.recovery == Recovery::ToBaseline {
            let value = value.abs().max(1e-6);
            Demand::Recovers { to: to.then_some(value), within }
        } else {
            // Which is over the baseline already.
            let phase = if metric == Metric::Amplification && phase == PhaseName::Baseline { PhaseName::Fault } else { phase };
            Demand::Limit { op: possible(metric, increase, op, value), value, increase, phase, every_window }
        };
        let mut expectation = Expectation { text: String::new(), edge: named_edge(metric, named), metric, demand };
        expectation.text = expectation.to_string();
        expectation
    })
}

/// A comparison that something satisfies: others are refused.
fn possible(metric: Metric, increase: bool, op: Op, value: f64) -> Op {
    let bounds = Bounds::of(metric, increase, &edges());
    [op, Op::AtMost, Op::AtLeast].into_iter().find(|op| bounds.never(*op, value).is_none()).unwrap_or(op)
}

proptest! {
    #[test]
    fn an_expectation_that_is_printed_reads_back(expectation in expectation()) {
        prop_assert_eq!(parse_expectation(&expectation.to_string(), &edges()), Ok(expectation));
    }

    #[test]
    fn a_guard_that_is_printed_reads_back(
        metric in metric(), named in any::<bool>(), millionths in 1_u32.., op in op(), windows in 1_u32..
    ) {
        let (edge, value) = (named_edge(metric, named), value(metric, millionths));
        let op = possible(metric, false, op, value);
        let mut guard = Guard { text: String::new(), edge, metric, op, value, windows };
        guard.text = guard.to_string();
        prop_assert_eq!(parse_guard(&guard.to_string(), &edges()), Ok(guard));
    }

    #[test]
    fn no_line_makes_it_panic(line in "(\\PC|web|retry|ratio|qps|increase|<=|≤|[0-9.%xs]| |_){0,30}") {
        for error in [parse_expectation(&line, &edges()).err(), parse_guard(&line, &edges()).err()].into_iter().flatten() {
            // A place can be cut out of the line.
            prop_assert!(line.get(error.range).is_some());
        }
    }
}
