//! Kernels to boot: Debian's cloud kernels, one suite a version, downloaded once and kept in `target/vm/<suite>`.
//!
//! apt does the downloading, so that signatures are checked, but with a state and sources of its own: the system's lists and pins stay as they
//! are, and no root is needed. A suite moves on; its newest kernel at the time of the download is taken, and the version is always printed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::mirror;
use crate::{command, paths, say};

/// A kernel that can be booted.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The release, as `uname -r` prints it.
    pub(crate) release: String,
    pub(super) image: PathBuf,
    /// The folder with modules.dep.
    pub(super) modules: PathBuf,
}

/// The versions on offer, and the Debian suite that carries each.
const SUITES: [(&str, &str); 4] = [("5.10", "bullseye"), ("6.1", "bookworm"), ("6.12", "trixie"), ("7.2", "sid")];

/// Debian's key ring, where its package puts it. A system without it has its own way to trust the archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Finds the kernel of a version in the cache, or downloads it. `refresh`: looks for a newer one even if there is one.
pub(crate) fn of_version(version: &str, refresh: bool) -> Result<Kernel> {
    let suite = suite_of(version)?;
    let folder = paths::vm().join(suite);
    let current = folder.join("current");
    let kept = fs::read_to_string(&current).ok().and_then(|release| unpacked(&folder.join("kernel").join(release.trim())));
    let kernel = match kept {
        Some(kernel) if !refresh => kernel,
        _ => {
            let kernel = download(suite, &folder)?;
            fs::write(&current, &kernel.release)?;
            kernel
        }
    };
    if !kernel.release.starts_with(&format!("{version}.")) {
        say::step(format!("the suite {suite} has moved on from {version}"));
    }
    say::step(format!("kernel {} ({suite})", kernel.release));
    Ok(kernel)
}

/// A kernel that the user brings.
pub(super) fn of_files(image: &Path, modules: &Path) -> Result<Kernel> {
    ensure!(image.is_file(), "{} is no file", image.display());
    ensure!(
        modules.join("modules.dep").is_file(),
        "{} has no modules.dep: give the folder lib/modules/RELEASE, after `depmod -b ROOT RELEASE`",
        modules.display()
    );
    let release =
        fs::canonicalize(modules)?.file_name().map(|name| name.to_string_lossy().into_owned()).context("--modules has no name")?;
    Ok(Kernel { release, image: image.to_path_buf(), modules: modules.to_path_buf() })
}

fn suite_of(version: &str) -> Result<&'static str> {
    match SUITES.iter().find(|(known, _)| *known == version) {
        Some((_, suite)) => Ok(suite),
        None => bail!("no suite carries the kernel {version}: there are {}", SUITES.map(|(known, _)| known).join(", ")),
    }
}

/// The kernel in a folder that [`unpack`] made.
fn unpacked(root: &Path) -> Option<Kernel> {
    let release = root.file_name()?.to_str()?.to_owned();
    let modules = root.join("lib/modules").join(&release);
    let images = [root.join("boot").join(format!("vmlinuz-{release}")), modules.join("vmlinuz")];
    let image = images.into_iter().find(|image| image.is_file())?;
    modules.join("modules.dep").is_file().then_some(Kernel { release, image, modules })
}

fn download(suite: &str, folder: &Path) -> Result<Kernel> {
    let apt = Apt::new(suite, folder)?;
    apt.write_sources()?;
    say::step(format!("reading the package list of {suite}"));
    command::run(apt.command("apt-get").args(["update", "--quiet=2"]).stdout(std::io::stderr()))
        .with_context(|| format!("the mirror does not carry {suite}"))?;
    let depends = command::capture(apt.command("apt-cache").args(["depends", "linux-image-cloud-amd64"]))?;
    let image = dependencies(&depends)
        .find(|package| package.starts_with("linux-image-"))
        .with_context(|| format!("{suite} has no linux-image-cloud-amd64"))?
        .to_owned();
    let release = image.trim_start_matches("linux-image-").to_owned();
    let root = folder.join("kernel").join(&release);
    if let Some(kernel) = unpacked(&root) {
        return Ok(kernel);
    }
    let depends = command::capture(apt.command("apt-cache").args(["depends", &image]))?;
    let packages = packages(&image, &depends);
    say::step(format!("downloading {}", packages.join(", ")));
    let debs = tempfile::tempdir_in(folder)?;
    command::run(
        apt.command("apt-get").args(["download", "--quiet=2"]).args(&packages).current_dir(debs.path()).stdout(std::io::stderr()),
    )?;
    unpack(debs.path(), &root, &release)
}

