//! How much traffic an expectation needs to be decided, in four drills of five.

use std::time::Duration;

use crate::edge::Role;
use crate::expectation::bounds;
use crate::expectation::{Demand, Expectation, Metric, Op, RetryBase};
use crate::judge::{ALPHA, FEWEST_ATTEMPTS};
use crate::playbook::Playbook;
use crate::stats::power;
use crate::units::{duration, share};
use crate::window::PhaseName;

/// The chance of a verdict that is asked for.
const POWER: f64 = 0.8;

/// Of what there must be so much.
#[derive(Debug, Clone, PartialEq)]
struct Need {
    count: f64,
    /// What is counted.
    noun: &'static str,
    /// Where it must be seen.
    place: String,
    /// How long that lasts, seconds.
    seconds: f64,
    /// What is supposed of the truth; nothing where it does not matter.
    truth: Option<String>,
}

/// One sentence for each expectation that needs a number of requests.
#[must_use]
pub(super) fn needs(playbook: &Playbook) -> Vec<String> {
    let of = |expectation: &&Expectation| bounds::foregone(expectation.metric, expectation.demand, &playbook.edges).is_none();
    let open = playbook.expect.iter().filter(of);
    open.filter_map(|expectation| Some(sentence(expectation, &need(expectation, playbook)?, playbook))).collect()
}

/// Those of them that the playbook's own load cannot meet.
#[must_use]
pub fn shortfalls(playbook: &Playbook) -> Vec<String> {
    let of = |expectation: &Expectation| {
        bounds::foregone(expectation.metric, expectation.demand, &playbook.edges).is_none().then_some(())?;
        let need = need(expectation, playbook)?;
        missing(&need, playbook)?;
        Some(sentence(expectation, &need, playbook))
    };
    playbook.expect.iter().filter_map(of).collect()
}

fn sentence(expectation: &Expectation, need: &Need, playbook: &Playbook) -> String {
    let mut text = format!("{expectation}: {} {} in {}", need.count.ceil(), need.noun, need.place);
    if let Some(truth) = &need.truth {
        text.push_str(&format!(", if {truth}"));
    }
    if let Some((makes, long_enough)) = missing(need, playbook) {
        text.push_str(&format!("; the load makes only {makes:.0}, and would need {}", duration::print(long_enough)));
    }
    text
}

/// What the load makes where that is too little, and how long it would have to go on.
fn missing(need: &Need, playbook: &Playbook) -> Option<(f64, Duration)> {
    let load = playbook.load.as_ref()?;
    let makes = load.rate * need.seconds;
    // Of failures and pauses there may be any number.
    let is_of_load = matches!(need.noun, REQUESTS | ANSWERS);
    (is_of_load && makes < need.count)
        .then(|| (makes, Duration::try_from_secs_f64((need.count / load.rate).ceil()).unwrap_or(Duration::MAX)))
}

const REQUESTS: &str = "requests";
const ANSWERS: &str = "answers";
const FAILURES: &str = "failures";

