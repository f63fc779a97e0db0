//! Progress on stderr: a line that is rewritten on a terminal, plain lines elsewhere.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::window::{EdgeWindow, PhaseName, Window};

use crate::clock;
use crate::driver::Progress;

/// Writes progress to stderr.
#[derive(Debug)]
pub struct Stderr {
    edges: Vec<EdgeSpec>,
    live: bool,
    /// A live line stands unfinished on the terminal.
    dirty: bool,
    phase: String,
    until_ns: Option<u64>,
}

impl Stderr {
    /// Progress for these edges.
    #[must_use]
    pub fn new(edges: &[EdgeSpec]) -> Self {
        Self { edges: edges.to_vec(), live: io::stderr().is_terminal(), dirty: false, phase: String::new(), until_ns: None }
    }

    fn line(&mut self, text: &str) {
        let mut err = io::stderr().lock();
        // Progress that cannot be written is no reason to end a drill.
        let _ = if self.dirty { writeln!(err, "\r\x1b[2K{text}") } else { writeln!(err, "{text}") };
        self.dirty = false;
    }

    fn rewrite(&mut self, text: &str) {
        let mut err = io::stderr().lock();
        let _ = write!(err, "\r\x1b[2K{text}").and_then(|()| err.flush());
        self.dirty = true;
    }

    /// The drill is in a phase, which is planned to last so many seconds more.
    pub fn show_phase(&mut self, name: &str, seconds: Option<f64>) {
        name.clone_into(&mut self.phase);
        self.until_ns = seconds.map(|seconds| clock::after(Duration::try_from_secs_f64(seconds).unwrap_or_default()));
        if name == PhaseName::Transition.as_str() {
            return;
        }
        let text = match seconds {
            Some(seconds) => format!("{name}: {seconds:.0} s"),
            None => name.to_owned(),
        };
        self.line(&text);
    }

    /// A window of a phase is final: of each edge, in their order, its requests a second and its share of retries.
    pub fn show_window(&mut self, phase: &str, edges: impl Iterator<Item = (f64, Option<f64>)>) {
        if phase == PhaseName::Transition.as_str() {
            return;
        }
        let mut text = format!("  {phase:<9}");
        for (spec, (qps, retries)) in self.edges.iter().zip(edges) {
            // Writing to a String cannot fail.
            let _ = write!(text, "  {} {qps:.0}/s", spec.name);
            if let Some(retries) = retries.filter(|_| spec.role == Role::Downstream) {
                let _ = write!(text, " ({:.1}% retries)", 100.0 * retries);
            }
        }
        if self.live {
            let left = self.until_ns.map_or(0.0, |at_ns| clock::until(at_ns).as_secs_f64());
            self.rewrite(&format!("{text}   ({left:.0} s left of {})", self.phase));
        } else {
            self.line(&text);
        }
    }

    /// Something that is to be read at once.
    pub fn show_note(&mut self, text: &str) {
        self.line(text);
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown to three digits")]
const fn to_f64(count: u64) -> f64 {
    count as f64
}

fn rate(count: u64, over: f64) -> f64 {
    if over > 0.0 { to_f64(count) / over } else { 0.0 }
}

impl Progress for Stderr {
    fn phase(&mut self, name: PhaseName, until_ns: Option<u64>) {
        self.show_phase(name.as_str(), until_ns.map(|at_ns| clock::until(at_ns).as_secs_f64()));
    }

    fn window(&mut self, window: &Window) {
        let seconds = window.seconds();
        let edge = |edge: &EdgeWindow| {
            let retries = (edge.attempts > 0).then(|| rate(edge.retries.total(), to_f64(edge.attempts)));
            (rate(edge.counts.requests, seconds), retries)
        };
        self.show_window(window.phase.as_str(), window.edges.iter().map(edge));
    }

    fn note(&mut self, text: &str) {
        self.show_note(text);
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        if self.dirty {
            let _ = writeln!(io::stderr());
        }
    }
}
