//! `stormdrill doctor`: what this host's kernel and privileges allow, tried out rather than looked up.
//!
//! Each capability is tried in a scratch network namespace, which ends with it. Exit code 0: observation works and at least one fault does
//! (`http_status`, which needs the least). 2: not even that, or leftovers of a killed drill were found.

use std::path::Path;

use serde::Serialize;
use stormdrill_core::edge::EdgeSpec;

use super::output;
use crate::cgroup::{self, CgroupError};
use crate::exit::Exit;
use crate::fault::capability::{self, Capability, Finding};
use crate::fault::clean;
use crate::probe::{Probe, ProbeConfig, ProbeError};
use crate::report::log::{chain, complain};

const SCHEMA: &str = "stormdrill/doctor/v1";

/// What was found, as JSON.
#[derive(Debug, Serialize)]
struct Diagnosis {
    schema: &'static str,
    kernel: String,
    checks: Vec<Check>,
    /// Names of what dead drills left in the kernel.
    leftovers: Vec<String>,
    healthy: bool,
}

/// One thing that was tried.
#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    /// What a drill uses it for.
    used_for: &'static str,
    state: State,
    /// What is wrong, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Works,
    MissingModule,
    MissingPrivilege,
    Refused,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Works => "ok",
            Self::MissingModule => "missing",
            Self::MissingPrivilege => "no privilege",
            Self::Refused => "refused",
        }
    }
}

/// Tries everything and says what came of it.
pub(super) fn run(json: bool, state_dir: &Path) -> Exit {
    let mut checks = observation(state_dir);
    checks.extend(Capability::ALL.into_iter().map(|capability| check(capability, &capability::try_one(capability))));
    let leftovers = match clean::leftovers(state_dir) {
        Ok(leftovers) => leftovers,
        Err(error) => {
            complain(&chain(&error));
            return Exit::Environment;
        }
    };
    let healthy = leftovers.is_empty() && is_usable(&checks);
    let diagnosis = Diagnosis { schema: SCHEMA, kernel: capability::kernel_release(), checks, leftovers, healthy };
    if json {
        match serde_json::to_string_pretty(&diagnosis) {
            Ok(text) => output::stdout(&format!("{text}\n")),
            Err(error) => complain(&error.to_string()),
        }
    } else {
        output::stdout(&describe(&diagnosis));
    }
    if healthy { Exit::Pass } else { Exit::Environment }
}

/// Whether a drill can run at all: it observes, and a classifier can be hung on an interface.
fn is_usable(checks: &[Check]) -> bool {
    ["observation", "bpf", "sch_ingress", "cls_bpf"]
        .into_iter()
        .all(|name| checks.iter().any(|check| check.name == name && check.state == State::Works))
}

fn check(capability: Capability, finding: &Finding) -> Check {
    let name = capability.module();
    let used_for = match capability {
        Capability::Classifier => "all faults",
        Capability::Clsact | Capability::ClsBpf => "all faults; http_status and, without netem, loss need no more",
        Capability::Mirred | Capability::Ifb => "netem faults",
        Capability::Netem => "delay, and loss by netem",
        Capability::Tbf => "rate without netem",
        Capability::Connect => "refuse",
    };
    let (state, detail) = match finding {
        Finding::Works => (State::Works, None),
        Finding::Missing => (State::MissingModule, Some(capability::remedy(name))),
        Finding::Forbidden => (State::MissingPrivilege, Some("run as root, or with CAP_NET_ADMIN, CAP_BPF and CAP_SYS_ADMIN".to_owned())),
        Finding::Refused(refusal) => (State::Refused, Some(chain(refusal))),
    };
    Check { name, used_for, state, detail }
}

/// Attaches the probe to the whole host and takes it off again.
fn observation(state_dir: &Path) -> Vec<Check> {
    let used_for = "counting requests (cgroup2, sock_ops, cgroup_skb, ring buffer)";
    let found = |state, detail| Check { name: "observation", used_for, state, detail };
    match observe(state_dir) {
        Ok(tls) => vec![found(State::Works, None), tls],
        Err(Unobservable::Probe(error @ ProbeError::NotPermitted(_))) => vec![found(State::MissingPrivilege, Some(error.to_string()))],
        Err(Unobservable::Cgroup(error @ CgroupError::Unsupported)) => vec![found(State::MissingModule, Some(error.to_string()))],
        Err(error) => vec![found(State::Refused, Some(chain(&error)))],
    }
}

/// Whether requests within TLS are counted; without it, connections of TLS are.
fn within_tls(probe: &Probe) -> Check {
    let (state, detail) = match probe.tls_libraries() {
        Ok((_, 0)) => (State::Works, None),
        Ok((_, refused)) => (State::Refused, Some(format!("{refused} libraries cannot be probed"))),
        Err(error) => (State::Refused, Some(chain(error))),
    };
    Check { name: "uprobes", used_for: "counting requests within TLS, of programs that use OpenSSL", state, detail }
}

#[derive(Debug, thiserror::Error)]
enum Unobservable {
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

fn observe(state_dir: &Path) -> Result<Check, Unobservable> {
    let edges: [EdgeSpec; 0] = [];
    // A mount that the doctor needs goes with it.
    let result = cgroup::with_mounted(state_dir, |cgroup| {
        let config = ProbeConfig { cgroup: cgroup.to_owned(), edges: &edges, events: true, ring_bytes: ProbeConfig::DEFAULT_RING_BYTES };
        Probe::attach(&config).map(|probe| within_tls(&probe))
    });
    Ok(result??)
}

fn describe(diagnosis: &Diagnosis) -> String {
    let mut text = format!("kernel {}\n", diagnosis.kernel);
    for check in &diagnosis.checks {
        text.push_str(&format!("{:<13} {:<13} {}\n", check.state.word(), check.name, check.used_for));
        if let Some(detail) = &check.detail {
            text.push_str(&format!("{:<13} {:<13} {detail}\n", "", ""));
        }
    }
    for name in &diagnosis.leftovers {
        text.push_str(&format!("left behind   {name} of a drill that was killed; `stormdrill clean` removes it\n"));
    }
    text.push_str(if diagnosis.healthy {
        "drills can run here\n"
    } else if diagnosis.leftovers.is_empty() {
        "drills cannot run here\n"
    } else {
        "clean up first\n"
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_work() -> Vec<Check> {
        let mut checks: Vec<Check> = Capability::ALL.into_iter().map(|capability| check(capability, &Finding::Works)).collect();
        checks.push(Check { name: "observation", used_for: "", state: State::Works, detail: None });
        checks
    }

    #[test]
    fn a_host_without_netem_is_still_usable_and_one_without_observation_is_not() {
        let mut checks = all_work();
        assert!(is_usable(&checks));
        for check in &mut checks {
            if check.name == "sch_netem" {
                check.state = State::MissingModule;
            }
        }
        assert!(is_usable(&checks));
        for check in &mut checks {
            if check.name == "observation" {
                check.state = State::MissingPrivilege;
            }
        }
        assert!(!is_usable(&checks));
    }

    #[test]
    fn a_missing_module_names_its_remedy_and_a_missing_privilege_its_own() {
        let missing = check(Capability::Netem, &Finding::Missing);
        assert_eq!((missing.state, missing.name), (State::MissingModule, "sch_netem"));
        assert!(missing.detail.is_some_and(|detail| detail.contains(&capability::kernel_release())));
        let forbidden = check(Capability::Ifb, &Finding::Forbidden);
        assert!(forbidden.detail.is_some_and(|detail| detail.contains("CAP_NET_ADMIN")));
    }
}