fn need(expectation: &Expectation, playbook: &Playbook) -> Option<Need> {
    let metric = expectation.metric;
    let length = |phase| match phase {
        PhaseName::Baseline => playbook.phases.baseline.as_secs_f64(),
        PhaseName::Recovery => playbook.phases.recovery.as_secs_f64(),
        _ => playbook.phases.fault.as_secs_f64(),
    };
    let window = playbook.window.as_secs_f64();
    let each_window = |count: f64, noun| Need { count, noun, place: "each window".to_owned(), seconds: window, truth: None };
    let (op, value, increase, phase, every_window) = match expectation.demand {
        // A window with fewer neither holds nor fails.
        Demand::Recovers { .. } => return is_of_attempts(metric).then(|| each_window(FEWEST_ATTEMPTS as f64, REQUESTS)),
        Demand::Limit { .. } if metric == Metric::Metastable => return Some(each_window(FEWEST_ATTEMPTS as f64, REQUESTS)),
        Demand::Limit { op, value, increase, phase, every_window } => (op, value, increase, phase, every_window),
    };
    let is_upper = matches!(op, Op::Less | Op::AtMost);
    let judged = if every_window { window } else { length(phase) };
    let place = if every_window { "each window".to_owned() } else { format!("the {} phase", phase.as_str()) };
    let here = |count: Option<f64>, noun, truth: String| {
        Some(Need { count: count?, noun, place: place.clone(), seconds: judged, truth: Some(format!("the truth is {truth}")) })
    };
    let baseline = |count: Option<f64>, noun, truth: &str| {
        let seconds = length(PhaseName::Baseline);
        Some(Need { count: count?, noun, place: "the baseline".to_owned(), seconds, truth: Some(truth.to_owned()) })
    };
    let half = |factor: f64| quantity(if is_upper { factor / 2.0 } else { factor * 1.5 });
    match metric {
        Metric::DownstreamQps | Metric::IngressQps | Metric::Goodput | Metric::ConnectionsOpened if increase => {
            let noun = if metric == Metric::ConnectionsOpened { "connections" } else { REQUESTS };
            let events = power::baseline_events(1.0 + value, 1.0, judged / length(PhaseName::Baseline), ALPHA, POWER);
            baseline(events, noun, "nothing changed")
        }
        Metric::DownstreamQps | Metric::IngressQps | Metric::Goodput => {
            here(power::events(is_upper, ALPHA, POWER), REQUESTS, format!("{}/s", half(value)))
        }
        Metric::RetransmitRatio => {
            let requests = power::events(is_upper, ALPHA, POWER).map(|events| events / (value * if is_upper { 0.5 } else { 1.5 }));
            here(requests.filter(|requests| requests.is_finite()), REQUESTS, half(value))
        }
        Metric::Amplification | Metric::DownstreamPerIngress => {
            let limit = if increase { 1.0 + value } else { value };
            let truth = f64::midpoint(1.0, limit);
            let requests = (is_upper && limit > 1.0).then(|| power::tried_requests(limit, truth, ALPHA, POWER));
            here(requests.flatten(), "ingress requests", format!("{}x", quantity(truth)))
        }
        Metric::RetryRatio { .. } | Metric::SuccessRatio | Metric::ExplicitFailureRatio | Metric::CostPerSuccess if !increase => {
            let (limit, is_upper) = match metric {
                Metric::RetryRatio { of: RetryBase::First } => (value / (1.0 + value), is_upper),
                Metric::CostPerSuccess => (1.0 / value, !is_upper),
                _ => (value, is_upper),
            };
            // Half-way between the limit and the good end.
            let truth = match metric {
                Metric::RetryRatio { of: RetryBase::First } if is_upper => value / 2.0 / (1.0 + value / 2.0),
                _ if is_upper => limit / 2.0,
                _ => f64::midpoint(1.0, limit),
            };
            let told = match metric {
                Metric::RetryRatio { of: RetryBase::First } => percent(truth / (1.0 - truth)),
                Metric::CostPerSuccess => quantity(1.0 / truth),
                _ => percent(truth),
            };
            let noun = if metric == Metric::ExplicitFailureRatio { FAILURES } else { REQUESTS };
            here(power::trials(limit, truth, ALPHA, POWER), noun, told)
        }
        Metric::Latency { quantile } | Metric::FailureLatency { quantile } if is_upper => {
            let beyond = 1.0 - quantile;
            let noun = if matches!(metric, Metric::Latency { .. }) { ANSWERS } else { FAILURES };
            let trials = power::trials(beyond, beyond / 2.0, ALPHA, POWER)?;
            let truth = format!("{} of them take longer than the limit", percent(beyond / 2.0));
            // Against the baseline's quantile, which is an estimate itself, both phases need twice as many.
            Some(if increase {
                baseline(Some(2.0 * trials), noun, "half as many as may be take longer")?
            } else {
                Need { truth: Some(truth), ..here(Some(trials), noun, String::new())? }
            })
        }
        Metric::LayersRetrying => {
            let edges = playbook.edges.iter().filter(|edge| edge.role == Role::Downstream).count().max(1);
            // None of so many is less than one in a hundred.
            let requests = (ALPHA / edges as f64).ln() / 0.99_f64.ln();
            here(Some(requests), "requests on each downstream edge", "no retry".to_owned())
        }
        Metric::BackoffJitter => Some(Need { truth: None, ..here(Some(30.0), "pauses before first retries", String::new())? }),
        // Facts, and what has no test of its own.
        _ => None,
    }
}

/// Whether a window needs so many attempts to say anything of it.
const fn is_of_attempts(metric: Metric) -> bool {
    !matches!(metric, Metric::DownstreamQps | Metric::IngressQps | Metric::Goodput)
}

fn percent(value: f64) -> String {
    share::print((value * 1e4).round() / 1e4)
}

