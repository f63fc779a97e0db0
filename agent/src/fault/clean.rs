//! Removes what dead drills left in the kernel: by the journal, and by our names where the journal is lost.
//!
//! A drill that still runs is left alone unless forced. An error while reading is an error, never "nothing there".

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use thiserror::Error;

use super::connect;
use super::ending::{self, State};
use super::filter::{self, Hook};
use super::install::{self, InstallError};
use super::journal::{self, JournalError, Record};
use super::link;
use super::name::{Clsact, Name};
use super::namespace::{self, Whereabouts};
use super::netlink::{Netlink, NetlinkError};

/// Whether faults of a running drill are removed too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Leave them.
    No,
    /// Remove them under its feet.
    Yes,
}

/// What `clean` did.
#[derive(Debug, Default)]
pub struct CleanReport {
    /// What was removed, one line each.
    pub removed: Vec<String>,
    /// Process ids of running drills whose faults were left alone.
    pub alive: Vec<u32>,
    /// What could not be removed or judged: exit code 2.
    pub problems: Vec<CleanProblem>,
}

impl CleanReport {
    /// Notes a running drill's process, once.
    fn leave(&mut self, pid: u32) {
        if !self.alive.contains(&pid) {
            self.alive.push(pid);
        }
    }

    /// Whether nothing of a dead drill is left.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Something that is left, or of which it is not known whether it is.
#[derive(Debug, Error)]
pub enum CleanProblem {
    /// A recorded fault could not be removed.
    #[error("remove {name} from {interface}")]
    Stuck {
        /// Its name.
        name: Name,
        /// The interface.
        interface: String,
        /// Why.
        source: InstallError,
    },
    /// A fault lies in another network namespace, to which this process finds no way; `clean` has to run there, or outside of its container.
    #[error("{name} is in another network namespace (inode {namespace}), which cannot be found from here")]
    Elsewhere {
        /// Its name.
        name: Name,
        /// The namespace's inode.
        namespace: u64,
    },
    /// Its process was killed, and the kernel has not ended it: what it was about to make may still come.
    #[error("{name} is of process {pid}, which was killed and has not ended in {} s", ending::PATIENCE.as_secs())]
    Ending {
        /// Its name.
        name: Name,
        /// The process.
        pid: u32,
    },
    /// It cannot be told which connections are refused, or that cannot be ended.
    #[error("look for programs that refuse connections")]
    Refused(#[source] io::Error),
    /// A journal could not be removed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// What keeps `clean` from doing anything.
#[derive(Debug, Error)]
pub enum CleanError {
    /// The kernel's tables cannot be read.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The journals cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// It cannot be told whether an owner lives.
    #[error("look for the process {pid}")]
    Process {
        /// The process.
        pid: u32,
        /// Why.
        source: io::Error,
    },
}

/// What is in the kernel under one of our names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    filters: Vec<(filter::Place, Clsact)>,
    ifb: Option<link::Link>,
}

/// Removes leftovers: those that the journals name, wherever they are, and those under our names in the calling thread's network namespace.
///
/// # Errors
/// When journals, tables or processes cannot be read. What could be read but not removed is in the report.
pub fn clean(state_dir: &Path, force: Force) -> Result<CleanReport, CleanError> {
    let mut netlink = Netlink::open()?;
    let mut report = CleanReport::default();
    let own = journal::namespace()?;
    let mut journals = journal::read_all(state_dir)?;
    let living = journals.iter().filter(|entry| entry.is_alive).filter_map(|entry| Some(entry.record.as_ref().ok()?.owner.pid));
    if force == Force::No && wait_for_the_killed(living)? {
        journals = journal::read_all(state_dir)?;
    }
    let mut alive = BTreeSet::new();
    let mut torn = Vec::new();
    for journal::Entry { path, name, record, is_alive } in journals {
        if is_alive && force == Force::No {
            alive.insert(name);
            let (pid, seen_from) = record.map_or((name.pid(), 0), |record| (record.owner.pid, record.pid_namespace));
            note_alive(name, pid, seen_from, &mut report)?;
            continue;
        }
        match record {
            Ok(record) => by_record(&mut netlink, &path, &record, own, &mut report),
            // It was never synced, so that nothing was made under it; if something was, it is found by its name.
            Err(JournalError::Unreadable { .. }) => torn.push((path, name)),
            Err(error) => report.problems.push(error.into()),
        }
    }
    by_name(&mut netlink, &alive, force, &mut report)?;
    refused_connections(force, &mut report);
    for (path, name) in torn {
        report.removed.push(format!("the journal of {name}, which could not be read"));
        remove_journal(&path, &mut report);
    }
    Ok(report)
}

/// Names of what is in the kernel, or in a journal, and whose owner is dead; removes nothing. Needs no privilege.
///
/// # Errors
/// As [`clean`].
pub fn leftovers(state_dir: &Path) -> Result<Vec<String>, CleanError> {
    let journals = journal::read_all(state_dir)?;
    let mut dead: BTreeSet<Name> = journals.iter().filter(|entry| !entry.is_alive).map(|entry| entry.name).collect();
    for name in scan(&mut Netlink::open()?)?.keys() {
        if !journals.iter().any(|entry| entry.name == *name) && !lives(*name)? {
            dead.insert(*name);
        }
    }
    Ok(dead.iter().map(Name::to_string).collect())
}

fn by_record(netlink: &mut Netlink, path: &Path, record: &Record, own: u64, report: &mut CleanReport) {
    let what = format!("{} on {} ({})", record.name, record.interface, record.place.hook.as_str());
    let outcome = if record.namespace == own {
        install::take_out(netlink, record)
    } else {
        match namespace::find(record.namespace, record.pid_namespace) {
            Whereabouts::Found(file) => {
                let inside = || install::take_out(&mut Netlink::open()?, record);
                namespace::within(&file, inside)
                    .unwrap_or_else(|source| Err(InstallError::Namespace { namespace: record.namespace, source }))
            }
            Whereabouts::Gone => {
                report.removed.push(format!("the journal of {what}, which went with its network namespace"));
                return remove_journal(path, report);
            }
            Whereabouts::Unknown => {
                return report.problems.push(CleanProblem::Elsewhere { name: record.name, namespace: record.namespace });
            }
        }
    };
    match outcome {
        Ok(()) => {
            report.removed.push(what);
            remove_journal(path, report);
        }
        Err(source) => report.problems.push(CleanProblem::Stuck { name: record.name, interface: record.interface.clone(), source }),
    }
}

fn by_name(netlink: &mut Netlink, alive: &BTreeSet<Name>, force: Force, report: &mut CleanReport) -> Result<(), CleanError> {
    let mut all = scan(netlink)?;
    if force == Force::No && wait_for_the_killed(all.keys().map(|name| name.pid()))? {
        all = scan(netlink)?;
    }
    for (name, found) in all {
        if alive.contains(&name)
            || report.problems.iter().any(|problem| matches!(problem, CleanProblem::Stuck { name: stuck, .. } if *stuck == name))
        {
            continue;
        }
        if force == Force::No && lives(name)? {
            note_alive(name, name.pid(), 0, report)?;
            continue;
        }
        match remove(netlink, name, &found) {
            Ok(()) => report.removed.push(format!("{name}, of which there was no journal")),
            Err(source) => report.problems.push(CleanProblem::Stuck { name, interface: String::from("its interface"), source }),
        }
    }
    Ok(())
}

/// `refuse` hangs on links that end with their process, so that a dead drill leaves none, and there is no journal of it.
fn refused_connections(force: Force, report: &mut CleanReport) {
    match force {
        Force::Yes => match connect::detach_all() {
            Ok(0) => {}
            Ok(links) => report.removed.push(format!("refused connections ({links} programs on cgroups)")),
            Err(source) => report.problems.push(CleanProblem::Refused(source)),
        },
        Force::No => {
            // Who may not list the kernel's programs is told less.
            connect::owners().unwrap_or_default().into_iter().for_each(|pid| report.leave(pid));
        }
    }
}

fn remove(netlink: &mut Netlink, name: Name, found: &Found) -> Result<(), InstallError> {
    for (place, clsact) in &found.filters {
        filter::delete(netlink, *place)?;
        if *clsact == Clsact::Ours {
            install::remove_empty_clsact(netlink, place.interface)?;
        }
    }
    if let Some(ifb) = &found.ifb {
        link::delete(netlink, ifb)?;
    }
    if scan(netlink)?.contains_key(&name) {
        return Err(InstallError::StillThere { name, interface: String::from("its interface") });
    }
    Ok(())
}

/// Everything under our names in the namespace. Also filters whose ifb is gone: they are found by their own name.
fn scan(netlink: &mut Netlink) -> Result<BTreeMap<Name, Found>, NetlinkError> {
    let mut found: BTreeMap<Name, Found> = BTreeMap::new();
    for link in link::list(netlink)? {
        for hook in Hook::ALL {
            for filter in filter::list(netlink, link.index, hook)? {
                if let Some((name, clsact)) = filter.name.as_deref().and_then(Name::of_filter) {
                    found.entry(name).or_default().filters.push((filter.place, clsact));
                }
            }
        }
        if let Some(name) = install::name_of_ifb(&link) {
            found.entry(name).or_default().ifb = Some(link);
        }
    }
    Ok(found)
}

fn lives(name: Name) -> Result<bool, CleanError> {
    name.owner_lives().map_err(|source| CleanError::Process { pid: name.pid(), source })
}

/// `seen_from`: inode of the PID namespace that the number belongs to; 0 if that is not known.
fn note_alive(name: Name, pid: u32, seen_from: u64, report: &mut CleanReport) -> Result<(), CleanError> {
    let is_of_here = seen_from == 0 || namespace::own_pid().is_ok_and(|own| own == seen_from);
    if is_of_here && ending::state(pid).map_err(|source| CleanError::Process { pid, source })? == State::Ending {
        report.problems.push(CleanProblem::Ending { name, pid });
    } else {
        report.leave(pid);
    }
    Ok(())
}

/// Waits for the owners that are being ended, and says whether one was: until then they hold their journals' locks, and what they began in the kernel may
/// still be finished.
fn wait_for_the_killed(owners: impl Iterator<Item = u32>) -> Result<bool, CleanError> {
    let mut waited = false;
    for pid in owners.collect::<BTreeSet<_>>() {
        let process = |source| CleanError::Process { pid, source };
        if ending::state(pid).map_err(process)? == State::Ending {
            ending::wait_for(pid).map_err(process)?;
            waited = true;
        }
    }
    Ok(waited)
}

fn remove_journal(path: &Path, report: &mut CleanReport) {
    if let Err(error) = journal::remove(path) {
        report.problems.push(error.into());
    }
}
