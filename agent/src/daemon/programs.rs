//! How long the kernel programs ran, asked of the kernel by the names that they are loaded under.

use std::collections::BTreeMap;

use crate::metrics::Metrics;

/// Programs of the probe. A name in the kernel is at most 15 characters long, and so are these.
const NAMES: [&str; 5] = ["probe_ingress", "probe_egress", "adopt_ingress", "adopt_egress", "probe_life"];
/// Asking for every program of the host is not for every second.
const EVERY: u32 = 10;

/// The time of each program when it was last asked for.
#[derive(Debug, Default)]
pub struct Programs {
    calls: u32,
    before: BTreeMap<u32, f64>,
}

impl Programs {
    /// Brings the metrics up to date, at every tenth call.
    pub fn refresh(&mut self, metrics: &Metrics) {
        let is_due = self.calls.is_multiple_of(EVERY);
        self.calls = self.calls.wrapping_add(1);
        if !is_due {
            return;
        }
        let mut now = BTreeMap::new();
        // A program that is unloaded while the list is read is an error of the list, and no reason to forget the others.
        for info in aya::programs::loaded_programs().flatten() {
            let Some(name) = info.name_as_str().and_then(|name| NAMES.into_iter().find(|known| *known == name)) else { continue };
            let seconds = info.run_time().as_secs_f64();
            let before = self.before.get(&info.id()).copied().unwrap_or(0.0);
            metrics.bpf_run(name, (seconds - before).max(0.0));
            now.insert(info.id(), seconds);
        }
        self.before = now;
    }
}
