//! The table of metrics: how each is called, what its limits look like, and where it applies. A new metric is a new row.

use super::{Metric, RetryBase};
use crate::edge::Role;

/// One metric, as expectations and guards know it.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name as printed; compared without regard to case, with spaces, hyphens and underscores alike.
    pub name: &'static str,
    /// What its limits look like.
    pub unit: Unit,
    /// The edges that have it.
    pub roles: &'static [Role],
    /// What may follow the name.
    pub qualifier: Qualifier,
    /// Whether it can be compared with the baseline (`increase`).
    pub increase: bool,
    /// Whether it can be asked to recover, and if so, whether without saying to what.
    pub recovery: Recovery,
    /// How the metric is made; `None` if it is not in this version.
    pub(super) make: Option<fn(Qualified) -> Metric>,
}

/// What a limit looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// `20%` or `0.2`, and never more than `100%`.
    Share,
    /// `20%` or `0.2`, and `150%` too: one count over another that it is no part of.
    Ratio,
    /// `1.2x` or `1.2`.
    Factor,
    /// `0.4`, and `0.4x` too.
    Number,
    /// `200/s` or `200`.
    PerSecond,
    /// `3s`.
    Time,
    /// `3`.
    Count,
}

/// What may follow a metric's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Qualifier {
    /// Nothing.
    None,
    /// `p50` to `p99.9`, required.
    Quantile,
    /// `of all` (the default) or `of first`.
    Base,
}

/// Whether a metric can recover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// It cannot.
    No,
    /// Back to the baseline, or to a level that the line gives.
    ToBaseline,
}

/// A qualifier's value.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Qualified {
    pub(super) quantile: f64,
    pub(super) base: RetryBase,
}

const BOTH: &[Role] = &[Role::Ingress, Role::Downstream];
const DOWNSTREAM: &[Role] = &[Role::Downstream];
const INGRESS: &[Role] = &[Role::Ingress];

/// A metric that cannot recover, takes no `increase` and no qualifier: most of them.
const fn row(name: &'static str, unit: Unit, roles: &'static [Role], make: Option<fn(Qualified) -> Metric>) -> Row {
    Row { name, unit, roles, qualifier: Qualifier::None, increase: false, recovery: Recovery::No, make }
}

/// A metric of a later version.
const fn later(name: &'static str, unit: Unit, roles: &'static [Role]) -> Row {
    row(name, unit, roles, None)
}

const RETRY_RATIO: Row = Row {
    qualifier: Qualifier::Base,
    recovery: Recovery::ToBaseline,
    ..row("retry ratio", Unit::Share, BOTH, Some(|with| Metric::RetryRatio { of: with.base }))
};

/// The same over first attempts.
const OF_FIRST: Row = Row { unit: Unit::Ratio, ..RETRY_RATIO };

/// Every metric, those of later versions included.
pub const METRICS: [Row; 26] = [
    Row {
        increase: true,
        recovery: Recovery::ToBaseline,
        ..row("downstream QPS", Unit::PerSecond, DOWNSTREAM, Some(|_| Metric::DownstreamQps))
    },
    Row { increase: true, ..row("downstream QPS per ingress", Unit::Factor, DOWNSTREAM, Some(|_| Metric::DownstreamPerIngress)) },
    Row { increase: true, ..row("ingress QPS", Unit::PerSecond, INGRESS, Some(|_| Metric::IngressQps)) },
    Row { recovery: Recovery::ToBaseline, ..row("amplification", Unit::Factor, DOWNSTREAM, Some(|_| Metric::Amplification)) },
    RETRY_RATIO,
    Row { recovery: Recovery::ToBaseline, ..row("success ratio", Unit::Share, BOTH, Some(|_| Metric::SuccessRatio)) },
    Row {
        qualifier: Qualifier::Quantile,
        ..row("failure latency", Unit::Time, BOTH, Some(|with| Metric::FailureLatency { quantile: with.quantile }))
    },
    Row {
        qualifier: Qualifier::Quantile,
        increase: true,
        recovery: Recovery::ToBaseline,
        ..row("latency", Unit::Time, BOTH, Some(|with| Metric::Latency { quantile: with.quantile }))
    },
    Row { increase: true, recovery: Recovery::ToBaseline, ..row("goodput", Unit::PerSecond, BOTH, Some(|_| Metric::Goodput)) },
    row("explicit failure ratio", Unit::Share, BOTH, Some(|_| Metric::ExplicitFailureRatio)),
    row("attempts max", Unit::Count, DOWNSTREAM, Some(|_| Metric::AttemptsMax)),
    row("layers retrying", Unit::Count, DOWNSTREAM, Some(|_| Metric::LayersRetrying)),
    row("cost per success", Unit::Factor, DOWNSTREAM, Some(|_| Metric::CostPerSuccess)),
    row("non idempotent retries", Unit::Count, DOWNSTREAM, Some(|_| Metric::NonIdempotentRetries)),
    row("nonretryable retries", Unit::Count, DOWNSTREAM, Some(|_| Metric::NonretryableRetries)),
    row("retry after violations", Unit::Count, DOWNSTREAM, Some(|_| Metric::RetryAfterViolations)),
    row("backoff jitter", Unit::Number, DOWNSTREAM, Some(|_| Metric::BackoffJitter)),
    row("retry peak to mean", Unit::Factor, DOWNSTREAM, Some(|_| Metric::RetryPeakToMean)),
    row("late starts", Unit::Count, BOTH, Some(|_| Metric::LateStarts)),
    row("orphan work", Unit::Time, BOTH, Some(|_| Metric::OrphanWork)),
    row("connections", Unit::Count, BOTH, Some(|_| Metric::Connections)),
    Row { increase: true, ..row("connections opened", Unit::Count, BOTH, Some(|_| Metric::ConnectionsOpened)) },
    row("connect failures", Unit::Count, DOWNSTREAM, Some(|_| Metric::ConnectFailures)),
    row("retransmit ratio", Unit::Ratio, BOTH, Some(|_| Metric::RetransmitRatio)),
    row("metastable", Unit::Count, BOTH, Some(|_| Metric::Metastable)),
    later("recovery windows", Unit::Count, BOTH),
];

