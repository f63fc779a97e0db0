//! Playbooks of a few seconds.

use super::services::Service;

/// A playbook over the edges `web` and `store`, to be filled in.
pub(crate) struct Playbook {
    pub(crate) web: String,
    /// Address and port.
    pub(crate) store: String,
    /// Seconds.
    pub(crate) baseline: u32,
    pub(crate) fault: u32,
    pub(crate) recovery: u32,
    pub(crate) load: Option<String>,
    /// One fault, as an item of the list.
    pub(crate) faults: Vec<String>,
    pub(crate) guards: Vec<String>,
    pub(crate) expect: Vec<String>,
}

impl Playbook {
    /// Two seconds a phase, no fault, nothing expected.
    pub(crate) fn new(web: &Service, store: &Service) -> Self {
        Self::of(web.port(), &store.address)
    }

    /// The same for services that are none of the lab's.
    pub(crate) fn of(web_port: &str, store: &str) -> Self {
        Self {
            web: web_port.to_owned(),
            store: store.to_owned(),
            baseline: 2,
            fault: 2,
            recovery: 2,
            load: None,
            faults: Vec::new(),
            guards: Vec::new(),
            expect: Vec::new(),
        }
    }

    pub(crate) fn load(mut self, rate: &str) -> Self {
        self.load = Some(format!("{{url: \"http://127.0.0.1:{}/orders\", rate: {rate}, timeout: 2s}}", self.web));
        self
    }

    pub(crate) fn fault(mut self, fault: &str) -> Self {
        self.faults.push(fault.to_owned());
        self
    }

    pub(crate) fn guard(mut self, guard: &str) -> Self {
        self.guards.push(guard.to_owned());
        self
    }

    pub(crate) fn expect(mut self, expectation: &str) -> Self {
        self.expect.push(expectation.to_owned());
        self
    }

    pub(crate) fn phases(mut self, baseline: u32, fault: u32, recovery: u32) -> Self {
        (self.baseline, self.fault, self.recovery) = (baseline, fault, recovery);
        self
    }

    pub(crate) fn text(&self) -> String {
        let (address, port) = self.store.rsplit_once(':').unwrap();
        let mut text = format!(
            "version: 1\nname: a-test\nobserve:\n  ingress: {{web: {{port: {}, protocol: http}}}}\n  downstream:\n    \
             store: {{address: \"{address}\", port: {port}, protocol: http}}\n  window: 500ms\n\
             phases: {{baseline: {}s, fault: {}s, recovery: {}s}}\n",
            self.web, self.baseline, self.fault, self.recovery
        );
        if let Some(load) = &self.load {
            text.push_str(&format!("load: {load}\n"));
        }
        for (key, lines) in [("faults", &self.faults), ("guards", &self.guards), ("expect", &self.expect)] {
            if !lines.is_empty() {
                text.push_str(&format!("{key}:\n"));
            }
            for line in lines {
                text.push_str(&format!("  - {line}\n"));
            }
        }
        text
    }
}
