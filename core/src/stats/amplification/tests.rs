//! Paired amplification: known values, coverage by simulation, and the advantage over comparing rates.

use proptest::prelude::*;

use super::*;
use crate::stats::simulation::Random;

const FIVE: Tails = Tails::each(0.05);

fn pairs(windows: &[(f64, f64)]) -> Vec<Pair> {
    windows.iter().map(|&(attempts, ingress)| Pair { attempts, ingress }).collect()
}

/// Windows of a layer of `most` tries, each failing with probability `p`, under a Poisson load.
fn layer(random: &mut Random, windows: usize, load: f64, p: f64, most: u32) -> Vec<Pair> {
    (0..windows)
        .map(|_| {
            let ingress = random.poisson(load);
            let mut attempts = 0.0;
            let mut done = 0.0;
            while done < ingress {
                attempts += f64::from(random.tries(p, most));
                done += 1.0;
            }
            Pair { attempts, ingress }
        })
        .collect()
}

#[test]
fn total_failure_is_exactly_the_tries() {
    let baseline = pairs(&[(50.0, 50.0), (40.0, 40.0), (60.0, 60.0)]);
    let fault = pairs(&[(150.0, 50.0), (120.0, 40.0), (180.0, 60.0)]);
    assert!((normalised(&fault, &baseline).unwrap_or(f64::NAN) - 3.0).abs() < 1e-12);
    let got = interval(&fault, &baseline, FIVE, 1.0).unwrap_or(Interval { lo: 0.0, hi: 0.0 });
    assert!(got.lo > 2.7 && got.hi < 3.3, "{got:?}");
}

#[test]
fn natural_fan_out_is_taken_out() {
    let baseline = pairs(&[(100.0, 50.0), (80.0, 40.0), (120.0, 60.0)]);
    let fault = pairs(&[(110.0, 50.0), (88.0, 40.0), (132.0, 60.0)]);
    assert!((normalised(&fault, &baseline).unwrap_or(f64::NAN) - 1.1).abs() < 1e-12);
}

#[test]
fn quiet_windows_prove_little() {
    let quiet = pairs(&[(2.0, 2.0), (2.0, 2.0), (2.0, 2.0), (2.0, 2.0)]);
    let got = interval(&quiet, &quiet, FIVE, 1.0).unwrap_or(Interval { lo: 0.0, hi: 0.0 });
    assert!(got.hi > 1.2, "no failure among eight requests does not show that none would be retried: {got:?}");
}

#[test]
fn undefined_without_ingress_or_baseline() {
    let some = pairs(&[(5.0, 5.0)]);
    let none = pairs(&[(0.0, 0.0)]);
    let idle = pairs(&[(0.0, 5.0)]);
    assert_eq!(normalised(&some, &none), None);
    assert_eq!(normalised(&none, &some), None);
    assert_eq!(normalised(&some, &idle), None);
    assert_eq!(interval(&some, &idle, FIVE, 1.0), None);
    // Nothing at all sent in the fault is a value, not a gap.
    assert_eq!(normalised(&idle, &some), Some(0.0));
    let got = interval(&idle, &some, FIVE, 1.0).unwrap_or(Interval { lo: 9.0, hi: 0.0 });
    assert!(got.lo.abs() < 1e-12 && got.hi > 0.5, "{got:?}");
}

#[test]
fn bounds_miss_as_often_as_asked() {
    let mut random = Random::seeded(5);
    let runs = 1_500;
    for (windows, load, p, most) in [(10, 40.0, 0.3, 3), (5, 20.0, 0.1, 3), (6, 60.0, 0.6, 27), (1, 80.0, 0.5, 3), (2, 30.0, 0.2, 3)] {
        let truth = (1.0 - f64::powi(p, i32::try_from(most).unwrap_or(3))) / (1.0 - p);
        let (mut above, mut below) = (0.0, 0.0);
        for _ in 0..runs {
            let baseline = layer(&mut random, windows, load, 0.0, most);
            let fault = layer(&mut random, windows, load, p, most);
            let got = interval(&fault, &baseline, FIVE, 1.0).unwrap_or(Interval { lo: 0.0, hi: f64::INFINITY });
            above += f64::from(u8::from(got.lo > truth));
            below += f64::from(u8::from(got.hi < truth));
        }
        let runs = f64::from(runs);
        let most_misses = 0.05 + 3.0 * (0.05_f64 * 0.95 / runs).sqrt();
        assert!(above / runs <= most_misses, "{windows} windows, p {p}: {} too high", above / runs);
        assert!(below / runs <= most_misses, "{windows} windows, p {p}: {} too low", below / runs);
    }
}

#[test]
fn pairing_beats_comparing_rates() {
    use crate::stats::rate_ratio::{self, Tally};
    let mut random = Random::seeded(6);
    let baseline = layer(&mut random, 10, 60.0, 0.0, 3);
    let fault = layer(&mut random, 10, 60.0, 0.1, 3);
    let paired = interval(&fault, &baseline, FIVE, 1.0).unwrap_or(Interval { lo: 0.0, hi: f64::INFINITY });
    let tally = |windows: &[Pair]| Tally { count: sums(windows).0, exposure: 10.0 };
    let rates = rate_ratio::interval(tally(&fault), tally(&baseline), FIVE);
    assert!((rates.hi - rates.lo) > 2.0 * (paired.hi - paired.lo), "{rates:?} {paired:?}");
}

proptest! {
    #[test]
    fn contains_the_estimate_and_narrows_with_data(
        base in proptest::collection::vec((1_u32..200, 1_u32..100), 1..8),
        fault in proptest::collection::vec((0_u32..400, 1_u32..100), 1..8),
    ) {
        let convert = |v: &[(u32, u32)]| v.iter().map(|&(d, i)| Pair { attempts: f64::from(d), ingress: f64::from(i) }).collect::<Vec<_>>();
        let (base, fault) = (convert(&base), convert(&fault));
        let value = normalised(&fault, &base);
        prop_assert!(value.is_some());
        if let (Some(value), Some(one), Some(nine)) = (value, interval(&fault, &base, FIVE, 1.0), interval(&fault, &base, FIVE, 9.0)) {
            prop_assert!(one.lo <= value + 1e-9 && value <= one.hi + 1e-9, "{value} {one:?}");
            prop_assert!(nine.lo >= one.lo - 1e-9 && nine.hi <= one.hi + 1e-9, "{one:?} {nine:?}");
        }
    }
}
