//! Which services pass and fail which playbook, as a table.

/// A service, and the verdict that a playbook gives it.
pub(super) struct Case {
    pub(super) playbook: &'static str,
    pub(super) what: &'static str,
    pub(super) expected: &'static str,
    pub(super) service: Service,
    pub(super) rate: &'static str,
    pub(super) client: &'static [&'static str],
    /// Baseline, fault, recovery; window.
    pub(super) phases: [&'static str; 3],
    pub(super) window: &'static str,
    pub(super) set: &'static [(&'static str, &'static str)],
}

pub(super) enum Service {
    /// A chain of so many layers, and the arguments of chain and store.
    Chain(u16, &'static [&'static str], &'static [&'static str]),
    /// nginx with these settings before two services of one try.
    Gateway(&'static str),
}

const BUDGETED: [&str; 8] = ["--policy", "budgeted", "--tries", "3", "--budget", "10%", "--budget-window", "1s"];

const CASE: Case = Case {
    playbook: "",
    what: "",
    expected: "pass",
    service: Service::Chain(1, &BUDGETED, &[]),
    rate: "60/s",
    client: &["--timeout", "2s"],
    phases: ["8s", "10s", "6s"],
    window: "1s",
    set: &[],
};

/// All pairs, and a third where there is more to say.
pub(super) const CASES: &[Case] = &[
    Case {
        playbook: "retry-amplification",
        what: "two layers, each with three tries",
        expected: "fail",
        service: Service::Chain(2, &["--tries", "3"], &[]),
        ..CASE
    },
    Case {
        playbook: "retry-amplification",
        what: "the innermost layer alone, 10% budget",
        service: Service::Chain(2, &BUDGETED, &[]),
        rate: "150/s",
        ..CASE
    },
    Case {
        playbook: "retry-budget",
        what: "three tries without a budget",
        expected: "fail",
        service: Service::Chain(1, &["--tries", "3"], &[]),
        ..CASE
    },
    Case { playbook: "retry-budget", what: "10% budget", rate: "200/s", ..CASE },
    Case {
        playbook: "per-try-timeout",
        what: "1 s a try of 1 s",
        expected: "fail",
        service: Service::Chain(1, &["--tries", "3", "--timeout", "1s", "--keepalive", "off"], &[]),
        client: &["--timeout", "1s"],
        ..CASE
    },
    Case {
        playbook: "per-try-timeout",
        what: "250 ms a try of 1 s",
        service: Service::Chain(1, &["--tries", "3", "--timeout", "250ms", "--keepalive", "off"], &[]),
        client: &["--timeout", "1s"],
        ..CASE
    },
    Case {
        playbook: "gateway-ejection",
        what: "nginx with http_503 and max_fails=1",
        expected: "fail",
        service: Service::Gateway("proxy_next_upstream error timeout http_503;"),
        ..CASE
    },
    Case {
        playbook: "gateway-ejection",
        what: "nginx that passes on errors alone",
        service: Service::Gateway("proxy_next_upstream error; proxy_next_upstream_tries 2;"),
        rate: "150/s",
        ..CASE
    },
    Case {
        playbook: "capacity-limited",
        what: "two layers of three tries before a store that serves 75/s",
        expected: "fail",
        service: Service::Chain(2, &["--tries", "3"], &["--capacity", "75/s"]),
        ..CASE
    },
    Case {
        playbook: "capacity-limited",
        what: "10% budget before the same store",
        service: Service::Chain(2, &BUDGETED, &["--capacity", "75/s"]),
        ..CASE
    },
    Case {
        playbook: "packet-loss",
        what: "150 ms a try, three tries",
        expected: "fail",
        service: Service::Chain(1, &["--tries", "3", "--timeout", "150ms"], &[]),
        // Lost answers make four tries of three requests: to tell that from 20% takes more requests than a small step above it would.
        rate: "150/s",
        phases: ["8s", "12s", "20s"],
        ..CASE
    },
    Case {
        playbook: "packet-loss",
        what: "150 ms a try, 10% budget",
        service: Service::Chain(
            1,
            &["--policy", "budgeted", "--tries", "3", "--budget", "10%", "--budget-window", "1s", "--timeout", "150ms"],
            &[],
        ),
        rate: "150/s",
        phases: ["8s", "12s", "20s"],
        ..CASE
    },
    Case {
        playbook: "packet-loss",
        what: "3 s a try, three tries: nothing to see",
        expected: "vacuous",
        service: Service::Chain(1, &["--tries", "3", "--timeout", "3s"], &[]),
        client: &["--timeout", "10s"],
        phases: ["8s", "12s", "20s"],
        ..CASE
    },
    Case {
        playbook: "partition",
        what: "a try may take 5 s, the callers wait 2 s",
        expected: "fail",
        service: Service::Chain(1, &["--tries", "2", "--timeout", "5s"], &[]),
        ..CASE
    },
    Case {
        playbook: "partition",
        what: "0.3 s a try, two tries",
        service: Service::Chain(1, &["--tries", "2", "--timeout", "300ms"], &[]),
        ..CASE
    },
    Case {
        playbook: "metastable-overload",
        what: "two tries of 1 s before a store that serves 150/s and queues the rest",
        expected: "fail",
        service: Service::Chain(1, &["--tries", "2"], &["--capacity", "150/s", "--queue", "defer"]),
        rate: "100/s",
        client: &["--timeout", "5s"],
        phases: ["8s", "12s", "30s"],
        window: "2s",
        set: &[("expect.1", "web goodput recovers within 20s")],
    },
    Case {
        playbook: "metastable-overload",
        what: "10% budget before the same store",
        service: Service::Chain(1, &BUDGETED, &["--capacity", "150/s", "--queue", "defer"]),
        rate: "100/s",
        client: &["--timeout", "5s"],
        phases: ["8s", "12s", "30s"],
        window: "2s",
        set: &[("expect.1", "web goodput recovers within 20s")],
        ..CASE
    },
    Case {
        playbook: "non-idempotent-retries",
        what: "POSTs, every method retried",
        expected: "fail",
        service: Service::Chain(1, &["--tries", "3"], &[]),
        client: &["--timeout", "2s", "--method", "POST", "--body", "order"],
        ..CASE
    },
    Case {
        playbook: "non-idempotent-retries",
        what: "POSTs, idempotent methods retried",
        service: Service::Chain(1, &["--tries", "3", "--methods", "idempotent"], &[]),
        client: &["--timeout", "2s", "--method", "POST", "--body", "order"],
        ..CASE
    },
    Case {
        playbook: "nonretryable",
        what: "every error retried",
        expected: "fail",
        service: Service::Chain(1, &["--tries", "3", "--retry-on", "errors"], &[]),
        ..CASE
    },
    Case { playbook: "nonretryable", what: "5xx and 429 retried", service: Service::Chain(1, &["--tries", "3"], &[]), ..CASE },
    Case {
        playbook: "retry-after",
        what: "the header is not read",
        expected: "fail",
        service: Service::Chain(1, &["--tries", "2", "--waits", "full"], &["--announce-retry-after", "1"]),
        client: &["--timeout", "5s"],
        ..CASE
    },
    Case {
        playbook: "retry-after",
        what: "the header is obeyed",
        service: Service::Chain(1, &["--tries", "2", "--retry-after", "obeyed"], &["--announce-retry-after", "1"]),
        client: &["--timeout", "5s"],
        ..CASE
    },
    Case {
        playbook: "backoff-jitter",
        what: "always 50 ms",
        expected: "fail",
        service: Service::Chain(1, &["--tries", "2", "--waits", "fixed", "--backoff-base", "50ms"], &[]),
        ..CASE
    },
    Case {
        playbook: "backoff-jitter",
        what: "Full Jitter up to 50 ms",
        service: Service::Chain(1, &["--tries", "2", "--waits", "full", "--backoff-base", "50ms"], &[]),
        ..CASE
    },
    Case {
        playbook: "deadline",
        what: "the callers' deadline of 300 ms is not passed on",
        expected: "fail",
        service: Service::Chain(2, &["--tries", "3", "--retry-layer", "2", "--caller-gone", "goes-on"], &["--delay", "200ms"]),
        client: &["--timeout", "300ms", "--deadline", "on"],
        ..CASE
    },
    Case {
        playbook: "deadline",
        what: "the callers' deadline of 300 ms is passed on",
        service: Service::Chain(
            2,
            &["--tries", "3", "--retry-layer", "2", "--caller-gone", "goes-on", "--deadline", "on"],
            &["--delay", "200ms"],
        ),
        client: &["--timeout", "300ms", "--deadline", "on"],
        ..CASE
    },
];