/// Three digits behind the point at most.
fn quantity(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn needs_of(line: &str, rate: &str) -> Vec<String> {
        needs(&playbook_of(line, rate))
    }

    fn playbook_of(line: &str, rate: &str) -> Playbook {
        let text = format!(
            "version: 1\nname: a\nobserve:\n  ingress: {{web: {{port: 8080}}}}\n  downstream: {{db: {{port: 9000}}}}\n\
             load: {{url: 'http://127.0.0.1:8080/', rate: {rate}}}\n\
             phases: {{baseline: 60s, fault: 60s, recovery: 60s}}\nexpect:\n  - {line}\n"
        );
        crate::playbook::parse(&text).unwrap()
    }

    #[test]
    fn an_increase_needs_requests_in_the_baseline_and_a_share_in_its_phase() {
        assert_eq!(
            needs_of("downstream QPS increase <= 20%", "20/s"),
            ["downstream QPS increase <= 20%: 441 requests in the baseline, if nothing changed"]
        );
        assert_eq!(
            needs_of("retry ratio <= 10%", "1/s"),
            ["retry ratio <= 10%: 203 requests in the fault phase, if the truth is 5%; the load makes only 60, and would need 203s"]
        );
        assert!(needs_of("retry ratio of first <= 25%", "20/s")[0].contains("of first <= 25%: 119 requests"));
        assert!(needs_of("success ratio >= 60% in every window", "20/s")[0].contains("in each window, if the truth is 80%"));
        for without in ["attempts max <= 3", "connections <= 100", "non idempotent retries <= 0", "late starts <= 0", "orphan work <= 1s"] {
            assert_eq!(needs_of(without, "20/s"), Vec::<String>::new(), "{without} is a fact");
        }
    }

    #[test]
    fn what_always_holds_needs_nothing() {
        for line in ["success ratio >= 0%", "retry ratio <= 100%", "goodput >= 0/s", "layers retrying <= 1"] {
            assert_eq!(needs_of(line, "1/s"), Vec::<String>::new(), "{line}");
            assert_eq!(shortfalls(&playbook_of(line, "1/s")), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn every_metric_that_is_estimated_says_what_it_needs() {
        for (line, needed) in [
            ("amplification <= 1.2", "ingress requests in the fault phase, if the truth is 1.1x"),
            ("downstream QPS per ingress <= 1.5", "ingress requests in the fault phase, if the truth is 1.25x"),
            ("downstream QPS <= 100/s", "requests in the fault phase, if the truth is 50/s"),
            ("goodput >= 90/s", "requests in the fault phase, if the truth is 135/s"),
            ("goodput >= 0.95x", "requests in the baseline, if nothing changed"),
            ("cost per success <= 1.25", "requests in the fault phase, if the truth is 1.111"),
            ("explicit failure ratio >= 99%", "failures in the fault phase, if the truth is 99.5%"),
            ("latency p99 <= 3s", "answers in the fault phase, if 0.5% of them take longer than the limit"),
            ("latency p99 increase <= 20%", "answers in the baseline, if half as many as may be take longer"),
            ("failure latency p50 <= 3s in every window", "failures in each window, if 25% of them take longer than the limit"),
            ("layers retrying <= 0", "299 requests on each downstream edge in the fault phase, if the truth is no retry"),
            ("retransmit ratio <= 5%", "requests in the fault phase, if the truth is 0.025"),
            ("backoff jitter >= 0.4", "30 pauses before first retries in the fault phase"),
            ("connections opened increase <= 20%", "connections in the baseline, if nothing changed"),
            ("retry ratio recovers within 2 windows", "30 requests in each window"),
            ("not metastable", "30 requests in each window"),
        ] {
            let found = needs_of(line, "20000/s");
            assert!(found.len() == 1 && found[0].ends_with(needed), "{line}: {found:?}");
        }
    }

    #[test]
    fn a_baseline_that_is_too_short_is_told_with_the_length_that_would_do() {
        let playbook = playbook_of("downstream QPS increase <= 20%", "2/s");
        assert_eq!(
            shortfalls(&playbook),
            [
                "downstream QPS increase <= 20%: 441 requests in the baseline, if nothing changed; the load makes only 120, and would need 221s"
            ]
        );
        assert_eq!(shortfalls(&playbook_of("downstream QPS increase <= 20%", "20/s")), Vec::<String>::new());
    }
}
