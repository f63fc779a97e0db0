//! Debian's nginx, as a store that answers by itself and as a gateway, in a process of its own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::drill::Outcome;
use super::process::Process;
use super::result::Section;
use super::scene::{Scene, address};
use crate::command;

/// A running nginx and its log.
pub(crate) struct Nginx {
    process: Process,
    pub(crate) port: u16,
    log: PathBuf,
    pub(crate) errors: PathBuf,
}

/// One line of the log: the client's status, and for each try the upstream and its status.
pub(crate) struct Entry {
    pub(crate) status: String,
    pub(crate) tries: Vec<(String, String)>,
}

impl Nginx {
    /// One that answers 200 by itself.
    pub(crate) fn store(scene: &Scene) -> Result<Self> {
        Self::start(scene, "", "return 200 \"ok\\n\";")
    }

    /// One that passes requests on to upstreams over connections that it keeps.
    pub(crate) fn gateway(scene: &Scene, upstreams: &[u16], server_options: &str, location: &str) -> Result<Self> {
        let servers: String = upstreams.iter().map(|port| format!("server {} {server_options}; ", address(*port))).collect();
        let location = format!("proxy_pass http://services; proxy_http_version 1.1; proxy_set_header Connection \"\"; {location}");
        Self::start(scene, &format!("upstream services {{ {servers} keepalive 16; }}"), &location)
    }

    /// `upstream` is a block of the configuration, `location` the inside of one.
    pub(crate) fn start(scene: &Scene, upstream: &str, location: &str) -> Result<Self> {
        let port = scene.port();
        let folder = scene.folder.join(format!("nginx-{port}"));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let (root, listen) = (folder.display(), address(port));
        let (log, errors) = (folder.join("access.log"), folder.join("error.log"));
        for old in [&log, &errors] {
            let _ = fs::remove_file(old);
        }
        let text = format!(
            "daemon off;\nmaster_process off;\npid {root}/pid;\nerror_log {root}/error.log warn;\nevents {{ worker_connections 1024; }}\n\
             http {{\n  log_format tries '$status|$upstream_addr|$upstream_status';\n  access_log {root}/access.log tries;\n  \
             keepalive_requests 100000000;\n  client_body_temp_path {root};\n  proxy_temp_path {root};\n  fastcgi_temp_path {root};\n  \
             uwsgi_temp_path {root};\n  scgi_temp_path {root};\n  {upstream}\n  server {{\n    listen {listen};\n    \
             location / {{ {location} }}\n  }}\n}}\n"
        );
        let config = folder.join("nginx.conf");
        fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
        let mut command = Command::new(command::require("nginx")?);
        command.arg("-c").arg(&config).arg("-e").arg(&errors);
        let mut process = scene.start("nginx", &mut command)?;
        process.wait_for_port(port)?;
        Ok(Self { process, port, log, errors })
    }

    /// The log so far.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>> {
        let text = fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        Ok(text.lines().filter_map(entry).collect())
    }

    /// Puts what we counted on the edge `store`, over the whole drill, beside the access log of this server, which is the store.
    pub(crate) fn compare_calls(&self, section: &mut Section, what: impl Into<String>, outcome: &Outcome) -> Result<()> {
        section.count(what, outcome.all_requests("store"), "the store's access log", self.entries()?.len() as u64);
        Ok(())
    }

    /// How often the error log has a text.
    pub(crate) fn complaints(&self, text: &str) -> Result<usize> {
        let log = fs::read_to_string(&self.errors).with_context(|| format!("cannot read {}", self.errors.display()))?;
        Ok(log.lines().filter(|line| line.contains(text)).count())
    }

    /// Ends it.
    pub(crate) fn stop(self) -> Result<()> {
        self.process.stop().map(drop)
    }
}

fn entry(line: &str) -> Option<Entry> {
    let mut parts = line.split('|');
    let (status, upstreams, statuses) = (parts.next()?, parts.next()?, parts.next()?);
    let list = |text: &str| text.split(", ").filter(|part| *part != "-").map(str::to_owned).collect::<Vec<_>>();
    Some(Entry { status: status.to_owned(), tries: list(upstreams).into_iter().zip(list(statuses)).collect() })
}

impl Entry {
    /// Tries that went to a server: when none is left, nginx names the group instead.
    pub(crate) fn attempts(&self) -> u64 {
        self.tries.iter().filter(|(upstream, _)| upstream.contains(':')).count() as u64
    }
}

/// The version that runs.
pub(crate) fn version() -> Result<String> {
    let output = Command::new(command::require("nginx")?).arg("-v").output().context("cannot run nginx")?;
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(text.rsplit_once('/').map_or(text.clone(), |(_, version)| format!("nginx {version}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_a_server_left_is_no_attempt() {
        let attempts = |line| entry(line).map(|entry| (entry.attempts(), entry.status));
        assert_eq!(attempts("503|127.0.0.1:1, 127.0.0.1:2|503, 503"), Some((2, "503".to_owned())));
        assert_eq!(attempts("502|127.0.0.1:1, services|503, 502"), Some((1, "502".to_owned())));
        assert_eq!(attempts("502|services|502"), Some((0, "502".to_owned())));
        assert_eq!(attempts("200|-|-"), Some((0, "200".to_owned())));
    }
}
