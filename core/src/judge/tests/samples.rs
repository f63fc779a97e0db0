//! The direct tests of a sample and its interval are the same thing.

use proptest::prelude::*;

use crate::expectation::RetryBase;
use crate::judge::sample::{Sample, Share};
use crate::stats::Tails;
use crate::stats::rate_ratio::Tally;

fn samples() -> impl Strategy<Value = Sample> {
    let tally = |count: u32, exposure: f64| Tally { count: f64::from(count), exposure };
    prop_oneof![
        (0_u32..500, 1.0_f64..300.0, 1.0_f64..4.0)
            .prop_map(move |(count, seconds, phi)| { Sample::Rate { tally: tally(count, seconds), phi } }),
        (0_u32..500, 1_u32..500, 1.0_f64..300.0, 1.0_f64..4.0).prop_map(move |(judged, base, seconds, phi)| {
            Sample::RateRatio { judged: tally(judged, seconds), base: tally(base, 60.0), phi }
        }),
        (0_u64..300, 1_u64..300, 0_u64..20, any::<bool>()).prop_map(|(hits, misses, unknown, first)| {
            Sample::Share(Share {
                unknown: unknown as f64,
                base: if first { RetryBase::First } else { RetryBase::All },
                ..Share::of_all(hits, hits + misses + unknown)
            })
        }),
    ]
}

proptest! {
    #[test]
    fn tests_and_interval_agree(sample in samples(), factor in 0.1_f64..3.0, alpha in 0.001_f64..0.2) {
        let limit = (sample.value() * factor).max(0.001);
        let interval = sample.interval(Tails::each(alpha), 1.0);
        // Bisection leaves the ends exact to 13 digits.
        if (interval.hi / limit - 1.0).abs() > 1e-7 {
            prop_assert_eq!(sample.is_shown_at_most(limit, alpha, 1.0), interval.hi <= limit, "{:?} {:?}", interval, limit);
        }
        if (interval.lo / limit - 1.0).abs() > 1e-7 {
            prop_assert_eq!(sample.is_shown_at_least(limit, alpha, 1.0), interval.lo >= limit, "{:?} {:?}", interval, limit);
        }
        prop_assert!(interval.lo <= sample.value() + 1e-9 && sample.value() <= interval.hi + 1e-9);
        let more = sample.interval(Tails::each(alpha), 5.0);
        prop_assert!(more.lo >= interval.lo - 1e-9 && more.hi <= interval.hi + 1e-9);
    }
}
