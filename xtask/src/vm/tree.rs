//! The guest's root folder: what lies where, and from which file of the host it comes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::libs;
use crate::command;

/// One thing in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Folder,
    /// A file of the host, copied when the archive is written.
    Host(PathBuf),
    Made {
        content: Vec<u8>,
        executable: bool,
    },
    Link(String),
}

/// The guest's files by their absolute path. Parents come before children, because that is how paths sort.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    entries: BTreeMap<String, Entry>,
}

/// Bytes above which a program is worth stripping.
const LARGE: u64 = 4 * 1024 * 1024;

/// Folders that the guest mounts something on, so that what lay there is hidden.
const MOUNTED: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];
/// Links that a merged /usr has at the root; what is put behind one goes to where it points.
const MERGED: [(&str, &str); 4] = [("/bin", "/usr/bin"), ("/sbin", "/usr/sbin"), ("/lib", "/usr/lib"), ("/lib64", "/usr/lib64")];

impl Tree {
    /// A tree with the usual folders and links.
    pub(super) fn new() -> Self {
        let mut tree = Self::default();
        for folder in [
            "/proc",
            "/sys",
            "/dev",
            "/run",
            "/tmp",
            "/etc",
            "/root",
            "/var/log",
            "/var/tmp",
            "/usr/bin",
            "/usr/sbin",
            "/usr/lib",
            "/usr/lib64",
        ] {
            tree.folder(folder);
        }
        for (link, target) in MERGED {
            tree.entries.insert(link.to_owned(), Entry::Link(target.trim_start_matches('/').to_owned()));
        }
        tree
    }

    pub(super) fn folder(&mut self, path: &str) {
        self.add(path, Entry::Folder);
    }

    /// A file made here.
    pub(super) fn make(&mut self, path: &str, executable: bool, content: impl Into<Vec<u8>>) {
        self.add(path, Entry::Made { content: content.into(), executable });
    }

    /// A link, unless something has that name already.
    pub(super) fn link(&mut self, path: &str, target: &str) {
        if !self.has(path) {
            self.add(path, Entry::Link(target.to_owned()));
        }
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.entries.contains_key(&settle(path))
    }

    /// Brings a file of the host, or all of a folder.
    pub(super) fn bring(&mut self, host: &Path, guest: &str) -> Result<()> {
        if let Some(folder) = MOUNTED.iter().find(|folder| Path::new(guest).starts_with(folder)) {
            bail!("{guest} would be hidden: the guest mounts something on {folder}");
        }
        if host.is_dir() {
            self.folder(guest);
            for entry in fs::read_dir(host).with_context(|| format!("cannot read {}", host.display()))? {
                let entry = entry?;
                self.bring(&entry.path(), &format!("{guest}/{}", entry.file_name().to_string_lossy()))?;
            }
            return Ok(());
        }
        let file = fs::canonicalize(host).with_context(|| format!("cannot bring {}", host.display()))?;
        self.add(guest, Entry::Host(file));
        Ok(())
    }

    /// Brings a program to a place, and what it needs to its own places.
    pub(super) fn bring_program(&mut self, host: &Path, guest: &str) -> Result<()> {
        self.bring(host, guest)?;
        if let Some(content) = without_debug_information(host)? {
            self.make(guest, true, content);
        }
        for file in libs::needed_by(host)? {
            self.bring(&file, &file.to_string_lossy())?;
        }
        Ok(())
    }

    /// Writes the tree as an initramfs. Returns its size in bytes.
    pub(super) fn write(&self, file: &Path) -> Result<u64> {
        let mut archive = Archive::new(BufWriter::new(File::create(file).with_context(|| format!("cannot write {}", file.display()))?));
        for (path, entry) in &self.entries {
            match entry {
                Entry::Folder => archive.folder(path)?,
                Entry::Made { content, executable } => archive.file(path, *executable, content)?,
                Entry::Link(target) => archive.link(path, target)?,
                Entry::Host(host) => {
                    let content = fs::read(host).with_context(|| format!("cannot read {}", host.display()))?;
                    let executable = fs::metadata(host)?.permissions().mode() & 0o111 != 0;
                    archive.file(path, executable, &content)?;
                }
            }
        }
        archive.finish()?;
        Ok(fs::metadata(file)?.len())
    }

