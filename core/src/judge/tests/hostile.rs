//! Whatever the windows hold, a judgement comes out, and its numbers are in order.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::judge::Verdict;
use crate::judge::guard::GuardState;
use crate::playbook::Guard;

fn metrics() -> impl Strategy<Value = Metric> {
    prop_oneof![
        Just(Metric::DownstreamQps),
        Just(Metric::IngressQps),
        Just(Metric::Amplification),
        Just(RETRY_RATIO),
        Just(Metric::RetryRatio { of: RetryBase::First }),
        Just(Metric::SuccessRatio),
        (0.01_f64..0.9999).prop_map(|quantile| Metric::FailureLatency { quantile }),
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Less), Just(Op::AtMost), Just(Op::Greater), Just(Op::AtLeast)]
}

fn demands() -> impl Strategy<Value = Demand> {
    let phase = prop_oneof![Just(PhaseName::Baseline), Just(PhaseName::Fault), Just(PhaseName::Recovery)];
    let within = prop_oneof![(0_u32..5).prop_map(Within::Windows), (0_u64..60_000).prop_map(|ms| Within::Time(Duration::from_millis(ms)))];
    prop_oneof![
        (ops(), -1.0_f64..30.0, any::<bool>(), phase, any::<bool>())
            .prop_map(|(op, value, increase, phase, every_window)| { Demand::Limit { op, value, increase, phase, every_window } }),
        (proptest::option::of(0.0_f64..2.0), within).prop_map(|(to, within)| Demand::Recovers { to, within }),
    ]
}

fn edges() -> impl Strategy<Value = Seen> {
    (0_u64..150, 0_u64..200, 0_u64..150, 0_u64..20).prop_map(|(requests, retries, failures, pending)| {
        let failures = failures.min(requests);
        seen(requests).retries(retries).failures(failures).pending(pending.min(requests - failures))
    })
}

fn drills() -> impl Strategy<Value = Drill> {
    let phase = prop_oneof![Just(PhaseName::Baseline), Just(PhaseName::Fault), Just(PhaseName::Transition), Just(PhaseName::Recovery)];
    let window = (phase, edges(), edges(), 0_u64..2, any::<bool>());
    let fault = prop_oneof![Just(http_status(9, 3)), Just(loss(90, 30)), Just(delay(9, 9)), Just(loss(0, 0))];
    (proptest::collection::vec(window, 0..14), proptest::collection::vec(fault, 0..2)).prop_map(|(windows, faults)| {
        let mut drill = windows.iter().fold(Drill::new(), |drill, (phase, web, db, lost, empty)| {
            let mut drill = drill.window(*phase, &[*web, *db]);
            if let Some(window) = drill.windows.last_mut() {
                window.events_lost = *lost;
                if *empty && *lost == 1 {
                    window.end_ns = window.start_ns;
                    window.edges.pop();
                }
            }
            drill
        });
        drill.faults = faults;
        drill
    })
}

proptest! {
    #[test]
    fn a_judgement_always_comes_out(drill in drills(), metric in metrics(), demand in demands(), named in any::<bool>()) {
        let edge = named.then(|| "db".to_owned());
        let got = drill.judge(&Expectation { text: String::new(), edge, metric, demand });
        prop_assert!(got.verdict == Verdict::Pass || got.reason.is_some(), "{:?}", got);
        prop_assert!(got.observed.is_none_or(|observed| !observed.is_nan()), "{:?}", got);
        if let (Some(observed), Some((lo, hi))) = (got.observed, got.interval) {
            prop_assert!(lo <= observed + 1e-9 && observed <= hi + 1e-9, "{:?}", got);
        }
    }

    #[test]
    fn guards_take_any_window(drill in drills(), metric in metrics(), op in ops(), value in 0.0_f64..30.0, windows in 0_u32..4) {
        let guard = Guard { text: String::new(), edge: None, metric, op, value, windows };
        let mut state = GuardState::new(&guard, &drill.edges);
        for window in &drill.windows {
            let _ = state.observe(window);
        }
    }
}
