//! `cargo xtask test`: every test there is. `cargo xtask ci` is the same, with a skipped test counted as a failure.
//!
//! First what is missing is installed, then the checks run, then plain `cargo test`, the shipped playbooks, the tests that need root, and those
//! that need a kernel of their own. The last line sums up all of them.

mod in_vm;
mod libtest;
mod side_by_side;
mod targets;
mod tee;

use std::fs;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use self::libtest::Tally;
use self::targets::{Place, Target};
use crate::setup::{self, Part};
use crate::{bpf, check, command, paths, say};

/// What `test` can be asked for.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Leave out the checks and the VM; its tests are counted as skipped
    #[arg(long)]
    quick: bool,
    /// Only these tests that need root or the VM, by the names of their programs; neither checks nor other tests
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "quick")]
    only: Vec<String>,
    /// The kernels for the tests in the VM; on the first one they run in full, on the others in short
    #[arg(long, value_delimiter = ',', default_values_t = kernels())]
    kernel: Vec<String>,
}

impl Options {
    /// Everything, as CI runs it.
    pub(crate) fn all() -> Self {
        Self { quick: false, only: Vec::new(), kernel: kernels() }
    }
}

fn kernels() -> Vec<String> {
    in_vm::KERNELS.map(str::to_owned).into()
}

/// A test program that is still running after this hangs.
const PROGRAM_LIMIT: Duration = Duration::from_secs(900);
/// Programs that drive servers as fast as they go, or measure: they have this host to themselves. All others mostly wait, and share it.
const ALONE: [&str; 6] = [
    "privileged_accuracy",
    "privileged_http_status",
    "privileged_probe",
    "privileged_probe_servers",
    "privileged_protocols",
    "privileged_seeds",
];
/// The same for all of `cargo test`, which builds too.
const CARGO_LIMIT: Duration = Duration::from_secs(3600);