    fn add(&mut self, path: &str, entry: Entry) {
        let path = settle(path);
        for parent in Path::new(&path).ancestors().skip(1).filter_map(Path::to_str).filter(|parent| *parent != "/" && !parent.is_empty()) {
            self.entries.entry(parent.to_owned()).or_insert(Entry::Folder);
        }
        match self.entries.get(&path) {
            // What is already a folder with things in it stays one.
            Some(Entry::Folder) if entry == Entry::Folder => {}
            _ => {
                self.entries.insert(path, entry);
            }
        }
    }
}

/// A large program without its debug information, which nothing in the guest reads and which takes seconds to unpack there. `None`: it is
/// small, or strip is not to be had or will not take it.
fn without_debug_information(host: &Path) -> Result<Option<Vec<u8>>> {
    let Some(strip) = command::find("strip").filter(|_| fs::metadata(host).is_ok_and(|data| data.len() > LARGE)) else {
        return Ok(None);
    };
    let stripped = tempfile::NamedTempFile::new()?;
    let done = command::succeeds(Command::new(strip).args(["--strip-debug", "-o"]).arg(stripped.path()).arg(host));
    Ok(if done { Some(fs::read(stripped.path())?) } else { None })
}

/// Where a path ends up in a merged /usr.
fn settle(path: &str) -> String {
    for (link, target) in MERGED {
        if let Some(rest) = path.strip_prefix(link)
            && rest.starts_with('/')
        {
            return format!("{target}{rest}");
        }
    }
    path.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use super::*;

    #[test]
    fn a_library_lands_behind_the_link_that_a_merged_usr_has() {
        assert_eq!(settle("/lib64/ld-linux-x86-64.so.2"), "/usr/lib64/ld-linux-x86-64.so.2");
        assert_eq!(settle("/lib/x/libc.so.6"), "/usr/lib/x/libc.so.6");
        assert_eq!(settle("/library/x"), "/library/x");
        assert_eq!(settle("/usr/lib/x"), "/usr/lib/x");
    }

    #[test]
    fn folders_come_before_what_is_in_them() {
        let mut tree = Tree::default();
        tree.make("/a/b/c", false, "x");
        assert_eq!(tree.entries.keys().collect::<Vec<_>>(), ["/a", "/a/b", "/a/b/c"]);
    }

    #[test]
    fn a_link_does_not_replace_a_real_program() {
        let mut tree = Tree::new();
        tree.make("/usr/sbin/tc", true, "real");
        tree.link("/sbin/tc", "busybox");
        assert!(matches!(tree.entries.get("/usr/sbin/tc"), Some(Entry::Made { .. })));
    }

    #[test]
    fn what_a_mount_would_hide_is_refused() {
        let text = Tree::new().bring(Path::new("/etc/passwd"), "/run/x").unwrap_err().to_string();
        assert!(text.contains("/run"), "{text}");
    }

    #[test]
    fn a_large_program_is_brought_without_its_debug_information() {
        let exe = std::env::current_exe().unwrap();
        let whole = fs::metadata(&exe).unwrap().len();
        let mut tree = Tree::new();
        tree.bring_program(&exe, "/test").unwrap();
        match tree.entries.get("/test") {
            Some(Entry::Made { content, executable: true }) => assert!((content.len() as u64) < whole),
            // Without strip, or with a program that is small already.
            other => assert!(whole <= LARGE || command::find("strip").is_none(), "{other:?}"),
        }
    }

    #[test]
    fn a_folder_of_the_host_is_brought_whole() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir(host.path().join("in")).unwrap();
        fs::write(host.path().join("in/file"), "x").unwrap();
        let mut tree = Tree::new();
        tree.bring(host.path(), "/data").unwrap();
        assert!(tree.has("/data/in/file"));
    }
}
