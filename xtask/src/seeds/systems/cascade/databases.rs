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
    /// Connections that were one too many. MariaDB's `Connection_errors_max_connections` has only those that come to one more than the
    /// limit and a spare one; it turns away the one in between after its login, and counts it as aborted alone.
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
        let names = "'Com_select', 'Com_set_option', 'Aborted_connects'";
        let text = self.sql(&format!("show global status where Variable_name in ({names})"))?;
        let of = |name: &str| -> Result<u64> {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            value.with_context(|| format!("MySQL's status has no {name}"))
        };
        Ok(Counters {
            commands: of("Com_select")? + of("Com_set_option")?,
            turned_away: of("Aborted_connects")?,
            redis: redis_calls(&self.redis_command(&["INFO", "commandstats"])?, &self.redis_command(&["INFO", "errorstats"])?),
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

/// The calls of all commands but `info`, which is this count's own, and what was turned down before it was a call of any command: redis-py
/// asks for subcommands that this Redis has not.
fn redis_calls(commands: &str, errors: &str) -> u64 {
    let mut sum = 0;
    for (command, rest) in commands.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':')) {
        if command != "info" {
            sum += number(rest, "calls=");
            // An error that is a call's own is among its calls already.
            sum = sum.saturating_sub(number(rest, "failed_calls="));
        }
    }
    let errors = errors.lines().filter_map(|line| line.strip_prefix("errorstat_")?.split_once(':'));
    sum + errors.map(|(_, rest)| number(rest, "count=")).sum::<u64>()
}

fn number(fields: &str, key: &str) -> u64 {
    fields.trim().split(',').find_map(|field| field.strip_prefix(key)?.parse().ok()).unwrap_or(0)
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
    // What PyMySQL itself says is the version of another client that it stands in for.
    let script = "from importlib.metadata import version; print('redis-py', version('redis') + ', PyMySQL', version('pymysql'))";
    Ok(command::capture(Command::new(rig::environment().join("bin/python3")).args(["-c", script]))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_no_command_is_counted_once_and_info_not_at_all() {
        let commands = "# Commandstats\r\ncmdstat_get:calls=40,usec=90,rejected_calls=0,failed_calls=1\r\n\
             cmdstat_client|id:calls=2,usec=1,rejected_calls=0,failed_calls=0\r\ncmdstat_info:calls=7,usec=1\r\n";
        assert_eq!(redis_calls(commands, "# Errorstats\r\nerrorstat_ERR:count=4\r\n"), 40 - 1 + 2 + 4);
    }
}
