//! The command line: names, flags and exit codes are a contract; see the README.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ColorChoice, Parser, Subcommand};
use stormdrill_core::retry::marker::MarkerHeader;
use stormdrill_core::units;

use crate::cgroup;
use crate::diagnostic::{self, Style};
use crate::exit::Exit;
use crate::fault::preview;
use crate::host;
use crate::playbook_file::Override;

pub mod audit;
mod clean;
mod doctor;
mod observe;
mod output;
pub mod plan;
pub mod predict;
mod remote;
mod report;
mod run;
mod serve;
mod top;
pub mod validate;

/// Finds out, before production does, whether your retries turn a dependency's blip into an outage.
#[derive(Debug, Parser)]
#[command(name = "stormdrill", version, arg_required_else_help = true)]
struct Cli {
    /// Where the journal of faults is kept.
    #[arg(long, global = true, value_name = "DIR", env = "STORMDRILL_STATE_DIR", default_value = "/run/stormdrill")]
    state_dir: PathBuf,
    /// Colours: where a terminal reads and `NO_COLOR` is not set, always, or never.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a playbook: observe, inject, judge. Exits 0 pass, 1 fail, 2 environment, 3 cannot tell, 4 aborted, 64 bad playbook.
    Run(Run),
    /// Check playbooks without touching anything.
    Validate {
        /// The playbooks.
        #[arg(required = true, value_name = "PLAYBOOK")]
        playbooks: Vec<PathBuf>,
    },
    /// Show what a playbook would do, without doing it. Exits 0, 2 if it names what this host does not have, 64 bad playbook.
    Plan {
        /// The playbook.
        #[arg(value_name = "PLAYBOOK")]
        playbook: PathBuf,
        /// Override a value of the playbook: a dotted path and its new value.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<Override>,
    },
    /// Count requests and retries without injecting anything; a live table, and JSON at the end.
    Observe(Observe),
    /// Be a daemon: drills through an HTTP API, metrics for Prometheus, edges that are counted all the time.
    Serve {
        /// The configuration; without it, the defaults: the API on 127.0.0.1:9464 and a Unix socket.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// List the daemon's drills.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: remote::Server,
    },
    /// End one of the daemon's drills; returns when its faults are gone.
    Abort {
        /// Its id, as `status` shows it.
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        server: remote::Server,
    },
    /// Look at a daemon while it happens: edges, retries, faults, drills. Keys start and end drills.
    Top {
        #[command(flatten)]
        server: remote::Server,
    },
    /// Show a past result: `run --json` wrote it.
    Report {
        /// The result.
        #[arg(value_name = "RESULT.json")]
        result: PathBuf,
        /// How to show it.
        #[arg(long, value_enum, default_value = "text")]
        format: report::Format,
        /// Write it to this file; without it, to stdout.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show what got better or worse from one result to another. Exits 0 either way.
    Compare {
        /// The earlier result.
        #[arg(value_name = "A.json")]
        before: PathBuf,
        /// The later one.
        #[arg(value_name = "B.json")]
        after: PathBuf,
    },
    /// Say what this host's kernel and privileges allow.
    Doctor {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Read configurations of gateways and clients, and say what one request can become. Exits 0, 1 with findings, 64 unreadable.
    Audit(audit::Arguments),
    /// Predict, without any traffic, what tries, failures, budgets and capacity lead to.
    Predict(predict::Arguments),
    /// Remove what a killed drill left in the kernel.
    Clean {
        /// Also end the faults of drills that are still running, whoever runs them and wherever their state is kept.
        #[arg(long)]
        force: bool,
    },
}

/// `stormdrill run`.
#[derive(Debug, Args)]
struct Run {
    /// The playbook.
    #[arg(value_name = "PLAYBOOK")]
    playbook: PathBuf,
    /// Write the result as JSON; `-` is stdout.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write every report into this folder: result.json, report.txt, junit.xml, report.md, report.html.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Override a value of the playbook: a dotted path and its new value, as `phases.fault=30s`.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Override>,
    /// Let a daemon carry it out: the one at this URL, or this host's. Output and exit codes are the same.
    #[arg(long, value_name = "URL", num_args = 0..=1, default_missing_value = "")]
    remote: Option<String>,
    /// With --remote and no URL: the daemon's Unix socket, if it is not `api.sock` in the state directory.
    #[arg(long, value_name = "FILE", requires = "remote")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    trust: remote::Trust,
}

/// `stormdrill observe`.
#[derive(Debug, Args)]
struct Observe {
    /// An edge of requests that arrive: NAME=[ADDR]:PORT[/PROTO], as `web=:8080/http`. May be given more than once.
    #[arg(long, value_name = "NAME=[ADDR]:PORT[/PROTO]")]
    ingress: Vec<String>,
    /// An edge of requests that leave: NAME=ADDR:PORT[/PROTO], as `db=10.0.0.5:3306`, `db=[::1]:3306`. May be given more than once.
    #[arg(long, value_name = "NAME=ADDR:PORT[/PROTO]")]
    downstream: Vec<String>,
    /// A header of the service's own that carries an attempt number, as `X-Retry-Count`.
    #[arg(long, value_name = "HEADER", value_parser = parse_marker)]
    marker: Option<MarkerHeader>,
    /// List the connections one by one in the JSON, up to 65,536 of them.
    #[arg(long)]
    connections: bool,
    /// Stop after this time; without it, at a signal.
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    for_: Option<Duration>,
    /// Write the totals as JSON; `-` is stdout, which is also the default.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn parse_marker(text: &str) -> Result<MarkerHeader, String> {
    if MarkerHeader::is_name(text) { Ok(MarkerHeader::named(text)) } else { Err("it is no header's name".to_owned()) }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    units::duration::parse(text).map_err(|error| format!("{error}: {}", error.advice()))
}

/// Runs the command that the arguments name.
#[must_use]
pub fn main() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers, all else is bad usage.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Pass };
            // A closed pipe is no reason for another exit code.
            let _ = error.print();
            return exit;
        }
    };
    diagnostic::choose_colours(cli.color);
    // A daemon's log is read later, when it is too late to ask for more.
    crate::report::log::install(if matches!(cli.command, Command::Serve { .. }) { "info" } else { "warn" });
    // Those others clean up themselves, or say more.
    if !matches!(cli.command, Command::Clean { .. } | Command::Doctor { .. } | Command::Run(_) | Command::Serve { .. }) {
        clean::warn(&cli.state_dir);
    }
    let exit = match cli.command {
        Command::Run(args) => run::run(&args, &cli.state_dir),
        Command::Validate { playbooks } => answer(|out, err| validate::run(&playbooks, &[], Style::of_stderr(), out, err)),
        Command::Plan { playbook, set } => {
            answer(|out, err| plan::run(&playbook, &set, &host::facts(), &preview::look, Style::of_stderr(), out, err))
        }
        Command::Observe(args) => observe::run(&args, &cli.state_dir),
        Command::Serve { config } => serve::run(config.as_deref(), &cli.state_dir),
        Command::Status { json, server } => remote::status(&server, &cli.state_dir, json),
        Command::Abort { id, server } => remote::abort(&server, &cli.state_dir, &id),
        Command::Top { server } => top::run(&server, &cli.state_dir),
        Command::Report { result, format, output } => report::report(&result, format, output.as_deref()),
        Command::Compare { before, after } => report::compare(&before, &after),
        Command::Doctor { json } => doctor::run(json, &cli.state_dir),
        Command::Audit(args) => answer(|out, err| audit::run(&args, Style::of_stdout(), out, err)),
        Command::Predict(args) => answer(|out, err| predict::run(&args, Style::of_stderr(), out, err)),
        Command::Clean { force } => clean::run(&cli.state_dir, force),
    };
    cgroup::give_back();
    exit
}

/// Runs a command that looks at files and answers: a closed pipe ends it quietly.
fn answer(command: impl FnOnce(&mut dyn io::Write, &mut dyn io::Write) -> io::Result<u8>) -> Exit {
    match command(&mut io::stdout().lock(), &mut io::stderr().lock()) {
        Ok(0) => Exit::Pass,
        Ok(1) => Exit::Fail,
        Ok(2) => Exit::Environment,
        Ok(_) => Exit::Usage,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Pass,
        Err(error) => {
            crate::report::log::complain(&error.to_string());
            Exit::Environment
        }
    }
}
