//! How much traffic an expectation needs to be decided, in four drills of five.

use crate::expectation::{Demand, Expectation, Metric, Op, RetryBase};
use crate::judge::ALPHA;
use crate::playbook::Playbook;
use crate::stats::power;
use crate::window::PhaseName;

/// The chance of a verdict that is asked for.
const POWER: f64 = 0.8;

/// One sentence for each expectation whose need is known before the drill.
#[must_use]
pub(super) fn needs(playbook: &Playbook) -> Vec<String> {
    playbook.expect.iter().filter_map(|expectation| need(expectation, playbook)).collect()
}

fn need(expectation: &Expectation, playbook: &Playbook) -> Option<String> {
    let Demand::Limit { op, value, increase, phase, every_window } = expectation.demand else {
        return None;
    };
    let length = |phase| match phase {
        PhaseName::Baseline => playbook.phases.baseline,
        PhaseName::Recovery => playbook.phases.recovery,
        _ => playbook.phases.fault,
    };
    let judged = if every_window { playbook.window } else { length(phase) }.as_secs_f64();
    let baseline = length(PhaseName::Baseline).as_secs_f64();
    let (count, truth, seconds, of) = match expectation.metric {
        Metric::DownstreamQps | Metric::IngressQps | Metric::Goodput if increase => {
            let events = power::baseline_events(1.0 + value, 1.0, judged / baseline, ALPHA, POWER)?;
            (events, "nothing changed".to_owned(), baseline, "the baseline".to_owned())
        }
        Metric::RetryRatio { .. } | Metric::SuccessRatio | Metric::ExplicitFailureRatio if !increase => {
            // Half-way between the limit and the good end.
            let truth = if matches!(op, Op::Less | Op::AtMost) { value / 2.0 } else { f64::midpoint(1.0, value) };
            let of_all = |ratio: f64| match expectation.metric {
                Metric::RetryRatio { of: RetryBase::First } => ratio / (1.0 + ratio),
                _ => ratio,
            };
            let trials = power::trials(of_all(value), of_all(truth), ALPHA, POWER)?;
            let where_ = if every_window { "each window".to_owned() } else { format!("the {} phase", phase.as_str()) };
            (trials, format!("the truth is {}", crate::units::share::print((truth * 1e4).round() / 1e4)), judged, where_)
        }
        _ => return None,
    };
    let requests = count.ceil();
    let mut text = format!("{expectation}: {requests} requests in {of}, if {truth}");
    if let Some(load) = &playbook.load {
        let expected = load.rate * seconds;
        if expected < count {
            text.push_str(&format!("; the load makes only {expected:.0}"));
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn needs_of(line: &str, rate: &str) -> Vec<String> {
        let text = format!(
            "version: 1\nname: a\nobserve:\n  ingress: {{web: {{port: 8080}}}}\n  downstream: {{db: {{port: 9000}}}}\n\
             load: {{url: 'http://127.0.0.1:8080/', rate: {rate}}}\n\
             phases: {{baseline: 60s, fault: 60s, recovery: 60s}}\nexpect:\n  - {line}\n"
        );
        needs(&crate::playbook::parse(&text).unwrap())
    }

    #[test]
    fn an_increase_needs_requests_in_the_baseline_and_a_share_in_its_phase() {
        assert_eq!(
            needs_of("downstream QPS increase <= 20%", "20/s"),
            ["downstream QPS increase <= 20%: 383 requests in the baseline, if nothing changed"]
        );
        assert_eq!(
            needs_of("retry ratio <= 10%", "1/s"),
            ["retry ratio <= 10%: 203 requests in the fault phase, if the truth is 5%; the load makes only 60"]
        );
        assert!(needs_of("retry ratio of first <= 25%", "20/s")[0].contains("of first <= 25%: 119 requests"));
        assert!(needs_of("success ratio >= 60% in every window", "20/s")[0].contains("in each window, if the truth is 80%"));
        for without in ["amplification <= 1.2", "retry ratio recovers within 2 windows", "attempts max <= 3", "not metastable"] {
            assert_eq!(needs_of(without, "20/s"), Vec::<String>::new());
        }
    }
}
