//! The formulas against tables that others measured, published or simulated.

use super::ceiling::{Of, calls};
use super::chain::{expected, worst};
use super::outage::{Ending, outlook};
use super::*;

fn layers(tries: &[u32]) -> Vec<Layer> {
    tries.iter().map(|&tries| Layer { name: "layer".to_owned(), tries, hop_loss: 0.0, budget: None }).collect()
}

fn assert_near(value: f64, wanted: f64, tolerance: f64, what: &str) {
    assert!((value - wanted).abs() <= tolerance, "{what}: {value} is not {wanted}");
}

#[test]
fn each_layer_of_three_tries_triples_the_calls() {
    for (count, calls) in [(0, 1.0), (1, 3.0), (2, 9.0), (3, 27.0), (4, 81.0)] {
        let chain = layers(&vec![3; count]);
        assert_near(expected(&chain, 1.0, None).calls, calls, 1e-9, "all fail");
        assert_near(worst(&chain), calls, 1e-9, "worst");
        assert_near(expected(&chain, 0.0, None).calls, 1.0, 1e-12, "none fails");
    }
}

#[test]
fn three_layers_of_three_tries_are_as_published() {
    // Share of failures, calls and success, of 600 requests each; the tolerance is half of the last published digit.
    for (failure, calls, success) in [(0.1, 1.11, 1.0), (0.3, 1.43, 1.0), (0.5, 2.00, 1.0), (0.9, 9.42, 0.942)] {
        let row = expected(&layers(&[3, 3, 3]), failure, None);
        assert_near(row.calls, calls, 0.005, "calls");
        assert_near(row.success, success, 0.000_5, "success");
    }
    let row = expected(&layers(&[3, 3, 3]), 0.9, None);
    assert_near(row.calls, 9.418_503, 5e-7, "calls");
    assert_near(row.success, 0.941_850, 5e-7, "success");
    assert_near(row.cost, 10.0, 1e-9, "a success costs 1 / (1 - p) calls whatever the tries");
}

#[test]
fn what_was_measured_is_within_chance_of_the_model() {
    for (failure, measured) in [(0.1, 1.11), (0.3, 1.45), (0.5, 2.06), (0.9, 9.88)] {
        let row = expected(&layers(&[3, 3, 3]), failure, None);
        let error = row.deviation.map(|s| (measured - row.calls) / (s / 600_f64.sqrt()));
        assert!(error.is_some_and(|z| z.abs() < 2.0), "{failure}: {error:?}");
    }
}

#[test]
fn the_order_of_layers_does_not_matter_and_they_are_as_one() {
    assert_near(expected(&layers(&[2, 5, 3]), 0.9, None).calls, 9.5761, 5e-5, "calls");
    assert_near(expected(&layers(&[2, 5, 3]), 0.9, None).success, 0.957_61, 5e-6, "success");
    assert_near(expected(&layers(&[30]), 0.9, None).calls, expected(&layers(&[3, 2, 5]), 0.9, None).calls, 1e-9, "one of thirty");
    assert_near(expected(&layers(&[4]), 0.5, None).calls, 1.875, 1e-12, "one of four");
}

#[test]
fn losses_between_layers_are_as_simulated() {
    let mut chain = layers(&[3, 3, 3]);
    // From the edge inwards.
    for (layer, loss) in chain.iter_mut().zip([0.1, 0.2, 0.3]) {
        layer.hop_loss = loss;
    }
    let row = expected(&chain, 0.3, None);
    assert_near(row.calls, 1.4257, 5e-5, "calls");
    assert_near(row.success, 0.9980, 5e-5, "success");
    assert_eq!(row.deviation, None);
}

#[test]
fn packet_loss_amplifies_by_the_share_of_calls_that_outlast_the_timeout() {
    // Share of requests slower than the timeout at 30% loss one way, and the amplification of three tries.
    for (share, amplification) in [(0.0432, 1.045), (0.0145, 1.015), (0.0027, 1.003), (0.3232, 1.43), (0.3088, 1.40), (0.0107, 1.011)] {
        assert_near(expected(&layers(&[3]), share, None).calls, amplification, 0.005, "calls");
    }
}

#[test]
fn budgets_multiply_layer_by_layer_and_their_denominator_matters() {
    let budget = |share, of, floor| Some(Budget { share, of, floor });
    let with = |count, budget| layers(&vec![4; count]).into_iter().map(|layer| Layer { budget, ..layer }).collect::<Vec<_>>();
    assert_near(calls(&with(3, budget(0.1, Of::First, 0.0)), None), 1.331, 1e-9, "10% at three layers");
    assert_near(calls(&with(3, budget(0.2, Of::First, 0.0)), None), 1.728, 1e-9, "20% at three layers");
    assert_near(calls(&with(1, budget(0.2, Of::All, 0.0)), None), 1.25, 1e-9, "20% of all");
    assert_near(calls(&with(1, budget(0.1, Of::All, 0.0)), None), 1.111, 5e-4, "10% of all");
    // A floor of one retry a second: +100% at 1 request a second, +10% at 10; never more than the tries allow.
    assert_near(calls(&with(1, budget(0.0, Of::First, 1.0)), Some(1.0)), 2.0, 1e-9, "floor");
    assert_near(calls(&with(1, budget(0.0, Of::First, 1.0)), Some(10.0)), 1.1, 1e-9, "floor");
    assert_near(calls(&with(1, budget(0.0, Of::First, 1e9)), Some(10.0)), 4.0, 1e-9, "floor");
    assert_near(calls(&with(1, budget(1.0, Of::All, 0.0)), None), 4.0, 1e-9, "a budget of everything");
}

