//! What a metric's value can be at all: a demand beyond that never passes, and one at its end always does.

use super::{Demand, Metric, Op, RetryBase};
use crate::edge::{EdgeSpec, Role};

/// The least value that there can be, and the most, with what a reader is told of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bounds {
    least: f64,
    below: &'static str,
    most: Option<(f64, String)>,
}

impl Bounds {
    /// Of a metric on these edges; `increase` is over the baseline's value, less one.
    pub(crate) fn of(metric: Metric, increase: bool, edges: &[EdgeSpec]) -> Self {
        let (least, below) = match metric {
            _ if increase => (-1.0, NOTHING),
            // A nanosecond is the least that is measured.
            Metric::Latency { .. } => (1e-9, "no answer comes in no time"),
            Metric::CostPerSuccess => (1.0, "each success costs one attempt at least"),
            Metric::RetryPeakToMean => (1.0, "the fullest 10 ms hold no less than the mean"),
            Metric::AttemptsMax => (1.0, "each request has one attempt at least"),
            _ => (0.0, NOTHING),
        };
        let most = match metric {
            _ if increase => None,
            Metric::RetryRatio { of: RetryBase::All } | Metric::SuccessRatio | Metric::ExplicitFailureRatio => {
                Some((1.0, "no share is above 100%".to_owned()))
            }
            Metric::LayersRetrying => {
                let layers = edges.iter().filter(|edge| edge.role == Role::Downstream).count();
                let edges = if layers == 1 { "edge is" } else { "edges are" };
                Some((layers as f64, format!("only {layers} downstream {edges} observed")))
            }
            _ => None,
        };
        Self { least, below, most }
    }

    /// Why no value satisfies a comparison, and the comparison with the same limit that one does.
    pub(crate) fn never(&self, op: Op, value: f64) -> Option<(&str, Option<Op>)> {
        let most = self.most.as_ref().map(|(most, above)| (*most, above.as_str()));
        match (op, most) {
            // That it is nothing at all, or comes down to nothing, is seldom what is meant by a time or by a factor.
            (Op::Less, _) if value <= self.least => Some((self.below, (value >= self.least && value >= 0.0).then_some(Op::AtMost))),
            (Op::AtMost, _) if value < self.least => Some((self.below, None)),
            (Op::Greater, Some((most, above))) if value >= most => Some((above, (value <= most).then_some(Op::AtLeast))),
            (Op::AtLeast, Some((most, above))) if value > most => Some((above, None)),
            _ => None,
        }
    }

    /// Why every value satisfies a comparison.
    pub(crate) fn always(&self, op: Op, value: f64) -> Option<&str> {
        let most = self.most.as_ref().map(|(most, above)| (*most, above.as_str()));
        match (op, most) {
            (Op::AtLeast, _) if value <= self.least => Some(self.below),
            (Op::Greater, _) if value < self.least => Some(self.below),
            (Op::AtMost, Some((most, above))) if value >= most => Some(above),
            (Op::Less, Some((most, above))) if value > most => Some(above),
            _ => None,
        }
    }
}

const NOTHING: &str = "nothing measured is below zero";

/// Why an expectation holds whatever happens.
pub(crate) fn foregone(metric: Metric, demand: Demand, edges: &[EdgeSpec]) -> Option<String> {
    let (op, value, increase) = match demand {
        // A verdict, whose limit stands for nothing.
        Demand::Limit { .. } if metric == Metric::Metastable => return None,
        Demand::Limit { op, value, increase, .. } => (op, value, increase),
        Demand::Recovers { to, .. } => (if metric.is_good() { Op::AtLeast } else { Op::AtMost }, to?, false),
    };
    Bounds::of(metric, increase, edges).always(op, value).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_never_and_what_is_always_so_exclude_each_other() {
        let edge = |role| EdgeSpec { name: "a".to_owned(), role, address: None, ports: None, protocol: None };
        let edges = [edge(Role::Downstream), edge(Role::Downstream), edge(Role::Ingress)];
        let metrics = [Metric::SuccessRatio, Metric::CostPerSuccess, Metric::LayersRetrying, Metric::Goodput, Metric::RetryPeakToMean];
        for metric in metrics {
            for increase in [false, true] {
                let bounds = Bounds::of(metric, increase, &edges);
                for op in [Op::Less, Op::AtMost, Op::Greater, Op::AtLeast] {
                    for value in [-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0] {
                        let (never, always) = (bounds.never(op, value), bounds.always(op, value));
                        assert!(never.is_none() || always.is_none(), "{metric} {op} {value}");
                        if let Some((_, Some(other))) = never {
                            assert_eq!(bounds.never(other, value), None, "{metric} {other} {value}");
                        }
                    }
                }
            }
        }
    }
}
