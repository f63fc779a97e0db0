//! Every metric there is: name, kind, help and labels. docs/metrics.md and dashboards/ are tested against this list.

/// What a metric is to Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Observations in buckets.
    Histogram,
}

impl Kind {
    /// The word in `# TYPE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    /// Its name; units are base units and stand at its end.
    pub name: &'static str,
    /// What it is to Prometheus.
    pub kind: Kind,
    /// What it counts.
    pub help: &'static str,
    /// Its labels, in order.
    pub labels: &'static [&'static str],
}

macro_rules! metrics {
    ($($constant:ident = $name:literal, $kind:ident, [$($label:literal),*], $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Definition =
                Definition { name: $name, kind: Kind::$kind, help: $help, labels: &[$($label),*] };
        )*
        /// All of them, in the order of the documentation.
        pub const ALL: &[Definition] = &[$($constant),*];
    };
}

metrics! {
    REQUESTS = "stormdrill_requests_total", Counter, ["role", "edge", "protocol"], "Requests counted by the kernel, retries included.";
    RESPONSES = "stormdrill_responses_total", Counter, ["role", "edge", "protocol", "class"], "Final responses counted by the kernel, by class of status.";
    RETRIES = "stormdrill_retries_total", Counter, ["edge", "evidence"], "Attempts recognised as retries, by the evidence for it.";
    RETRANSMITS = "stormdrill_tcp_retransmits_total", Counter, ["role", "edge"], "Segments that TCP sent again.";
    DURATION = "stormdrill_request_duration_seconds", Histogram, ["role", "edge", "protocol"], "Time from a request's head to its response's head, in seconds.";
    CONNECTIONS = "stormdrill_connections", Gauge, ["role", "edge"], "Connections that are open.";
    OPENED = "stormdrill_connections_opened_total", Counter, ["role", "edge"], "Connections established, or first seen.";
    CONNECT_FAILURES = "stormdrill_connect_failures_total", Counter, ["edge", "reason"], "Connects that came to nothing.";
    DRILL_PHASE = "stormdrill_drill_phase", Gauge, ["drill", "phase"], "1 for the phase that a running drill is in, 0 for its others.";
    DRILL_VERDICT = "stormdrill_drill_verdict", Gauge, ["drill", "verdict"], "1 for the verdict of each of the last drills.";
    FAULT_PACKETS = "stormdrill_fault_packets_total", Counter, ["fault", "outcome"], "Packets (of http_status: responses) that faults selected, and those that they hit.";
    EVENTS_LOST = "stormdrill_events_lost_total", Counter, [], "Events that the ring buffer had no room for; counts stay exact.";
    SAMPLING = "stormdrill_sampling_ratio", Gauge, [], "Share of requests whose events are kept, 0 to 1.";
    UNKNOWN_ROLE = "stormdrill_unknown_role_connections", Gauge, [], "Connections whose role could not be told, since the probe was attached.";
    BPF_RUN = "stormdrill_bpf_run_seconds_total", Counter, ["program"], "Time spent in the kernel programs, in seconds; grows only with sysctl kernel.bpf_stats_enabled=1.";
    ATTACHED = "stormdrill_probe_attached", Gauge, ["hook"], "1 if the hook of the constant observation is in place.";
}
