//! How many layers retry: the downstream edges on which retries are shown to be more than a hundredth of first attempts.

use super::{Gap, Scene, retrying};
use crate::edge::Role;
use crate::expectation::RetryBase;
use crate::judge::sample::{Layer, Sample};

/// Each downstream edge's share of retries, as the retry ratio takes it: less what the baseline shows to be none.
pub(super) fn retrying(scene: Scene<'_>) -> Sample {
    let edges = (0..scene.edges.len()).filter(|&edge| scene.edges[edge].role == Role::Downstream);
    let layers = edges.map(|edge| match retrying::share(Scene { edge, ..scene }, scene.judged, RetryBase::First, scene.phase) {
        Ok(share) => Layer::Retries(share),
        Err(Gap::TooAlike(_) | Gap::NoneKept(_) | Gap::Unread { .. }) => Layer::Unknown,
        // An edge without attempts does not retry.
        Err(_) => Layer::Silent,
    });
    Sample::Layers(layers.collect())
}
