//! Connections of an edge: opened, failed, and open at once.

use super::{Scene, of_edge};
use crate::window::Window;

/// Established in the windows.
pub(super) fn opened(edge: usize, windows: &[&Window]) -> u64 {
    of_edge(edge, windows).map(|(_, counts)| counts.counts.connections_opened).sum()
}

/// Came to nothing in the windows.
pub(super) fn failed(edge: usize, windows: &[&Window]) -> u64 {
    of_edge(edge, windows).map(|(_, counts)| counts.counts.connect_failures).sum()
}

/// Either of them.
pub(super) fn attempted(edge: usize, windows: &[&Window]) -> u64 {
    opened(edge, windows) + failed(edge, windows)
}

/// Most connections that were open at the end of a judged window: opened less closed since the drill began.
pub(super) fn most_open(scene: Scene<'_>) -> u64 {
    let (mut open, mut most) = (0_i128, 0_i128);
    for window in scene.all {
        if let Some(edge) = window.edges.get(scene.edge) {
            open += i128::from(edge.counts.connections_opened) - i128::from(edge.counts.connections_closed);
        }
        // A connection from before the drill may close in it.
        open = open.max(0);
        if scene.judged.iter().any(|judged| judged.epoch == window.epoch) {
            most = most.max(open);
        }
    }
    u64::try_from(most).unwrap_or(u64::MAX)
}
