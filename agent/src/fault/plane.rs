//! The fault plane: from what a playbook asks to what the kernel does, and back to nothing.
//!
//! `prepare` changes nothing and refuses what the kernel cannot do. `apply` puts everything in place while nothing is selected yet, then grants
//! the leases. `renew` is to be called every [`RENEW_EVERY`]; who stops calling ends the fault. `remove` is the only way out, also for
//! `Drop`. The calls block for milliseconds, `remove` for as long as delayed packets take; the `async` ones use the runtime's blocking threads.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::PathBuf;
use std::time::Duration;

use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::fault::{Backend, FaultCounts, FaultKind, FaultOutcome, FaultSpec, reach};
use stormdrill_core::units::share;
use thiserror::Error;

use crate::clock::monotonic_ns;

use super::capability::Refusal;
use super::connect::{Connect, ConnectError, ConnectPlan};
use super::distribution_file::TableError;
use super::elsewhere::{ElsewhereError, Site};
use super::hook_plan::{Carrier, HookPlan};
use super::host::{self, HostError};
use super::install::{self, InstallError, Installed, Loaded};
use super::interface::{self, InterfaceError};
use super::lease::Leases;
use super::mechanism::{backend, carrier, hooks_of, is_on, other_hook, shares_netem, sight};
use super::members::{self, MembersError};
use super::name::PRIORITY_HTTP_STATUS;
use super::netlink::{Netlink, NetlinkError};
use super::object::ObjectError;
use super::selection::Selection;
use super::spared::Spared;
use super::tally::Tally;

/// How often a fault must be renewed; its lease lasts three times as long.
pub const RENEW_EVERY: Duration = Duration::from_secs(1);

/// What can go wrong with a fault. All of it is exit code 2.
#[derive(Debug, Error)]
pub enum FaultError {
    /// The kernel lacks what the fault needs.
    #[error("{fault} needs {module}, which kernel {kernel} does not have: {remedy}")]
    Missing {
        /// The playbook key.
        fault: &'static str,
        /// The module.
        module: &'static str,
        /// The running kernel.
        kernel: String,
        /// What to install.
        remedy: String,
    },
    /// This process lacks the privilege.
    #[error("{fault} needs the privileges of root (CAP_NET_ADMIN, CAP_BPF and CAP_SYS_ADMIN); run stormdrill as root")]
    Forbidden {
        /// The playbook key.
        fault: &'static str,
    },
    /// The kernel has what the fault needs, but refuses it.
    #[error("{fault} does not work on this kernel: {module} was refused")]
    Refused {
        /// The playbook key.
        fault: &'static str,
        /// The module.
        module: &'static str,
        /// Why.
        source: Box<Refusal>,
    },
    /// A status that cannot be written over another.
    #[error(
        "http_status cannot write {status}: a response with another body would break its connection; use 200 to 599, but not 204, 205 or 304"
    )]
    Status {
        /// The status.
        status: u16,
    },
    /// The interface cannot be found.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// It could not be put in or taken out.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The lease could not be renewed, or the counters not be read.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// netem's counters could not be read.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A delay's distribution table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Another network namespace cannot be entered.
    #[error(transparent)]
    Elsewhere(#[from] ElsewhereError),
    /// A host name in the selection.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The cgroup, container or process cannot be found.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// Two groups of processes turned out to be one, or one in the other.
    #[error("{one} and {other} select the same packets: the processes of both are in {}", cgroup.display())]
    Overlap {
        /// The first fault's playbook key.
        one: &'static str,
        /// The other's.
        other: &'static str,
        /// The cgroup that is in both.
        cgroup: PathBuf,
    },
    /// Two names of a network namespace are one's, so that two faults meet.
    #[error("{one} and {other} select the same packets: {netns} and {other_netns} are one network namespace; name it the same way")]
    OneNamespace {
        /// The first fault's playbook key.
        one: &'static str,
        /// The other's.
        other: &'static str,
        /// What the first is said to be in.
        netns: String,
        /// What the other is.
        other_netns: String,
    },
    /// Connections cannot be refused here.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The thread that did the work panicked.
    #[error("the fault plane's thread panicked")]
    Panicked,
}

/// Makes faults, and keeps their journals in one directory.
#[derive(Debug, Clone)]
pub struct Plane {
    state_dir: PathBuf,
    spared: Spared,
}

/// Faults that can be applied: several on one selection share one netem.
#[derive(Debug)]
pub struct Prepared {
    specs: Vec<FaultSpec>,
    backend: Backend,
    hooks: Vec<Loaded>,
    connect: Option<ConnectPlan>,
    site: Site,
    state_dir: PathBuf,
}

