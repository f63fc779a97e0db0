//! One hook of one fault: put into the kernel and taken out again.
//!
//! Built in this order: journal, ifb, netem, ifb up, clsact, filter. Taken out in the reverse, filter first: an ifb that goes under a live
//! filter turns the redirect into a black hole. What is taken out is only what carries our name, and afterwards it is read back.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stormdrill_wire::fault::{FaultRule, FaultStats};
use thiserror::Error;

use super::filter::{self, Action, Filter, Hook, Place};
use super::hook_plan::{Carrier, HookPlan};
use super::journal::{self, Journal, JournalError, Record};
use super::lease::{self, locked};
use super::link::{self, Link};
use super::name::{Clsact, NETEM_HANDLE, Name, Owner, PRIORITY_HTTP_STATUS};
use super::namespace;
use super::netlink::{Netlink, NetlinkError};
use super::object::{Object, ObjectError};
use super::qdisc::{self, Hooks, Qdisc};
use super::tally::Tally;

/// How long delayed packets may take to leave the ifb before it is deleted with them.
const LONGEST_DRAIN: Duration = Duration::from_secs(3);
const DRAIN_STEP: Duration = Duration::from_millis(5);

/// What can go wrong while a fault is put in or taken out.
#[derive(Debug, Error)]
pub enum InstallError {
    /// The kernel refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The journal cannot be kept.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The kernel object.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The cgroup whose sockets are meant is gone.
    #[error("open the cgroup {}", path.display())]
    Cgroup {
        /// The cgroup.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `/proc` cannot tell who we are.
    #[error("read this process's start time")]
    Owner(#[source] io::Error),
    /// The interface has the older `ingress` discipline, which has no egress hook and cannot be exchanged without harm to its owner.
    #[error("interface {interface} has an `ingress` qdisc of someone else, which has no hook for leaving packets")]
    NoEgressHook {
        /// The interface.
        interface: String,
    },
    /// A priority holds filters of one kind for one protocol, and somebody else's are at ours.
    #[error("priority {priority} of the {} hook of {interface} is taken by a {kind} filter of someone else", hook.as_str())]
    PriorityTaken {
        /// The interface.
        interface: String,
        /// The hook.
        hook: Hook,
        /// The priority.
        priority: u16,
        /// What is there.
        kind: String,
    },
    /// Another network namespace cannot be entered.
    #[error("enter the network namespace {namespace}")]
    Namespace {
        /// Its inode.
        namespace: u64,
        /// Why.
        source: io::Error,
    },
    /// What stands in the way of its removal may have left all of it, or a part.
    #[error("{name} on {interface} could not be removed")]
    Left {
        /// Our name for it.
        name: Name,
        /// The interface.
        interface: String,
        /// What stood in the way.
        source: NetlinkError,
    },
    /// Something of ours is still there after its removal.
    #[error("{name} is still on {interface} after its removal")]
    StillThere {
        /// Our name for it.
        name: Name,
        /// The interface.
        interface: String,
    },
}

/// A hook that can be put in: its program and its maps are in the kernel, and nothing leads to them.
#[derive(Debug)]
pub(crate) struct Loaded {
    plan: HookPlan,
    object: Arc<Mutex<Object>>,
}

/// A hook that is in the kernel.
#[derive(Debug)]
pub(crate) struct Installed {
    netlink: Netlink,
    record: Record,
    object: Arc<Mutex<Object>>,
    /// Whether another hook has the same object, and tells its counts.
    is_second: bool,
    carrier: Carrier,
    ifb: Option<Link>,
    /// `None` once everything is gone.
    journal: Option<Journal>,
}

impl Loaded {
    /// Loads what a plan needs, which the kernel may refuse without a trace. It selects nothing, and goes with this process.
    pub(crate) fn of(plan: HookPlan) -> Result<Self, InstallError> {
        let mut object = Object::load(plan.carrier.program(), &plan.selection)?;
        if let Carrier::HttpStatus { requests, .. } = &plan.carrier {
            object.set_requests(requests)?;
        }
        if let Some(path) = &plan.cgroup {
            let cgroup = File::open(path).map_err(|source| InstallError::Cgroup { path: path.clone(), source })?;
            object.set_cgroup(&cgroup)?;
        }
        Ok(Self { object: Arc::new(Mutex::new(object)), plan })
    }

    /// What was planned.
    pub(crate) const fn plan(&self) -> &HookPlan {
        &self.plan
    }
}

impl Installed {
    /// Puts a hook in, and that of the other direction if the plan has one. The lease is not granted, so that nothing is selected. On an
    /// error what was made is taken out again.
    pub(crate) fn build(state_dir: &Path, loaded: &Loaded) -> Result<Vec<Self>, InstallError> {
        let Loaded { plan, object } = loaded;
        let mut all = vec![Self::build_one(state_dir, plan, plan.hook, false, object)?];
        if let Some(hook) = plan.also {
            all.push(Self::build_one(state_dir, plan, hook, true, object)?);
        }
        Ok(all)
    }

    fn build_one(
        state_dir: &Path,
        plan: &HookPlan,
        hook: Hook,
        is_second: bool,
        object: &Arc<Mutex<Object>>,
    ) -> Result<Self, InstallError> {
        let mut netlink = Netlink::open()?;
        let owner = Owner::current().map_err(InstallError::Owner)?;
        let name = Name::next(owner);
        let clsact = clsact(&mut netlink, &plan.link, hook)?;
        // What only looks on comes before what takes packets away.
        let priority = if is_second { PRIORITY_HTTP_STATUS } else { plan.carrier.priority() };
        let record = Record {
            name,
            owner,
            namespace: journal::namespace()?,
            pid_namespace: namespace::own_pid().unwrap_or(0),
            interface: plan.link.name.clone(),
            place: Place { interface: plan.link.index, hook, priority, handle: name.handle() },
            clsact,
            ifb: !is_second && plan.carrier.discipline().is_some(),
        };
        let journal = Journal::create(state_dir, &record)?;
        let (object, carrier) = (Arc::clone(object), plan.carrier.clone());
        let mut installed = Self { netlink, record, object, is_second, carrier, ifb: None, journal: Some(journal) };
        // From here on, dropping it takes out what was made.
        installed.add_all(plan.rule())?;
        Ok(installed)
    }

    fn object(&self) -> MutexGuard<'_, Object> {
        locked(&self.object)
    }

    fn add_all(&mut self, mut rule: FaultRule) -> Result<(), InstallError> {
        let mut action = Action::Direct;
        if let Some((kind, options)) = self.carrier.discipline().filter(|_| self.record.ifb) {
            let ifb = link::add_ifb(&mut self.netlink, &self.record.name.to_string())?;
            self.step("ifb")?;
            link::set_alias(&mut self.netlink, &ifb, &self.record.name.to_string())?;
            without_ipv6(&ifb);
            qdisc::add_root(&mut self.netlink, ifb.index, NETEM_HANDLE, kind, &options)?;
            link::set_up(&mut self.netlink, &ifb)?;
            self.step(kind)?;
            action = Action::Redirect(ifb.index);
            rule.ifb = ifb.index;
            self.ifb = Some(ifb);
        }
        if !self.is_second {
            self.object().set_rule(&rule)?;
        }
        let interface = self.record.place.interface;
        if qdisc::hooks(&mut self.netlink, interface)? == Hooks::Absent {
            match qdisc::add_clsact(&mut self.netlink, interface) {
                // Another fault was faster.
                Err(error) if error.errno() == Some(libc::EEXIST) => {}
                result => result?,
            }
            self.step("clsact")?;
        }
        let name = self.record.name.filter(self.record.clsact);
        let object = self.object.lock().unwrap_or_else(PoisonError::into_inner);
        let program = if self.is_second { object.other_program()? } else { object.program()? };
        filter::add(&mut self.netlink, self.record.place, &name, program, action)?;
        drop(object);
        self.step("filter")
    }

    fn step(&mut self, step: &str) -> Result<(), InstallError> {
        if let Some(journal) = &mut self.journal {
            journal.step(step)?;
        }
        Ok(())
    }

    /// What its lease is granted by.
    pub(crate) const fn shared(&self) -> &Arc<Mutex<Object>> {
        &self.object
    }

    /// What the classifier counted; nothing if another hook tells it.
    fn stats(&self) -> Result<FaultStats, ObjectError> {
        if self.is_second {
            return Ok(FaultStats::default());
        }
        self.object().stats()
    }

    /// What was counted on this hook.
    pub(crate) fn tally(&mut self) -> Result<Tally, InstallError> {
        let stats = self.stats()?;
        let mut tally = Tally { selected: stats.selected, hit: stats.hit, ..Tally::default() };
        if let Some(netem) = self.netem()? {
            (tally.dropped, tally.passed) = (netem.dropped, netem.passed);
            tally.overflowed = self.overflowed()?;
            if matches!(self.carrier, Carrier::Tbf(_)) {
                // It drops for want of room alone, which not every kernel's redirect is told of.
                tally.overflowed = tally.overflowed.max(tally.dropped);
            }
        }
        Ok(tally)
    }

    /// Where it is.
    pub(crate) const fn hook(&self) -> Hook {
        self.record.place.hook
    }

    /// Our netem's counters; `None` where there is none.
    fn netem(&mut self) -> Result<Option<Qdisc>, NetlinkError> {
        match &self.ifb {
            None => Ok(None),
            Some(ifb) => Ok(qdisc::list(&mut self.netlink, ifb.index)?.into_iter().find(|qdisc| qdisc.handle == NETEM_HANDLE)),
        }
    }

    /// Packets that found no room in the ifb's queue, as the redirect saw it: what netem loses on purpose it reports as sent.
    fn overflowed(&mut self) -> Result<u64, NetlinkError> {
        if self.ifb.is_none() {
            return Ok(0);
        }
        let place = self.record.place;
        let filters = filter::list(&mut self.netlink, place.interface, place.hook)?;
        Ok(filters.iter().find(|filter| filter.place == place).map_or(0, |filter| filter.overlimits))
    }

    /// Ends the fault: no packet is selected any more. What was selected leaves the ifb in its own time.
    pub(crate) fn stop(&mut self) -> Result<(), InstallError> {
        // Even if the map cannot be written, the filter goes.
        let _ = lease::end(&self.object);
        // By its name, not by its place alone: where ours was refused because the place was taken, the other's stays.
        let there = is_there(&mut self.netlink, &self.record);
        let deleted = there.and_then(|there| if there { filter::delete(&mut self.netlink, self.record.place) } else { Ok(()) });
        deleted.map_err(|source| left(&self.record, source))
    }

    /// Waits until delayed packets have left the ifb, for as long as they can take.
    pub(crate) fn drain(&mut self) -> Result<(), NetlinkError> {
        let longest = self.carrier.longest().saturating_add(Duration::from_millis(50)).min(LONGEST_DRAIN);
        let begin = Instant::now();
        while begin.elapsed() < longest {
            match self.netem()? {
                Some(qdisc) if qdisc.queued > 0 => thread::sleep(DRAIN_STEP),
                _ => break,
            }
        }
        Ok(())
    }

    /// Whether the filter, and what it sends packets through, are still where they were put; somebody else may have taken them out. A filter whose ifb is
    /// gone drops all that it selects.
    ///
    /// # Errors
    /// When the filters or the qdiscs cannot be read.
    pub(crate) fn is_in_place(&mut self) -> Result<bool, InstallError> {
        let has_carrier = self.ifb.is_none() || self.netem()?.is_some();
        Ok(has_carrier && is_there(&mut self.netlink, &self.record)?)
    }

    /// Takes everything out and reads back that it is gone. Doing it twice is success.
    pub(crate) fn remove(&mut self) -> Result<(), InstallError> {
        take_out(&mut self.netlink, &self.record).map_err(|error| match error {
            InstallError::Netlink(source) => left(&self.record, source),
            other => other,
        })?;
        match self.journal.take() {
            Some(journal) => Ok(journal.close()?),
            None => Ok(()),
        }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        if self.journal.is_some()
            && let Err(error) = self.stop().and_then(|()| self.remove())
        {
            tracing::error!(error = &error as &dyn std::error::Error, name = %self.record.name, "a fault could not be removed");
        }
    }
}

fn left(record: &Record, source: NetlinkError) -> InstallError {
    InstallError::Left { name: record.name, interface: record.interface.clone(), source }
}

/// Whether a hook, and a priority on it, can be had on an interface: better known before anything is measured than when the fault is to begin.
///
/// # Errors
/// When somebody's `ingress` qdisc or filter is in their place, or the kernel's tables cannot be read.
pub(crate) fn has_room(netlink: &mut Netlink, link: &Link, hook: Hook, priority: Option<u16>) -> Result<(), InstallError> {
    if hook == Hook::Egress && qdisc::hooks(netlink, link.index)? == Hooks::IngressOnly {
        return Err(InstallError::NoEgressHook { interface: link.name.clone() });
    }
    let Some(priority) = priority else { return Ok(()) };
    let there = filter::list(netlink, link.index, hook)?;
    let obstacle =
        |filter: &&Filter| (filter.place.priority, filter.chain) == (priority, 0) && (filter.kind != "bpf" || !filter.is_of_any_protocol);
    match there.iter().find(obstacle) {
        Some(Filter { kind, .. }) => Err(InstallError::PriorityTaken { interface: link.name.clone(), hook, priority, kind: kind.clone() }),
        None => Ok(()),
    }
}

/// Whose the interface's clsact is or will be. A drill's own, if all that hangs on it is drills'.
fn clsact(netlink: &mut Netlink, link: &Link, hook: Hook) -> Result<Clsact, InstallError> {
    match qdisc::hooks(netlink, link.index)? {
        Hooks::Absent => return Ok(Clsact::Ours),
        Hooks::IngressOnly if hook == Hook::Egress => return Err(InstallError::NoEgressHook { interface: link.name.clone() }),
        Hooks::IngressOnly => return Ok(Clsact::Foreign),
        Hooks::Clsact => {}
    }
    for hook in Hook::ALL {
        for filter in filter::list(netlink, link.index, hook)? {
            if let Some((_, Clsact::Ours)) = filter.name.as_deref().and_then(Name::of_filter) {
                return Ok(Clsact::Ours);
            }
        }
    }
    Ok(Clsact::Foreign)
}

/// An ifb with IPv6 would send its own packets through netem, and they would be counted as hits.
fn without_ipv6(ifb: &Link) {
    // Where the switch does not exist there is no IPv6; where it cannot be written a few packets more are counted.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", ifb.name), "1");
}

/// Takes out all that a record speaks of, in the right order, and reads back that it is gone.
pub(crate) fn take_out(netlink: &mut Netlink, record: &Record) -> Result<(), InstallError> {
    let still_there = || InstallError::StillThere { name: record.name, interface: record.interface.clone() };
    if is_there(netlink, record)? {
        filter::delete(netlink, record.place)?;
        if is_there(netlink, record)? {
            return Err(still_there());
        }
    }
    if record.clsact == Clsact::Ours {
        remove_empty_clsact(netlink, record.place.interface)?;
    }
    if record.ifb
        && let Some(ifb) = our_ifb(netlink, record.name)?
    {
        link::delete(netlink, &ifb)?;
        if our_ifb(netlink, record.name)?.is_some() {
            return Err(still_there());
        }
    }
    Ok(())
}

/// Whether the record's filter is on its hook, under our name: a number of an interface or a handle alone may have become another's.
fn is_there(netlink: &mut Netlink, record: &Record) -> Result<bool, NetlinkError> {
    let filters = filter::list(netlink, record.place.interface, record.place.hook)?;
    Ok(filters.iter().any(|filter| {
        filter.place == record.place && filter.name.as_deref().and_then(Name::of_filter).is_some_and(|(name, _)| name == record.name)
    }))
}

/// Deletes a clsact that is ours, unless a filter hangs on it.
pub(crate) fn remove_empty_clsact(netlink: &mut Netlink, interface: u32) -> Result<(), NetlinkError> {
    if qdisc::hooks(netlink, interface)? != Hooks::Clsact {
        return Ok(());
    }
    for hook in Hook::ALL {
        if !filter::list(netlink, interface, hook)?.is_empty() {
            return Ok(());
        }
    }
    qdisc::delete_clsact(netlink, interface)
}

/// The ifb of that name, however somebody has renamed it since.
fn our_ifb(netlink: &mut Netlink, name: Name) -> Result<Option<Link>, NetlinkError> {
    Ok(link::list(netlink)?.into_iter().find(|link| name_of_ifb(link) == Some(name)))
}

/// Our name for a link, if it is an ifb of ours.
pub(crate) fn name_of_ifb(link: &Link) -> Option<Name> {
    let is_ifb = link.kind.as_deref() == Some("ifb");
    let texts = [Some(link.name.as_str()), link.alias.as_deref()].into_iter().flatten();
    texts.filter(|_| is_ifb).find_map(|text| text.parse().ok())
}
