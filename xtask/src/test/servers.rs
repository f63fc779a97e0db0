//! The servers that a test program in a guest needs, and what lies beside them on this host.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command;
use crate::vm::Bring;

/// The test program that starts servers in its guest.
pub(super) const WITH_SERVERS: &str = "vm_observe";
/// MiB that the guest then has.
pub(super) const MEMORY: u64 = 2500;

const PROGRAMS: [&str; 8] =
    ["nginx", "h2load", "redis-server", "redis-cli", "mariadbd", "mariadb-install-db", "my_print_defaults", "resolveip"];
const FOLDERS: [&str; 2] = ["/usr/share/mysql", "/usr/share/postgresql"];
/// Where Debian has PostgreSQL's programs, a folder for each version.
const POSTGRESQL: &str = "/usr/lib/postgresql";
/// Programs of which `/usr/bin` has a script that looks for the right version; the guest has them there themselves.
const WRAPPED: [&str; 2] = ["psql", "pgbench"];

/// All of it.
pub(super) fn all() -> Result<Vec<Bring>> {
    let mut all = Vec::new();
    for program in PROGRAMS {
        let host = command::require(program)?;
        all.push(bring(&host, &host)?);
    }
    let version = postgresql()?;
    for folder in FOLDERS.iter().map(Path::new).chain([version.as_path()]) {
        all.push(bring(folder, folder)?);
    }
    for program in WRAPPED {
        all.push(bring(&version.join("bin").join(program), &Path::new("/usr/bin").join(program))?);
    }
    // A folder is copied as it is: the programs in it that run are brought with their libraries.
    for program in ["initdb", "postgres"] {
        let host = version.join("bin").join(program);
        all.push(bring(&host, &host)?);
    }
    Ok(all)
}

fn postgresql() -> Result<PathBuf> {
    let versions = fs::read_dir(POSTGRESQL).with_context(|| format!("cannot read {POSTGRESQL}"))?;
    let first = versions.flatten().next().with_context(|| format!("{POSTGRESQL} has no version"))?;
    Ok(first.path())
}

fn bring(host: &Path, guest: &Path) -> Result<Bring> {
    let guest = guest.to_str().with_context(|| format!("{} is not UTF-8", guest.display()))?;
    Ok(Bring { host: host.to_path_buf(), guest: guest.to_owned() })
}
