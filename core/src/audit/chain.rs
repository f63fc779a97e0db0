//! What is wrong with the layers together, though each may be right alone.

use super::finding::{Finding, Rule};
use super::layer::{Layer, Tries};
use super::shown;
use super::worst::{Calls, Step, Way};

/// Findings about more than one layer.
pub(super) fn findings(layers: &[Layer], ways: &[Way], max_calls: Option<u64>) -> Vec<Finding> {
    let mut found = Vec::new();
    let Some(worst) = ways.first() else {
        return found;
    };
    let retrying: Vec<&Step> = worst.retrying().collect();
    if retrying.len() > 1 {
        let names: Vec<&str> = retrying.iter().map(|step| layers[step.layer].name.as_str()).collect();
        found.push(
            Finding::new(
                Rule::SeveralLayers,
                None,
                format!("{} layers retry the same failure: {} = {}", names.len(), product(worst), worst.calls),
            )
            .label(format!("when the dependency fails with {}", worst.start))
            .help(format!(
                "let one of {} retry, and the others pass the failure on at once: their tries multiply, they do not add up",
                crate::wording::listed(&names)
            )),
        );
    }
    if let Some(max) = max_calls.filter(|max| worst.calls > Calls { unlimited: false, product: *max }) {
        found.push(
            Finding::new(Rule::TooManyCalls, None, format!("one request can become {} where {max} are accepted", worst.calls))
                .help("fewer tries, or fewer layers that try"),
        );
    }
    found.extend(worst.steps.windows(2).filter_map(|pair| gives_up_first(layers, &pair[0], &pair[1])));
    found
}

/// The factors from the edge on: `3 × 2 × 3`.
pub(super) fn product(way: &Way) -> String {
    let factor = |step: &Step| match step.tries {
        Tries::AtMost(tries) => tries.to_string(),
        Tries::Unlimited => "no limit".to_owned(),
    };
    way.steps.iter().map(factor).collect::<Vec<_>>().join(" × ")
}

/// A caller whose try ends before the callee has given up: the callee works on for nobody, while the next try is made.
///
/// Both on the worst way: other routes of the same files need not belong together.
fn gives_up_first(layers: &[Layer], caller: &Step, callee: &Step) -> Option<Finding> {
    let route = |step: &Step| (&layers[step.layer].name, &layers[step.layer].policies[step.policy]);
    let ((caller, patience), (callee, work)) = (route(caller), route(callee));
    let limit = patience.try_timeout.into_iter().chain(patience.total_timeout).min()?;
    let longest = work.longest()?;
    if limit >= longest {
        return None;
    }
    let message = format!("`{caller}` gives up after {}, while `{callee}` may go on for {}", shown(limit), shown(longest));
    Some(
        Finding::new(Rule::CallerGivesUpFirst, patience.place.or(work.place), message)
            .label("what the callee still does then is for nobody, and comes on top of the caller's next try")
            .help(format!("let `{callee}` give up within {}, or pass the deadline on", shown(limit))),
    )
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::super::stated::stated;
    use super::super::worst;
    use super::*;

    fn rules(stated_layers: &[&str], max: Option<u64>) -> Vec<Rule> {
        let layers: Vec<Layer> = stated_layers.iter().map(|text| stated(text).unwrap()).collect();
        findings(&layers, &worst::ways(&layers), max).into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn only_layers_that_meet_the_same_failure_are_several() {
        assert_eq!(rules(&["client=3", "service=3"], None), [Rule::SeveralLayers]);
        assert_eq!(rules(&["client=1", "service=3"], None), []);
        assert_eq!(rules(&["client=3,on=refused", "service=3,answers=500"], None), []);
    }

    #[test]
    fn the_limit_on_calls_is_what_is_still_accepted() {
        assert_eq!(rules(&["service=3"], Some(3)), []);
        assert_eq!(rules(&["service=3"], Some(2)), [Rule::TooManyCalls]);
    }

    #[test]
    fn a_caller_must_outlast_all_tries_of_its_callee() {
        assert_eq!(rules(&["client=1,timeout=3s", "service=1,timeout=5s"], None), [Rule::CallerGivesUpFirst]);
        assert_eq!(rules(&["client=1,timeout=5s", "service=1,timeout=5s"], None), []);
        assert_eq!(rules(&["client=1,timeout=5s", "service=2,timeout=3s"], None), [Rule::CallerGivesUpFirst]);
        assert_eq!(rules(&["client=1,timeout=5s", "service=2,timeout=3s,total=4s"], None), []);
        assert_eq!(rules(&["client=1", "service=2,timeout=3s"], None), []);
    }
}
