//! The search for files with OpenSSL's calls: the libraries of the usual directories, and what processes have mapped.
//!
//! A probe sits on a file, and so in every process that maps it, whenever it does. New files come with new processes: those are looked at
//! when they are young (a process may start another program, or load a library late), and all of them from time to time.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::library::Library;

/// Between two looks at the list of processes.
const TICK: Duration = Duration::from_secs(1);
/// Looks at a young process.
const YOUNG: u64 = 4;
/// Looks until all processes are looked at again.
const ROUND: u64 = 30;

/// Which file it is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    pub(super) device: u64,
    pub(super) inode: u64,
}

/// What has changed.
pub(super) enum Change {
    Found(Library),
    /// No process has it mapped any more.
    Gone(FileId),
}

/// The search; it ends with this.
pub(super) struct Scan {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Scan {
    /// Begins it: with what is there now, and where to hear of what changes.
    pub(super) fn start() -> io::Result<(Self, Vec<Library>, Receiver<Change>)> {
        let mut search = Search::default();
        let mut found = search.usual_places();
        for change in search.look() {
            if let Change::Found(library) = change {
                found.push(library);
            }
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let (changed, changes) = mpsc::channel();
        let thread = std::thread::Builder::new().name("tls-scan".to_owned()).spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(TICK) {
                if search.look().into_iter().any(|change| changed.send(change).is_err()) {
                    return;
                }
            }
        })?;
        Ok((Self { stop: Some(stop), thread: Some(thread) }, found, changes))
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A file that was looked into.
#[derive(Debug, Clone, Copy)]
struct Known {
    is_library: bool,
    /// Never given up: programs that start later are probed from their first call on.
    stays: bool,
    /// The last look in which a process had it.
    seen: u64,
}

#[derive(Debug, Default)]
struct Search {
    files: HashMap<FileId, Known>,
    /// The first look at each process.
    processes: HashMap<u32, u64>,
    looks: u64,
}

impl Search {
    /// The libraries that programs which start later will map.
    fn usual_places(&mut self) -> Vec<Library> {
        let roots = ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"].map(PathBuf::from);
        let within = roots.iter().flat_map(|root| entries(root)).filter(|path| path.to_string_lossy().ends_with("-linux-gnu"));
        let directories: Vec<PathBuf> = roots.iter().cloned().chain(within).collect();
        let mut found = Vec::new();
        for path in directories.iter().flat_map(|directory| entries(directory)).filter(|path| is_named_so(path)) {
            found.extend(self.examine(&path, true));
        }
        found
    }

    /// A look at the processes.
    fn look(&mut self) -> Vec<Change> {
        let look = self.looks;
        self.looks += 1;
        let all = look.is_multiple_of(ROUND);
        let mut processes = HashMap::new();
        let mut changes = Vec::new();
        for path in entries(Path::new("/proc")) {
            let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else { continue };
            let first = self.processes.get(&pid).copied().unwrap_or(look);
            processes.insert(pid, first);
            if all || look - first < YOUNG {
                for path in mapped(&path) {
                    changes.extend(self.examine(&path, false).map(Change::Found));
                }
            }
        }
        self.processes = processes;
        if all {
            let gone = |known: &Known| !known.stays && known.seen + ROUND < look;
            changes.extend(self.files.iter().filter(|(_, known)| known.is_library && gone(known)).map(|(file, _)| Change::Gone(*file)));
            self.files.retain(|_, known| !gone(known));
        }
        changes
    }

    /// Looks into a file, once. The library that it is, if it was not known.
    fn examine(&mut self, path: &Path, stays: bool) -> Option<Library> {
        // A process may have ended meanwhile.
        let metadata = fs::metadata(path).ok()?;
        let file = FileId { device: metadata.dev(), inode: metadata.ino() };
        let seen = self.looks;
        if let Some(known) = self.files.get_mut(&file) {
            known.seen = seen;
            return None;
        }
        let library = Library::open(file, path);
        self.files.insert(file, Known { is_library: library.is_some(), stays, seen });
        library
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// `libssl.so.3`, and `libssl-1a2b3c.so.1.1`, as Python's packages call it.
fn is_named_so(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("libssl") && name.contains(".so"))
}

/// The executable of a process and the libraries that it has mapped, by the kernel's own links: they lead to the file from any mount namespace, even if
/// it was deleted.
fn mapped(process: &Path) -> Vec<PathBuf> {
    let mut paths = vec![process.join("exe")];
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    for line in maps.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (words.next(), words.next()) else { continue };
        let Some(path) = words.nth(3).map(Path::new) else { continue };
        if rights.contains('x') && is_named_so(path) {
            paths.push(process.join("map_files").join(range));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_by_their_names() {
        for name in ["libssl.so.3", "/usr/lib/libssl.so.1.1", "/x/psycopg2.libs/libssl-2a1b.so.1.1"] {
            assert!(is_named_so(Path::new(name)), "{name}");
        }
        for name in ["/usr/lib/libcrypto.so.3", "libssl.a", "/usr/lib/mylibssl.so"] {
            assert!(!is_named_so(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn a_file_is_examined_once_whatever_its_path() {
        let mut search = Search::default();
        assert!(search.examine(Path::new("/proc/self/exe"), false).is_none());
        assert_eq!(search.files.len(), 1);
        assert!(search.examine(&std::env::current_exe().unwrap_or_default(), false).is_none());
        assert_eq!(search.files.len(), 1);
    }
}
