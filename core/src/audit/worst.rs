//! The worst case of the layers together: the kind of failure whose way up meets the most tries.
//!
//! A layer is a map from the kind of failure that it meets to a number of tries and the kind that it shows the layer
//! above. The product along that way is what one request can become. A product of each layer's largest number would be
//! wrong: a gateway that retries refused connections alone never retries the 502 that the gateway below makes of them.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use super::kind::Kind;
use super::layer::{Layer, Tries};

/// Calls at the dependency for one request at the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Calls {
    /// Whether some layer on the way has no limit; `product` is then that of the others.
    pub unlimited: bool,
    /// The product of the limits.
    pub product: u64,
}

impl Calls {
    const ONE: Self = Self { unlimited: false, product: 1 };

    const fn times(self, tries: Tries) -> Self {
        match tries {
            Tries::AtMost(tries) => Self { product: self.product.saturating_mul(tries as u64), ..self },
            Tries::Unlimited => Self { unlimited: true, ..self },
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.unlimited, self.product) {
            (true, 1) => f.write_str("no limit"),
            (true, product) => write!(f, "no limit, {product} times what the unlimited layer makes"),
            (false, 1) => f.write_str("1 call"),
            (false, product) => write!(f, "{product} calls"),
        }
    }
}

/// One layer on the way up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Position among the layers, 0 at the edge.
    pub layer: usize,
    /// Position among the layer's policies.
    pub policy: usize,
    /// The failure that it meets.
    pub meets: Kind,
    /// Its tries.
    pub tries: Tries,
    /// Whether it is known that it meets this kind, or the worst was taken because the layer below may answer anything.
    pub known: bool,
}

/// What one kind of failure at the dependency leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// How the dependency fails.
    pub start: Kind,
    /// How often it is called.
    pub calls: Calls,
    /// The layers, from the edge to the one at the dependency.
    pub steps: Vec<Step>,
}

impl Way {
    /// The layers on it that try more than once.
    pub fn retrying(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.tries.retries())
    }
}

/// The ways of every kind of failure that matters to these layers, the worst first; none if there are no layers.
#[must_use]
pub fn ways(layers: &[Layer]) -> Vec<Way> {
    if layers.is_empty() || layers.iter().any(|layer| layer.policies.is_empty()) {
        return Vec::new();
    }
    let mut kinds: BTreeSet<Kind> = Kind::BASE.into_iter().collect();
    for policy in layers.iter().flat_map(|layer| &layer.policies) {
        kinds.extend(policy.retries.singled_out());
    }
    let kinds: Vec<Kind> = kinds.into_iter().collect();
    let mut search = Search { layers, kinds: &kinds, best: HashMap::new() };
    let mut ways: Vec<Way> = kinds
        .iter()
        .map(|&start| {
            let (calls, mut steps) = search.best(layers.len() - 1, start, true);
            steps.reverse();
            Way { start, calls, steps }
        })
        .collect();
    // Stable: among equals, the order of the kinds.
    ways.sort_by_key(|way| std::cmp::Reverse(way.calls));
    ways
}

struct Search<'a> {
    layers: &'a [Layer],
    kinds: &'a [Kind],
    /// By layer, and by what it meets: calls and the way, from this layer up.
    best: HashMap<(usize, Kind), (Calls, Vec<Step>)>,
}

