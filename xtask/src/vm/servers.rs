//! Servers of this host that a guest is to have, with what lies beside their programs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Bring, libs};
use crate::command;

/// MiB that a guest with servers needs.
pub(crate) const MEMORY: u64 = 2500;

/// Where Debian has PostgreSQL's programs, a folder for each version.
const POSTGRESQL: &str = "/usr/lib/postgresql";
/// Programs of which `/usr/bin` has a script that looks for the right version; the guest has them there themselves.
const WRAPPED: [&str; 2] = ["psql", "pgbench"];

/// nginx, and a load for it.
pub(crate) fn web() -> Result<Vec<Bring>> {
    programs(&["nginx", "h2load"])
}

pub(crate) fn redis() -> Result<Vec<Bring>> {
    programs(&["redis-server", "redis-cli"])
}

pub(crate) fn mariadb() -> Result<Vec<Bring>> {
    let mut all = programs(&["mariadbd", "mariadb-install-db", "my_print_defaults", "resolveip"])?;
    all.push(at_its_place(Path::new("/usr/share/mysql"))?);
    Ok(all)
}

pub(crate) fn postgresql() -> Result<Vec<Bring>> {
    let versions = fs::read_dir(POSTGRESQL).with_context(|| format!("cannot read {POSTGRESQL}"))?;
    let version = versions.flatten().next().with_context(|| format!("{POSTGRESQL} has no version"))?.path();
    let mut all = vec![at_its_place(Path::new("/usr/share/postgresql"))?, at_its_place(&version)?];
    for program in WRAPPED {
        all.push(bring(&version.join("bin").join(program), &Path::new("/usr/bin").join(program))?);
    }
    // A folder is copied as it is: the programs in it that run are brought with their libraries.
    for program in ["initdb", "postgres"] {
        all.push(at_its_place(&version.join("bin").join(program))?);
    }
    Ok(all)
}

/// Debian's Python with its library, and the packages of an environment, which the guest finds under the path that is returned.
pub(crate) fn python(environment: &Path) -> Result<(Vec<Bring>, PathBuf)> {
    let interpreter = environment.join("bin/python3");
    let asked = "import sysconfig; print(sysconfig.get_path('stdlib')); print(sysconfig.get_path('purelib'))";
    let text = command::capture(std::process::Command::new(&interpreter).args(["-c", asked]))?;
    let (library, packages) = text.trim().split_once('\n').context("Python did not say where its library is")?;
    let (library, packages) = (PathBuf::from(library), PathBuf::from(packages));
    let mut all = vec![bring(&fs::canonicalize(&interpreter)?, Path::new("/usr/bin/python3"))?];
    all.push(at_its_place(&library)?);
    all.push(at_its_place(&packages)?);
    let compiled = library.join("lib-dynload");
    for entry in fs::read_dir(&compiled).with_context(|| format!("cannot read {}", compiled.display()))? {
        for file in libs::needed_by(&entry?.path())? {
            all.push(at_its_place(&file)?);
        }
    }
    Ok((all, packages))
}

fn programs(names: &[&str]) -> Result<Vec<Bring>> {
    names.iter().map(|name| at_its_place(&command::require(name)?)).collect()
}

fn at_its_place(host: &Path) -> Result<Bring> {
    bring(host, host)
}

fn bring(host: &Path, guest: &Path) -> Result<Bring> {
    let guest = guest.to_str().with_context(|| format!("{} is not UTF-8", guest.display()))?;
    Ok(Bring { host: host.to_path_buf(), guest: guest.to_owned() })
}