/// Faults that the kernel carries out, as long as they are renewed.
#[derive(Debug)]
pub struct Applied {
    specs: Vec<FaultSpec>,
    backend: Backend,
    hooks: Vec<Installed>,
    connect: Option<Connect>,
    applied_ns: u64,
}

/// What came of a removal.
#[derive(Debug)]
pub struct Removal {
    /// One for each fault; `removed_ns` is `None` if it could not be removed.
    pub outcomes: Vec<FaultOutcome>,
    /// Why it could not be removed. Louder than any other error.
    pub error: Option<FaultError>,
}

impl Plane {
    /// A plane with its journals in that directory, which is made when it is needed.
    #[must_use]
    pub fn new(state_dir: impl Into<PathBuf>) -> Self {
        Self { state_dir: state_dir.into(), spared: Spared::default() }
    }

    /// The same plane, whose faults spare these like SSH, unless management traffic is included.
    #[must_use]
    pub fn sparing(mut self, spared: Spared) -> Self {
        self.spared = spared;
        self
    }

    /// Finds interfaces and backends for a drill's faults, each with the edge that it is aimed at, and has the kernel accept their programs. Nothing leads to
    /// those yet: no packet is touched, and they go with this process.
    ///
    /// # Errors
    /// When the kernel or the privileges do not suffice, or no interface can be found.
    pub fn prepare_blocking(&self, faults: &[(FaultSpec, EdgeSpec)]) -> Result<Vec<Prepared>, FaultError> {
        let mut groups: Vec<(Vec<FaultSpec>, &EdgeSpec)> = Vec::new();
        for (spec, edge) in faults {
            // One in both directions may join what is in one direction each.
            let (mut joined, mut others) = (Vec::new(), Vec::new());
            for (specs, edge) in groups {
                if shares_netem(&specs, spec) { joined.extend(specs) } else { others.push((specs, edge)) }
            }
            joined.push(spec.clone());
            others.push((joined, edge));
            groups = others;
        }
        let mut all: Vec<(Prepared, &EdgeSpec)> = Vec::new();
        for (specs, edge) in groups {
            let site = Site::open(specs.first().and_then(|spec| spec.netns.as_ref()))?;
            let prepared = site.inside(|| self.prepare_group(specs, edge))??;
            let prepared = Prepared { site, ..prepared };
            for (before, its) in &all {
                are_apart((before, its), (&prepared, edge))?;
            }
            all.push((prepared, edge));
        }
        Ok(all.into_iter().map(|(prepared, _)| prepared).collect())
    }

    /// [`Plane::prepare_blocking`] on a blocking thread of the runtime.
    ///
    /// # Errors
    /// As there.
    pub async fn prepare(&self, faults: Vec<(FaultSpec, EdgeSpec)>) -> Result<Vec<Prepared>, FaultError> {
        let plane = self.clone();
        tokio::task::spawn_blocking(move || plane.prepare_blocking(&faults)).await.map_err(|_| FaultError::Panicked)?
    }

    fn prepare_group(&self, specs: Vec<FaultSpec>, edge: &EdgeSpec) -> Result<Prepared, FaultError> {
        let Some(first) = specs.first() else {
            return Err(FaultError::Panicked);
        };
        if let FaultKind::HttpStatus { status, .. } = first.kind
            && (!(200..600).contains(&status) || matches!(status, 204 | 205 | 304))
        {
            return Err(FaultError::Status { status });
        }
        let select = host::resolved(&first.select, edge)?;
        if let FaultKind::Refuse { share } = first.kind {
            let cgroup = first.select.members.as_ref().map(|members| members::directory(members, &self.state_dir)).transpose()?;
            let connect = Some(ConnectPlan::new(edge, &select, &self.spared, share::units(share), cgroup));
            return Ok(Prepared {
                specs,
                backend: Backend::CgroupConnect,
                hooks: Vec::new(),
                connect,
                site: Site::default(),
                state_dir: self.state_dir.clone(),
            });
        }
        let mut netlink = Netlink::open().map_err(InterfaceError::from)?;
        let links = interface::resolve(&mut netlink, edge, &select, first.interface.as_deref())?;
        let backend = backend(&specs)?;
        let cgroup = first.select.members.as_ref().map(|members| members::directory(members, &self.state_dir)).transpose()?;
        // One for both directions, so that they select the same connections.
        let flow_seed = RandomState::new().build_hasher().finish();
        let mut hooks = Vec::new();
        for (link, why) in links {
            for hook in hooks_of(&specs, edge, link.is_loopback) {
                // Alone, a fault is on all of its hooks; http_status's are not its direction's.
                let here = specs.iter().filter(|spec| specs.len() == 1 || is_on(spec, hook));
                let carrier = carrier(here, backend, link.mtu)?;
                let selection = match first.kind {
                    FaultKind::HttpStatus { .. } => Selection::of_answers(edge),
                    _ => Selection::of_edge(edge, hook),
                };
                let sight = sight(first, edge, hook);
                let selection = selection.narrowed(&select).of_flows(select.flows, flow_seed).of_members(sight).sparing(&self.spared);
                let also = other_hook(first, hook, sight, link.is_loopback);
                install::has_room(&mut netlink, &link, hook, Some(carrier.priority()))?;
                if let Some(also) = also {
                    install::has_room(&mut netlink, &link, also, Some(PRIORITY_HTTP_STATUS))?;
                }
                let (link, cgroup, why) = (link.clone(), cgroup.clone(), why.clone());
                hooks.push(Loaded::of(HookPlan { link, hook, also, selection, carrier, cgroup, why })?);
            }
        }
        Ok(Prepared { specs, backend, hooks, connect: None, site: Site::default(), state_dir: self.state_dir.clone() })
    }
}

