//! The project's tasks: `cargo xtask TASK`. Each lives in a file of its own, and its options' texts are the help.
//!
//! A plain binary without async: tasks run other programs and wait for them.

mod bench;
mod bpf;
mod build;
mod check;
mod command;
mod demo;
mod deny;
mod dist;
mod fuzz;
mod fuzz_api;
mod fuzz_playbooks;
#[path = "../../agent/build/objects.rs"]
mod objects;
mod paths;
mod route;
mod say;
mod seeds;
mod setup;
mod simulate;
mod test;
mod tidy;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// stormdrill's own tasks
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Install what is missing for building and testing, and say what was done
    Setup(setup::Options),
    /// Build the kernel objects and the binaries
    Build(build::Options),
    /// Run a command under a kernel of its own
    Vm(vm::Options),
    /// Run the checks and every test
    Test(test::Options),
    /// Format, clippy, documentation, tidy: what finds mistakes without running tests
    Check,
    /// What CI runs: `test`, with a skipped test counted as a failure
    Ci,
    /// The repository's own rules
    Tidy,
    /// Licences, duplicates and sources of the dependencies
    Deny,
    /// An archive of the binaries and what belongs to them, in target/dist
    Dist,
    /// Measure what faults and counting cost, beside other tools
    Bench(bench::Options),
    /// Two drills against the lab's chain of services
    Demo,
    /// schemathesis against the running daemon
    FuzzApi(fuzz_api::Options),
    /// LLVM's fuzzer on the recognisers, for so many minutes each
    Fuzz(fuzz::Options),
    /// Hostile playbooks and lines of `expect:`, for so many minutes
    FuzzPlaybooks(fuzz_playbooks::Options),
    /// Every shipped playbook so many times on a service that passes it and on one that fails it
    Playbooks(seeds::RepeatOptions),
    /// How often each statistical test is wrong, on 10,000 simulated drills each; writes docs/error-rates.md
    Simulate(simulate::Options),
    /// The articles' claims, tried on the real systems; writes docs/seeds.md
    Seeds(seeds::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(code) => code,
        Err(error) => {
            say::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Setup(options) => setup::run(&options)?,
        Task::Build(options) => build::run(&options)?,
        Task::Vm(options) => return Ok(vm::run(options)),
        Task::Test(options) => return test::run(&options, test::is_ci()),
        Task::Check => {
            setup::ensure(&[setup::Part::Build, setup::Part::Test], None)?;
            check::run()?;
        }
        Task::Ci => return test::run(&test::Options::all(), true),
        Task::Tidy => tidy::run()?,
        Task::Deny => deny::run()?,
        Task::Dist => dist::run()?,
        Task::Bench(options) => bench::run(&options)?,
        Task::Demo => demo::run()?,
        Task::FuzzApi(options) => fuzz_api::run(&options)?,
        Task::Fuzz(options) => fuzz::run(&options)?,
        Task::FuzzPlaybooks(options) => fuzz_playbooks::run(&options)?,
        Task::Playbooks(options) => return seeds::repeat(&options),
        Task::Simulate(options) => simulate::run(&options)?,
        Task::Seeds(options) => return seeds::run(&options),
    }
    Ok(ExitCode::SUCCESS)
}
