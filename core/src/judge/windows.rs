//! Which windows stand for a phase.
//!
//! This is the one place that chooses: guard time around the boundaries, when it comes, belongs here.

use crate::judge::Evidence;
use crate::window::{PhaseName, Window};

/// The windows of `phase` that may be judged, in order of time.
///
/// A remnant at the phase's end, shorter than half of its longest window, is left out: it is too short to be a window
/// like the others.
pub(crate) fn of_phase<'a>(evidence: &Evidence<'a>, phase: PhaseName) -> Vec<&'a Window> {
    let windows = || evidence.windows.iter().filter(move |window| window.phase == phase);
    let longest = windows().map(Window::seconds).fold(0.0, f64::max);
    windows().filter(|window| window.seconds() > 0.0 && window.seconds() >= longest / 2.0).collect()
}

/// Their epochs.
pub(crate) fn epochs(windows: &[&Window]) -> Vec<u32> {
    windows.iter().map(|window| window.epoch).collect()
}