/// Refuses two faults that meet after all. What the playbook's check did not know: that two names of a network namespace are one's, and, where
/// the packets are told apart by their processes alone, that those are in one cgroup.
fn are_apart((a, a_edge): (&Prepared, &EdgeSpec), (b, b_edge): (&Prepared, &EdgeSpec)) -> Result<(), FaultError> {
    let (Some(one), Some(other)) = (a.specs.first(), b.specs.first()) else {
        return Ok(());
    };
    if one.kind.is_of_packets() != other.kind.is_of_packets()
        || !reach::meet_whoever_sends((one, a_edge), (other, b_edge))
        || a.site.inode()? != b.site.inode()?
    {
        return Ok(());
    }
    let meets = |(a, b): (&HookPlan, &HookPlan)| (a.link.index, a.hook) == (b.link.index, b.hook);
    if one.netns != other.netns
        && reach::meet((one, a_edge), (other, b_edge))
        && a.hooks.iter().any(|a| b.hooks.iter().any(|b| meets((a.plan(), b.plan()))))
    {
        let named = |spec: &FaultSpec| spec.netns.as_ref().map_or_else(|| "stormdrill's own".to_owned(), ToString::to_string);
        return Err(FaultError::OneNamespace {
            one: one.kind.as_str(),
            other: other.kind.as_str(),
            netns: named(one),
            other_netns: named(other),
        });
    }
    for (a, b) in a.hooks.iter().flat_map(|a| b.hooks.iter().map(move |b| (a.plan(), b.plan()))) {
        if let (Some(first), Some(second)) = (&a.cgroup, &b.cgroup)
            && meets((a, b))
            && let Some(cgroup) =
                [(first, second), (second, first)].into_iter().find_map(|(inner, outer)| inner.starts_with(outer).then_some(inner))
        {
            return Err(FaultError::Overlap { one: one.kind.as_str(), other: other.kind.as_str(), cgroup: cgroup.clone() });
        }
    }
    Ok(())
}

impl Prepared {
    /// The faults.
    #[must_use]
    pub fn specs(&self) -> &[FaultSpec] {
        &self.specs
    }

    /// How they are carried out.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        self.backend
    }

    /// What would be made in the kernel, a line for each hook.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let faults: Vec<&str> = self.specs.iter().map(|spec| spec.kind.as_str()).collect();
        let faults = faults.join(" and ");
        let connects = self.connect.iter().map(|plan| format!("{faults}: {}", plan.describe()));
        let hooks = self.hooks.iter().map(Loaded::plan).map(|plan| {
            let means = match &plan.carrier {
                Carrier::Netem(netem) if netem.jitter > Duration::ZERO => format!(
                    "redirected to an ifb of the drill with netem (limit {}); its jitter reorders packets, so that TCP sends some again",
                    netem.queue_limit()
                ),
                Carrier::Netem(netem) => format!("redirected to an ifb of the drill with netem (limit {})", netem.queue_limit()),
                Carrier::Tbf(_) => "redirected to an ifb of the drill with tbf".to_owned(),
                Carrier::Drop { .. } => "dropped by an eBPF classifier".to_owned(),
                Carrier::HttpStatus { status, .. } => format!("rewritten to status {status} by an eBPF classifier"),
            };
            format!("{faults} at {} {} ({}): {}, {means}", plan.link.name, plan.hook.as_str(), plan.why, plan.selection.describe())
        });
        hooks.chain(connects).collect()
    }

    /// Puts the faults into the kernel and grants their leases.
    ///
    /// # Errors
    /// When the kernel refuses or the journal cannot be written; then everything that was made is taken out again.
    pub fn apply_blocking(self) -> Result<Applied, FaultError> {
        let mut hooks = Vec::new();
        for loaded in &self.hooks {
            hooks.extend(self.site.inside(|| Installed::build(&self.state_dir, loaded))??);
        }
        let connect = self.connect.map(|plan| Connect::attach(&plan, &self.state_dir)).transpose()?;
        let mut applied = Applied { specs: self.specs, backend: self.backend, hooks, connect, applied_ns: 0 };
        applied.renew()?;
        applied.applied_ns = monotonic_ns();
        Ok(applied)
    }

    /// [`Prepared::apply_blocking`] on a blocking thread of the runtime.
    ///
    /// # Errors
    /// As there.
    pub async fn apply(self) -> Result<Applied, FaultError> {
        tokio::task::spawn_blocking(move || self.apply_blocking()).await.map_err(|_| FaultError::Panicked)?
    }
}

