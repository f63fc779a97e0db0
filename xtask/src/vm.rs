//! `cargo xtask vm`: boots a kernel under QEMU with a small initramfs, runs one command in it, and returns that command's exit code.

mod cpio;
mod guest;
mod kernel;
mod libs;
mod mirror;
mod modules;
mod qemu;
pub(crate) mod servers;
mod tree;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

pub(crate) use kernel::{Kernel, of_version as kernel_of_version};
pub(crate) use qemu::Ending;

use crate::setup::{self, Part};
use crate::{paths, say};

/// Exit code when the time is up, as of timeout(1).
const TIMED_OUT: u8 = 124;
/// Exit code when it is not the command that failed: no kernel, no QEMU, a panic.
const BROKEN: u8 = 125;

/// What `vm` can be asked for.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The kernels to boot, one after another: 5.10, 6.1, 6.12, 7.2
    #[arg(long, value_delimiter = ',', default_value = "6.1")]
    kernel: Vec<String>,
    /// A kernel of your own instead (needs --modules)
    #[arg(long, requires = "modules", conflicts_with = "kernel")]
    kernel_image: Option<PathBuf>,
    /// Its modules: a folder lib/modules/RELEASE with modules.dep
    #[arg(long, requires = "kernel_image")]
    modules: Option<PathBuf>,
    /// Look for a newer kernel of each suite than the one that was downloaded before
    #[arg(long)]
    refresh: bool,
    /// The guest's memory in MiB; more is taken if the files that go along need it
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    memory: u64,
    /// Seconds until the guest is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// A file or folder to take along, at its own path or at another
    #[arg(long, value_name = "FILE[:DEST]")]
    bring: Vec<Bring>,
    /// A variable for the command (those that begin with STORMDRILL_ go along by themselves)
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    env: Vec<(String, String)>,
    /// One more kernel module to load
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// A kernel module that the guest is not to have
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// The command to run, a program of this host or one of busybox's
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// A file of the host and its place in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bring {
    pub(crate) host: PathBuf,
    pub(crate) guest: String,
}

/// What is to be done in a guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    pub(crate) command: Vec<OsString>,
    pub(crate) bring: Vec<Bring>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) modules: Vec<String>,
    pub(crate) without: Vec<String>,
    /// MiB.
    pub(crate) memory: u64,
    pub(crate) timeout: Duration,
}

impl std::str::FromStr for Bring {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, guest) = match text.rsplit_once(':') {
            Some((host, guest)) if guest.starts_with('/') => (host, Some(guest.to_owned())),
            Some(_) if !Path::new(text).exists() => return Err(format!("`{text}`: the place in the guest must be an absolute path")),
            _ => (text, None),
        };
        let host = std::path::absolute(host).map_err(|error| error.to_string())?;
        let guest = guest.unwrap_or_else(|| host.to_string_lossy().into_owned());
        Ok(Self { host, guest })
    }
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not NAME=VALUE")),
    }
}

/// The task. The exit code is the command's; of several kernels, the first that is not zero.
pub(crate) fn run(options: Options) -> ExitCode {
    match run_all(options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say::error(&error);
            ExitCode::from(BROKEN)
        }
    }
}

fn run_all(options: Options) -> Result<u8> {
    setup::ensure(&[Part::Vm], None)?;
    let job = Job {
        command: options.command,
        bring: options.bring,
        env: options.env,
        modules: options.module,
        without: options.without,
        memory: options.memory,
        timeout: Duration::from_secs(options.timeout),
    };
    let kernels = match (options.kernel_image, options.modules) {
        (Some(image), Some(modules)) => vec![kernel::of_files(&image, &modules)?],
        _ => options.kernel.iter().map(|version| kernel::of_version(version, options.refresh)).collect::<Result<_>>()?,
    };
    let mut first_failure = 0;
    for kernel in &kernels {
        let ending = boot(kernel, &job, &mut say::raw)?;
        let code = match ending {
            Ending::Exited(code) => code,
            Ending::TimedOut => {
                say::step(format!("the command did not end within {} s on {}", job.timeout.as_secs(), kernel.release));
                TIMED_OUT
            }
            Ending::Died(why) => {
                say::step(format!("the guest {} died: {why}", kernel.release));
                BROKEN
            }
        };
        if first_failure == 0 {
            first_failure = code;
        }
    }
    Ok(first_failure)
}

/// Boots a kernel, runs a job in it, and says how long that took.
pub(crate) fn boot(kernel: &Kernel, job: &Job, output: &mut dyn FnMut(&[u8])) -> Result<Ending> {
    let begin = Instant::now();
    let folder = tempfile::Builder::new().prefix("run-").tempdir_in(ensure_folder()?)?;
    let initramfs = folder.path().join("initramfs.cpio");
    let size_mib = guest::tree(kernel, job)?.write(&initramfs)? / (1024 * 1024);
    // The archive and what it is unpacked to are in memory at the same time.
    let memory_mib = job.memory.max(2 * size_mib + 512);
    ensure!(memory_mib <= 16 * 1024, "{size_mib} MiB of files do not fit in a guest");
    let status = folder.path().join("status");
    let machine = qemu::Machine { image: &kernel.image, initramfs: &initramfs, status: &status, memory_mib, timeout: job.timeout };
    let prepared = begin.elapsed();
    let ending = qemu::run(&machine, output)?;
    say::step(format!(
        "guest {}: {size_mib} MiB made in {:.1} s, ran for {:.1} s",
        kernel.release,
        prepared.as_secs_f64(),
        (begin.elapsed() - prepared).as_secs_f64()
    ));
    Ok(ending)
}

fn ensure_folder() -> Result<PathBuf> {
    let folder = paths::vm();
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_brought_to_its_own_path_or_to_another() {
        let plain: Bring = "/etc/passwd".parse().unwrap_or_else(|_| Bring { host: PathBuf::new(), guest: String::new() });
        assert_eq!(plain, Bring { host: "/etc/passwd".into(), guest: "/etc/passwd".to_owned() });
        let moved: Result<Bring, String> = "/etc/passwd:/data/users".parse();
        assert_eq!(moved, Ok(Bring { host: "/etc/passwd".into(), guest: "/data/users".to_owned() }));
        let relative: Result<Bring, String> = "/etc/passwd:users".parse();
        assert!(relative.is_err_and(|text| text.contains("absolute")));
    }

    #[test]
    fn a_variable_needs_a_name() {
        assert_eq!(parse_variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert!(parse_variable("=b").is_err());
        assert!(parse_variable("A").is_err());
    }
}