#[test]
fn a_budget_cuts_retries_short_and_what_it_cuts_fails() {
    let mut chain = layers(&[4]);
    chain[0].budget = Some(Budget { share: 0.1, of: Of::First, floor: 0.0 });
    // Few failures: the budget is not reached, and nothing changes.
    assert_eq!(expected(&chain, 0.05, None), expected(&layers(&[4]), 0.05, None));
    // Half fail: ten of a hundred are tried again, and five of these succeed.
    let row = expected(&chain, 0.5, None);
    assert_near(row.calls, 1.1, 1e-9, "calls");
    assert_near(row.success, 0.55, 1e-9, "success");
    assert_near(row.cost, 2.0, 1e-9, "cost");
    assert_eq!(row.deviation, None);
    // All fail: what the ceiling says.
    assert_near(expected(&chain, 1.0, None).calls, calls(&chain, None), 1e-9, "calls");
}

fn ends(tries: f64, qps: f64, outage: u64, work: Work) -> Ending {
    let second = Duration::from_secs(1);
    let ending = outlook(tries, qps, 300.0, Some(Duration::from_secs(outage)), Some(second), work).ending;
    ending.unwrap_or(Ending::Metastable)
}

#[test]
fn an_outage_ends_as_in_the_simulation_of_a_database_of_300_a_second() {
    let budget = 1.0 / 0.9;
    for (tries, qps, predicted) in [
        (2.0, 100.0, 20.0),
        (2.0, 130.0, 65.0),
        (2.0, 145.0, 290.0),
        (1.0, 200.0, 20.0),
        (1.0, 250.0, 50.0),
        (1.0, 280.0, 140.0),
        (budget, 200.0, 28.0),
        (budget, 250.0, 123.0),
    ] {
        let Ending::Recovers { after } = ends(tries, qps, 10, Work::Deferred) else { panic!("{tries} {qps}") };
        assert_near(after, predicted, predicted * 0.025, "drain time");
    }
    for qps in [155.0, 200.0, 280.0] {
        assert_eq!(ends(2.0, qps, 10, Work::Deferred), Ending::Metastable, "{qps}");
    }
    // One second is within everybody's patience, two are not.
    assert!(matches!(ends(2.0, 280.0, 1, Work::Deferred), Ending::Recovers { .. }));
    assert_eq!(ends(2.0, 280.0, 2, Work::Deferred), Ending::Metastable);
}

#[test]
fn an_outage_that_drops_calls_ends_with_it_unless_retries_alone_are_twice_the_capacity() {
    for qps in [100.0, 200.0, 280.0] {
        assert_eq!(ends(2.0, qps, 10, Work::Dropped), Ending::Recovers { after: 0.0 }, "{qps}");
    }
    assert_eq!(ends(4.0, 200.0, 10, Work::Dropped), Ending::Metastable);
}

#[test]
fn the_hidden_capacity_is_the_capacity_divided_by_the_amplification() {
    let outlook = outlook(2.0, 280.0, 300.0, None, None, Work::Deferred);
    assert_near(outlook.heals_below, 150.0, 1e-9, "hidden capacity");
    assert_near(outlook.load, 560.0, 1e-9, "load");
    assert_eq!(outlook.ending, None);
}

#[test]
fn too_many_first_tries_cost_what_was_measured() {
    // 120 a second on a capacity of 58, 27 tries: 1987 calls a second were measured, and 27 for each failure plus 1 for each success are 1711.
    let overload = overload::overload(27.0, 120.0, 58.0);
    assert!((overload.least..=overload.most).contains(&(1987.0 / 120.0)), "{overload:?}");
    assert_near(overload::calls(0.49, 27.0, 1.0) * 120.0, 1711.0, 1.0, "one try for each success");
    assert_near(overload::calls(0.49, 27.0, 5.7) * 120.0, 1987.0, 3.0, "5.7 tries for each success");
}

#[test]
fn no_question_gives_a_number_that_is_none() {
    for failure in [0.0, 1e-300, 0.5, 1.0 - 1e-15, 1.0] {
        for tries in [1, 2, 100, u32::MAX] {
            let row = expected(&layers(&[tries, tries]), failure, None);
            assert!(row.calls >= 1.0 && row.calls <= worst(&layers(&[tries, tries])) * (1.0 + 1e-9), "{failure} {tries}: {row:?}");
            assert!((0.0..=1.0).contains(&row.success) && !row.cost.is_nan(), "{failure} {tries}: {row:?}");
        }
    }
}