/// What `apt-cache depends` says that a package depends on.
fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_start_matches([' ', '|']).strip_prefix("Depends: "))
}

/// The packages that hold the kernel and its modules. Where the image package holds neither, it depends on the two that do.
fn packages(image: &str, depends: &str) -> Vec<String> {
    let split: Vec<String> = dependencies(depends)
        .filter(|name| name.starts_with("linux-binary-") || name.starts_with("linux-modules-"))
        .map(str::to_owned)
        .collect();
    if split.is_empty() { vec![image.to_owned()] } else { split }
}

/// Unpacks packages and orders their modules. The folder appears under its name only when it is whole.
fn unpack(debs: &Path, root: &Path, release: &str) -> Result<Kernel> {
    let folder = root.parent().context("the kernel's folder has no parent")?;
    fs::create_dir_all(folder)?;
    let work = tempfile::tempdir_in(folder)?;
    for deb in fs::read_dir(debs)? {
        command::run(Command::new(command::require("dpkg-deb")?).arg("-x").arg(deb?.path()).arg(work.path()))?;
    }
    // Newer packages have everything below usr.
    if work.path().join("usr/lib/modules").is_dir() {
        fs::create_dir_all(work.path().join("lib"))?;
        fs::rename(work.path().join("usr/lib/modules"), work.path().join("lib/modules"))?;
    }
    command::run(Command::new(command::require("depmod")?).arg("-b").arg(work.path()).arg(release))?;
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    fs::rename(work.keep(), root)?;
    unpacked(root).with_context(|| format!("the packages of {release} hold no kernel, or no modules"))
}

/// An apt that shares nothing with the system's but its mirror, its proxy settings and its trust.
struct Apt {
    folder: PathBuf,
    suite: String,
}

impl Apt {
    fn new(suite: &str, folder: &Path) -> Result<Self> {
        for name in ["state/lists/partial", "cache/archives/partial", "sources.d", "preferences.d"] {
            fs::create_dir_all(folder.join("apt").join(name))?;
        }
        Ok(Self { folder: fs::canonicalize(folder.join("apt"))?, suite: suite.to_owned() })
    }

    fn write_sources(&self) -> Result<()> {
        let mirror = mirror::of_system()?;
        let signed = if Path::new(KEYRING).exists() { format!("Signed-By: {KEYRING}\n") } else { String::new() };
        let stanza = |uri: &str, suite: &str| {
            format!("Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\nArchitectures: amd64\n{signed}\n")
        };
        let mut text = stanza(&mirror.archive, &self.suite);
        if let (Some(security), true) = (&mirror.security, self.suite != "sid") {
            text.push_str(&stanza(security, &format!("{}-security", self.suite)));
        }
        fs::write(self.folder.join("sources.d/stormdrill.sources"), text)?;
        fs::write(self.folder.join("status"), "")?;
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, value) in [
            ("Dir::State", "state"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc::sourcelist", "no-sources.list"),
            ("Dir::Etc::sourceparts", "sources.d"),
            ("Dir::Etc::preferences", "no-preferences"),
            ("Dir::Etc::preferencesparts", "preferences.d"),
        ] {
            command.arg("-o").arg(format!("{option}={}", self.folder.join(value).display()));
        }
        // Only package lists are wanted, and the user _apt cannot write into the workspace.
        for option in [
            "APT::Architecture=amd64",
            "APT::Sandbox::User=root",
            "Acquire::Languages=none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::Retries=3",
        ] {
            command.args(["-o", option]);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_package_is_taken_when_it_holds_the_kernel() {
        let depends = "linux-image-6.1.0-57-cloud-amd64\n  Depends: kmod\n  Depends: linux-base\n |Depends: initramfs-tools\n";
        assert_eq!(packages("linux-image-6.1.0-57-cloud-amd64", depends), ["linux-image-6.1.0-57-cloud-amd64"]);
    }

    #[test]
    fn the_two_packages_behind_the_image_are_taken_when_it_is_empty() {
        let depends = "linux-image-7.2.13\n  PreDepends: linux-base\n |Depends: dracut\n  Depends: linux-base-7.2.13\n  Depends: linux-binary-7.2.13\n  \
                       Depends: linux-modules-7.2.13\n";
        assert_eq!(packages("linux-image-7.2.13", depends), ["linux-binary-7.2.13", "linux-modules-7.2.13"]);
    }

    #[test]
    fn an_unknown_version_is_told_what_there_is() {
        assert_eq!(suite_of("6.1").ok(), Some("bookworm"));
        let text = suite_of("6.6").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains("5.10, 6.1, 6.12, 7.2"), "{text}");
    }
}
