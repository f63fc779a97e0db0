//! Clusters: what limits the retries to each.

use std::collections::HashMap;

use super::super::source::Source;
use super::super::tree::Node;

/// Envoy's default for `max_retries`, and for a budget's floor.
pub(super) const DEFAULT_RETRIES: u32 = 3;

/// Every cluster by name.
#[derive(Debug, Default)]
pub(super) struct Clusters<'a>(HashMap<&'a str, &'a Node>);

/// How many retries a cluster has at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Limit<'a> {
    /// A share of active and pending requests, at least a floor.
    Budget { percent: f64, floor: u32, node: &'a Node },
    /// A number; `None` is where it is written.
    Static { retries: u32, node: Option<&'a Node> },
}

impl<'a> Clusters<'a> {
    /// A cluster is a mapping with a name and something that only clusters have.
    pub(super) fn find(documents: &'a [Node]) -> Self {
        const MARKS: [&str; 6] =
            ["load_assignment", "circuit_breakers", "lb_policy", "eds_cluster_config", "connect_timeout", "cluster_type"];
        let mut found = HashMap::new();
        for document in documents {
            document.each_map(&mut |map| {
                if let Some(name) = map.get("name").and_then(Node::text)
                    && MARKS.iter().any(|mark| map.entry(mark).is_some())
                {
                    found.insert(name, map);
                }
            });
        }
        Self(found)
    }

    /// The limit of a cluster for the default priority; `None` if the cluster is not in the file.
    pub(super) fn limit(&self, source: &mut Source<'_>, name: &str) -> Option<Limit<'a>> {
        let cluster = *self.0.get(name)?;
        let default = |node: &&Node| node.get("priority").and_then(Node::text).is_none_or(|priority| priority == "DEFAULT");
        let threshold = cluster.at(&["circuit_breakers", "thresholds"]).and_then(|list| list.items().iter().find(default));
        let Some(threshold) = threshold else {
            return Some(Limit::Static { retries: DEFAULT_RETRIES, node: None });
        };
        if let Some(budget) = threshold.get("retry_budget") {
            let percent = budget.get("budget_percent").map(Node::unwrapped);
            let read =
                percent.and_then(Node::text).and_then(|text| text.parse::<f64>().ok()).filter(|percent| (0.0..=100.0).contains(percent));
            if let Some(node) = percent
                && read.is_none()
            {
                source.unreadable(node.range.clone(), "a percentage", "a number from 0 to 100, as in `{value: 20}`");
            }
            let floor = super::super::proto::number(source, budget.get("min_retry_concurrency")).unwrap_or(DEFAULT_RETRIES);
            return Some(Limit::Budget { percent: read.unwrap_or(20.0), floor, node: budget });
        }
        let node = threshold.get("max_retries");
        let retries = super::super::proto::number(source, node).unwrap_or(DEFAULT_RETRIES);
        Some(Limit::Static { retries, node })
    }
}

impl Limit<'_> {
    pub(super) fn words(self) -> String {
        match self {
            Self::Budget { percent, floor, .. } => format!("{percent}% of active and pending requests, but {floor} at any load"),
            Self::Static { retries, .. } => format!("{retries} retries at the same time, at any load"),
        }
    }
}