impl Search<'_> {
    fn best(&mut self, layer: usize, meets: Kind, known: bool) -> (Calls, Vec<Step>) {
        if !self.best.contains_key(&(layer, meets)) {
            let found = self.search(layer, meets);
            self.best.insert((layer, meets), found);
        }
        let (calls, mut steps) = self.best[&(layer, meets)].clone();
        if let Some(first) = steps.first_mut() {
            first.known = known;
        }
        (calls, steps)
    }

    fn search(&mut self, layer: usize, meets: Kind) -> (Calls, Vec<Step>) {
        let layers = self.layers;
        let mut best: Option<(Calls, Vec<Step>)> = None;
        for (policy, rule) in layers[layer].policies.iter().enumerate() {
            let tries = rule.tries(meets);
            let (above, rest) = match (layer.checked_sub(1), rule.answers.after(meets)) {
                (None, _) => (Calls::ONE, Vec::new()),
                (Some(above), Some(answer)) => self.best(above, answer, true),
                (Some(above), None) => self.worst_answer(above),
            };
            let calls = above.times(tries);
            if best.as_ref().is_none_or(|(most, _)| calls > *most) {
                let mut steps = vec![Step { layer, policy, meets, tries, known: true }];
                steps.extend(rest);
                best = Some((calls, steps));
            }
        }
        best.unwrap_or((Calls::ONE, Vec::new()))
    }

    /// When the layer below may answer anything, it answers what hurts most: a status rather than silence, if that hurts as much. It
    /// was connected to, so it is neither refused nor unreachable.
    fn worst_answer(&mut self, above: usize) -> (Calls, Vec<Step>) {
        let kinds = self.kinds.iter().copied();
        let statuses = kinds.clone().filter(|kind| matches!(kind, Kind::Http(_) | Kind::Grpc(_)));
        let silence = kinds.filter(|kind| matches!(kind, Kind::Timeout | Kind::Reset | Kind::Rejected));
        let usual = [Kind::Http(503)].into_iter().chain(statuses).chain(silence);
        let mut best: Option<(Calls, Vec<Step>)> = None;
        for kind in usual {
            let found = self.best(above, kind, false);
            if best.as_ref().is_none_or(|(most, _)| found.0 > *most) {
                best = Some(found);
            }
        }
        best.unwrap_or((Calls::ONE, Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::Kinds;
    use super::super::layer::{Answers, Policy};
    use super::*;

    const GATEWAY: Answers = Answers::Gateway { refused: 502, broken: 502, unconnected: 504, late: 504 };

    fn layer(tries: Tries, retries: Kinds, answers: Answers) -> Layer {
        let policy = Policy { tries, retries, ..Policy::new("p", None, answers) };
        Layer { name: "layer".to_owned(), format: None, policies: vec![policy] }
    }

    fn client(tries: u32) -> Layer {
        layer(Tries::AtMost(tries), Kinds::all(), Answers::Unknown)
    }

    fn product(layers: &[Layer]) -> (Kind, u64) {
        let worst = &ways(layers)[0];
        (worst.start, worst.calls.product)
    }

    #[test]
    fn layers_that_retry_everything_multiply() {
        assert_eq!(product(&[client(3), client(3), client(4)]).1, 36);
        for (layers, calls) in [(0, 1), (1, 3), (2, 9), (3, 27), (4, 81)] {
            let mut chain = vec![client(1)];
            chain.extend((0..layers).map(|_| client(3)));
            assert_eq!(product(&chain).1, calls, "{layers} layers");
        }
    }

    #[test]
    fn a_gateway_multiplies_only_what_it_retries() {
        let on_error = || layer(Tries::AtMost(2), [Kind::Refused, Kind::Reset].into_iter().collect(), GATEWAY);
        // What comes up from the lower gateway is its 502, which the upper one passes on.
        assert_eq!(product(&[on_error(), on_error()]), (Kind::Refused, 2));
        let on_502 = layer(Tries::AtMost(2), [Kind::Http(502)].into_iter().collect(), GATEWAY);
        assert_eq!(product(&[on_502, on_error()]), (Kind::Refused, 4));
    }

    #[test]
    fn a_503_is_passed_on_by_nginx_as_it_is_and_multiplied_once_it_is_listed() {
        // The measured rows of a client, nginx with two servers, and a service with three tries: 9 calls, and 18 with `http_503`.
        let service = || layer(Tries::AtMost(3), Kinds::all(), Answers::Always(Kind::Http(503)));
        let usual = [Kind::Refused, Kind::ConnectTimeout, Kind::Reset, Kind::Timeout];
        let nginx = |more: &[Kind]| layer(Tries::AtMost(2), usual.iter().chain(more).copied().collect(), GATEWAY);
        assert_eq!(product(&[client(3), nginx(&[]), service()]).1, 9);
        assert_eq!(product(&[client(3), nginx(&[Kind::Http(503)]), service()]).1, 18);
    }

    #[test]
    fn one_unlimited_layer_outweighs_any_number() {
        let worst = &ways(&[layer(Tries::Unlimited, [Kind::Http(503)].into_iter().collect(), GATEWAY), client(3)])[0];
        assert_eq!((worst.calls.unlimited, worst.calls.product), (true, 3));
        assert_eq!(worst.steps.iter().map(|step| step.known).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn the_worst_route_of_a_layer_counts_for_each_kind_of_failure() {
        let mut gateway = layer(Tries::AtMost(2), [Kind::Reset].into_iter().collect(), GATEWAY);
        gateway.policies.extend(layer(Tries::AtMost(5), [Kind::Http(500)].into_iter().collect(), GATEWAY).policies);
        let all = ways(&[gateway]);
        let calls = |kind| all.iter().find(|way| way.start == kind).map(|way| way.calls.product);
        assert_eq!((calls(Kind::Reset), calls(Kind::Http(500)), calls(Kind::Timeout)), (Some(2), Some(5), Some(1)));
    }

    #[test]
    fn no_number_of_layers_overflows() {
        let layers: Vec<Layer> = (0..40).map(|_| client(u32::MAX)).collect();
        assert_eq!(product(&layers).1, u64::MAX);
        assert!(ways(&[]).is_empty());
    }
}
