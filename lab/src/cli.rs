//! The command line: one subcommand per part, each of which prints one JSON object when it ends.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

mod chain_args;
mod load_args;
mod run;
mod store_args;
mod values;

use chain_args::ChainArgs;
use load_args::LoadArgs;
use store_args::StoreArgs;
use values::duration;

/// Exit code for a command line that makes no sense.
pub const EXIT_USAGE: u8 = 64;
/// Exit code for what the machine did not allow, such as a port in use.
pub const EXIT_ENVIRONMENT: u8 = 2;

/// Small HTTP/1.1 services with chosen retry policies, and an open-loop load generator.
///
/// Each part prints `ready NAME ADDRESS` on stderr once it listens, and its counts as one JSON object on stdout when it
/// ends: at SIGTERM, at SIGINT, or after --for.
///
/// Exit codes: 0 when it ran, 2 when the machine did not allow it (a port in use), 64 for a wrong command line.
#[derive(Debug, Parser)]
#[command(name = "stormdrill-lab", version)]
pub struct Cli {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The last service: answers, fails by chance, is slow, or has a limited capacity
    Store {
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        life: Life,
    },
    /// Layers that forward to each other, and the last to a downstream, each with tries of its own
    Chain {
        #[command(flatten)]
        chain: ChainArgs,
        /// What the last layer calls
        #[arg(long, value_name = "ADDR:PORT")]
        downstream: std::net::SocketAddr,
        #[command(flatten)]
        life: Life,
    },
    /// An open-loop load generator: requests start on schedule, whatever the answers do
    Load(Box<LoadArgs>),
    /// A store and a chain before it, in one process
    Rig {
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        chain: ChainArgs,
        #[command(flatten)]
        life: Life,
    },
}

#[derive(Debug, clap::Args)]
struct Life {
    /// End after this time, above 0; without it only a signal ends it
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    limit: Option<Duration>,
    /// How long requests under way are given at the end
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration)]
    drain: Duration,
}

/// An on-off setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Runs the program with this process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => run::run(cli.part),
        Err(error) => {
            // Help and version are results; the rest is usage. Either way there is nobody to tell if printing fails.
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
