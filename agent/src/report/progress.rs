//! Progress on stderr: a line that is rewritten on a terminal, plain lines elsewhere.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::window::{PhaseName, Window};

use crate::clock;
use crate::driver::Progress;

/// Writes progress to stderr.
#[derive(Debug)]
pub struct Stderr {
    edges: Vec<EdgeSpec>,
    live: bool,
    /// A live line stands unfinished on the terminal.
    dirty: bool,
    phase: PhaseName,
    until_ns: Option<u64>,
}

impl Stderr {
    /// Progress for these edges.
    #[must_use]
    pub fn new(edges: &[EdgeSpec]) -> Self {
        Self { edges: edges.to_vec(), live: io::stderr().is_terminal(), dirty: false, phase: PhaseName::Transition, until_ns: None }
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

    fn describe(&self, window: &Window) -> String {
        let mut text = String::new();
        for (spec, edge) in self.edges.iter().zip(&window.edges) {
            let qps = rate(edge.counts.requests, window.seconds());
            // Writing to a String cannot fail.
            let _ = write!(text, "  {} {qps:.0}/s", spec.name);
            if spec.role == Role::Downstream && edge.attempts > 0 {
                let _ = write!(text, " ({:.1}% retries)", 100.0 * rate(edge.retries.total(), to_f64(edge.attempts)));
            }
        }
        text
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
        self.phase = name;
        self.until_ns = until_ns;
        if name == PhaseName::Transition {
            return;
        }
        let text = match until_ns {
            Some(at_ns) => format!("{}: {:.0} s", name.as_str(), clock::until(at_ns).as_secs_f64()),
            None => name.as_str().to_owned(),
        };
        self.line(&text);
    }

    fn window(&mut self, window: &Window) {
        if window.phase == PhaseName::Transition {
            return;
        }
        let text = format!("  {:<9}{}", window.phase.as_str(), self.describe(window));
        if self.live {
            let left = self.until_ns.map_or(0.0, |at_ns| clock::until(at_ns).as_secs_f64());
            self.rewrite(&format!("{text}   ({left:.0} s left of {})", self.phase.as_str()));
        } else {
            self.line(&text);
        }
    }

    fn note(&mut self, text: &str) {
        self.line(text);
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        if self.dirty {
            let _ = writeln!(io::stderr());
        }
    }
}