impl Applied {
    /// When the faults began, nanoseconds of the monotonic clock.
    #[must_use]
    pub const fn applied_ns(&self) -> u64 {
        self.applied_ns
    }

    /// How they are carried out.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        self.backend
    }

    /// The faults.
    #[must_use]
    pub fn specs(&self) -> &[FaultSpec] {
        &self.specs
    }

    /// Renews the leases. Takes microseconds.
    ///
    /// # Errors
    /// When a map cannot be written; the fault then ends by itself.
    pub fn renew(&mut self) -> Result<(), FaultError> {
        self.leases().renew()
    }

    /// The leases, to be renewed by somebody else than who works with the faults.
    #[must_use]
    pub fn leases(&self) -> Leases {
        Leases::of(self.hooks.iter().map(Installed::shared).chain(self.connect.iter().filter_map(Connect::shared)))
    }

    /// Whether the kernel still carries the faults out: nobody took their filters away.
    ///
    /// # Errors
    /// When the filters cannot be read.
    pub fn is_in_place(&mut self) -> Result<bool, FaultError> {
        for hook in &mut self.hooks {
            if !hook.is_in_place()? {
                return Ok(false);
            }
        }
        Ok(self.connect.as_ref().is_none_or(Connect::is_in_place))
    }

    /// What the kernel counted so far, for each fault.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn counts(&mut self) -> Result<Vec<FaultCounts>, FaultError> {
        let mut tallies = vec![Tally::default(); self.specs.len()];
        for installed in &mut self.hooks {
            let tally = installed.tally()?;
            for (spec, total) in self.specs.iter().zip(&mut tallies) {
                // Alone, a fault is on all of its hooks; with others, each has the counts of its own.
                if self.specs.len() == 1 || is_on(spec, installed.hook()) {
                    *total += tally;
                }
            }
        }
        if let (Some(connect), Some(total)) = (&mut self.connect, tallies.first_mut()) {
            let stats = connect.stats()?;
            *total += Tally { selected: stats.selected, hit: stats.hit, ..Tally::default() };
        }
        Ok(self.specs.iter().zip(tallies).map(|(spec, tally)| tally.of(spec, self.backend)).collect())
    }

    /// Ends the faults, waits until what they delayed has left, takes everything out and reads back that it is gone.
    pub fn remove_blocking(mut self) -> Removal {
        let mut errors = Vec::new();
        for hook in &mut self.hooks {
            errors.extend(hook.stop().err().map(FaultError::from));
        }
        for hook in &mut self.hooks {
            errors.extend(hook.drain().err().map(FaultError::from));
        }
        let counts = self.counts().unwrap_or_else(|error| {
            errors.push(error);
            vec![FaultCounts::default(); self.specs.len()]
        });
        if let Some(connect) = &mut self.connect {
            connect.remove();
        }
        let mut is_gone = true;
        for hook in &mut self.hooks {
            if let Err(error) = hook.remove() {
                is_gone = false;
                errors.insert(0, error.into());
            }
        }
        let removed_ns = is_gone.then(monotonic_ns);
        let outcomes = self
            .specs
            .iter()
            .zip(counts)
            .map(|(spec, counts)| FaultOutcome {
                spec: spec.clone(),
                backend: self.backend,
                applied_ns: self.applied_ns,
                removed_ns,
                counts,
            })
            .collect();
        Removal { outcomes, error: errors.into_iter().next() }
    }

    /// [`Applied::remove_blocking`] on a blocking thread of the runtime.
    pub async fn remove(self) -> Removal {
        match tokio::task::spawn_blocking(move || self.remove_blocking()).await {
            Ok(removal) => removal,
            Err(_) => Removal { outcomes: Vec::new(), error: Some(FaultError::Panicked) },
        }
    }
}