/// The task. `strict`: a skipped test is a failure.
pub(crate) fn run(options: &Options, strict: bool) -> Result<ExitCode> {
    let begin = Instant::now();
    setup::ensure(&[Part::Build, Part::Vm, Part::Test], None)?;
    bpf::ensure_fresh(None)?;
    let mut tally = Tally::default();
    if options.only.is_empty() {
        if !options.quick {
            check::run()?;
        }
        tally += cargo_test()?;
        tally += playbooks()?;
    }
    // The programs that the tests start; cargo builds those of one package only.
    command::run(
        command::cargo()
            .args(["build", "--package", "stormdrill", "--package", "stormdrill-lab", "--bins"])
            .current_dir(paths::workspace()),
    )?;
    let mut targets = targets::build()?;
    if let Some(unknown) = options.only.iter().find(|name| !targets.iter().any(|target| target.name == **name)) {
        bail!("no test program is called {unknown}: there are {}", names(&targets));
    }
    targets.retain(|target| options.only.is_empty() || options.only.contains(&target.name));
    let (of_vm, on_host): (Vec<&Target>, Vec<&Target>) = targets.iter().partition(|target| target.place == Place::Vm);
    let (alone, shared): (Vec<&Target>, Vec<&Target>) = on_host.into_iter().partition(|target| ALONE.contains(&target.name.as_str()));
    for target in alone {
        tally += self::on_host(target, Printing::AsItComes)?;
    }
    let guests = if options.quick {
        tally += in_vm::skip_all(&of_vm, "--quick leaves out the VM")?;
        Vec::new()
    } else {
        in_vm::guests(&of_vm, options, &mut tally)?
    };
    tally += side_by_side::run(shared, guests)?;
    say::step(format!("all of it took {:.0} s", begin.elapsed().as_secs_f64()));
    if strict && tally.skipped > 0 {
        say::step(format!("{} tests were skipped, and here a skipped test is a failure", tally.skipped));
    }
    say::result(tally.to_string());
    Ok(if is_success(&tally, strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn names(targets: &[Target]) -> String {
    targets.iter().map(|target| target.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// A run in which nothing was tested proves nothing.
fn is_success(tally: &Tally, strict: bool) -> bool {
    tally.failed == 0 && tally.passed > 0 && !(strict && tally.skipped > 0)
}

/// Whether this is CI, which sets the variable to `true`.
pub(crate) fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

fn cargo_test() -> Result<Tally> {
    say::step("cargo test --workspace");
    let mut cargo = command::cargo();
    cargo.args(["test", "--workspace", "--no-fail-fast"]).current_dir(paths::workspace()).env_remove("STORMDRILL_SKIP_BPF");
    let outcome = tee::run(&mut cargo, CARGO_LIMIT, Printing::AsItComes)?;
    let mut tally = Tally::of_output(&outcome.output);
    // A test program that crashed prints no closing line, and code that does not build prints none at all.
    if !outcome.succeeded && tally.failed == 0 {
        say::step(format!("cargo test {}", outcome.ending));
        tally.failed += 1;
    }
    Ok(tally)
}

/// Every shipped playbook must be one that the agent accepts. Each counts as a test.
fn playbooks() -> Result<Tally> {
    let Ok(folder) = fs::read_dir(paths::workspace().join("playbooks")) else { return Ok(Tally::default()) };
    let mut files: Vec<_> = folder.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml"));
    files.sort();
    let mut tally = Tally::default();
    for file in files {
        let mut cargo = command::cargo();
        cargo
            .args(["run", "--quiet", "--package", "stormdrill", "--bin", "stormdrill", "--", "validate"])
            .arg(&file)
            .current_dir(paths::workspace());
        let valid = cargo.status().context("cannot run the agent")?.success();
        say::step(format!("playbook {}: {}", file.display(), if valid { "valid" } else { "refused" }));
        *(if valid { &mut tally.passed } else { &mut tally.failed }) += 1;
    }
    Ok(tally)
}

/// When a program's output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Printing {
    AsItComes,
    /// In one piece, because others run beside it.
    AtItsEnd,
}

/// Tests of the daemon wait for windows most of the time, each in a network namespace of its own, and judge no times: they do so side by side. Those of
/// all other programs run one after another.
fn threads(target: &str) -> u32 {
    match target {
        "privileged_serve" | "privileged_page" => 2,
        // All at once: they know which of them must be alone.
        "privileged_probe_servers" => 16,
        _ => 1,
    }
}

fn on_host(target: &Target, printing: Printing) -> Result<Tally> {
    if !setup::is_root()? {
        return skip(target, "this is not root");
    }
    say::step(format!("{} on this host", target.name));
    let mut program = Command::new(&target.program);
    program.arg(format!("--test-threads={}", threads(&target.name))).current_dir(&target.package);
    program
        .env("CARGO_MANIFEST_DIR", &target.package)
        .env("STORMDRILL_PRIVILEGED", "1")
        .env("STORMDRILL_BIN_DIR", paths::target().join("debug"));
    let begin = Instant::now();
    let outcome = tee::run(&mut program, PROGRAM_LIMIT, printing)?;
    if printing == Printing::AtItsEnd {
        say::step(format!("{} on this host, {:.0} s:", target.name, begin.elapsed().as_secs_f64()));
        say::raw(outcome.output.as_bytes());
    }
    Ok(judge(&target.name, &outcome.output, (!outcome.succeeded).then_some(outcome.ending)))
}

/// What a program's output and its ending say together: one that fails without naming a failed test is itself a failed test.
fn judge(name: &str, output: &str, failure: Option<String>) -> Tally {
    let mut tally = Tally::of_output(output);
    let failure = failure.or_else(|| (tally.closings == 0).then(|| "printed no result".to_owned()));
    if let Some(failure) = failure {
        say::step(format!("{name} {failure}"));
        if tally.failed == 0 {
            tally.failed = 1;
        }
    }
    tally
}

/// Counts the tests of a program that cannot be run here.
fn skip(target: &Target, why: &str) -> Result<Tally> {
    let list = command::capture(Command::new(&target.program).args(["--list", "--format", "terse"]))?;
    let skipped = libtest::listed(&list).len() as u64;
    say::step(format!("{}: {skipped} tests SKIPPED: {why}", target.name));
    Ok(Tally { skipped, ..Tally::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: &str = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";

    #[test]
    fn a_program_that_dies_without_a_result_is_a_failed_test() {
        assert_eq!(judge("vm_x", "running 2 tests\n", Some("went down".to_owned())).failed, 1);
        assert_eq!(judge("vm_x", "", None).failed, 1);
        assert_eq!(judge("vm_x", FINE, Some("ended with exit code 1".to_owned())).failed, 1);
        let failed = FINE.replace("0 failed", "3 failed");
        assert_eq!(judge("vm_x", &failed, Some("ended with exit code 101".to_owned())).failed, 3);
        let fine = judge("vm_x", FINE, None);
        assert_eq!((fine.passed, fine.failed), (2, 0));
    }

    #[test]
    fn skipped_tests_fail_a_strict_run_and_an_empty_run_proves_nothing() {
        let skipping = Tally { passed: 5, skipped: 1, ..Tally::default() };
        assert!(is_success(&skipping, false));
        assert!(!is_success(&skipping, true));
        assert!(!is_success(&Tally::default(), false));
        assert!(!is_success(&Tally { passed: 5, failed: 1, ..Tally::default() }, false));
    }
}
