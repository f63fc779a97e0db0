//! Redis and MariaDB as Debian has them, in folders of their own, and the service that uses both.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::command;
use crate::seeds::process::Process;
use crate::seeds::rig;
use crate::seeds::scene::Scene;

/// Both servers.
pub(super) struct Databases {
    pub(super) redis: Process,
    pub(super) redis_port: u16,
    _mysql: Process,
    pub(super) mysql_port: u16,
    socket: String,
}

/// What the servers count themselves.
pub(super) struct Counters {
    /// Selects, and settings of a connection.
    pub(super) commands: u64,
    /// Connections that were one too many.
    pub(super) turned_away: u64,
    /// Commands of Redis.
    pub(super) redis: u64,
}

/// The service.
pub(super) struct Service {
    process: Process,
    pub(super) port: u16,
}

const MYSQL_LIMIT: Duration = Duration::from_secs(120);

impl Databases {
    pub(super) fn new(scene: &Scene) -> Result<Self> {
        let (redis_port, mysql_port) = (scene.port(), scene.port());
        let data = scene.folder.join(format!("mysql-{mysql_port}"));
        if data.exists() {
            std::fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
        }
        // A socket's path is short of 108 bytes, so it is below /tmp.
        let socket = format!("/tmp/stormdrill-seeds-{}.sock", std::process::id());
        let folder = scene.folder.display().to_string();
        let mut redis = Command::new(command::require("redis-server")?);
        redis.args([
            "--port",
            &redis_port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            &folder,
            "--enable-debug-command",
            "yes",
        ]);
        let mut redis = scene.start("redis", &mut redis)?;
        redis.wait_for_port(redis_port)?;
        let datadir = format!("--datadir={}", data.display());
        command::capture(Command::new(command::require("mariadb-install-db")?).args([
            "--no-defaults",
            "--user=root",
            "--auth-root-authentication-method=normal",
            &datadir,
        ]))?;
        let mut mysql = Command::new(command::require("mariadbd")?);
        mysql.args(["--no-defaults", "--user=root", &datadir, "--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=10"]);
        mysql.args([format!("--socket={socket}"), format!("--port={mysql_port}")]);
        let mysql = scene.start("mysql", &mut mysql)?;
        let databases = Self { redis, redis_port, _mysql: mysql, mysql_port, socket };
        let begin = Instant::now();
        while databases.sql("select 1").is_err() {
            if begin.elapsed() > MYSQL_LIMIT {
                bail!("MariaDB does not come up; {folder} has its log");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        databases.sql("create user app@'127.0.0.1' identified by 'app'")?;
        for number in 0..100 {
            databases.redis_command(&["SET", &format!("item:{number}"), "value"])?;
        }
        Ok(databases)
    }

    fn sql(&self, statement: &str) -> Result<String> {
        let socket = format!("--socket={}", self.socket);
        command::capture(Command::new(command::require("mariadb")?).args(["--no-defaults", "-u", "root", &socket, "-N", "-e", statement]))
    }

    fn redis_command(&self, words: &[&str]) -> Result<String> {
        command::capture(Command::new(command::require("redis-cli")?).args(["-p", &self.redis_port.to_string()]).args(words))
    }

    /// Both servers' own counts. Redis has to answer.
    pub(super) fn counters(&self) -> Result<Counters> {
        let names = "'Com_select', 'Com_set_option', 'Connection_errors_max_connections'";
        let text = self.sql(&format!("show global status where Variable_name in ({names})"))?;
        let of = |name: &str| -> Result<u64> {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            value.with_context(|| format!("MySQL's status has no {name}"))
        };
        Ok(Counters {
            commands: of("Com_select")? + of("Com_set_option")?,
            turned_away: of("Connection_errors_max_connections")?,
            redis: redis_calls(&self.redis_command(&["INFO", "commandstats"])?),
        })
    }

    /// A client that blocks Redis for 200 ms at a time, until it is dropped.
    pub(super) fn block(&self, scene: &Scene) -> Result<Process> {
        let mut cli = Command::new(command::require("redis-cli")?);
        cli.args(["-p", &self.redis_port.to_string(), "-r", "1000", "DEBUG", "SLEEP", "0.2"]);
        scene.start("redis-blocker", &mut cli)
    }

    /// `arguments` are the kind and what more it takes.
    pub(super) fn service(&self, scene: &Scene, arguments: &[&str]) -> Result<Service> {
        let port = scene.port();
        let script = scene.write("service.py", include_str!("service.py"))?;
        let mut python = Command::new(rig::environment().join("bin/python3"));
        python.arg(script).args([port, self.redis_port, self.mysql_port].map(|port| port.to_string())).args(arguments);
        let mut process = scene.start("service", &mut python)?;
        process.wait_for_port(port)?;
        Ok(Service { process, port })
    }
}

impl Service {
    pub(super) fn counts(self) -> Result<Value> {
        self.process.counts()
    }
}

/// The calls of all commands but `info`, which is this count's own.
fn redis_calls(statistics: &str) -> u64 {
    let lines = statistics.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
    lines.filter(|(command, _)| *command != "info").filter_map(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok()).sum()
}

pub(super) fn redis_version() -> Result<String> {
    let text = command::capture(Command::new(command::require("redis-server")?).arg("--version"))?;
    let version = text.split("v=").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or("?");
    Ok(format!("Redis {version}"))
}

pub(super) fn mysql_version() -> Result<String> {
    let text = command::capture(Command::new(command::require("mariadbd")?).args(["--no-defaults", "--version"]))?;
    let version = text.split("Ver ").nth(1).and_then(|rest| rest.split('-').next()).unwrap_or("?");
    Ok(format!("MariaDB {version}"))
}

pub(super) fn client_versions() -> Result<String> {
    let script = "import redis, pymysql; print('redis-py', redis.__version__ + ', PyMySQL', pymysql.__version__)";
    Ok(command::capture(Command::new(rig::environment().join("bin/python3")).args(["-c", script]))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_added_over_all_commands_but_info() {
        let text = "# Commandstats\r\ncmdstat_get:calls=40,usec=90,usec_per_call=2.25\r\ncmdstat_client|setinfo:calls=2,usec=1\r\ncmdstat_info:calls=7,usec=1\r\n";
        assert_eq!(redis_calls(text), 42);
    }
}