impl Unit {
    /// What it is, with an article.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::Share => "a share",
            Self::Ratio => "a ratio",
            Self::Factor => "a factor",
            Self::Number => "a number",
            Self::PerSecond => "a rate",
            Self::Time => "a time",
            Self::Count => "a count",
        }
    }
}

/// The metric that a name begins of which the rest is a metric too: before it, nobody can tell an edge of that name from the metric.
pub(crate) fn begun_by(edge: &str) -> Option<&'static str> {
    let start = format!("{} ", edge.replace('-', " ").to_lowercase());
    let rest = |row: &Row| row.name.to_lowercase().strip_prefix(&start).map(str::to_owned);
    METRICS
        .iter()
        .find(|row| rest(row).is_some_and(|rest| METRICS.iter().any(|other| other.name.to_lowercase() == rest)))
        .map(|row| row.name)
}

impl Row {
    /// Whether this version can measure it.
    #[must_use]
    pub const fn is_in_this_version(&self) -> bool {
        self.make.is_some()
    }

    /// Whether it is a property of the whole drill, so that no edge can be named.
    pub(super) fn is_of_drill(&self) -> bool {
        self.make.is_some_and(|make| make(Qualified::default()).is_of_drill())
    }

    /// An example of a limit.
    #[must_use]
    pub const fn example(&self) -> &'static str {
        match self.unit {
            Unit::Share | Unit::Ratio => "20%",
            Unit::Factor => "1.2",
            Unit::Number => "0.4",
            Unit::PerSecond => "200/s",
            Unit::Time => "3s",
            Unit::Count => "3",
        }
    }

    /// Whether more of it is better.
    pub(super) fn is_good(&self) -> bool {
        self.make.is_some_and(|make| make(Qualified::default()).is_good())
    }

    /// The comparison that a demand is most likely to make; a guard trips on the other side.
    pub(super) fn usual_op(&self, guard: bool) -> &'static str {
        match (self.is_good(), guard) {
            (true, false) => ">=",
            (false, false) => "<=",
            (true, true) => "<",
            (false, true) => ">",
        }
    }

    /// An example of a demand: comparison and limit.
    pub(super) fn demand(&self, guard: bool) -> String {
        format!("{} {}", self.usual_op(guard), self.usual_limit(guard))
    }

    /// An example of a limit that a demand, or a guard, could have.
    pub(super) fn usual_limit(&self, guard: bool) -> &'static str {
        match (self.unit, self.is_good() && !guard) {
            (Unit::Share, true) => "99%",
            _ => self.example(),
        }
    }

    /// The row of a metric.
    #[must_use]
    pub fn of(metric: Metric) -> &'static Self {
        let name = match metric {
            Metric::DownstreamQps => "downstream QPS",
            Metric::IngressQps => "ingress QPS",
            Metric::Amplification => "amplification",
            Metric::RetryRatio { of: RetryBase::All } => "retry ratio",
            // Of each first attempt there may be several retries.
            Metric::RetryRatio { of: RetryBase::First } => return &OF_FIRST,
            Metric::SuccessRatio => "success ratio",
            Metric::FailureLatency { .. } => "failure latency",
            Metric::Latency { .. } => "latency",
            Metric::DownstreamPerIngress => "downstream QPS per ingress",
            Metric::Goodput => "goodput",
            Metric::ExplicitFailureRatio => "explicit failure ratio",
            Metric::AttemptsMax => "attempts max",
            Metric::LayersRetrying => "layers retrying",
            Metric::CostPerSuccess => "cost per success",
            Metric::Connections => "connections",
            Metric::ConnectionsOpened => "connections opened",
            Metric::ConnectFailures => "connect failures",
            Metric::RetransmitRatio => "retransmit ratio",
            Metric::NonIdempotentRetries => "non idempotent retries",
            Metric::NonretryableRetries => "nonretryable retries",
            Metric::RetryAfterViolations => "retry after violations",
            Metric::BackoffJitter => "backoff jitter",
            Metric::RetryPeakToMean => "retry peak to mean",
            Metric::LateStarts => "late starts",
            Metric::OrphanWork => "orphan work",
            Metric::Metastable => "metastable",
        };
        METRICS.iter().find(|row| row.name == name).unwrap_or(&METRICS[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_of_this_version_finds_its_row() {
        for row in METRICS.iter().filter(|row| row.is_in_this_version()) {
            let metric = row.make.map(|make| make(Qualified { quantile: 0.5, base: RetryBase::All }));
            assert_eq!(metric.map(|metric| Row::of(metric).name), Some(row.name));
        }
    }
}
